"""A trained run as one SavedModel that stock TensorFlow Serving runs: text in, text out."""

import contextlib
import hashlib
import inspect
import itertools
import json
import os
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

from keras_transformer.errors import ExportError, counted
from keras_transformer.export.compact import compact_saved_model
from keras_transformer.export.warmup import describe_warm_up, read_warm_up, replay, write_warm_up
from keras_transformer.layers.embedding import columns_of
from keras_transformer.layers.kernels import Linear, spread
from keras_transformer.private_api import layers_in
from keras_transformer.translation.options import LANGUAGE_INPUTS

LEAST_EQUAL_ROUNDED = 0.8  # share of the translations that stay the same where numbers are rounded otherwise

# What people without this project do with an export. On the CPU, because the process that exports may hold the GPU.
IN_PYTHON = """
import json, sys

try:
    import tensorflow as tf
    import tensorflow_text

    tf.config.set_visible_devices([], "GPU")
    inputs = {name: tf.constant(values) for name, values in json.load(sys.stdin).items()}
    outputs = tf.saved_model.load(sys.argv[1]).signatures["serving_default"](**inputs)
    print(json.dumps([text.decode("utf-8") for text in outputs["translation"].numpy()]))
except Exception as error:
    sys.exit(" ".join(f"{type(error).__name__}: {error}".split()))
"""


class Columns(tf.saved_model.experimental.TrackableResource):
    """The matrix of the logits as `logits_of` reads it, laid out when a SavedModel is loaded.

    No file holds it. If every call laid it out, a sentence would take a tenth more time.

    Args:
        model: `SequenceToSequence`.
    """

    def __init__(self, model):
        super().__init__()
        self._matrix, self._dtype = model.output_matrix.value, model.compute_dtype
        # All exports that a process loads share a resource of one name. So the name has a hash of the content.
        content = keras.ops.convert_to_numpy(model.output_matrix).tobytes()
        self._name = f"columns_{self._dtype}_{hashlib.sha256(content).hexdigest()[:32]}"
        self._handle = self.resource_handle  # made here, so that functions capture it

    def _create_resource(self):
        return tf.raw_ops.VarHandleOp(dtype=self._dtype, shape=self._matrix.shape[::-1], shared_name=self._name)

    def _initialize(self):
        columns = columns_of(self._matrix, self._dtype)
        tf.raw_ops.AssignVariableOp(resource=self.resource_handle, value=columns)

    def read(self):
        """The matrix (D, V)."""
        columns = tf.raw_ops.ReadVariableOp(resource=self._handle, dtype=self._dtype)
        return tf.ensure_shape(columns, self._matrix.shape[::-1])


class ServingModule(tf.Module):
    """The weights, the tokenizers and the shortlist of a SavedModel, each once, and the columns of the logits.

    The Keras model itself is not an attribute: Keras would save copies of its variables, and TensorFlow Serving would
    restore the copies instead of the variables that the functions read. The functions close over the model.

    Args:
        translator: `Translator`.
        columns: list of the `Columns` of its model's members.
        variables: list of the tf.Variable that the functions read.
    """

    def __init__(self, translator, columns, variables):
        super().__init__(name="translation")
        self.columns = columns
        self.variables_ = variables
        self.source_tokenizer = translator.source_tokenizer
        self.target_tokenizer = translator.target_tokenizer
        self.shortlist = translator.shortlist


