"""The Transformer (Figure 1)."""

import keras
from keras import ops

from keras_transformer.config import PAD_ID, POSITIONS, split_heads_setting
from keras_transformer.layers.attention import padding_mask
from keras_transformer.layers.embedding import LearnedPositions, NoPositions, PositionalEncoding, make_embeddings
from keras_transformer.layers.layer import check_choice
from keras_transformer.layers.stacks import Decoder, Encoder
from keras_transformer.models.sequence_to_sequence import SequenceToSequence


@keras.saving.register_keras_serializable(package="keras_transformer")
class Transformer(SequenceToSequence):
    """Encoder and decoder of attention alone. Methods, call arguments and result: see `SequenceToSequence`.

    Its `memory` is {"states": (B, S, D), "mask": bool (B, 1, 1, S)}. Its decoding state is
    {"history": bool (B, W, t*W), "target": ..., "memory": ..., "mask": bool (B, 1, 1, S)}:

    - "target" has every layer's keys and values of the target so far, N times two of (B, G, t*W, K). Each step appends
      W positions, one of each hypothesis, and moves none.
    - "history" says which positions of "target" belong to each hypothesis. It is () for a single hypothesis, to which
      all belong.
    - "memory" has every layer's keys and values of memory, N times two of (B, G, S, K), shared by all hypotheses.

    Args:
        vocabulary_size: number of source tokens, and of target tokens unless `target_vocabulary_size` is given.
        target_vocabulary_size: V, number of target tokens. None: both sides share one vocabulary (5.1).
        tie_embeddings: use one matrix for all embeddings that have the same vocabulary, and for the logits (3.4). False
            gives source, target and logits a matrix each.
        d_model: D.
        num_heads: H.
        d_ff: F.
        num_layers: N, of the encoder, and of the decoder unless `num_decoder_layers` is given.
        dropout_rate: P_drop of embeddings and residual connections (5.4).
        attention_dropout_rate: dropout of the attention weights.
        feed_forward_dropout_rate: dropout inside the feed-forward network.
        pre_norm: normalise before each sub-layer; the paper normalises after it.
        num_decoder_layers: layers of the decoder. None: as many as the encoder has.
        d_key: K, the width of a head. None: D / H.
        num_key_value_heads: G, heads of keys and values in every attention; must divide H. None: H.
        d_value: width of a head's values. None: K.
        positions: "sinusoidal" (3.5) or "learned" vectors are added to the embeddings. "relative" (Shaw et al. 2018)
            and "rotary" (Su et al. 2021) positions act in self-attention. "none": only the causal mask tells an order.
        relative_clip: k, the largest distance that relative positions tell apart from larger ones.
        heads: heads of each attention, layer by layer, of the encoder / of the decoder / of the decoder to memory, such
            as "4,3/4,4/0,2"; it needs `d_key`. None: H. An attention with 0 heads gives zeros.
        num_positions: rows of the table of learned positions; all positions past its end take its last row.
        dtype: name of a dtype policy, such as "mixed_bfloat16".

    Example:

    ```python
    model = Transformer(vocabulary_size=8000, d_model=128, num_heads=4, d_ff=512, num_layers=2)
    logits = model({"source_ids": [[7, 8, 9]], "target_ids": [[2, 7]]})  # (1, 2, 8000)
    ```
    """

    architectures = ("transformer",)

    def __init__(
        self,
        vocabulary_size,
        target_vocabulary_size=None,
        tie_embeddings=True,
        d_model=512,
        num_heads=8,
        d_ff=2048,
        num_layers=6,
        dropout_rate=0.1,
        attention_dropout_rate=0.0,
        feed_forward_dropout_rate=0.0,
        pre_norm=False,
        num_decoder_layers=None,
        d_key=None,
        num_key_value_heads=None,
        d_value=None,
        positions="sinusoidal",
        relative_clip=16,
        num_positions=257,
        heads=None,
        *,
        dtype=None,
        **kwargs,
    ):
        policy = keras.dtype_policies.get(dtype or keras.config.dtype_policy())
        stack = {
            "d_model": d_model,
            "num_heads": num_heads,
            "d_ff": d_ff,
            "dropout_rate": dropout_rate,
            "attention_dropout_rate": attention_dropout_rate,
            "feed_forward_dropout_rate": feed_forward_dropout_rate,
            "pre_norm": pre_norm,
            "d_key": d_key,
            "num_key_value_heads": num_key_value_heads,
            "d_value": d_value,
            "positions": positions,
            "relative_clip": relative_clip,
        }
        layers = make_embeddings(vocabulary_size, target_vocabulary_size, tie_embeddings, d_model, policy)
        self.source_embedding, self.target_embedding, self.logits_layer = layers
        self.position_layer = make_positions(
            positions, d_model, num_positions, dropout_rate=dropout_rate, name="positions", dtype=policy
        )
        of_encoder, of_decoder = heads_of_layers(heads, num_layers, num_decoder_layers or num_layers)
        self.encoder = Encoder(num_layers, of_encoder, **stack, name="encoder", dtype=policy)
        self.decoder = Decoder(num_decoder_layers or num_layers, of_decoder, **stack, name="decoder", dtype=policy)
        super().__init__(policy=policy, **kwargs)
        self.vocabulary_size, self.target_vocabulary_size = vocabulary_size, target_vocabulary_size
        self.num_layers, self.num_decoder_layers = num_layers, num_decoder_layers
        self.tie_embeddings, self.num_positions, self.heads = tie_embeddings, num_positions, heads
        for name, value in stack.items():
            setattr(self, name, value)

    def encode(self, source_ids):
        source_mask = padding_mask(source_ids, PAD_ID)
        x = self.position_layer(self.source_embedding(source_ids))
        return {"states": self.encoder(x, attention_mask=source_mask), "mask": source_mask}

    def decode(self, target_ids, memory):
        x = self.position_layer(self.target_embedding(target_ids))
        return self.decoder(x, memory["states"], source_mask=memory["mask"])

    def align(self, target_ids, memory):
        """As in the contract: how much the heads of the decoder attend to memory, see `Decoder.align`."""
        x = self.position_layer(self.target_embedding(target_ids))
        return self.decoder.align(x, memory["states"], memory["mask"])

    def start(self, memory, width):
        batch = ops.shape(memory["states"])[0]
        return {
            "history": ops.zeros((batch, width, 0), "bool") if width > 1 else (),
            "target": self.decoder.empty_cache(batch),
            "memory": self.decoder.project(memory["states"]),
            "mask": memory["mask"],
        }

    def step(self, ids, parents, position, state):
        history = extended_history(state["history"], parents) if ids.shape[1] > 1 else ()
        x = self.position_layer.at(self.target_embedding(ids), position)  # (B, W, D)
        x, target = self.decoder.step(x, history, state["target"], state["memory"], state["mask"])
        return x, {**state, "history": history, "target": target}

    def logits(self, states):
        return self.logits_layer(states)

    @property
    def output_matrix(self):
        return self.logits_layer.source.matrix


