"""The encoder and the decoder (3.1): residual connections, feed-forward networks (3.3), layers, stacks of layers.

A sub-layer is always called in the same way, `x = residual(x, sublayer(residual.enter(x)))`. The two residual classes
differ in where they normalise. `Shape` has the numbers of a layer, which a stack hands on as one object.
"""

import dataclasses

import keras
from keras import ops

from keras_transformer.layers.attention import (
    MultiHeadAttention,
    NoAttention,
    RelativeAttention,
    RotaryAttention,
    appended,
    causal_mask,
)
from keras_transformer.layers.embedding import SINUSOIDAL, LearnedPositions, NoPositions, PositionalEncoding
from keras_transformer.layers.kernels import EPSILON, Dropout, Layer, LayerNormalization, Linear, check_choice
from keras_transformer.layers.recurrence import SSRU

# f of a feed-forward network, by the name that a user gives.
ACTIVATIONS = {
    "relu": ops.relu,
    "gelu": lambda x: ops.gelu(x, approximate=False),
    "gelu_tanh": lambda x: ops.gelu(x, approximate=True),
    "gelu_sigmoid": lambda x: x * ops.sigmoid(1.702 * x),
    "silu": ops.silu,
}
# What tells a position of the target about those before it.
AUTOREGRESSIONS = ("attention", "ssru")
# The kinds of positions, each with the layer that adds vectors to the embeddings, and the self-attention.
POSITIONS = {
    **dict.fromkeys(SINUSOIDAL, (PositionalEncoding, MultiHeadAttention)),
    "learned": (LearnedPositions, MultiHeadAttention),
    "relative": (NoPositions, RelativeAttention),
    "rotary": (NoPositions, RotaryAttention),
    "none": (NoPositions, MultiHeadAttention),
}


@dataclasses.dataclass(frozen=True)
class Shape:
    """The arguments of an `EncoderLayer`, and of every layer of an `Encoder` or `Decoder`.

    Args:
        d_model: D.
        num_heads: H; 0 leaves out the self-attention (see `NoAttention`), and needs `d_key`.
        d_ff: F.
        dropout_rate: P_drop of the residual connections, and of the embeddings of a model (5.4).
        attention_dropout_rate: dropout of the attention weights.
        feed_forward_dropout_rate: dropout inside the feed-forward network.
        pre_norm: normalise before each sub-layer; the paper normalises after it.
        d_key: K, the width of a head. None: D / H.
        num_key_value_heads: G, heads of keys and values in every attention; must divide H. None: H.
        d_value: width of a head's values. None: K.
        positions: "sinusoidal" (3.5) or "learned" vectors are added to the embeddings. "sinusoidal_halves" and
            "sinusoidal_tensor2tensor" are sinusoids of other programs, see `sinusoids`. "relative" (Shaw et al. 2018)
            and "rotary" (Su et al. 2021) positions act in self-attention. "none": only the causal mask tells an order.
        relative_clip: k, the largest distance that relative positions tell apart from larger ones.
        attention_bias: whether the projections of the attentions have biases: Q = X W + b, and so K, V and the output.
        activation: f of the feed-forward networks, f(x W_1 + b_1) W_2 + b_2: "relu" (3.3), "gelu" (the exact one),
            "gelu_tanh", "gelu_sigmoid" or "silu"; see `FeedForward`.
        layer_norm_epsilon: epsilon of gamma (x - mean) / sqrt(variance + epsilon) + beta.

    Raises:
        ValueError: for unknown `positions`.
    """

    d_model: int
    num_heads: int
    d_ff: int
    dropout_rate: float = 0.0
    attention_dropout_rate: float = 0.0
    feed_forward_dropout_rate: float = 0.0
    pre_norm: bool = False
    d_key: int | None = None
    num_key_value_heads: int | None = None
    d_value: int | None = None
    positions: str = "sinusoidal"
    relative_clip: int = 16
    attention_bias: bool = False
    activation: str = "relu"
    layer_norm_epsilon: float = EPSILON

    def __post_init__(self):
        check_choice("positions", self.positions, POSITIONS)


