"""The recurrent encoder and decoder: cells on top of each other, and attention between the two."""

import dataclasses

import keras
from keras import ops

from keras_transformer.layers.kernels import check_choice
from keras_transformer.layers.recurrence import scan, take_rows
from keras_transformer.layers.stacks import ShapedLayer
from keras_transformer.recurrent.attention import SCORES, FixedContext, RecurrentAttention
from keras_transformer.recurrent.cells import CELLS, run


def reverse_tokens(x, lengths):
    """The tokens of every row in the reverse order; padding stays at the end.

    Args:
        x: (B, S, D).
        lengths: int (B,), tokens of every row.

    Returns:
        (B, S, D).
    """
    positions = ops.arange(ops.shape(x)[1], dtype="int32")[None]
    lengths = lengths[:, None]
    return take_rows(x, ops.where(positions < lengths, lengths - 1 - positions, positions))


def state_at(states, lengths):
    """The state after the last token of every row: tuple of (B, S, U) and lengths int (B,) -> tuple of (B, U)."""
    last = ops.maximum(lengths - 1, 0)[:, None]
    return tuple(ops.squeeze(take_rows(tensor, last), 1) for tensor in states)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RecurrentShape:
    """The arguments that `RecurrentEncoder` and `RecurrentDecoder` share.

    Args:
        cell: "rnn", "lstm" or "gru".
        d_model: D.
        num_layers: depth.
        dropout_rate: dropout of the input of each layer, and of the states h of the encoder, h~ of the decoder.

    Raises:
        ValueError: for an unknown `cell`.
    """

    cell: str
    d_model: int
    num_layers: int = 1
    dropout_rate: float = 0.0

    def __post_init__(self):
        check_choice("cell", self.cell, CELLS)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RecurrentEncoderShape(RecurrentShape):
    """The arguments of a `RecurrentEncoder`: those of `RecurrentShape`, and

    Args:
        bidirectional: read in both directions, with half the width for each, so that D is even.
    """

    bidirectional: bool = True


@dataclasses.dataclass(frozen=True, kw_only=True)
class RecurrentDecoderShape(RecurrentShape):
    """The arguments of a `RecurrentDecoder`: those of `RecurrentShape`, and

    Args:
        attention: "additive", "dot", "general", "concat", or "none" for a `FixedContext`.
        attention_span: "global", "local_m" or "local_p"; see `RecurrentAttention`.
        attention_window: source positions on each side of the centre of a local span.
        hard_attention: attend to one source position at a time.
        context: "last" or "mean", of the encoder's states, the context without attention.
        input_feeding: let the cell read the last h~. Then only the input of the first layer has dropout.
    """

    attention: str = "additive"
    attention_span: str = "global"
    attention_window: int = 10
    hard_attention: bool = False
    context: str = "last"
    input_feeding: bool = False


@keras.saving.register_keras_serializable(package="keras_transformer")
class RecurrentEncoder(ShapedLayer):
    """`num_layers` recurrent layers, each in one direction or in both (Schuster & Paliwal 1997).

    A layer of both directions has a cell of width D / 2 for each. One reads the source from its first token to its
    last, the other from its last to its first. Their states are put side by side.

    Arguments: see `RecurrentEncoderShape`.

    Call arguments:
        x: (B, S, D), embedded source.
        mask: bool (B, S), True = a token; tokens come before padding.

    Returns:
        memory, a dict: "states" (B, S, D) of the last layer, the "mask", and "last", for each layer its state after the
        last token, tuple of (B, D).

    Raises:
        ValueError: for an odd `d_model` of two directions, and an unknown `cell`.
    """

    shape_class = RecurrentEncoderShape

    def __init__(self, **named):
        super().__init__(**named)
        if self.bidirectional and self.d_model % 2:
            raise ValueError(f"`d_model` must be even: each direction has half of it. Received: d_model={self.d_model}")
        units = self.d_model // 2 if self.bidirectional else self.d_model
        arguments, layers = {"units": units, "dtype": self.dtype_policy}, range(self.num_layers)
        self.forward_cells = [CELLS[self.cell](**arguments, name=f"forward_{i}") for i in layers]
        self.backward_cells = [
            CELLS[self.cell](**arguments, name=f"backward_{i}") for i in (layers if self.bidirectional else ())
        ]
        self.dropout = keras.layers.Dropout(self.dropout_rate, name="dropout", dtype=self.dtype_policy)

    def build(self, x_shape, mask_shape=None):
        for cell in (*self.forward_cells, *self.backward_cells):
            cell.build((None, None, self.d_model))

    def call(self, x, mask, training=False):
        lengths, last = ops.sum(ops.cast(mask, "int32"), axis=1), []
        for i in range(self.num_layers):
            x = self.dropout(x, training=training)
            x, state = self.read(i, x, lengths)
            last.append(state)
        return {"states": self.dropout(x, training=training), "mask": mask, "last": tuple(last)}

    def read(self, i, x, lengths):
        """Layer i: x (B, S, D) -> the states h (B, S, D), and the state after the last token, tuple of (B, D)."""
        batch = ops.shape(x)[0]
        cell = self.forward_cells[i]
        states = run(cell, x, cell.zero_state(batch))
        h, last = states[0], state_at(states, lengths)
        if not self.bidirectional:
            return h, last
        cell = self.backward_cells[i]
        states = run(cell, reverse_tokens(x, lengths), cell.zero_state(batch))
        h = ops.concatenate([h, reverse_tokens(states[0], lengths)], axis=-1)
        return h, tuple(ops.concatenate(pair, axis=-1) for pair in zip(last, state_at(states, lengths), strict=True))


