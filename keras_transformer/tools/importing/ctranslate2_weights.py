"""The file model.bin of CTranslate2: its numbers, and its arrays by our names. Quantised matrices become float32."""

import math
import re
import struct

import numpy as np
from ml_dtypes import bfloat16

from keras_transformer.layers.embedding import sinusoids
from keras_transformer.presets import SINUSOIDAL
from keras_transformer.tools.importing import ctranslate2_versions as versions
from keras_transformer.tools.importing.tensors import ImportedModelError, Tensors, on_disk

MOST_DIMENSIONS = 8  # of an array
DTYPES = [np.float32, np.int8, np.int16, np.int32, np.float16, bfloat16]  # by their numbers
ACTIVATIONS = ["relu", "gelu_tanh", "silu", "gelu", "gelu_sigmoid"]  # by their numbers
LINEAR = {  # our layer -> theirs, and its place among the layers that they join; None for a layer of its own
    "self_attention/query": ("self_attention/linear_0", 0),
    "self_attention/key": ("self_attention/linear_0", 1),
    "self_attention/value": ("self_attention/linear_0", 2),
    "self_attention/output": ("self_attention/linear_1", None),
    "cross_attention/query": ("attention/linear_0", None),
    "cross_attention/key": ("attention/linear_1", 0),
    "cross_attention/value": ("attention/linear_1", 1),
    "cross_attention/output": ("attention/linear_2", None),
    "feed_forward/inner": ("ffn/linear_0", None),
    "feed_forward/outer": ("ffn/linear_1", None),
}
NORMS = {"self_attention": "self_attention", "cross_attention": "attention", "feed_forward": "ffn"}
DISTANCES = {"distance_keys": "relative_position_keys", "distance_values": "relative_position_values"}
PARTS, VECTORS = "weight(_scale)?|bias|gamma|beta", ("_scale", "bias", "gamma", "beta")
KNOWN = re.compile(
    rf"(en|de)coder/layer_\d+/({'|'.join({theirs for theirs, _ in LINEAR.values()})})/({PARTS})"
    rf"|(en|de)coder/layer_\d+/({'|'.join(NORMS.values())})/layer_norm/({PARTS})"
    rf"|(en|de)coder/layer_\d+/self_attention/({'|'.join(DISTANCES.values())})"
    rf"|(en|de)coder/(layer_norm|layernorm_embedding)/({PARTS})|(en|de)coder/position_encodings/encodings"
    rf"|encoder/embeddings(_0)?/({PARTS})|decoder/(embeddings|projection)/({PARTS})"
)
NUMBERS = re.compile(  # those that are read, or change nothing
    r"(en|de)coder/(activation|num_heads|pre_norm|scale_embeddings|embeddings_merge|alignment_(heads|layer))"
    r"|(en|de)coder/alibi_use_positive_positions|decoder/start_from_zero_embedding"
    r"|.*/rotary_(base|dim|interleave)|.*/(num_heads_kv|head_dim|weight_scale)"
)
ROTARY = {"rotary_dim": 0, "rotary_base": 10000, "rotary_interleave": 1}


