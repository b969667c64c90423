"""Weights in the files of other programs. They stay on the disk until they are used, and no code in a file is run."""

import collections
import glob
import json
import math
import pickle
import zipfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import numpy as np
import tensorflow as tf
from ml_dtypes import bfloat16

from keras_transformer.errors import FileError, UserError

DTYPES = {"F64": np.float64, "F32": np.float32, "F16": np.float16, "BF16": bfloat16, "I64": np.int64, "I32": np.int32}
STORAGES = {"DoubleStorage": "F64", "FloatStorage": "F32", "HalfStorage": "F16", "BFloat16Storage": "BF16"}
STORAGES |= {"LongStorage": "I64", "IntStorage": "I32"}
MOST_HEADER = 100 << 20  # bytes
POINTER = b"version https://git-lfs.github.com/spec/"
WEIGHTS = "*.safetensors", "*.bin", "*.h5", "*.msgpack", "*.onnx", "*.pt", "*.gguf"  # names of files, read or not
VALUE, SLOT = "/.ATTRIBUTES/VARIABLE_VALUE", "/.OPTIMIZER_SLOT"  # in names of a checkpoint of TensorFlow
CONVERT = (
    "Convert it where it was made: `from transformers import AutoModelForSeq2SeqLM as M; "
    'M.from_pretrained("DIR").save_pretrained("NEW", safe_serialization=True)`'
)


class Tensors(Mapping):
    """The arrays of files, from their names. An array is mapped into memory while somebody holds it, and no longer.

    Args:
        makers: dict from names to functions without arguments that give the arrays.
    """

    def __init__(self, makers):
        self._makers = makers

    def __getitem__(self, name):
        return self._makers[name]()

    def __iter__(self):
        return iter(self._makers)

    def __len__(self):
        return len(self._makers)


class ImportedModelError(UserError):
    """A model of another program that cannot be read, or that has no equal here."""


def file_in(directory, name):
    """The path of a file in a directory.

    Raises:
        ImportedModelError: if there is none, or if the name leads out of the directory.
    """
    path = Path(directory, name)
    if Path(name).name != name:
        raise ImportedModelError(f"{directory} names a file outside of it: {name!r}")
    if not path.is_file():
        raise ImportedModelError(f"{directory} has no {name}")
    check_no_pointer(path)
    return path


def check_no_pointer(path):
    """Raises ImportedModelError for the small file that `git clone` leaves where git-lfs is not installed."""
    try:
        with open(path, "rb") as file:
            start = file.read(len(POINTER))
    except OSError as error:
        raise FileError.of("read", path, error) from error
    if start == POINTER:
        raise ImportedModelError(
            f"{path} is a pointer of git-lfs, not the file: run `git lfs pull` in {path.parent}, or download it"
        )


def read_json(directory, name):
    """The object in a JSON file of a directory, a dict. Raises ImportedModelError."""
    path = file_in(directory, name)
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise FileError.of("read", path, error) from error
    except (ValueError, RecursionError) as error:
        raise ImportedModelError(f"{path} is not JSON, or is damaged: {error}") from None
    if not isinstance(found, dict):
        raise ImportedModelError(f"{path} must hold a JSON object. Received: {type(found).__name__}")
    return found


def open_tensors(directory):
    """The weights of a directory of Hugging Face.

    Args:
        directory: path. It holds model.safetensors or pytorch_model.bin, or parts and an index: NAME.index.json.

    Returns:
        `Tensors`, or another mapping from names to arrays that stay on the disk.

    Raises:
        ImportedModelError: if there is no file of weights, or it is damaged.
    """
    for name, read in (("model.safetensors", read_safetensors), ("pytorch_model.bin", read_torch)):
        if Path(directory, name).exists():
            return read(file_in(directory, name))
        index = f"{name}.index.json"
        if Path(directory, index).exists():
            places = read_json(directory, index).get("weight_map")
            if not isinstance(places, dict) or not places:
                raise ImportedModelError(f"{directory}/{index} must name the part of each weight. {CONVERT}")
            parts = sorted({str(part) for part in places.values()})
            return collections.ChainMap(*(read(file_in(directory, part)) for part in parts))
    others = sorted(path.name for pattern in WEIGHTS for path in Path(directory).glob(pattern))
    raise ImportedModelError(
        f"{directory} has no weights: neither model.safetensors nor pytorch_model.bin, whole or in parts"
        + (f". It has {', '.join(others)}. {CONVERT}" if others else "")
    )