@dataclasses.dataclass(frozen=True)
class DecoderShape(Shape):
    """The arguments of a `DecoderLayer`: those of `Shape`, and

    Args:
        num_cross_heads: heads of the attention to memory; 0 leaves it out. None: H.
        autoregression: how a position of the target learns of those before it: "attention", the paper's
            self-attention, or "ssru", see `SSRU`.

    Raises:
        ValueError: for another `autoregression`.
    """

    num_cross_heads: int | None = None
    autoregression: str = "attention"

    def __post_init__(self):
        super().__post_init__()
        check_choice("autoregression", self.autoregression, AUTOREGRESSIONS)


@dataclasses.dataclass(frozen=True)
class DecoderStackShape(DecoderShape):
    """The arguments of a `Decoder`: those of its layers, and

    Args:
        guided_alignment: weight of `GuidedAlignment` in training. Above 0, `align` reads the head that this loss
            trains.
    """

    guided_alignment: float = 0.0


def numbers_for(shape_class, source):
    """The fields of a dataclass that `source` has as attributes: a dict of their values."""
    names = [field.name for field in dataclasses.fields(shape_class)]
    return {name: getattr(source, name) for name in names if hasattr(source, name)}


class ShapedLayer(keras.layers.Layer):
    """A layer whose arguments are the fields of a frozen dataclass, its `shape_class`.

    It has one public attribute for each argument, and `shape`, which has all. `get_config` returns exactly these.

    Args:
        *numbers: the fields, in their order.
        **named: the fields, by name.
        shape: an object that has the other fields as attributes, such as the shape of the whole model.
        name, dtype, trainable: those of any Keras layer.
    """

    shape_class = Shape

    def __init__(self, *numbers, shape=None, name=None, dtype=None, trainable=True, **named):
        super().__init__(name=name, dtype=dtype, trainable=trainable)
        self.shape = self.shape_class(*numbers, **{**numbers_for(self.shape_class, shape), **named})
        vars(self).update(vars(self.shape))

    def get_config(self):
        return {**super().get_config(), **vars(self.shape)}


class Residual(Layer):
    """A residual connection with dropout (5.4) and layer normalisation: the base class of `PostNorm` and `PreNorm`.

    Args:
        dropout_rate: P_drop, applied to the output of the sub-layer.
        layer_norm_epsilon: see `layer_norm`.

    Call arguments:
        x: (B, T, D), the input of `enter`.
        update: (B, T, D), the output of the sub-layer.

    Returns:
        (B, T, D).
    """

    def __init__(self, dropout_rate=0.0, layer_norm_epsilon=EPSILON, **kwargs):
        super().__init__(**kwargs)
        self.dropout_rate, self.layer_norm_epsilon = dropout_rate, layer_norm_epsilon
        self.dropout = Dropout(dropout_rate, name="dropout", dtype=self.dtype_policy)
        self.norm = LayerNormalization(layer_norm_epsilon, name="norm", dtype=self.dtype_policy)

    def build(self, x_shape, update_shape=None):
        self.norm.build(x_shape)


@keras.saving.register_keras_serializable(package="keras_transformer")
class PostNorm(Residual):
    """LayerNorm(x + Dropout(Sublayer(x))), as in the paper (3.1)."""

    def enter(self, x):
        """The input of the sub-layer: x itself."""
        return x

    def call(self, x, update, training=False):
        return self.norm(x + self.dropout(update, training=training))


@keras.saving.register_keras_serializable(package="keras_transformer")
class PreNorm(Residual):
    """x + Dropout(Sublayer(LayerNorm(x))).

    *Relative to the paper*: the residual path has no normalisation in it, so training is steadier at high learning
    rates (Xiong et al. 2020). A stack of pre-norm layers ends with one more LayerNorm.
    """

    def enter(self, x):
        """The input of the sub-layer: x normalised."""
        return self.norm(x)

    def call(self, x, update, training=False):
        return x + self.dropout(update, training=training)


