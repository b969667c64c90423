"""The Transformer (Figure 1): a functional Keras model, and the same layers step by step for decoding."""

import keras
from keras import ops

from keras_transformer.layers.decoder import Decoder
from keras_transformer.layers.embedding import PositionalEncoding, TiedLogits, TokenEmbedding
from keras_transformer.layers.encoder import Encoder
from keras_transformer.layers.masks import padding_mask


@keras.saving.register_keras_serializable(package="keras_transformer")
class Transformer(keras.Model):
    """Source and shifted target tokens in, logits of the next target token out.

    `encode`, `decode`, `start_cache` and `decode_step` run the same layers piece by piece: `decode_step` over
    positions 0 ... T-1 gives what `decode` gives at once. `align` shows what `decode` looks at.

    Args:
        vocabulary_size: V, shared by source and target (5.1); one matrix serves both and the logits (3.4).
        d_model: D.
        num_heads: H.
        d_ff: F.
        num_layers: N, of the encoder and of the decoder.
        dropout_rate: P_drop of embeddings and residual connections (5.4).
        attention_dropout_rate: dropout of the attention weights.
        feed_forward_dropout_rate: dropout inside the feed-forward network.
        pre_norm: normalise before each sub-layer rather than after it, as the paper does.

    Call arguments:
        inputs: {"source_ids": int (B, S), "target_ids": int (B, T) = bos y1 ... yn}, padded with 0.

    Returns:
        logits float32 (B, T, V): position t sees target_ids 0 ... t and predicts the token after it.
    """

    def __init__(
        self,
        vocabulary_size,
        d_model=512,
        num_heads=8,
        d_ff=2048,
        num_layers=6,
        dropout_rate=0.1,
        attention_dropout_rate=0.0,
        feed_forward_dropout_rate=0.0,
        pre_norm=False,
        dtype=None,
        **kwargs,
    ):
        policy = keras.dtype_policies.get(dtype or keras.config.dtype_policy())
        stack = {
            "num_layers": num_layers,
            "d_model": d_model,
            "num_heads": num_heads,
            "d_ff": d_ff,
            "dropout_rate": dropout_rate,
            "attention_dropout_rate": attention_dropout_rate,
            "feed_forward_dropout_rate": feed_forward_dropout_rate,
            "pre_norm": pre_norm,
        }
        embedding = TokenEmbedding(vocabulary_size, d_model, name="embedding", dtype=policy)
        positions = PositionalEncoding(d_model, dropout_rate, name="positions", dtype=policy)
        encoder = Encoder(**stack, name="encoder", dtype=policy)
        decoder = Decoder(**stack, name="decoder", dtype=policy)
        tied_logits = TiedLogits(embedding, name="logits", dtype=policy)

        source_ids = keras.Input((None,), dtype="int32", name="source_ids")
        target_ids = keras.Input((None,), dtype="int32", name="target_ids")
        source_mask = padding_mask(source_ids)
        memory = encoder(positions(embedding(source_ids)), attention_mask=source_mask)
        output = decoder(positions(embedding(target_ids)), memory, source_mask=source_mask)
        logits = tied_logits(output)

        inputs = {"source_ids": source_ids, "target_ids": target_ids}
        super().__init__(inputs=inputs, outputs=logits, **kwargs)
        self.dtype_policy = policy  # a functional model takes no dtype
        self.vocabulary_size = vocabulary_size
        self.stack = stack
        self.embedding = embedding
        self.positions = positions
        self.encoder = encoder
        self.decoder = decoder
        self.tied_logits = tied_logits

    def encode(self, source_ids):
        """source_ids int (B, S) -> memory (B, S, D) and its mask, bool (B, 1, 1, S)."""
        source_mask = padding_mask(source_ids)
        return self.encoder(self.positions(self.embedding(source_ids)), attention_mask=source_mask), source_mask

    def decode(self, target_ids, memory, source_mask):
        """target_ids int (B, T) and what `encode` gave -> logits float32 (B, T, V)."""
        return self.tied_logits(self.decode_states(target_ids, memory, source_mask))

    def decode_states(self, target_ids, memory, source_mask):
        """What `decode` makes logits of, (B, T, D), for whom all (B, T, V) would be too many; the same arguments."""
        return self.decoder(self.positions(self.embedding(target_ids)), memory, source_mask=source_mask)

    def align(self, target_ids, memory, source_mask):
        """`decode_states`, and what the last decoder layer attends to in the source, averaged over its heads.

        Args:
            target_ids, memory, source_mask: those of `decode`.

        Returns:
            (B, T, D) and float32 (B, T, S). Row t of the latter belongs to the token that position t predicts, the one
            after target_ids[:, t]. It sums to 1 over the tokens of the source, and is 0 on padding.
        """
        return self.decoder.align(self.positions(self.embedding(target_ids)), memory, source_mask)

    def start_cache(self, memory, source_mask):
        """What decoding starts from, given what `encode` gave: {"target", "memory", "source_mask"}.

        - "target": every layer's keys and values of the target so far, N times two of (B, H, 0, K); they grow by W
          positions a step, one of each hypothesis, and stay where they are: `history` says whose they are.
        - "memory": every layer's keys and values of memory, N times two of (B, H, S, K), shared by all hypotheses.
        - "source_mask": bool (B, 1, 1, S).
        """
        target = self.decoder.empty_cache(ops.shape(memory)[0])
        return {"target": target, "memory": self.decoder.project(memory), "source_mask": source_mask}

    def decode_step(self, ids, position, history, cache, logits_matrix=None):
        """One position of W hypotheses per row.

        Args:
            ids: int (B, W), the tokens at `position`.
            position: int scalar, 0 for bos.
            history: bool (B, W, (position+1)*W). Of the W tokens read at each position so far, the newest last, it is
                true for those that the hypothesis consists of. For a single hypothesis it is all true.
            cache: of the positions before, from `start_cache` or the last step.
            logits_matrix: `tied_logits.matrix()`. It is the same for all steps; made anew in each, or read across in
                the product, it would cost as much as a product of a few positions itself.

        Returns:
            logits float32 (B, W, V) of the token after, and the cache with this position in it.
        """
        x = self.positions.at(self.embedding(ids), position)  # (B, W, D)
        x, target = self.decoder.step(x, history, cache["target"], cache["memory"], cache["source_mask"])
        return self.tied_logits(x, matrix=logits_matrix), {**cache, "target": target}

    def get_config(self):
        policy = keras.dtype_policies.serialize(self.dtype_policy)
        return {"vocabulary_size": self.vocabulary_size, **self.stack, "dtype": policy, "name": self.name}

    @classmethod
    def from_config(cls, config, custom_objects=None):
        return cls(**config)


def load_transformer(path):
    """Reads a Transformer from a .keras file, in inference use. Raises ValueError if it is not one."""
    try:
        model = keras.saving.load_model(path, compile=False)
    except Exception as error:  # whatever zipfile, JSON, HDF5 and Keras raise for a damaged file
        raise ValueError(f"cannot read a model from {path}: {error}") from error
    if not isinstance(model, Transformer):
        raise ValueError(f"{path} holds a {type(model).__name__}, not a Transformer")
    return model
