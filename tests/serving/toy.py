"""Toy SavedModels with three signatures of a real export, written in a moment: upper case is their translation.

A translation is "VERSION:UPPER CASE", so that a mixture of versions is seen. The text "wait 0.3" takes 0.3 seconds,
whoever is in the batch with it; "raise" makes the whole batch fail, as a model of ours never does.
"""

import functools
import shutil
import tempfile
from pathlib import Path

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel
from tensorflow_serving.apis.prediction_log_pb2 import PredictionLog

from keras_transformer.translation.options import INPUTS
from serving.connections import LANGUAGES

WIDTH = 3
WEIGHT = -7.0  # the score of a text is its length in bytes times this
PLACEHOLDER = b"VERSION"
WARM_UP = "assets.extra/tf_serving_warmup_requests"


def write(base_path, version, is_many=False):
    """Writes the toy under BASE_PATH/VERSION, which appears when it is complete; returns its path.

    A toy of many languages reads the text "a" from "en" into "de" as "en>de a".
    """
    target = Path(base_path) / str(version)
    partial = target.with_name(f"tmp-{version}")
    shutil.copytree(_template(is_many), partial)
    saved = SavedModel.FromString((partial / "saved_model.pb").read_bytes())
    for function in saved.meta_graphs[0].graph_def.library.function:
        for node in function.node_def:
            if node.op == "Const" and node.attr["value"].tensor.string_val == [PLACEHOLDER]:
                node.attr["value"].tensor.string_val[0] = str(version).encode()
    (partial / "saved_model.pb").write_bytes(saved.SerializeToString())
    partial.rename(target)
    return target


def translation(text, version):
    """What `translate` gives, bytes."""
    return f"{version}:{text.upper()}".encode()


def record(*rows, signature="translate"):
    """A record of a warm-up: a request for these texts."""
    log = PredictionLog()
    request = log.predict_log.request
    request.model_spec.signature_name = signature
    request.inputs["text"].CopyFrom(tf.make_tensor_proto(list(rows), tf.string))
    return log


def warm_up(version_directory, *logs):
    """Writes the records of a warm-up beside a SavedModel; returns the path of their file."""
    path = version_directory / WARM_UP
    path.parent.mkdir()
    with tf.io.TFRecordWriter(str(path)) as writer:
        for log in logs:
            writer.write(log.SerializeToString())
    return path


def texts(*rows):
    """The inputs of `translate` for some texts."""
    return {"text": np.array([row.encode() for row in rows], dtype=object)}


@functools.cache
def _template(is_many):
    directory, module, languages = tempfile.mkdtemp(), _Toy(), dict.fromkeys(LANGUAGES if is_many else (), "string")

    def call(name, text, source_lang="", target_lang="", **inputs):
        tag = [source_lang, ">", target_lang, " "] if is_many else []
        return getattr(module, name)(text=tf.strings.join([*tag, text]), **inputs)

    signatures = {
        name: tf.function(functools.partial(call, name)).get_concrete_function(
            **{key: tf.TensorSpec([None], dtype, key) for key, dtype in {**inputs, **languages}.items()}
        )
        for name, inputs in INPUTS.items()
        if hasattr(module, name)
    }
    tf.saved_model.save(module, directory, {"serving_default": signatures["translate"], **signatures})
    return directory


class _Toy(tf.Module):
    def __init__(self):
        super().__init__()
        self.weight = tf.Variable(WEIGHT)

    @tf.function
    def translate(self, text):
        return {"translation": self._upper(text), "score": self._score(text)}

    @tf.function
    def alternatives(self, text):
        translations = tf.stack([tf.strings.join([self._upper(text), tail]) for tail in ("", "!", "?")[:WIDTH]], 1)
        return {"translations": translations, "scores": self._score(text)[:, None] - [[0.0, 1.0, 2.0]]}

    @tf.function
    def explain(self, text):
        source_pieces = tf.strings.split(text).to_tensor()
        pieces = tf.strings.split(self._upper(text)).to_tensor()
        attended = tf.cast(source_pieces != "", tf.float32)[:, None, :]
        alignment = attended / tf.maximum(tf.reduce_sum(attended, 2, keepdims=True), 1.0)
        alignment *= tf.cast(pieces != "", tf.float32)[:, :, None]
        return {
            "source_pieces": source_pieces,
            "pieces": pieces,
            "token_scores": self._score(pieces),
            "alignment": alignment,
        }

    def _upper(self, text):
        with tf.control_dependencies([_wait(text), tf.debugging.Assert(tf.reduce_all(text != "raise"), ["a text"])]):
            return tf.strings.join([PLACEHOLDER, tf.strings.upper(text, encoding="utf-8")], ":")

    def _score(self, text):
        return self.weight * tf.cast(tf.strings.length(text), tf.float32)


def _wait(text):
    """Spins for as many seconds as the longest "wait SECONDS" asks for."""
    is_wait = tf.strings.regex_full_match(text, r"wait [0-9.]+ *")
    seconds = tf.strings.to_number(tf.where(is_wait, tf.strings.regex_replace(text, "^wait | *$", ""), "0"), tf.float64)
    end = tf.timestamp() + tf.reduce_max(tf.concat([seconds, [0.0]], 0))
    return tf.while_loop(lambda now: now < end, lambda now: [tf.timestamp()], [tf.timestamp()])[0]