@keras.saving.register_keras_serializable(package="keras_transformer")
class FeedForward(Layer):
    """FFN(x) = max(0, x W_1 + b_1) W_2 + b_2 (section 3.3, equation 2), the same at every position.

    *Relative to the paper*: dropout after the ReLU (`dropout_rate`), as in the authors' own code. Another `activation`
    f takes the place of the ReLU, FFN(x) = f(x W_1 + b_1) W_2 + b_2, with Phi the distribution function of N(0, 1):

        relu           max(0, x)
        gelu           x Phi(x) = x (1 + erf(x / sqrt(2))) / 2, the exact one, as "gelu" of Hugging Face, and of Marian
        gelu_tanh      x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2, as "gelu" of OpenNMT-tf
        gelu_sigmoid   x sigmoid(1.702 x), as "gelu" of Marian before 1.12.3
        silu           x sigmoid(x), also called swish

    Args:
        d_model, d_ff: D, width in and out, and F, width between.
        dropout_rate: share of the inner activations dropped in training.
        activation: f, see above.

    Call arguments:
        x: (B, T, D).

    Returns:
        (B, T, D).

    Raises:
        ValueError: for another activation.
    """

    def __init__(self, d_model, d_ff, dropout_rate=0.0, activation="relu", **kwargs):
        super().__init__(**kwargs)
        check_choice("activation", activation, ACTIVATIONS)
        self.d_model, self.d_ff = d_model, d_ff
        self.dropout_rate, self.activation = dropout_rate, activation
        self.inner = Linear(d_ff, activation=ACTIVATIONS[activation], name="inner", dtype=self.dtype_policy)
        self.dropout = Dropout(dropout_rate, name="dropout", dtype=self.dtype_policy)
        self.outer = Linear(d_model, name="outer", dtype=self.dtype_policy)

    def build(self, input_shape):
        self.inner.build((None, None, self.d_model))
        self.outer.build((None, None, self.d_ff))

    def call(self, x, training=False):
        return self.outer(self.dropout(self.inner(x), training=training))


@keras.saving.register_keras_serializable(package="keras_transformer")
class EncoderLayer(ShapedLayer):
    """Self-attention, then feed-forward, each inside a residual connection (section 3.1). Arguments: see `Shape`.

    Call arguments:
        x: (B, S, D).
        attention_mask: bool, broadcastable to (B, H, S, S); True = may attend.

    Returns:
        (B, S, D).
    """

    def __init__(self, *numbers, **named):
        super().__init__(*numbers, **named)
        self.self_attention = self.make_self_attention("self_attention")
        self.self_attention_residual = self.make_residual("self_attention_residual")
        widths, rate = (self.d_model, self.d_ff), self.feed_forward_dropout_rate
        self.feed_forward = FeedForward(*widths, rate, self.activation, name="feed_forward", dtype=self.dtype_policy)
        self.feed_forward_residual = self.make_residual("feed_forward_residual")

    def make_self_attention(self, name):
        """A new self-attention that knows the positions as this layer's should."""
        _, attention_class = POSITIONS[self.positions]
        return self.make_attention(name, self.num_heads, attention_class)

    def make_attention(self, name, num_heads, attention_class=MultiHeadAttention):
        """A new attention of this layer's width; 0 heads give a `NoAttention` if `d_key` is given."""
        if num_heads == 0 and self.d_key is not None:
            return NoAttention(self.attention_bias, name=name, dtype=self.dtype_policy)
        return attention_class.of(self.shape, num_heads=num_heads, name=name, dtype=self.dtype_policy)

    def make_residual(self, name):
        """A new residual connection of this layer's kind."""
        residual_class = PreNorm if self.pre_norm else PostNorm
        return residual_class(self.dropout_rate, self.layer_norm_epsilon, name=name, dtype=self.dtype_policy)

    def build(self, x_shape):
        for layer in (self.self_attention, self.self_attention_residual, self.feed_forward, self.feed_forward_residual):
            layer.build(x_shape)

    def call(self, x, attention_mask=None, training=False):
        return self.feed_position(self.attend_to_self(x, attention_mask, training), training)

    def attend_to_self(self, x, attention_mask, training=False):
        """The first sub-layer: self-attention, (B, S, D) -> (B, S, D)."""
        h = self.self_attention_residual.enter(x)
        h = self.self_attention(h, h, attention_mask=attention_mask, training=training)
        return self.self_attention_residual(x, h, training=training)

    def feed_position(self, x, training=False):
        """The last sub-layer: the feed-forward network, (B, S, D) -> (B, S, D)."""
        h = self.feed_forward_residual.enter(x)
        return self.feed_forward_residual(x, self.feed_forward(h, training=training), training=training)


