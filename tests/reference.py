"""The Transformer in plain NumPy, written from the papers and sharing no code with the package.

float64, one sentence and one head at a time, loops where the paper has an index. Weights are a dict from path
("encoder/layer_0/self_attention/query/kernel") to array; paths that begin with "@" have settings that hold for all
parts. Masks are boolean, True = may attend.
"""

import math

import numpy as np


def weights_of(layer):
    """Every weight of a Keras layer or model in float64, by its path without the layer's own name."""
    own = f"{layer.name}/"
    paths = [weight.path for weight in layer.weights]
    if all(path.startswith(own) for path in paths):
        paths = [path.removeprefix(own) for path in paths]
    assert len(set(paths)) == len(paths), paths
    return {path: weight.numpy().astype("float64") for path, weight in zip(paths, layer.weights, strict=True)}


def randomise(layer, seed=0):
    """Gives a built Keras layer or model weights none of which is 0 or 1, so that none can be left out unnoticed."""
    rng = np.random.default_rng(seed)
    for weight in layer.weights:
        values = rng.normal(size=weight.shape)
        if len(weight.shape) == 1:  # a bias, a beta, or a gamma
            values = 0.3 * values + weight.path.endswith("gamma")
        elif weight.path.endswith("kernel"):
            values /= math.sqrt(weight.shape[0])
        else:  # the matrix of a vocabulary
            values /= math.sqrt(weight.shape[1])
        weight.assign(values.astype("float32"))
    return layer


def part(weights, name):
    """The weights below `name`, by the rest of their path, and the settings."""
    below = {path.removeprefix(f"{name}/"): w for path, w in weights.items() if path.startswith(f"{name}/")}
    return {**below, **{path: setting for path, setting in weights.items() if path[0] == "@"}}


def columns(weights, name, x, some=slice(None)):
    """Some columns of x W + b; b is 0 where there is none."""
    bias = weights.get(f"{name}/bias", np.zeros(weights[f"{name}/kernel"].shape[1]))
    return x @ weights[f"{name}/kernel"][:, some] + bias[some]


def softmax(x):
    """Over the last axis."""
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def attention_weights(q, k, mask):
    """The softmax of equation (1). q (T, K), k (S, K), mask (T, S) -> (T, S)."""
    scores = q @ k.T / math.sqrt(q.shape[1])
    return softmax(np.where(mask, scores, -np.inf))


def multi_head_attention(weights, x, memory, num_heads, mask=True, rotary=False, seen=None):
    """3.2.2. x (B, T, D), memory (B, S, D) -> (B, T, D).

    Fewer columns of keys and values than of queries mean that heads in a row share them (Ainslie et al. 2023). Tables
    of distances mean relative positions. To `seen`, what the heads attend to is appended, (B, H, T, S).
    """
    d_k = weights["query/kernel"].shape[1] // num_heads
    d_v = len(weights["output/kernel"]) // num_heads
    heads_per_group = weights["query/kernel"].shape[1] // weights["key/kernel"].shape[1]
    mask = np.broadcast_to(mask, (x.shape[0], num_heads, x.shape[1], memory.shape[1]))
    output, attended = np.zeros(x.shape), np.zeros(mask.shape)
    for b in range(x.shape[0]):
        heads = []
        for h in range(num_heads):
            g = h // heads_per_group
            q = columns(weights, "query", x[b], slice(h * d_k, (h + 1) * d_k))
            k = columns(weights, "key", memory[b], slice(g * d_k, (g + 1) * d_k))
            v = columns(weights, "value", memory[b], slice(g * d_v, (g + 1) * d_v))
            if "distance_keys" in weights:
                tables = weights["distance_keys"], weights["distance_values"]
                heads.append(relative_attention(q, k, v, mask[b, h], *tables))
            else:
                q, k = (turned(q), turned(k)) if rotary else (q, k)
                attended[b, h] = attention_weights(q, k, mask[b, h])
                heads.append(attended[b, h] @ v)
        output[b] = columns(weights, "output", np.concatenate(heads, axis=1))
    if seen is not None:
        seen.append(attended)
    return output


def relative_attention(q, k, v, mask, key_table, value_table):
    """Shaw et al. 2018, equations (3) and (4). Tables (2 clip + 1, K), the middle row for distance 0."""
    clip = len(key_table) // 2
    z = np.zeros((len(q), v.shape[1]))
    for i in range(len(q)):
        rows = [clip + max(-clip, min(clip, j - i)) for j in range(len(k))]
        e = np.array([q[i] @ (k[j] + key_table[rows[j]]) for j in range(len(k))]) / math.sqrt(q.shape[1])
        alpha = softmax(np.where(mask[i], e, -np.inf))
        z[i] = sum(alpha[j] * (v[j] + value_table[rows[j]]) for j in range(len(k)))
    return z


