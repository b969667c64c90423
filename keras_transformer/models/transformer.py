"""The Transformer (Figure 1)."""

import keras
from keras import ops

from keras_transformer.config import PAD_ID
from keras_transformer.layers.attention import padding_mask
from keras_transformer.layers.embedding import (
    Frame,
    LearnedPositions,
    NoPositions,
    PositionalEncoding,
    make_embeddings,
    unframed,
)
from keras_transformer.layers.kernels import EPSILON
from keras_transformer.layers.layer import arguments_of, check_choice
from keras_transformer.layers.stacks import Decoder, Encoder, EncoderLayer
from keras_transformer.models.sequence_to_sequence import SequenceToSequence
from keras_transformer.presets import POSITIONS, SINUSOIDAL, split_frame_setting, split_heads_setting


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

    With a `frame`, S counts the tokens around the source, too, and memory["text"], bool (B, 1, 1, S - S'), tells which
    of the S - S' positions of `source_ids` have tokens. The cache then starts with the tokens before bos.

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
        positions: "sinusoidal" (3.5) or "learned" vectors are added to the embeddings. "sinusoidal_halves" and
            "sinusoidal_tensor2tensor" are sinusoids of other programs, see `sinusoids`. "relative" (Shaw et al. 2018)
            and "rotary" (Su et al. 2021) positions act in self-attention. "none": only the causal mask tells an order.
        relative_clip: k, the largest distance that relative positions tell apart from larger ones.
        heads: heads of each attention, layer by layer, of the encoder / of the decoder / of the decoder to memory, such
            as "4,3/4,4/0,2"; it needs `d_key`. None: H. An attention with 0 heads gives zeros.
        num_positions: rows of the table of learned positions; all positions past its end take its last row.
        attention_bias: whether the projections of the attentions have biases: Q = X W + b, and so K, V and the output.
        activation: f of the feed-forward networks, f(x W_1 + b_1) W_2 + b_2: "relu" (3.3), "gelu" (the exact one),
            "gelu_tanh", "gelu_sigmoid" or "silu"; see `FeedForward`.
        layer_norm_epsilon: epsilon of gamma (x - mean) / sqrt(variance + epsilon) + beta.
        logits_bias: whether the logits have a bias, states matrix^T + b.
        scale_embeddings: multiply embeddings, and learned positions, by sqrt(d_model) (3.4). False leaves them as they
            are.
        embedding_norm: normalise the sum of embedding and position, LN(x + PE); encoder and decoder have one each.
        first_position: number of the first position of sinusoids, 0 in the paper.
        frame: ids of tokens around every text that are part of the model: before the source / after it / before bos,
            such as "/3/" or "17,5/3/3". Encoder and decoder read them with the text; results do not show them. None:
            there are no such tokens, as in the paper.
        tie_positions: use one table of learned positions for source and target. False gives them one each.
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
        attention_bias=False,
        activation="relu",
        layer_norm_epsilon=EPSILON,
        logits_bias=False,
        scale_embeddings=True,
        embedding_norm=False,
        first_position=0,
        tie_positions=True,
        frame=None,
        *,
        dtype=None,
        **kwargs,
    ):
        given = locals()
        arguments = {name: given[name] for name in arguments_of(Transformer)}
        stack = {name: arguments[name] for name in arguments_of(EncoderLayer)}
        policy = keras.dtype_policies.get(dtype or keras.config.dtype_policy())
        sizes = vocabulary_size, target_vocabulary_size, tie_embeddings, d_model
        layers = make_embeddings(*sizes, policy, scale_embeddings, logits_bias)
        self.source_embedding, self.target_embedding, self.logits_layer = layers
        self.position_layer, self.target_position_layer = make_position_layers(**arguments, dtype=policy)
        before, after, before_bos = ids_of_frame(frame, vocabulary_size, target_vocabulary_size or vocabulary_size)
        self.source_frame = Frame(before, after, PAD_ID, name="source_frame", dtype=policy)
        self.target_frame = Frame(before_bos, [], PAD_ID, name="target_frame", dtype=policy)
        of_encoder, of_decoder = heads_of_layers(heads, num_layers, num_decoder_layers or num_layers)
        self.encoder = Encoder(num_layers, of_encoder, **stack, name="encoder", dtype=policy)
        self.decoder = Decoder(num_decoder_layers or num_layers, of_decoder, **stack, name="decoder", dtype=policy)
        super().__init__(policy=policy, **kwargs)
        for name, value in arguments.items():
            setattr(self, name, value)

    def encode(self, source_ids):
        framed_ids = self.source_frame(source_ids)
        mask = padding_mask(framed_ids, PAD_ID)
        states = self.encoder(self.position_layer(self.source_embedding(framed_ids)), attention_mask=mask)
        own = {"text": padding_mask(source_ids, PAD_ID)} if self.source_frame.width else {}
        return {"states": states, "mask": mask, **own}

    def decode(self, target_ids, memory):
        x = self.embed_target(target_ids)
        return self.from_bos_on(self.decoder(x, memory["states"], source_mask=memory["mask"]))

    def align(self, target_ids, memory):
        """As in the contract: how much the heads of the decoder attend to memory, see `Decoder.align`."""
        x = self.embed_target(target_ids)
        states, alignment = self.decoder.align(x, memory["states"], memory["mask"])
        if self.source_frame.width:
            alignment = unframed(alignment, memory["text"][:, 0], len(self.source_frame.before))
        return self.from_bos_on(states), self.from_bos_on(alignment)

    def embed_target(self, target_ids):
        """target_ids int (B, T) -> the input of the decoder (B, T' + T, D), the T' tokens before bos at first."""
        return self.target_position_layer(self.target_embedding(self.target_frame(target_ids)))

    def from_bos_on(self, x):
        """Leaves out the tokens before bos: (B, T' + T, ...) -> (B, T, ...)."""
        return x[:, self.target_frame.width :] if self.target_frame.width else x

    def start(self, memory, width):
        batch = ops.shape(memory["states"])[0]
        state = {
            "history": ops.zeros((batch, width, 0), "bool") if width > 1 else (),
            "target": self.decoder.empty_cache(batch),
            "memory": self.decoder.project(memory["states"]),
            "mask": memory["mask"],
        }
        if not self.target_frame.width:
            return state
        state = free_to_grow(state)
        itself = ops.zeros((batch, width), "int32") + ops.arange(width, dtype="int32")
        for position, id in enumerate(self.target_frame.before):
            _, state = self.read(ops.zeros_like(itself) + id, itself, position, state)
        return state

    def step(self, ids, parents, position, state):
        first = self.target_frame.width
        return self.read(ids, parents, position + first if first else position, state)

    def read(self, ids, parents, position, state):
        """As `step`, with the tokens before bos among the positions."""
        history = extended_history(state["history"], parents) if ids.shape[1] > 1 else ()
        x = self.target_position_layer.at(self.target_embedding(ids), position)  # (B, W, D)
        x, target = self.decoder.step(x, position, history, state["target"], state["memory"], state["mask"])
        return x, {**state, "history": history, "target": target}

    def logits(self, states):
        return self.logits_layer(states)

    @property
    def output_matrix(self):
        return self.logits_layer.source.matrix

    @property
    def output_bias(self):
        return self.logits_layer.bias


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


