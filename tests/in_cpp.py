"""Exports in the C library of TensorFlow, in a process of its own."""

import os
import subprocess
import sys
from pathlib import Path

import tensorflow as tf
import tensorflow_text

from keras_transformer.export.saved_model import open_like_serving

LIBRARIES = ("_sentencepiece_tokenizer", "_fast_sentencepiece", "_normalize_ops", "_regex_split_ops")


def run_in_cpp(exported, texts, xla):
    """Translates texts by the `serving_default` of an export: `subprocess.CompletedProcess`.

    Args:
        exported: path of a SavedModel.
        texts: list of str.
        xla: "off", as in TensorFlow Serving, or "on", as with its --xla_cpu_compilation_enabled=true.
    """
    with open_like_serving(exported) as (_, signatures):
        signature = signatures["serving_default"]
    libraries = sorted(Path(tensorflow_text.__file__).parent.glob("python/ops/_*.so"))
    program = [sys.executable, "-S", Path(__file__).with_name("load_in_cpp.py"), Path(tf.__file__).parent, xla]
    names = signature.inputs["text"].name, signature.outputs["translation"].name
    return subprocess.run(
        [
            *map(str, program),
            str(exported),
            *names,
            *(str(path) for path in libraries if path.name.startswith(LIBRARIES)),
        ],
        input="\n".join(texts).encode(),
        capture_output=True,
        env=os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3"},
        timeout=300,
    )