def heads_of_layers(heads, num_layers, num_decoder_layers):
    """The argument `heads` of a `Transformer` as its stacks take it.

    Args:
        heads, num_layers, num_decoder_layers: those of the `Transformer`.

    Returns:
        For the encoder a list of [heads of its self-attention], for the decoder a list of [heads of its self-attention,
        heads of its attention to memory]; (None, None) if all attentions have H heads.

    Raises:
        ValueError: if there is not a number for each attention.
    """
    if heads is None:
        return None, None
    counts, depths = split_heads_setting(heads), [num_layers, num_decoder_layers, num_decoder_layers]
    if [*map(len, counts)] != depths:
        needed = "/".join(map(str, depths))
        raise ValueError(f"`heads` must have {needed} numbers. Received: heads={heads!r}")
    of_encoder, to_target, to_memory = counts
    return [[count] for count in of_encoder], [list(pair) for pair in zip(to_target, to_memory, strict=True)]


def make_positions(kind, d_model, num_positions, **kwargs):
    """A new layer that adds the positions of a kind to the embeddings. A kind that acts in self-attention adds nothing.

    Args:
        kind, d_model, num_positions: `positions`, `d_model`, `num_positions` of the `Transformer`.
        **kwargs: those of `NoPositions`.

    Raises:
        ValueError: if there is no such kind.
    """
    check_choice("positions", kind, POSITIONS)
    if kind == "sinusoidal":
        return PositionalEncoding(d_model, **kwargs)
    return LearnedPositions(num_positions, d_model=d_model, **kwargs) if kind == "learned" else NoPositions(**kwargs)


def extended_history(history, parents):
    """Which of the tokens read so far belong to each hypothesis, after one more position.

    Args:
        history: bool (B, W, t*W), of the hypotheses of the step before.
        parents: int (B, W), the one of these hypotheses that each new hypothesis continues.

    Returns:
        bool (B, W, (t+1)*W): the history of the parent, and of the W newest tokens the hypothesis' own.
    """
    width = parents.shape[1]
    chosen = ops.one_hot(parents, width, dtype="bool")  # (B, W, W)
    inherited = ops.any(ops.logical_and(chosen[..., None], history[:, None]), axis=2)
    own = ops.logical_or(ops.zeros_like(chosen), ops.eye(width, dtype="bool"))  # (B, W, W)
    return ops.concatenate([inherited, own], axis=2)
