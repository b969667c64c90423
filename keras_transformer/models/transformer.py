"""The Transformer (Figure 1)."""

import dataclasses

import keras
from keras import ops

from keras_transformer.config import PAD_ID
from keras_transformer.layers.attention import appended, padding_mask, written
from keras_transformer.layers.embedding import Frame, LearnedPositions, make_embeddings, unframed
from keras_transformer.layers.recurrence import of_parents
from keras_transformer.layers.stacks import POSITIONS, Decoder, Encoder, Shape
from keras_transformer.models.sequence_to_sequence import SequenceToSequence
from keras_transformer.presets import split_frame_setting, split_heads_setting


@dataclasses.dataclass(frozen=True, kw_only=True)
class TransformerShape(Shape):
    """The arguments of a `Transformer`: those of `Shape`, with the sizes of the paper's base model, and

    Args:
        vocabulary_size: number of source tokens, and of target tokens unless `target_vocabulary_size` is given.
        target_vocabulary_size: V, number of target tokens. None: both sides share one vocabulary (5.1).
        tie_embeddings: use one matrix for all embeddings that have the same vocabulary, and for the logits (3.4). False
            gives source, target and logits a matrix each.
        num_layers: N, of the encoder, and of the decoder unless `num_decoder_layers` is given.
        num_decoder_layers: layers of the decoder. None: as many as the encoder has.
        num_positions: rows of the table of learned positions; all positions past its end take its last row.
        heads: heads of each attention, layer by layer, of the encoder / of the decoder / of the decoder to memory, such
            as "4,3/4,4/0,2"; it needs `d_key`. None: H. An attention with 0 heads gives zeros.
        logits_bias: whether the logits have a bias, states matrix^T + b.
        scale_embeddings: multiply embeddings, and learned positions, by sqrt(d_model) (3.4). False leaves them as they
            are.
        embedding_norm: normalise the sum of embedding and position, LN(x + PE); encoder and decoder have one each.
        first_position: number of the first position of sinusoids, 0 in the paper.
        tie_positions: use one table of learned positions for source and target. False gives them one each.
        autoregression: "attention" (3.1), or "ssru", a recurrence in place of the decoder's self-attention, see `SSRU`.
        guided_alignment: weight of `GuidedAlignment` in training. Above 0, `align` reads the head that this loss
            trains.
        frame: ids of tokens around every text that are part of the model: before the source / after it / before bos,
            such as "/3/" or "17,5/3/3". Encoder and decoder read them with the text; results do not show them. None:
            there are no such tokens, as in the paper.
    """

    vocabulary_size: int
    target_vocabulary_size: int | None = None
    tie_embeddings: bool = True
    d_model: int = 512
    num_heads: int = 8
    d_ff: int = 2048
    dropout_rate: float = 0.1
    num_layers: int = 6
    num_decoder_layers: int | None = None
    num_positions: int = 257
    heads: str | None = None
    logits_bias: bool = False
    scale_embeddings: bool = True
    embedding_norm: bool = False
    first_position: int = 0
    tie_positions: bool = True
    autoregression: str = "attention"
    guided_alignment: float = 0.0
    frame: str | None = None

    @property
    def depths(self):
        """The numbers of layers of the encoder and of the decoder."""
        return self.num_layers, self.num_decoder_layers or self.num_layers


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

    With a room, "history" is bool (B, W, room*W), also for a single hypothesis, and the cache of every layer
    (B, G, room*W, K). Each step writes its W positions into their places.

    With `autoregression` "ssru", "history" is () and "target" has one vector a hypothesis, N times (B, W, D).

    With a `frame`, S counts the tokens around the source, too, and memory["text"], bool (B, 1, 1, S - S'), tells which
    of the S - S' positions of `source_ids` have tokens. The cache then starts with the tokens before bos.

    Args:
        vocabulary_size: V, the number of pieces.
        **numbers: the other fields of `TransformerShape`.
        dtype: name of a dtype policy, such as "mixed_bfloat16".
        name: of the model.

    Example:

    ```python
    model = Transformer(vocabulary_size=8000, d_model=128, num_heads=4, d_ff=512, num_layers=2)
    logits = model({"source_ids": [[7, 8, 9]], "target_ids": [[2, 7]]})  # (1, 2, 8000)
    ```
    """

    shape_class, architectures = TransformerShape, ("transformer",)

    def __init__(self, vocabulary_size, *, dtype=None, name=None, **numbers):
        shape = TransformerShape(vocabulary_size=vocabulary_size, **numbers)
        policy = keras.dtype_policies.get(dtype or keras.config.dtype_policy())
        layers = make_embeddings(shape, policy, shape.scale_embeddings, shape.logits_bias)
        self.source_embedding, self.target_embedding, self.logits_layer = layers
        self.position_layer, self.target_position_layer = make_position_layers(shape, policy)
        before, after, before_bos = ids_of_frame(shape)
        self.source_frame = Frame(before, after, PAD_ID, name="source_frame", dtype=policy)
        self.target_frame = Frame(before_bos, [], PAD_ID, name="target_frame", dtype=policy)
        for_encoder, for_decoder = zip(shape.depths, heads_of_layers(shape), strict=True)
        self.encoder = Encoder(*for_encoder, shape=shape, name="encoder", dtype=policy)
        self.decoder = Decoder(*for_decoder, shape=shape, name="decoder", dtype=policy)
        super().__init__(shape, policy=policy, name=name)

    @classmethod
    def from_settings(cls, config, **arguments):
        return super().from_settings(config, **{"autoregression": config.decoder, **arguments})

    def encode(self, source_ids):
        framed_ids = self.source_frame(source_ids)
        mask = padding_mask(framed_ids, PAD_ID)
        states = self.encoder(self.position_layer(self.source_embedding(framed_ids)), attention_mask=mask)
        own = {"text": padding_mask(source_ids, PAD_ID)} if self.source_frame.width else {}
        return {"states": states, "mask": mask, **own}

    def decode(self, target_ids, memory):
        x = self.embed_target(target_ids)
        return self.from_bos_on(self.decoder(x, memory["states"], source_mask=memory["mask"]))

    def align(self, target_ids, memory, training=False):
        """As in the contract: how much the heads of the decoder attend to memory, see `Decoder.align`.

        With `guided_alignment`, row t comes from position t + 1, which has read the token that position t predicts:
        before that, the decoder only guesses the token (Garg et al. 2019). The row of the last token is its own.
        """
        x = self.embed_target(target_ids)
        states, alignment = self.decoder.align(x, memory["states"], memory["mask"], training)
        if self.source_frame.width:
            alignment = unframed(alignment, memory["text"][:, 0], len(self.source_frame.before))
        states, alignment = self.from_bos_on(states), self.from_bos_on(alignment)
        return states, rows_after(alignment, target_ids) if self.guided_alignment else alignment

    def embed_target(self, target_ids):
        """target_ids int (B, T) -> the input of the decoder (B, T' + T, D), the T' tokens before bos at first."""
        return self.target_position_layer(self.target_embedding(self.target_frame(target_ids)))

    def from_bos_on(self, x):
        """Leaves out the tokens before bos: (B, T' + T, ...) -> (B, T, ...)."""
        return x[:, self.target_frame.width :] if self.target_frame.width else x

    def start(self, memory, width, room=None):
        batch, grows = ops.shape(memory["states"])[0], room is None
        places, has_history = 0 if grows else (room + self.target_frame.width) * width, self.autoregression != "ssru"
        state = {
            "history": ops.zeros((batch, width, places), "bool") if has_history and (width > 1 or not grows) else (),
            "target": self.decoder.empty_cache(batch, places, width),
            "memory": self.decoder.project(memory["states"]),
            "mask": memory["mask"],
        }
        if not self.target_frame.width:
            return state
        state = free_to_grow(state) if grows and has_history else state
        itself = ops.zeros((batch, width), "int32") + ops.arange(width, dtype="int32")
        for position, id in enumerate(self.target_frame.before):
            _, state = self.read(ops.zeros_like(itself) + id, itself, position, state, not grows)
        return state

    def step(self, ids, parents, position, state, has_room=False):
        first = self.target_frame.width
        return self.read(ids, parents, position + first if first else position, state, has_room)

    def read(self, ids, parents, position, state, has_room=False):
        """As `step`, with the tokens before bos among the positions."""
        add, history, target = written if has_room else appended, state["history"], state["target"]
        if self.autoregression == "ssru":
            target = of_parents(target, parents)
        elif not isinstance(history, tuple):
            history = extended_history(history, parents, position, add)
        x = self.target_position_layer.at(self.target_embedding(ids), position)  # (B, W, D)
        x, target = self.decoder.step(x, position, history, target, state["memory"], state["mask"], add)
        return x, {**state, "history": history, "target": target}

    def logits(self, states):
        return self.logits_layer(states)

    @property
    def output_matrix(self):
        return self.logits_layer.source.matrix

    @property
    def output_bias(self):
        return self.logits_layer.bias


def heads_of_layers(shape):
    """The argument `heads` of a `Transformer` as its stacks take it.

    Returns:
        For the encoder a list of [heads of its self-attention], for the decoder a list of [heads of its self-attention,
        heads of its attention to memory]; (None, None) if all attentions have H heads.

    Raises:
        ValueError: if there is not a number for each attention.
    """
    if shape.heads is None:
        return None, None
    counts, depths = split_heads_setting(shape.heads), [*shape.depths, shape.depths[1]]
    if [*map(len, counts)] != depths:
        needed = "/".join(map(str, depths))
        raise ValueError(f"`heads` must have {needed} numbers. Received: heads={shape.heads!r}")
    of_encoder, to_target, to_memory = counts
    return [[count] for count in of_encoder], [list(pair) for pair in zip(to_target, to_memory, strict=True)]


def ids_of_frame(shape):
    """The ids in the argument `frame` of a `Transformer`: before a source, after it, before bos.

    Raises:
        ValueError: if it is no such text, or an id is not in its vocabulary.
    """
    parts = [[], [], []] if shape.frame is None else split_frame_setting(shape.frame)
    sizes = shape.vocabulary_size, shape.vocabulary_size, shape.target_vocabulary_size or shape.vocabulary_size
    if not parts or any(id >= size for ids, size in zip(parts, sizes, strict=True) for id in ids):
        raise ValueError(
            f"`frame` must be ids of the vocabulary, such as /3/, and no padding. Received: frame={shape.frame!r}"
        )
    return parts


def free_to_grow(state):
    """The same decoding state, whose history and cache have a length that no compiler knows: it may grow."""
    zero = ops.minimum(ops.sum(ops.cast(state["mask"], "int32")), 0)

    growing = {name: state[name] for name in ("history", "target")}  # (B, W, t*W) and (B, G, t*W, K)
    return {**state, **keras.tree.map_structure(lambda x: x[:, :, : x.shape[2] + zero], growing)}


def make_position_layers(shape, dtype):
    """New layers that add the positions of source and of target to their embeddings.

    They are the same object unless each side has weights of its own. A kind that acts in self-attention adds nothing.

    Args:
        shape: `TransformerShape`.
        dtype: dtype policy.

    Raises:
        ValueError: if one table would have two norms.
    """
    layer_class, _ = POSITIONS[shape.positions]
    is_learned = issubclass(layer_class, LearnedPositions)
    if is_learned and shape.embedding_norm and shape.tie_positions:
        raise ValueError("`embedding_norm` with learned positions needs `tie_positions` false: each side has its norm")
    if shape.embedding_norm or (is_learned and not shape.tie_positions):
        return [layer_class.of(shape, name=name, dtype=dtype) for name in ("source_positions", "target_positions")]
    return [layer_class.of(shape, name="positions", dtype=dtype)] * 2


def rows_after(alignment, target_ids):
    """Row t becomes row t + 1 where position t + 1 has a token: (B, T, S), with target_ids int (B, T) -> (B, T, S)."""
    has_token = ops.pad(ops.not_equal(target_ids[:, 1:], PAD_ID), ((0, 0), (0, 1)))  # (B, T)
    later = ops.concatenate([alignment[:, 1:], alignment[:, -1:]], axis=1)
    return ops.where(has_token[..., None], later, alignment)


def extended_history(history, parents, position=None, add=appended):
    """Which of the tokens read so far belong to each hypothesis, after one more position.

    Args:
        history: bool (B, W, t*W), of the hypotheses of the step before.
        parents: int (B, W), the one of these hypotheses that each new hypothesis continues.
        position: int scalar, t, which `written` needs.
        add: `appended` or `written`.

    Returns:
        bool (B, W, (t+1)*W): the history of the parent, and of the W newest tokens the hypothesis' own.
    """
    width = parents.shape[1]
    chosen = ops.one_hot(parents, width, dtype="bool")  # (B, W, W)
    inherited = ops.any(ops.logical_and(chosen[..., None], history[:, None]), axis=2)
    own = ops.logical_or(ops.zeros_like(chosen), ops.eye(width, dtype="bool"))  # (B, W, W)
    return add(inherited, own, position)