def ids_of_frame(frame, source_size, target_size):
    """The ids in the argument `frame` of a `Transformer`: before a source, after it, before bos.

    Raises:
        ValueError: if it is no such text, or an id is not in its vocabulary, of `source_size` or `target_size` tokens.
    """
    parts = [[], [], []] if frame is None else split_frame_setting(frame)
    sizes = source_size, source_size, target_size
    if not parts or any(id >= size for ids, size in zip(parts, sizes, strict=True) for id in ids):
        raise ValueError(
            f"`frame` must be ids of the vocabulary, such as /3/, and no padding. Received: frame={frame!r}"
        )
    return parts


def free_to_grow(state):
    """The same decoding state, whose history and cache have a length that no compiler knows: it may grow."""
    zero = ops.minimum(ops.sum(ops.cast(state["mask"], "int32")), 0)

    def with_unknown_length(x):
        return x[:, :, : x.shape[2] + zero]  # (B, W, t*W) and (B, G, t*W, K)

    growing = {name: state[name] for name in ("history", "target")}
    return {**state, **keras.tree.map_structure(with_unknown_length, growing)}


def make_position_layers(*, positions, tie_positions, embedding_norm, dtype, **arguments):
    """New layers that add the positions of source and of target to their embeddings.

    They are the same object unless each side has weights of its own. A kind that acts in self-attention adds nothing.

    Args:
        positions, tie_positions, embedding_norm, `**arguments`: those of the `Transformer`.
        dtype: dtype policy.

    Raises:
        ValueError: if there is no such kind, or one table would have two norms.
    """
    check_choice("positions", positions, POSITIONS)
    if positions == "learned" and embedding_norm and tie_positions:
        raise ValueError("`embedding_norm` with learned positions needs `tie_positions` false: each side has its norm")
    layer_class, names = NoPositions, ("dropout_rate", "layer_norm_epsilon")
    own = {"norm": embedding_norm, "dtype": dtype}
    if positions in SINUSOIDAL:
        layer_class, names, own["kind"] = PositionalEncoding, (*names, "d_model", "first_position"), positions
    if positions == "learned":
        layer_class, names, own["scale"] = (
            LearnedPositions,
            (*names, "d_model", "num_positions"),
            arguments["scale_embeddings"],
        )
    own |= {name: arguments[name] for name in names}
    if embedding_norm or (positions == "learned" and not tie_positions):
        return [layer_class(**own, name=name) for name in ("source_positions", "target_positions")]
    return [layer_class(**own, name="positions")] * 2


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