@keras.saving.register_keras_serializable(package="keras_transformer")
class DecoderLayer(EncoderLayer):
    """An encoder layer with a third sub-layer in between: attention to the encoder's output (section 3.1).

    Arguments: see `DecoderShape`.

    Call arguments:
        x: (B, T, D).
        memory: (B, S, D), the encoder's output.
        attention_mask: bool, broadcastable to (B, H, T, T), for the self-attention; True = may attend.
        source_mask: bool, broadcastable to (B, H, T, S), for the attention to memory.

    Returns:
        (B, T, D).
    """

    shape_class = DecoderShape

    def __init__(self, *numbers, **named):
        super().__init__(*numbers, **named)
        num_heads = self.num_heads if self.num_cross_heads is None else self.num_cross_heads
        self.cross_attention = self.make_attention("cross_attention", num_heads)
        self.cross_attention_residual = self.make_residual("cross_attention_residual")

    def make_self_attention(self, name):
        """A new self-attention, or a new `SSRU` in its place."""
        if self.autoregression == "ssru":
            return SSRU(self.d_model, name=name, dtype=self.dtype_policy)
        return super().make_self_attention(name)

    def build(self, x_shape, memory_shape=None):
        super().build(x_shape)
        for layer in (self.cross_attention, self.cross_attention_residual):
            layer.build(x_shape)

    def call(self, x, memory, attention_mask=None, source_mask=None, training=False):
        x = self.attend_to_self(x, attention_mask, training)
        x = self.attend_to_memory(x, self.cross_attention.project(memory), source_mask, training)
        return self.feed_position(x, training)

    def attend_to_memory(self, x, projected_memory, source_mask, training=False):
        """The sub-layer in between, (B, T, D) -> (B, T, D); `projected_memory` is from `cross_attention.project`."""
        h = self.cross_attention_residual.enter(x)
        h = self.cross_attention.attend(h, *projected_memory, attention_mask=source_mask, training=training)
        return self.cross_attention_residual(x, h, training=training)

    def align(self, x, memory, attention_mask=None, source_mask=None, training=False):
        """The result of `call`, and the weights (B, H, T, S) of its attention to memory; the same arguments."""
        x = self.attend_to_self(x, attention_mask, training)
        keys, values = self.cross_attention.project(memory)
        weights = self.cross_attention.weigh(self.cross_attention_residual.enter(x), keys, source_mask)
        x = self.attend_to_memory(x, (keys, values), source_mask, training)
        return self.feed_position(x, training), weights

    def step(self, x, position, history, cache, projected_memory, source_mask=None, add=appended):
        """One position of W hypotheses per row, which attend to the positions before it through the cache.

        The W hypotheses are W queries of one row. So neither memory nor the cache is ever copied for a hypothesis.

        Args:
            x: (B, W, D), the newest position of every hypothesis: `position`, an int scalar t.
            history: bool (B, 1, W, (t+1)*W): which of the positions read so far belong to the hypothesis.
            cache: keys and values of the positions before, two of (B, G, t*W, K), or c of an `SSRU`, (B, W, D).
            projected_memory: two of (B, G, S, K), from `cross_attention.project`.
            source_mask: bool (B, 1, 1, S).
            add: how the cache takes these positions, `appended` or `written`.

        Returns:
            (B, W, D), and the cache after these positions, two of (B, G, (t+1)*W, K), or (B, W, D).
        """
        h = self.self_attention_residual.enter(x)
        h, cache = self.self_attention.step(h, position, cache, history, add)
        x = self.self_attention_residual(x, h)
        return self.feed_position(self.attend_to_memory(x, projected_memory, source_mask)), cache


class Stack(ShapedLayer):
    """N identical layers on top of each other: the base class of `Encoder` and `Decoder`.

    *Relative to the paper*: a stack of pre-norm layers ends with one more LayerNorm, because the output of its last
    layer is not normalised.

    Args:
        num_layers: N.
        heads: for each layer the list of the numbers of heads of its attentions. None: the same in all layers.
        **named: those of the layers, see `EncoderLayer` and `DecoderLayer`.
    """

    layer_class, attentions = EncoderLayer, ("num_heads",)

    def __init__(self, num_layers, heads=None, **named):
        super().__init__(**named)
        self.num_layers, self.heads = num_layers, heads
        of_layers = [dict(zip(self.attentions, counts, strict=True)) for counts in heads or ()] or [{}] * num_layers
        self.layers = [
            self.layer_class(**own, shape=self.shape, name=f"layer_{i}", dtype=self.dtype_policy)
            for i, own in enumerate(of_layers)
        ]
        ending = {"name": "norm", "dtype": self.dtype_policy}
        norm = LayerNormalization(self.layer_norm_epsilon, **ending)
        self.norm = norm if self.pre_norm else keras.layers.Identity(**ending)

    def build(self, x_shape):
        for layer in (*self.layers, self.norm):
            layer.build(x_shape)

    def compute_output_spec(self, x, *args, **kwargs):
        """The shape and dtype of the result. Keras would trace all layers for them, whenever a model is assembled."""
        return keras.KerasTensor(x.shape, self.compute_dtype)

    def get_config(self):
        return {**super().get_config(), "num_layers": self.num_layers, "heads": self.heads}