def read_safetensors(path):
    """The arrays of a .safetensors file, as in `open_tensors`.

    The file starts with the length of a JSON object (8 bytes), which names dtype, shape and place of every array.
    """
    size = path.stat().st_size
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > min(size - 8, MOST_HEADER):
            raise ImportedModelError(f"{path} is not a safetensors file, or is damaged: its header is cut off")
        header = file.read(length)
    try:
        entries = json.loads(header)
        entries.pop("__metadata__", None)
        return Tensors({name: _array(path, 8 + length, entry) for name, entry in entries.items()})
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ImportedModelError(f"{path} is not a safetensors file, or is damaged: {error}") from None


def _array(path, start, entry):
    """The maker of an array of a .safetensors file, whose arrays begin at the byte `start`."""
    begin, end = entry["data_offsets"]
    dtype, shape = np.dtype(DTYPES[entry["dtype"]]), tuple(entry["shape"])
    if end - begin != math.prod(shape) * dtype.itemsize:
        raise ValueError(f"an array of shape {shape} has {end - begin} bytes")
    return on_disk(path, dtype, start + begin, shape)


def on_disk(path, dtype, offset, shape):
    """The maker of an array of a file. Raises ValueError if the file has no room for the array."""
    if min((offset, *shape)) < 0 or offset + math.prod(shape) * dtype.itemsize > path.stat().st_size:
        raise ValueError(f"an array of shape {shape} ends behind the end of the file")
    if math.prod(shape) == 0:
        return partial(np.zeros, shape, dtype)
    return partial(np.memmap, path, dtype, "r", offset, shape)


def read_npz(path):
    """The arrays of an .npz file, as in `open_tensors`. Objects that need a pickle are refused."""
    try:
        with zipfile.ZipFile(path) as archive:
            if any(entry.compress_type != zipfile.ZIP_STORED for entry in archive.infolist()):
                raise ValueError("its arrays are compressed")
        arrays = np.load(path, allow_pickle=False)
        return Tensors({name: partial(_member, path, arrays, name) for name in arrays.files})
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise ImportedModelError(f"{path} is not a file of weights, or is damaged: {error}") from None


def _member(path, arrays, name):
    try:
        return arrays[name]
    except Exception as error:  # of zipfile or NumPy, depending on where the file is damaged
        raise ImportedModelError(f"{path} is damaged: {name}: {error}") from None


def read_torch(path):
    """The arrays of a file of torch.save, as in `open_tensors`. Of its pickle, only names and places are taken.

    Raises:
        ImportedModelError: for a file of PyTorch before 1.6, and for a pickle that asks for more than tensors.
    """
    if not zipfile.is_zipfile(path):
        raise ImportedModelError(f"{path} is damaged, or was saved by PyTorch before 1.6. {CONVERT}")
    try:
        with zipfile.ZipFile(path) as archive:
            (name,) = (name for name in archive.namelist() if name.endswith("/data.pkl"))
            reader = _Reader(path, archive, name.removesuffix("data.pkl"))
            found = reader.load()
        return Tensors({str(name): make for name, make in found.items() if isinstance(make, partial)})
    except ImportedModelError:
        raise
    except Exception as error:  # of zipfile or pickle, depending on where the file is damaged
        raise ImportedModelError(f"{path} is not a file of weights, or is damaged: {error}") from None