class Weights:
    """The weights of a model.bin by our names.

    Args:
        path: pathlib.Path of the file.

    Attributes:
        config: dict of the settings that newer files leave to config.json; None for such a newer file.
        starts_from_zero: bool, whether a translation begins with a vector of zeros, as in Marian.

    Raises:
        ImportedModelError: if the file is damaged, or has weights that no model here has.
    """

    def __init__(self, path):
        self.path = path
        try:
            self.numbers, self.tensors, self.same, self.config = read_model(path)
        except (ValueError, LookupError, struct.error, OverflowError) as error:
            raise ImportedModelError(f"{path} is not a model of CTranslate2, or is damaged: {error}") from None
        for name, array in self.tensors.items():
            if not KNOWN.fullmatch(name):
                raise ImportedModelError(f"{path} has weights that no model here has, such as {name}")
            if array.ndim != (1 if name.endswith(VECTORS) else 2) or not array.size:
                raise ImportedModelError(f"{path} is damaged: {name} has the shape {array.shape}")
        for name, value in self.numbers.items():
            if value and not NUMBERS.fullmatch(name):
                raise ImportedModelError(f"no model here has {name.rpartition('/')[2]}. Received: {name}={value}")

    def array(self, name):
        """One of their arrays, in float32. Raises ImportedModelError."""
        name = self.same.get(name, name)
        if name not in self.tensors:
            raise ImportedModelError(f"{self.path} has no weight {name}")
        array = self.tensors[name]
        if array.dtype.kind != "i":
            return array.astype("float32")
        scale = self.numbers.get(f"{name}_scale")
        if scale is None and array.dtype == np.int16 and not self.has(f"{name}_scale"):
            scale = versions.INT16_SCALE
        elif scale is None:
            scale = self.array(f"{name}_scale")[:, None]  # one for each row
        if not np.all(scale) or len(np.atleast_1d(scale)) not in (1, len(array)):
            raise ImportedModelError(f"{self.path} is damaged: {name}_scale must have a number for each row, and no 0")
        return array.astype("float32") / scale

    @property
    def starts_from_zero(self):
        return bool(self.numbers.get("decoder/start_from_zero_embedding"))

    def has(self, name):
        """Whether there is an array of this name."""
        return self.same.get(name, name) in self.tensors

    def both(self, name):
        """A number that encoder and decoder must share. Raises ImportedModelError."""
        found = [self.numbers.get(f"{side}/{name}") for side in ("encoder", "decoder")]
        if found[0] != found[1] or found[0] is None:
            raise ImportedModelError(f"encoder and decoder must have equal {name}. Received: {found[0]} and {found[1]}")
        return int(found[0])

    def settings(self):
        """The settings of `Config` for the model, a dict. Raises ImportedModelError."""
        first, heads = "encoder/layer_0", self.both("num_heads")
        d_model, d_ff = self.array(f"{first}/ffn/linear_1/weight").shape
        width = len(self.array("decoder/layer_0/attention/linear_0/weight"))
        if heads < 1 or width % heads:
            raise ImportedModelError(f"num_heads must divide {width}, the width of the queries. Received: {heads}")
        d_key = width // heads
        key_value_heads = (len(self.array(f"{first}/self_attention/linear_0/weight")) - width) // (2 * d_key)
        depths = [
            len({found[1] for name in self.tensors if (found := re.match(rf"{side}/layer_(\d+)/", name))})
            for side in ("encoder", "decoder")
        ]
        if self.both("activation") not in range(len(ACTIVATIONS)):
            raise ImportedModelError(f"no model here has the activation {self.both('activation')} of CTranslate2")
        scaled = self.is_scaled()
        return {
            "d_model": d_model,
            "d_ff": d_ff,
            "num_heads": heads,
            "num_layers": depths[0],
            "num_decoder_layers": depths[1],
            **({} if d_key * heads == d_model else {"d_key": d_key}),
            **({} if key_value_heads == heads else {"num_key_value_heads": key_value_heads}),
            "activation": ACTIVATIONS[self.both("activation")],
            "pre_norm": bool(self.both("pre_norm")),
            "scale_embeddings": scaled,
            "embedding_norm": self.has("encoder/layernorm_embedding/gamma"),
            "attention_bias": self.has(f"{first}/self_attention/linear_0/bias"),
            "logits_bias": self.has("decoder/projection/bias"),
            "tie_embeddings": self.are_same("decoder/projection/weight", "decoder/embeddings/weight"),
            "share_vocabulary": self.are_same("encoder/embeddings_0/weight", "decoder/embeddings/weight"),
            **self.positions(d_model),
        }

    def is_scaled(self):
        """Whether vectors of tokens are multiplied by sqrt(d_model): a flag, or a number in floating point."""
        self.both("scale_embeddings")
        scale = self.numbers["encoder/scale_embeddings"]
        d_model = len(self.array("decoder/layer_0/attention/layer_norm/gamma"))
        if isinstance(scale, float) and not np.isclose(scale, (1.0, math.sqrt(d_model))).any():
            raise ImportedModelError(f"no model here multiplies embeddings by {scale}, only by the root of d_model")
        return scale > 1.0 if isinstance(scale, float) else bool(scale)

    def are_same(self, one, other):
        """Whether two names are of one array."""
        one, other = self.same.get(one, one), self.same.get(other, other)
        return one == other or np.array_equal(self.array(one), self.array(other))

    def positions(self, d_model):
        """The settings of the positions, a dict. Raises ImportedModelError."""
        attention = "encoder/layer_0/self_attention"
        if f"{attention}/rotary_dim" in self.numbers:
            found = {name: self.numbers.get(f"{attention}/{name}", value) for name, value in ROTARY.items()}
            if found != ROTARY:
                raise ImportedModelError(f"rotary positions must be those of {ROTARY}. Received: {found}")
            return {"positions": "rotary"}
        if self.has(f"{attention}/relative_position_keys"):
            rows = len(self.array(f"{attention}/relative_position_keys"))
            return {"positions": "relative", "relative_clip": rows // 2}
        if not self.has("encoder/position_encodings/encodings"):
            return {"positions": "sinusoidal_tensor2tensor", "first_position": 1}  # those of the engine
        tables = [self.array(f"{side}/position_encodings/encodings") for side in ("encoder", "decoder")]
        if not any(table.any() for table in tables):
            return {"positions": "none"}
        for kind in SINUSOIDAL:
            for first in range(3):
                expected = np.array(sinusoids(np.arange(len(tables[0])) + first, d_model, kind))
                if all(are_near(table, expected) for table in tables):
                    return {"positions": kind, "first_position": first}
        is_tied = np.array_equal(*tables)
        return {"positions": "learned", "tie_positions": is_tied, "max_length": len(tables[0]) - 1}

    def read(self, path):
        """Their array for one of our weights, laid out as ours."""
        place, _, part = path.rpartition("/")
        if path == "logits/bias":
            return self.array("decoder/projection/bias") if self.has("decoder/projection/bias") else None
        if part == "matrix":
            side = "encoder/embeddings_0" if place == "source_embedding" else "decoder/embeddings"
            return self.array(f"{'decoder/projection' if place.startswith('logits') else side}/weight")
        side = "encoder" if place.startswith(("encoder", "source")) else "decoder"
        if part == "table":
            table = self.array(f"{side}/position_encodings/encodings")
            return table / math.sqrt(table.shape[1]) if self.is_scaled() else table
        layer = re.fullmatch(r"(?:en|de)coder/layer_(\d+)/(.+)", place)
        if not layer:
            return self.array(f"{side}/{'layer_norm' if place == f'{side}/norm' else 'layernorm_embedding'}/{part}")
        start, place = f"{side}/layer_{layer[1]}", layer[2]
        if part in DISTANCES:
            return self.array(f"{start}/self_attention/{DISTANCES[part]}")
        if place.endswith("_residual/norm"):
            return self.array(f"{start}/{NORMS[place.removesuffix('_residual/norm')]}/layer_norm/{part}")
        theirs, number = LINEAR[place]
        array = self.array(f"{start}/{theirs}/{'weight' if part == 'kernel' else 'bias'}")
        if number is not None:
            width = len(self.array("decoder/layer_0/attention/linear_0/weight"))
            array = joined_part(array, width if theirs.startswith("self") else 0, number)
        return array.T if part == "kernel" else array


def are_near(table, expected):
    """Whether a table of positions has these values. Far positions differ by the rounding of large angles."""
    return table.shape == expected.shape and all(
        np.allclose(table[:rows], expected[:rows], rtol=0, atol=most) for rows, most in ((64, 1e-5), (None, 1e-2))
    )


def joined_part(array, queries, number):
    """One of the layers that are joined in an array: queries first, if there are any, then keys and values.

    Args:
        array: (N, D) or (N,).
        queries: int, rows of the queries.
        number: int, the layer.
    """
    each = (len(array) - queries) // 2
    bounds = [0, *([queries] if queries else []), queries + each, queries + 2 * each]
    return array[bounds[number] : bounds[number + 1]]


def read_model(path):
    """The content of a model.bin.

    Returns:
        dict of numbers; `Tensors`, which stay on the disk; dict from names to the names whose array they share; the
        `config` of `Weights`.

    Raises:
        ValueError: and others, if the file is damaged or of a version that is not known.
    """
    numbers, makers = {}, {}
    with open(path, "rb") as file:
        version = unpack(file, "I")
        if not versions.OLDEST <= version <= versions.NEWEST:
            raise ValueError(f"version {version} is not known")
        kind, _ = text_of(file), unpack(file, "I")
        if kind not in versions.HEADS:
            raise ValueError(f"it is a {kind}, and only a TransformerSpec translates")
        for _ in range(unpack(file, "I")):
            name, shape, dtype, size = read_header(file, version)
            if shape:
                makers[name] = on_disk(path, dtype, file.tell(), shape)
                file.seek(size, 1)
            else:
                numbers[name] = np.frombuffer(file.read(size), dtype)[0].item()
        same = {}
        for _ in range(unpack(file, "I") if version >= versions.FIRST_WITH_ALIASES else 0):
            name = text_of(file)
            same[name] = text_of(file)
    numbers, makers, config = versions.with_names_of_today(kind, numbers, makers, same)
    return numbers, Tensors(makers), same, None if version >= versions.FIRST_WITH_CONFIG else config


def read_header(file, version):
    """What stands before the values of an array: name, shape, dtype, number of bytes. Raises ValueError and others."""
    name = text_of(file)
    rank = unpack(file, "B")
    if rank > MOST_DIMENSIONS:
        raise ValueError(f"{name} has {rank} dimensions")
    shape = tuple(unpack(file, "I") for _ in range(rank))
    kind, size = unpack(file, "B"), unpack(file, "I")
    if version >= versions.FIRST_WITH_DTYPES:
        dtype = np.dtype(DTYPES[kind])
    else:
        dtype, size = np.dtype(versions.DTYPES_BY_SIZE[kind]), size * kind
    if size != math.prod(shape) * dtype.itemsize:
        raise ValueError(f"{name} of shape {shape} has {size} bytes")
    return name, shape, dtype, size


def unpack(file, kind):
    """The next number of a file: "B", "H" or "I", with 1, 2 or 4 bytes. Raises struct.error at its end."""
    (number,) = struct.unpack(f"<{kind}", file.read(struct.calcsize(f"<{kind}")))
    return number


def text_of(file):
    """The next text of a file: its length, and its bytes with a 0 behind them."""
    return file.read(unpack(file, "H")).removesuffix(b"\0").decode("utf-8")