@keras.saving.register_keras_serializable(package="keras_transformer")
class RecurrentDecoder(ShapedLayer):
    """`num_layers` recurrent layers, which start from the encoder's last states, and a context at every position.

        h_t = cell(x_t, h_{t-1}),   c_t = attention(h_t, memory),   h~_t = tanh(W [c_t; h_t])

    (Luong et al. 2015, equation 5). With `input_feeding`, the cell reads [x_t; h~_{t-1}] (their section 3.3). Without
    it, the contexts of all positions are computed at once.

    *Relative to Bahdanau et al.*: the query of attention is h_t, the state after reading x_t, not h_{t-1}.

    Arguments: see `RecurrentDecoderShape`.

    Call arguments:
        x: (B, T, D), embedded target.
        memory: that of `RecurrentEncoder`.

    Returns:
        h~ (B, T, D).

    Raises:
        ValueError: for an unknown `cell`, `attention`, `attention_span` or `context`.
    """

    shape_class = RecurrentDecoderShape

    def __init__(self, **named):
        super().__init__(**named)
        check_choice("attention", self.attention, (*SCORES, "none"))
        policy = {"dtype": self.dtype_policy}
        self.cells = [CELLS[self.cell](self.d_model, name=f"cell_{i}", **policy) for i in range(self.num_layers)]
        if self.attention == "none":
            self.attention_mechanism = FixedContext(self.context, name="context", **policy)
        else:
            kind = self.attention, self.attention_span, self.attention_window, self.hard_attention
            self.attention_mechanism = RecurrentAttention(self.d_model, *kind, name="attention", **policy)
        combination = {"activation": "tanh", "use_bias": False, "name": "combination"}
        self.combination = keras.layers.Dense(self.d_model, **combination, **policy)
        self.dropout = keras.layers.Dropout(self.dropout_rate, name="dropout", **policy)

    @property
    def looking(self):
        """`attention_mechanism`. Keras finds its weights by this name in files of versions before 0.2."""
        return self.attention_mechanism

    def build(self, x_shape, memory_shape=None):
        width = (None, None, self.d_model)
        for i, cell in enumerate(self.cells):
            cell.build((None, None, 2 * self.d_model) if i == 0 and self.input_feeding else width)
        self.attention_mechanism.build(width)
        self.combination.build((None, None, 2 * self.d_model))

    def call(self, x, memory, training=False):
        return self.align(x, memory, training)[0]

    def align(self, x, memory, training=False):
        """The result of `call`, and the weights of its attention to memory, float32 (B, T, S)."""
        x = self.dropout(x, training=training)
        keys = self.attention_mechanism.project(memory)
        if self.input_feeding:
            h, weights = self.run_fed(x, keys, memory, training)
        else:
            h = self.run_cells(x, memory, training)
            h, weights = self.attend(h, ops.arange(ops.shape(x)[1]), keys, memory, training)
        return self.dropout(h, training=training), weights

    def run_cells(self, h, memory, training):
        """The states of the last layer at all positions without input feeding: (B, T, D) -> (B, T, D)."""
        for i, (cell, state) in enumerate(zip(self.cells, memory["last"], strict=True)):
            h = self.dropout(h, training=training) if i else h
            h = run(cell, h, state)[0]
        return h

    def run_fed(self, x, keys, memory, training):
        """All positions with input feeding: x (B, T, D) -> h~ (B, T, D), and the weights float32 (B, T, S)."""

        def advance(carried, x):
            state, position, _ = carried
            _, state, weights = self.step(x[:, None], position, state, keys, memory, training)
            return state, position + 1, weights

        no_weights = ops.zeros_like(memory["mask"], "float32")[:, None]  # (B, W, S) with W = 1
        start = self.start(memory, 1), ops.zeros((), "int32"), no_weights
        states, _, weights = scan(advance, start, x)
        return ops.squeeze(states["fed"], 2), ops.squeeze(weights, 2)

    def attend(self, h, positions, keys, memory, training=False):
        """The contexts of h (B, T, D), combined with it: h~ (B, T, D), and the weights float32 (B, T, S)."""
        contexts, weights = self.attention_mechanism(h, positions, keys, memory, training=training)
        return self.combination(ops.concatenate([contexts, h], axis=-1)), weights

    def start(self, memory, width):
        """The state before the first token of W = `width` hypotheses per row.

        Returns:
            dict: "layers", for each layer a tuple of (B, W, D), and "fed", the last h~ (B, W, D) if the cell reads it,
            else ().
        """
        layers = keras.tree.map_structure(lambda x: ops.repeat(x[:, None], width, axis=1), memory["last"])
        return {"layers": layers, "fed": ops.zeros_like(layers[0][0]) if self.input_feeding else ()}

    def step(self, x, position, state, keys, memory, training=False):
        """One position of W hypotheses per row.

        Args:
            x: (B, W, D), embedded tokens.
            position: int scalar.
            state: that of `start`.
            keys: from `attention_mechanism.project`.
            memory: that of `RecurrentEncoder`.
            training: whether hard attention draws.

        Returns:
            h~ (B, W, D), the state after it, and the weights float32 (B, W, S).
        """
        h, layers = ops.concatenate([x, state["fed"]], axis=-1) if self.input_feeding else x, []
        for cell, cell_state in zip(self.cells, state["layers"], strict=True):
            cell_state = cell(cell.project(h), cell_state)
            layers.append(cell_state)
            h = cell_state[0]
        h, weights = self.attend(h, ops.reshape(position, (1,)), keys, memory, training)
        return h, {"layers": tuple(layers), "fed": h if self.input_feeding else ()}, weights