@keras.saving.register_keras_serializable(package="keras_transformer")
class Encoder(Stack):
    """N encoder layers (section 3.1, left half of Figure 1). Arguments: see `Stack`.

    Call arguments:
        x: (B, S, D), embedded source with positions.
        attention_mask: bool, broadcastable to (B, H, S, S); True = may attend.

    Returns:
        memory (B, S, D).
    """

    def call(self, x, attention_mask=None, training=False):
        for layer in self.layers:
            x = layer(x, attention_mask=attention_mask, training=training)
        return self.norm(x)


@keras.saving.register_keras_serializable(package="keras_transformer")
class Decoder(Stack):
    """N decoder layers (section 3.1, right half of Figure 1). Arguments: see `Stack` and `DecoderStackShape`.

    Call arguments:
        x: (B, T, D), embedded target with positions.
        memory: (B, S, D), the encoder's output.
        source_mask: bool, broadcastable to (B, H, T, S); True = may attend. The causal mask is the decoder's own.

    Returns:
        (B, T, D).
    """

    shape_class, layer_class, attentions = DecoderStackShape, DecoderLayer, ("num_heads", "num_cross_heads")

    def build(self, x_shape, memory_shape=None):
        super().build(x_shape)

    def call(self, x, memory, source_mask=None, training=False):
        attention_mask = causal_mask(ops.shape(x)[1])
        for layer in self.layers:
            x = layer(x, memory, attention_mask=attention_mask, source_mask=source_mask, training=training)
        return self.norm(x)

    def align(self, x, memory, source_mask=None, training=False):
        """The result of `call` for the same arguments, and how much the layers attend to memory: float32 (B, T, S).

        The weights of all heads are squared and added, so that a head counts more where it is sure. The first of
        several layers does not count (`benchmarks/markup.py` shows why). With `guided_alignment`, only the first head
        of the last layer but one counts (Garg et al. 2019), or that of the second of two layers. A row sums to 1 over
        the positions that source_mask allows, and is 0 elsewhere.
        """
        attention_mask, alignment = causal_mask(ops.shape(x)[1]), 0.0
        counted = [layer for layer in self.layers[1:] or self.layers if layer.cross_attention.num_heads]
        counted = counted[-2:][:1] if self.guided_alignment else counted
        for layer in self.layers:
            if layer in counted:
                x, weights = layer.align(x, memory, attention_mask, source_mask, training)  # (B, T, D), (B, H, T, S)
                weights = ops.cast(weights, "float32")
                alignment += weights[:, 0] if self.guided_alignment else ops.sum(ops.square(weights), axis=1)
            else:
                x = layer(x, memory, attention_mask=attention_mask, source_mask=source_mask, training=training)
        return self.norm(x), alignment / ops.sum(alignment, axis=-1, keepdims=True)

    def project(self, memory):
        """Every layer's keys and values of memory (B, S, D): N times two of (B, G, S, K)."""
        return tuple(layer.cross_attention.project(memory) for layer in self.layers)

    def empty_cache(self, batch, places=0, width=1):
        """What every layer keeps of the positions before, at the first one, of W hypotheses.

        N times two of (B, G, places, K) for self-attention, or N times (B, W, D) for an `SSRU`.
        """
        return tuple(layer.self_attention.empty_cache(batch, places, width) for layer in self.layers)

    def step(self, x, position, history, cache, projected_memory, source_mask=None, add=appended):
        """One position of W hypotheses per row. See `DecoderLayer.step`; there is a cache for each layer.

        `history` is bool (B, W, (t+1)*W) here, or () where all positions belong to the only hypothesis.
        """
        history = None if isinstance(history, tuple) else ops.expand_dims(history, 1)  # the same for every head
        grown = []
        for layer, layer_cache, layer_memory in zip(self.layers, cache, projected_memory, strict=True):
            x, layer_cache = layer.step(x, position, history, layer_cache, layer_memory, source_mask, add)
            grown.append(layer_cache)
        return self.norm(x), tuple(grown)
