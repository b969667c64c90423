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
        """What `call` gives, and the weights (B, H, T, S) that it attends to memory with; the same arguments."""
        x = self._attend_target(x, attention_mask)
        keys, values = self.cross_attention.project(memory)
        weights = self.cross_attention.weigh(self.cross_attention_residual.enter(x), keys, source_mask)
        return self._attend_memory(x, (keys, values), source_mask), weights

    def step(self, x, history, cache, projected_memory, source_mask=None):
        """One position of W hypotheses per row, attending to the positions before it through the cache.

        The W hypotheses are W queries of one row, so that neither memory nor the cache is ever copied for one of them.

        Args:
            x: (B, W, D), the newest position of every hypothesis.
            history: bool (B, 1, W, (t+1)*W), which of all positions read so far are a hypothesis' own.
            cache: keys and values of the positions before, two of (B, H, t*W, K).
            projected_memory: what `cross_attention.project(memory)` gave, two of (B, H, S, K).
            source_mask: bool (B, 1, 1, S).

        Returns:
            (B, W, D), and the cache with these positions appended, two of (B, H, (t+1)*W, K).
        """
        h = self.self_attention_residual.enter(x)
        newest = self.self_attention.project(h)  # two of (B, H, W, K)
        cache = tuple(ops.concatenate([old, new], axis=2) for old, new in zip(cache, newest, strict=True))
        h = self.self_attention.attend(h, *cache, attention_mask=history)
        x = self.self_attention_residual(x, h)
        return self._attend_memory(x, projected_memory, source_mask), cache

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
        """What `call` gives, and what the last layer attends to in memory, averaged over its heads; the same arguments.

        Returns:
            (B, T, D) and float32 (B, T, S). A row of the latter sums to 1 over the positions that source_mask leaves,
            and is 0 elsewhere.
        """
        attention_mask = causal_mask(ops.shape(x)[1])
        *lower, last = self.layers
        for layer in lower:
            x = layer(x, memory, attention_mask=attention_mask, source_mask=source_mask)
        x, weights = last.align(x, memory, attention_mask, source_mask)  # (B, T, D), (B, H, T, S)
        return self.norm(x), ops.mean(ops.cast(weights, "float32"), axis=1)

    def project(self, memory):
        """Every layer's keys and values of memory (B, S, D): N times two of (B, H, S, K)."""
        return tuple(layer.cross_attention.project(memory) for layer in self.layers)

    def empty_cache(self, batch):
        """Every layer's keys and values of no position yet: N times two of (B, H, 0, K)."""
        first = self.layers[0]
        shape = (batch, first.num_heads, 0, first.d_model // first.num_heads)
        return tuple((ops.zeros(shape, self.compute_dtype), ops.zeros(shape, self.compute_dtype)) for _ in self.layers)

    def step(self, x, history, cache, projected_memory, source_mask=None):
        """One position of W hypotheses per row; see `DecoderLayer.step`, whose caches come once per layer.

        `history` is bool (B, W, (t+1)*W) here.
        """
        history = ops.expand_dims(history, 1)  # the same for every head
        grown = []
        for layer, layer_cache, layer_memory in zip(self.layers, cache, projected_memory, strict=True):
            x, layer_cache = layer.step(x, history, layer_cache, layer_memory, source_mask)
            grown.append(layer_cache)
        return self.norm(x), tuple(grown)
