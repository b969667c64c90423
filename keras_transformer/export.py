"""A trained run as one SavedModel that stock TensorFlow Serving runs: text in, text out."""

import shutil
from pathlib import Path

import numpy as np
import tensorflow as tf

from keras_transformer.translator import translate_text

PROBES = (
    "A man is riding a bike.",
    "Zwei Hunde spielen im Schnee.",
    "3 March 2026, 14:05",
    "</s> <pad> 100 % \U0001f600",
    "",
    " \t\n",
)


class ExportError(ValueError):
    """An export that cannot be made or does not agree with its model; the message is one clear line."""


class ServingModule(tf.Module):
    """What the SavedModel holds: the signatures, the weights once, and the tokenizer.

    The Keras model itself is not an attribute: Keras would save copies of its variables, which TensorFlow Serving
    restores instead of those that the functions read. The functions close over the model, and its variables are
    tracked here as they are.

    Args:
        translator: `Translator`.
    """

    def __init__(self, translator):
        super().__init__(name="translation")
        self.variables_ = [variable.value for variable in translator.model.weights]
        self.tokenizer = translator.tokenizer
        model, tokenizer, options = translator.model, translator.tokenizer, translator.options

        @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="text")])
        def translate(text):
            translation = translate_text(model, tokenizer, text, **options)
            return {"translation": translation.text, "score": translation.score}

        self.translate = translate


def next_version(export_dir):
    """The smallest integer above every version in EXPORT_DIR; 1 in an empty one."""
    versions = [int(path.name) for path in Path(export_dir).glob("*") if path.name.isdigit()]
    return max(versions, default=0) + 1


def export_saved_model(translator, export_dir, version=None, sentences=()):
    """Writes EXPORT_DIR/VERSION and proves it against the translator.

    The files are written under a temporary name and renamed when proven, so that TensorFlow Serving, which polls the
    directory, never sees half a model.

    Args:
        translator: `Translator`.
        export_dir: directory of all versions; made if there is none.
        version: positive int; the next free one by default. An existing one is never overwritten.
        sentences: list of str to compare translations on, besides a few of our own.

    Returns:
        Path of the version.

    Raises:
        ExportError: if the version exists or is not positive, or the reloaded model translates differently.
    """
    export_dir = Path(export_dir)
    version = next_version(export_dir) if version is None else version
    if version < 1:
        raise ExportError(f"--version must be a positive integer. Received: {version}")
    final, temporary = export_dir / str(version), export_dir / f".{version}.partial"
    if final.exists():
        raise ExportError(f"{final} exists; a version is never overwritten: choose another --version or leave it out")
    shutil.rmtree(temporary, ignore_errors=True)
    try:
        module = ServingModule(translator)
        signatures = {"serving_default": module.translate, "translate": module.translate}
        tf.saved_model.save(module, str(temporary), signatures=signatures)
        check_parity(translator, temporary, [*PROBES, *sentences])
        temporary.rename(final)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return final


def check_parity(translator, path, sentences):
    """Loads the SavedModel as TensorFlow Serving does, through a Session, and compares it with the translator.

    Args:
        translator: `Translator`.
        path: directory of the SavedModel.
        sentences: list of str.

    Raises:
        ExportError: if a translation or a score differs.
    """
    expected_texts, expected_scores = translator.translate_batch(sentences)
    outputs = run_like_serving(path, sentences)
    texts = [text.decode("utf-8") for text in outputs["translation"]]
    for sentence, expected, text in zip(sentences, expected_texts, texts, strict=True):
        if expected != text:
            raise ExportError(f"the export translates {sentence!r} to {text!r}, the run directory to {expected!r}")
    if not np.allclose(expected_scores, outputs["score"], atol=1e-4):
        raise ExportError(f"the export scores {outputs['score']}, the run directory {expected_scores}")


def run_like_serving(path, sentences, signature="serving_default"):
    """Feeds sentences to a signature of a SavedModel through a Session, the restore path of TensorFlow Serving.

    Returns:
        output name -> NumPy array.
    """
    with tf.compat.v1.Session(graph=tf.Graph()) as session:
        definition = tf.compat.v1.saved_model.loader.load(session, ["serve"], str(path)).signature_def[signature]
        fetches = {name: tensor.name for name, tensor in definition.outputs.items()}
        texts = np.array([sentence.encode("utf-8") for sentence in sentences], dtype=object)
        return session.run(fetches, {definition.inputs["text"].name: texts})
