"""Exports in the C library of TensorFlow alone, with XLA off or on, as stock TensorFlow Serving runs them.

    python -S tests/in_cpp.py TENSORFLOW_DIR {off,on} EXPORT_DIR INPUT OUTPUT OP_LIBRARY... < texts

INPUT and OUTPUT are names of string tensors, such as serving_default_text:0. Every line of standard input is one text;
every line of standard output is one result.
"""

import ctypes
import os
import subprocess
import sys
from ctypes import Structure, byref, c_char_p, c_int, c_int64, c_size_t, c_void_p
from pathlib import Path

LIBRARIES = ("_sentencepiece_tokenizer", "_fast_sentencepiece", "_normalize_ops", "_regex_split_ops")
STRING, STRING_BYTES = 7, 24  # TF_STRING, sizeof(TF_TString)


class Output(Structure):
    """TF_Output."""

    _fields_ = [("operation", c_void_p), ("index", c_int)]


class Library:
    """The functions of the C library, with a status that is checked after each call that takes one."""

    def __init__(self, tensorflow_dir, has_xla):
        self.functions = ctypes.CDLL(f"{tensorflow_dir}/libtensorflow_cc.so.2", mode=ctypes.RTLD_GLOBAL)
        if not has_xla:
            self.functions._ZN10tensorflow21DisableXlaCompilationEv()
        self.status = self.call("TF_NewStatus")

    def call(self, name, *arguments, result=c_void_p):
        function = getattr(self.functions, name)
        function.restype = result
        return function(*(c_void_p(x) if isinstance(x, int) and x > 2**31 else x for x in arguments))

    def checked(self, name, *arguments):
        found = self.call(name, *arguments, c_void_p(self.status))
        if self.call("TF_GetCode", self.status, result=c_int):
            sys.exit(f"{name}: {self.call('TF_Message', self.status, result=c_char_p).decode()}")
        return found

    def string_tensor(self, texts):
        dims, size = (c_int64 * 1)(len(texts)), c_size_t(STRING_BYTES * len(texts))
        tensor = self.call("TF_AllocateTensor", STRING, dims, 1, size)
        data = self.call("TF_TensorData", tensor)
        for i, text in enumerate(texts):
            self.call("TF_StringInit", data + i * STRING_BYTES, result=None)
            self.call("TF_StringCopy", data + i * STRING_BYTES, text, c_size_t(len(text)), result=None)
        return tensor

    def strings(self, tensor):
        data = self.call("TF_TensorData", tensor)
        for i in range(self.call("TF_TensorElementCount", tensor, result=c_int64)):
            text = self.call("TF_StringGetDataPointer", data + i * STRING_BYTES)
            yield ctypes.string_at(text, self.call("TF_StringGetSize", data + i * STRING_BYTES, result=c_size_t))


def run_in_cpp(exported, texts, xla):
    """Translates texts by the `serving_default` of an export: `subprocess.CompletedProcess`.

    Args:
        exported: path of a SavedModel.
        texts: list of str.
        xla: "off", as in TensorFlow Serving, or "on", as with its --xla_cpu_compilation_enabled=true.
    """
    import tensorflow as tf
    import tensorflow_text

    from keras_transformer.export.saved_model import open_like_serving

    with open_like_serving(exported) as (_, signatures):
        signature = signatures["serving_default"]
    paths = sorted(Path(tensorflow_text.__file__).parent.glob("python/ops/_*.so"))
    libraries = [path for path in paths if path.name.startswith(LIBRARIES)]
    program = [sys.executable, "-S", __file__, Path(tf.__file__).parent, xla]
    names = signature.inputs["text"].name, signature.outputs["translation"].name
    return subprocess.run(
        [*map(str, program), str(exported), *names, *map(str, libraries)],
        input="\n".join(texts).encode(),
        capture_output=True,
        env=os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3"},
        timeout=300,
    )


def main(tensorflow_dir, xla, export_dir, input_name, output_name, *op_libraries):
    library = Library(tensorflow_dir, has_xla=xla == "on")
    for path in op_libraries:
        library.checked("TF_LoadLibrary", path.encode())
    graph, options = library.call("TF_NewGraph"), library.call("TF_NewSessionOptions")
    tags = (c_char_p * 1)(b"serve")
    session = library.checked("TF_LoadSessionFromSavedModel", options, None, export_dir.encode(), tags, 1, graph, None)

    def output(name):
        operation, _, index = name.partition(":")
        return Output(library.call("TF_GraphOperationByName", graph, operation.encode()), int(index))

    texts = sys.stdin.buffer.read().splitlines()
    fed, fetched = (c_void_p * 1)(library.string_tensor(texts)), (c_void_p * 1)()
    given, wanted = output(input_name), output(output_name)
    runs = (None, byref(given), fed, 1, byref(wanted), fetched, 1, None, 0, None)
    library.checked("TF_SessionRun", session, *runs)
    for line in library.strings(fetched[0]):
        print(line.decode(), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