class SavedModelExport:
    """An export for TensorFlow Serving: tokenizer, search and detokenizer are inside.

    Args:
        translator: `Translator` of the run.
        precision: "float32" or "bfloat16", of the weights and of the computation. bfloat16 halves the size, and
            changes a few translations; it is fast only where the hardware multiplies it.
        shortlist: dict for the manifest: the changes by the translator's shortlist. None if it has no shortlist.
    """

    libraries = ()
    programs, warm_up_texts = None, ()  # see `Signatures` and `warm_up_requests`

    def __init__(self, translator, precision="float32", shortlist=None):
        if precision not in ("float32", "bfloat16"):
            raise ExportError(f"`precision` of a SavedModel must be float32 or bfloat16. Received: {precision}")
        self.reference, self.precision, self.shortlist = translator, precision, shortlist
        is_exact = precision == "float32"
        self.least_equal, self.score_tolerance = (1.0, 1e-4) if is_exact else (LEAST_EQUAL_ROUNDED, np.inf)
        self.advice = "report it, as no setting helps" if is_exact else "choose `precision` float32"

    def write(self, directory):
        """Writes the SavedModel, and the requests that warm it up, into an empty directory."""
        model = in_precision(self.reference.model, self.precision)
        columns, variables = [Columns(member) for member in model.members()], lay_out(model)

        def projections(members):
            return [(each.read(), member.output_bias) for each, member in zip(columns, members, strict=True)]

        translator = self.reference.with_model(model, projections=projections, programs=self.programs)
        functions = translator.signatures.functions()
        signatures = {"serving_default": functions["translate"], **functions}
        options = tf.saved_model.SaveOptions(experimental_custom_gradients=False)  # a loader cannot read that of swish
        tf.saved_model.save(ServingModule(translator, columns, variables), str(directory), signatures, options)
        compact_saved_model(directory)
        share_default(directory)
        write_warm_up(directory, translator.tags, self.warm_up_texts)

    @contextlib.contextmanager
    def opened(self, directory):
        """A context with the function of the export that does as `expected`, after its warm-up.

        The function translates in a Session, as TensorFlow Serving does. At the end of the context, another process
        loads the export as people do in Python, and translates the same sentences.

        Raises:
            ExportError: if the other process fails, or if more of its translations differ than the export allows.
        """
        requests, translated = read_warm_up(directory), []

        def translate_batch(sentences):
            outputs = run(session, signatures["serving_default"], sentences, **self.languages(len(sentences)))
            return [text.decode("utf-8") for text in outputs["translation"]], outputs["score"].tolist()

        def translate(sentences):
            texts, scores = translate_batch(sentences)
            self.check(translate_batch, sentences)
            translated.append((sentences, texts))
            return texts, scores

        with open_like_serving(directory) as (session, signatures):
            replay(session, signatures, requests)
            yield translate
        for sentences, texts in translated:  # now, when the memory of the Session is free
            self.check_in_python(directory, sentences, texts)

    def check(self, translate_batch, sentences):
        """A subclass may prove more: it translates by `translate_batch`, in the Session, and raises ExportError."""

    def check_in_python(self, directory, sentences, texts):
        """Raises ExportError if Python's loader translates otherwise than a Session, which found `texts`."""
        found = translate_in_python(directory, {"text": sentences, **self.languages(len(sentences))})
        differing = [row for row in zip(sentences, found, texts, strict=True) if row[1] != row[2]]
        has_gpu = bool(tf.config.list_physical_devices("GPU"))  # which rounds otherwise than the CPU
        least_equal = LEAST_EQUAL_ROUNDED if has_gpu else self.least_equal
        if len(sentences) - len(differing) < least_equal * len(sentences):
            sentence, text, other = differing[0]
            raise ExportError(
                f"`tf.saved_model.load` of the export translates {sentence!r} to {text!r}, TensorFlow Serving to "
                f"{other!r}; they differ in {len(differing)} of {counted(len(sentences), 'sentence')}: {self.advice}"
            )

    def expected(self, sentences):
        """The translations and the scores of the run. Of a model of many languages, they are of all directions."""
        if not self.reference.tags:
            return self.reference.translate_batch(sentences)
        found = self.reference.translate_scored(sentences, **self.languages(len(sentences)))
        return [row.text for row in found], [row.score for row in found]

    def languages(self, number):
        """Languages for `number` sentences, each direction in turn: dict of lists; {} for a model of one direction."""
        tags = self.reference.tags
        if not tags:
            return {}
        others = [pair for pair in itertools.product(tags.sources, tags.targets) if len(set(pair)) > 1]
        pairs = itertools.islice(itertools.cycle([tags.default, *others]), number)
        return dict(zip(LANGUAGE_INPUTS, map(list, zip(*pairs, strict=True)), strict=True))

    def describe(self, directory):
        """The entries of the manifest for this format, a dict."""
        model = SavedModel.FromString((Path(directory) / "saved_model.pb").read_bytes())
        return {
            "format": "saved_model",
            "weights": self.precision,
            "search": self.reference.settings,
            **({"shortlist": self.shortlist} if self.shortlist else {}),
            **({"languages": self.reference.tags.listed()} if self.reference.tags else {}),
            "signatures": describe_signatures(model.meta_graphs[0].signature_def),
            "warm_up": describe_warm_up(directory),
        }


