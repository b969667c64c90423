"""Runs a SavedModel by the C library of TensorFlow alone, with XLA off or on, as stock TensorFlow Serving does.

    python tests/load_in_cpp.py TENSORFLOW_DIR {off,on} EXPORT_DIR INPUT OUTPUT OP_LIBRARY... < texts

INPUT and OUTPUT are names of string tensors, such as serving_default_text:0. Every line of standard input is one text;
every line of standard output is one result.
"""

import ctypes
import sys
from ctypes import Structure, byref, c_char_p, c_int, c_int64, c_size_t, c_void_p

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