def turned(x):
    """Su et al. 2021, section 3.2: pair i of position m, a complex number, times exp(m theta_i sqrt(-1)). (T, K)."""
    theta = 10000.0 ** (-np.arange(0, x.shape[1], 2) / x.shape[1])
    numbers = (x[:, 0::2] + 1j * x[:, 1::2]) * np.exp(1j * np.arange(len(x))[:, None] * theta)
    return np.stack([numbers.real, numbers.imag], axis=-1).reshape(x.shape)


def normal_distribution(x):
    """Phi(x): the share of N(0, 1) below x."""
    return (1 + np.vectorize(math.erf)(x / math.sqrt(2))) / 2


# Hendrycks & Gimpel 2016: x Phi(x), and two approximations of it; Ramachandran et al. 2017.
ACTIVATIONS = {
    "relu": lambda x: np.maximum(0, x),
    "gelu": lambda x: x * normal_distribution(x),
    "gelu_tanh": lambda x: 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "gelu_sigmoid": lambda x: x * sigmoid(1.702 * x),
    "silu": lambda x: x * sigmoid(x),
}


def feed_forward(weights, x):
    """Equation (2), or with the activation of the settings."""
    inner = ACTIVATIONS[weights.get("@activation", "relu")](columns(weights, "inner", x))
    return columns(weights, "outer", inner)


def layer_norm(weights, x):
    """Ba et al. 2016: mean and variance of every position by itself."""
    epsilon = weights.get("@epsilon", 1e-6)
    centred = x - x.mean(axis=-1, keepdims=True)
    deviation = np.sqrt((centred**2).mean(axis=-1, keepdims=True) + epsilon)
    return weights["gamma"] * centred / deviation + weights["beta"]


def post_norm(weights, x, sublayer):
    """3.1: LayerNorm(x + Sublayer(x))."""
    return layer_norm(part(weights, "norm"), x + sublayer(x))


def pre_norm(weights, x, sublayer):
    """Xiong et al. 2020: x + Sublayer(LayerNorm(x))."""
    return x + sublayer(layer_norm(part(weights, "norm"), x))


def encoder_layer(weights, x, num_heads, residual, mask, rotary):
    """3.1. residual: `post_norm` or `pre_norm`."""

    def self_attention(h):
        return multi_head_attention(part(weights, "self_attention"), h, h, num_heads, mask, rotary)

    x = residual(part(weights, "self_attention_residual"), x, self_attention)
    return residual(part(weights, "feed_forward_residual"), x, lambda h: feed_forward(part(weights, "feed_forward"), h))


def ssru(weights, x):
    """The simpler simple recurrent unit (Kim et al. 2019), one position after another. x (B, T, D) -> (B, T, D)."""
    gate, outputs = part(weights, "gate"), []
    c = np.zeros_like(x[:, 0])
    for x_t in np.swapaxes(x, 0, 1):
        f = sigmoid(x_t @ gate["kernel"] + gate["bias"])
        c = f * c + (1 - f) * (x_t @ part(weights, "candidate")["kernel"])
        outputs.append(np.maximum(0, c))
    return np.stack(outputs, axis=1)


def decoder_layer(weights, x, memory, num_heads, residual, mask, source_mask, rotary, seen):
    """3.1. residual: `post_norm` or `pre_norm`; to `seen`, what the heads attend to in memory is appended."""

    def self_attention(h):
        own = part(weights, "self_attention")
        return ssru(own, h) if "gate/kernel" in own else multi_head_attention(own, h, h, num_heads, mask, rotary)

    def cross_attention(h):
        return multi_head_attention(part(weights, "cross_attention"), h, memory, num_heads, source_mask, seen=seen)

    x = residual(part(weights, "self_attention_residual"), x, self_attention)
    x = residual(part(weights, "cross_attention_residual"), x, cross_attention)
    return residual(part(weights, "feed_forward_residual"), x, lambda h: feed_forward(part(weights, "feed_forward"), h))


def stack(weights, x, residual, layer):
    """layer(weights, x) N times; pre-norm ends with one more LayerNorm."""
    i = 0
    while any(path.startswith(f"layer_{i}/") for path in weights):
        x = layer(part(weights, f"layer_{i}"), x)
        i += 1
    return layer_norm(part(weights, "norm"), x) if residual is pre_norm else x


def encoder(weights, x, num_heads, residual, mask=True, rotary=False):
    """N encoder layers. x (B, S, D) -> memory (B, S, D)."""
    return stack(weights, x, residual, lambda w, h: encoder_layer(w, h, num_heads, residual, mask, rotary))