def share_default(directory):
    """Makes `serving_default` another name of `translate`.

    TensorFlow writes a graph for each signature, and a server prepares each graph at its first request.
    """
    path = Path(directory, "saved_model.pb")
    model = SavedModel.FromString(path.read_bytes())
    (graph,) = model.meta_graphs
    graph.signature_def["serving_default"].CopyFrom(graph.signature_def["translate"])
    path.write_bytes(model.SerializeToString(deterministic=True))


def in_precision(model, precision):
    """A copy of a `SequenceToSequence`, with its weights and computation in "float32" or "bfloat16"."""
    copy = type(model).from_config({**model.get_config(), "dtype": precision})
    for variable, original in zip(copy.weights, model.weights, strict=True):
        variable.assign(original)
    return copy


def lay_out(model):
    """Spreads the kernels of a model (see `spread`): a list of all its variables, as a SavedModel holds them."""
    laid_out = {}
    for linear in layers_in(model, Linear):
        linear.laid_out = laid_out[id(linear.kernel)] = tf.Variable(spread(linear.kernel))
    return [laid_out.get(id(variable), variable.value) for variable in model.weights]


def describe_signatures(definitions):
    """name -> {"inputs": ..., "outputs": ...}, each name -> dtype and shape; a size that the batch decides is null."""

    def describe(tensors):
        return {
            name: {
                "dtype": tf.dtypes.as_dtype(tensor.dtype).name,
                "shape": [None if dim.size < 0 else dim.size for dim in tensor.tensor_shape.dim],
            }
            for name, tensor in sorted(tensors.items())
        }

    return {
        name: {"inputs": describe(definition.inputs), "outputs": describe(definition.outputs)}
        for name, definition in sorted(definitions.items())
        if not name.startswith("__")  # TensorFlow's own
    }


@contextlib.contextmanager
def open_like_serving(path):
    """Loads a SavedModel as TensorFlow Serving does, whatever this process has set: (Session, name -> SignatureDef)."""
    with contextlib.closing(tf.compat.v1.Session(graph=tf.Graph(), config=tf.compat.v1.ConfigProto())) as session:
        load = inspect.unwrap(tf.compat.v1.saved_model.loader.load)  # without its warning that it is old
        yield session, load(session, ["serve"], str(path)).signature_def


def run(session, signature, sentences, **languages):
    """Feeds sentences, and their languages if it takes them, to `translate`: output name -> NumPy array."""
    fetches = {name: tensor.name for name, tensor in signature.outputs.items()}
    columns = {"text": sentences, **languages}
    feeds = {name: np.array([value.encode("utf-8") for value in values], object) for name, values in columns.items()}
    return session.run(fetches, {signature.inputs[name].name: values for name, values in feeds.items()})


def translate_in_python(directory, inputs):
    """Translates in another process, which imports TensorFlow and TensorFlow Text alone.

    Args:
        directory: path of a SavedModel.
        inputs: dict, input of `serving_default` -> list of str.

    Returns:
        list of str.

    Raises:
        ExportError: if the process fails. The error has the last line that the process wrote.
    """
    process = subprocess.run(
        [sys.executable, "-c", IN_PYTHON, Path(directory).absolute()],
        input=json.dumps(inputs),
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        cwd=directory,  # Python imports from the working directory. An export has no modules.
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
    )
    if process.returncode:
        said = (process.stderr.strip() or f"the process ended with status {process.returncode}").splitlines()[-1]
        raise ExportError(f"`tf.saved_model.load` in another process cannot translate with the export: {said}")
    return json.loads(process.stdout.splitlines()[-1])
