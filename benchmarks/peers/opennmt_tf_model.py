"""The shape of --preset tiny for OpenNMT-tf, whose layers normalize first: one matrix of embeddings for both sides."""

import opennmt


def model():
    return opennmt.models.Transformer(
        num_layers=4,
        num_units=128,
        num_heads=4,
        ffn_inner_dim=256,
        dropout=0.1,
        attention_dropout=0.1,
        ffn_dropout=0.1,
        share_embeddings=opennmt.models.EmbeddingsSharingLevel.ALL,
    )
