"""The decoder: the right half of Figure 1 (section 3.1), all positions at once or one at a time."""

import keras
from keras import ops

from keras_transformer.layers.attention import MultiHeadAttention
from keras_transformer.layers.encoder import EncoderLayer, Stack
from keras_transformer.layers.masks import causal_mask


@keras.saving.register_keras_serializable(package="keras_transformer")
class DecoderLayer(EncoderLayer):
    """An encoder layer with a third sub-layer in between: attention over the encoder's output (section 3.1).

    Arguments: see `EncoderLayer`.

    Call arguments:
        x: (B, T, D).
        memory: (B, S, D), the encoder's output.
        attention_mask: bool, broadcastable to (B, H, T, T), for the self-attention; True = may attend.
        source_mask: bool, broadcastable to (B, H, T, S), for the attention over memory.

    Returns:
        (B, T, D).
    """

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.cross_attention = MultiHeadAttention(
            self.d_model,
            self.num_heads,
            self.attention_dropout_rate,
            name="cross_attention",
            dtype=self.dtype_policy,
        )
        self.cross_attention_residual = type(self.self_attention_residual)(
            self.dropout_rate, name="cross_attention_residual", dtype=self.dtype_policy
        )

    def build(self, x_shape, memory_shape=None):
        super().build(x_shape)
        self.cross_attention.build(x_shape)
        self.cross_attention_residual.build(x_shape)

    def call(self, x, memory, attention_mask=None, source_mask=None, training=False):
        x = self._attend_target(x, attention_mask, training)
        return self._attend_memory(x, self.cross_attention.project(memory), source_mask, training)

    def align(self, x, memory, attention_mask=None, source_mask=None):
        """The weights (B, H, T, S) that `call` attends to memory with; the same arguments."""
        x = self._attend_target(x, attention_mask)
        keys, _ = self.cross_attention.project(memory)
        return self.cross_attention.weigh(self.cross_attention_residual.enter(x), keys, source_mask)

    def step(self, x, cache, memory_keys_values, source_mask=None):
        """One position of W hypotheses per row, attending to the positions before it through the cache.

        The W hypotheses are W queries of one row, so that memory is neither encoded nor projected nor copied for
        each of them.

        Args:
            x: (B, W, D), the newest position of every hypothesis.
            cache: keys and values of the earlier positions, two of (B, W, H, t, K).
            memory_keys_values: what `cross_attention.project(memory)` gave, two of (B, H, S, K).
            source_mask: bool (B, 1, 1, S).

        Returns:
            (B, W, D), and the cache with this position appended, two of (B, W, H, t + 1, K).
        """
        batch, width = ops.shape(x)[0], ops.shape(x)[1]
        h = ops.reshape(self.self_attention_residual.enter(x), (batch * width, 1, self.d_model))
        newest = self.self_attention.project(h)  # two of (B*W, H, 1, K)
        head = (self.num_heads, 1, self.d_model // self.num_heads)
        cache = tuple(
            ops.concatenate([old, ops.reshape(new, (batch, width, *head))], axis=3)
            for old, new in zip(cache, newest, strict=True)
        )
        length = ops.shape(cache[0])[3]
        keys, values = (ops.reshape(c, (batch * width, head[0], length, head[2])) for c in cache)
        h = self.self_attention.attend(h, keys, values)  # (B*W, 1, D)
        x = self.self_attention_residual(x, ops.reshape(h, (batch, width, self.d_model)))
        return self._attend_memory(x, memory_keys_values, source_mask), cache

    def _attend_target(self, x, attention_mask, training=False):
        h = self.self_attention_residual.enter(x)
        h = self.self_attention(h, h, attention_mask=attention_mask, training=training)
        return self.self_attention_residual(x, h, training=training)

    def _attend_memory(self, x, memory_keys_values, source_mask, training=False):
        h = self.cross_attention_residual.enter(x)
        h = self.cross_attention.attend(h, *memory_keys_values, attention_mask=source_mask, training=training)
        x = self.cross_attention_residual(x, h, training=training)

        h = self.feed_forward_residual.enter(x)
        h = self.feed_forward(h, training=training)
        return self.feed_forward_residual(x, h, training=training)


@keras.saving.register_keras_serializable(package="keras_transformer")
class Decoder(Stack):
    """N decoder layers (section 3.1, right half of Figure 1). Arguments: see `Stack`.

    Call arguments:
        x: (B, T, D), embedded target with positions.
        memory: (B, S, D), the encoder's output.
        source_mask: bool, broadcastable to (B, H, T, S); True = may attend. The causal mask is the decoder's own.

    Returns:
        (B, T, D).
    """

    layer_class = DecoderLayer

    def build(self, x_shape, memory_shape=None):
        super().build(x_shape)

    def call(self, x, memory, source_mask=None, training=False):
        attention_mask = causal_mask(ops.shape(x)[1])
        for layer in self.layers:
            x = layer(x, memory, attention_mask=attention_mask, source_mask=source_mask, training=training)
        return self.norm(x)

    def align(self, x, memory, source_mask=None):
        """What the last layer attends to in memory, averaged over its heads; the arguments of `call`.

        Returns:
            float32 (B, T, S). A row sums to 1 over the positions that source_mask leaves, and is 0 elsewhere.
        """
        attention_mask = causal_mask(ops.shape(x)[1])
        *lower, last = self.layers
        for layer in lower:
            x = layer(x, memory, attention_mask=attention_mask, source_mask=source_mask)
        weights = last.align(x, memory, attention_mask, source_mask)  # (B, H, T, S)
        return ops.mean(ops.cast(weights, "float32"), axis=1)

    def project(self, memory):
        """Every layer's keys and values of memory (B, S, D): N times two of (B, H, S, K)."""
        return tuple(layer.cross_attention.project(memory) for layer in self.layers)

    def empty_cache(self, batch, width):
        """Every layer's keys and values of no position yet: N times two of (B, W, H, 0, K)."""
        first = self.layers[0]
        shape = (batch, width, first.num_heads, 0, first.d_model // first.num_heads)
        return tuple((ops.zeros(shape, self.compute_dtype), ops.zeros(shape, self.compute_dtype)) for _ in self.layers)

    def step(self, x, cache, projected_memory, source_mask=None):
        """One position of W hypotheses per row; see `DecoderLayer.step`, whose arguments come once per layer."""
        grown = []
        for layer, layer_cache, keys_values in zip(self.layers, cache, projected_memory, strict=True):
            x, layer_cache = layer.step(x, layer_cache, keys_values, source_mask)
            grown.append(layer_cache)
        return self.norm(x), tuple(grown)