class _Reader(pickle.Unpickler):
    """Reads the pickle of a state dict. It makes dicts and arrays, and refuses every other class and function."""

    def __init__(self, path, archive, folder):
        super().__init__(archive.open(f"{folder}data.pkl"))
        self._path, self._archive, self._folder = path, archive, folder

    def find_class(self, module, name):
        if (module, name) == ("collections", "OrderedDict"):
            return collections.OrderedDict
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return _strided
        if (module, name) == ("torch._utils", "_rebuild_parameter"):
            return _first
        if module == "torch" and name in STORAGES:
            return STORAGES[name]
        raise ImportedModelError(f"{self._path} asks for {module}.{name}, which is no weight. {CONVERT}")

    def persistent_load(self, saved):
        _, storage, key, _, count = saved
        info = self._archive.getinfo(f"{self._folder}data/{key}")
        if info.compress_type != zipfile.ZIP_STORED:
            raise ValueError("its weights are compressed")
        with open(self._path, "rb") as file:  # the header of an entry: 30 bytes, a name and an extra field
            file.seek(info.header_offset + 26)
            lengths = [int.from_bytes(file.read(2), "little") for _ in range(2)]
        return on_disk(self._path, np.dtype(DTYPES[storage]), info.header_offset + 30 + sum(lengths), (count,))


def _strided(storage, offset, shape, strides, *_):
    """The maker of an array in a storage (N,), itself a maker. Raises ValueError if it would leave the storage."""
    (count,) = storage.args[-1] if storage.func is np.memmap else (0,)
    last = offset + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
    if min((offset, *shape, *strides)) < 0 or (math.prod(shape) and last >= count):
        raise ValueError(f"an array of shape {tuple(shape)} leaves its storage")
    return partial(_view, storage, offset, shape, strides)


def _view(storage, offset, shape, strides):
    array = storage()
    steps = [stride * array.itemsize for stride in strides]
    return np.lib.stride_tricks.as_strided(array[offset:], shape, steps, writeable=False)


def _first(make, *_):
    return make


def read_checkpoint(path, start):
    """The arrays of a checkpoint of TensorFlow 2, as in `open_tensors`. Those of an optimizer are left out.

    Args:
        path: of the checkpoint, without .index.
        start: the names of the arrays must begin with it. It is left out of them.

    Raises:
        ImportedModelError: if the checkpoint is damaged, or names larger arrays than its files have room for.
    """
    shards = list(path.parent.glob(f"{glob.escape(path.name)}.data-*"))
    if not shards:
        raise ImportedModelError(f"{path.parent} has no {path.name}.data-00000-of-00001")
    for file in (path.with_name(f"{path.name}.index"), *shards):
        check_no_pointer(file)
    try:
        reader = tf.train.load_checkpoint(str(path))
        dtypes = reader.get_variable_to_dtype_map()
        shapes = {name: shape for name, shape in reader.get_variable_to_shape_map().items() if name.endswith(VALUE)}
        wanted = {name for name in shapes if name.startswith(start) and dtypes[name].is_floating}
        sizes = [math.prod(shapes[name]) * dtypes[name].size for name in wanted]
    except (tf.errors.OpError, RuntimeError, ValueError, TypeError) as error:
        raise ImportedModelError(f"{path}.index is damaged: {' '.join(str(error).split())[:200]}") from None
    if sum(sizes) > sum(shard.stat().st_size for shard in shards):
        raise ImportedModelError(f"{shards[0]} is cut off: it has no room for all arrays")
    names = {name: name.removeprefix(start).removesuffix(VALUE) for name in wanted if SLOT not in name}
    return Tensors({short: partial(_variable, path, reader, name) for name, short in names.items()})


def _variable(path, reader, name):
    try:
        return reader.get_tensor(name)
    except (tf.errors.OpError, RuntimeError, ValueError) as error:
        raise ImportedModelError(f"{path} is damaged: {name}: {' '.join(str(error).split())[:200]}") from None