def decoder(weights, x, memory, num_heads, residual, source_mask=True, rotary=False, seen=None):
    """N decoder layers; position t sees 0 ... t. x (B, T, D), memory (B, S, D) -> (B, T, D)."""
    causal = np.array([[s <= t for s in range(x.shape[1])] for t in range(x.shape[1])])
    rest = memory, num_heads, residual, causal, source_mask, rotary, seen
    return stack(weights, x, residual, lambda w, h: decoder_layer(w, h, *rest))


def decoder_alignment(weights, x, memory, num_heads, residual, source_mask=True, is_guided=False):
    """What the layers but the first attend to in memory. x (B, T, D), memory (B, S, D) -> (B, T, S).

    Each weight is squared, so that heads which are sure count more. Of one layer, that one. After guided alignment, it
    is what the first head of the last layer but one attends to, or that of the second of two layers.
    """
    seen = []
    decoder(weights, x, memory, num_heads, residual, source_mask, seen=seen)
    if is_guided:
        return seen[{1: 0, 2: 1}.get(len(seen), -2)][:, 0]
    squares = np.square(seen[1:] or seen).sum(axis=(0, 2))
    return squares / squares.sum(axis=-1, keepdims=True)


def sinusoids(length, d_model, kind="sinusoidal", first=0):
    """3.5: PE(pos, 2i) = sin(pos / 10000^(2i/d_model)), PE(pos, 2i+1) = cos(the same), from position `first` on.

    Other kinds have all sines before all cosines. tensor2tensor: the timescales are a geometric sequence of d_model / 2
    numbers from 1 to 10000, both included (`get_timing_signal_1d`).
    """
    table = np.zeros((length, d_model))
    for pos in range(length):
        for i in range(d_model // 2):
            angle = (first + pos) / 10000 ** (2 * i / d_model)
            if kind == "sinusoidal_tensor2tensor":
                angle = (first + pos) * math.exp(-i * math.log(10000) / (d_model // 2 - 1))
            sine, cosine = (2 * i, 2 * i + 1) if kind == "sinusoidal" else (i, d_model // 2 + i)
            table[pos, sine] = math.sin(angle)
            table[pos, cosine] = math.cos(angle)
    return table


def embed(matrix, ids, positions="sinusoidal", side=None, scale=True, first=0):
    """3.4 and 3.5: vectors times sqrt(d_model), plus positions. ids (B, T) -> (B, T, D).

    side: the weights of its positions, a learned table or the norm of the sum (mBART).
    """
    d_model, length, side = matrix.shape[1], ids.shape[1], side or {}
    factor = math.sqrt(d_model) if scale else 1
    x = matrix[ids] * factor
    if positions.startswith("sinusoidal"):
        x = x + sinusoids(length, d_model, positions, first)
    if positions == "learned":
        x = x + factor * np.array([side["table"][min(pos, len(side["table"]) - 1)] for pos in range(length)])
    return layer_norm(part(side, "norm"), x) if "norm/gamma" in side else x


def matrices(weights):
    """3.4: the matrices (V, D) of source, target and logits. A matrix that has no name of its own is shared."""
    shared = weights.get("embedding/matrix")
    target = weights.get("target_embedding/matrix", shared)
    return weights.get("source_embedding/matrix", shared), target, weights.get("logits/output_matrix/matrix", target)


def transformer(
    weights, source_ids, target_ids, num_heads, residual, positions="sinusoidal", scale=True, first=0, **settings
):
    """Figure 1 up to the softmax: logits (B, T, V). 0 is padding; residual: `post_norm` or `pre_norm`.

    settings: `activation` of the feed-forward networks, `epsilon` of the norms.
    """
    weights = {**weights, **{f"@{name}": setting for name, setting in settings.items()}}
    source, target, output = matrices(weights)
    shared = part(weights, "positions")
    of_source, of_target = ({**shared, **part(weights, f"{side}_positions")} for side in ("source", "target"))
    rest = num_heads, residual, (source_ids != 0)[:, None, None, :], positions == "rotary"
    x = embed(source, source_ids, positions, of_source, scale, first)
    memory = encoder(part(weights, "encoder"), x, *rest)
    x = embed(target, target_ids, positions, of_target, scale, first)
    return decoder(part(weights, "decoder"), x, memory, *rest) @ output.T + weights.get("logits/bias", 0)


def alignment(weights, source_ids, target_ids, num_heads, residual):
    """The attention of the decoder to the source, see `decoder_alignment`: (B, T, S). Arguments: see `transformer`."""
    source, target, _ = matrices(weights)
    source_mask = (source_ids != 0)[:, None, None, :]
    memory = encoder(part(weights, "encoder"), embed(source, source_ids), num_heads, residual, source_mask)
    x = embed(target, target_ids)
    return decoder_alignment(part(weights, "decoder"), x, memory, num_heads, residual, source_mask)


# The recurrent networks, from Elman 1990, Hochreiter & Schmidhuber 1997, Cho et al. 2014, Luong et al. 2015 and Liu
# et al. 2016.


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def recurrent_cell(kind, weights, x, state):
    """One position of one row. x (D,), state a tuple of (U,) -> the state after it."""
    w, b = weights["input_map/kernel"], weights["input_map/bias"]
    h, u = state[0], weights["recurrent_kernel"]
    if kind == "rnn":
        return (np.tanh(x @ w + h @ u + b),)
    columns = np.split(np.arange(w.shape[1]), {"lstm": 4, "gru": 3}[kind])  # of each gate
    if kind == "lstm":
        i, f, candidate, o = (x @ w[:, part] + h @ u[:, part] + b[part] for part in columns)
        c = sigmoid(f) * state[1] + sigmoid(i) * np.tanh(candidate)
        return sigmoid(o) * np.tanh(c), c
    z, r = (sigmoid(x @ w[:, part] + h @ u[:, part] + b[part]) for part in columns[:2])
    candidate = np.tanh(x @ w[:, columns[2]] + (r * h) @ weights["candidate_kernel"] + b[columns[2]])
    return ((1 - z) * h + z * candidate,)


def recurrence(kind, weights, x, state):
    """All positions of one row. x (T, D) -> h (T, U), and the last state."""
    outputs = []
    for vector in x:
        state = recurrent_cell(kind, weights, vector, state)
        outputs.append(state[0])
    return np.array(outputs), state


def recurrent_encoder(kind, weights, x, num_layers, tensors):
    """One row without padding, in both directions. x (S, D) -> states (S, D), and the last state of each layer."""
    last, zeros = [], (np.zeros(x.shape[1] // 2),) * tensors
    for i in range(num_layers):
        forward, end = recurrence(kind, part(weights, f"forward_{i}"), x, zeros)
        backward, start = recurrence(kind, part(weights, f"backward_{i}"), x[::-1], zeros)
        x = np.concatenate([forward, backward[::-1]], axis=1)
        last.append(tuple(np.concatenate(pair) for pair in zip(end, start, strict=True)))
    return x, last


def recurrent_score(kind, weights, query, key):
    """How well a decoder state matches an encoder state, both (D,)."""
    if kind == "dot":
        return query @ key
    if kind == "general":
        return query @ (key @ weights["key/kernel"])
    both = np.concatenate([weights["query/kernel"], weights["key/kernel"]])  # of concat; that of additive is the same
    return np.tanh(np.concatenate([query, key]) @ both) @ weights["energy/kernel"][:, 0]


def recurrent_attention(weights, query, position, states, score, span, window):
    """The weights (S,) of one decoder state (D,) on the states (S, D) of one row without padding."""
    length = len(states)
    scores = [recurrent_score(score, part(weights, "score"), query, state) for state in states]
    gaussian = np.ones(length)
    if span == "global":
        visible = np.full(length, True)
    else:
        centre = min(position, length - 1)
        if span == "local_p":
            inner = np.tanh(query @ weights["centre/inner/kernel"])
            centre = length * sigmoid(inner @ weights["centre/outer/kernel"])[0]
            gaussian = np.exp(-((np.arange(length) - centre) ** 2) / (2 * (window / 2) ** 2))
        visible = np.abs(np.arange(length) - centre) <= window
    found = softmax(np.where(visible, scores, -np.inf)) * gaussian
    return found / found.sum()


def recurrent_decoder(kind, weights, x, states, last, score, span, window, input_feeding):
    """One row. x (T, D), states (S, D) and `last` of the encoder -> h~ (T, D), and the weights of attention (T, S)."""
    layers, fed, outputs, alignment = list(last), np.zeros(x.shape[1]), [], []
    for t, h in enumerate(x):
        h = np.concatenate([h, fed]) if input_feeding else h
        for i, state in enumerate(layers):
            layers[i] = recurrent_cell(kind, part(weights, f"cell_{i}"), h, state)
            h = layers[i][0]
        a = recurrent_attention(part(weights, "attention"), h, t, states, score, span, window)
        fed = np.tanh(np.concatenate([a @ states, h]) @ weights["combination/kernel"])
        outputs.append(fed)
        alignment.append(a)
    return np.array(outputs), np.array(alignment)


def latent_attention(weights, x):
    """Liu et al. 2016, section 3. One row without padding, x (S, D) -> latent and active weights (S,), and o (D,)."""
    latent = softmax(np.array([weights["latent/kernel"][:, 0] @ token for token in x]))
    active = np.zeros(len(x))
    for j in range(len(x)):
        v = weights["active"][min(j, len(weights["active"]) - 1)]
        active += latent[j] * softmax(np.array([v @ token for token in x]))
    return latent, active, active @ x / math.sqrt(active @ active)
