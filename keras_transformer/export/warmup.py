"""The warm-up: requests that TensorFlow Serving replays before it calls a version available.

The first run of a signature takes far longer than later runs. With a warm-up, no user waits for the first run.
TensorFlow Serving reads the requests from a file beside the SavedModel. If one request fails, TensorFlow Serving does
not load the version. The export therefore replays every request.
"""

from pathlib import Path

import numpy as np
import tensorflow as tf
from tensorflow_serving.apis.predict_pb2 import PredictRequest
from tensorflow_serving.apis.prediction_log_pb2 import PredictionLog

from keras_transformer.errors import ExportError
from keras_transformer.translation.options import INPUTS, LANGUAGE_INPUTS, OPTIONS, inputs_of

FILE = Path("assets.extra", "tf_serving_warmup_requests")
TEXT = "A man is riding a bike."  # Long or odd text makes a load slower: the search then runs to its limit.
BATCH_SIZES = (1, 16)  # A single request, and `max_batch_size` of serving/config/batching.config.


def warm_up_requests(tags=None, texts=()):
    """Returns one PredictRequest per signature and batch size, and one per text: list. They name no model.

    There is none for `serving_default`, which is another name of `translate`.

    Args:
        tags: `LanguageTags` of a model of many languages, or None.
        texts: (text, batch size) of more requests of `translate`.
    """
    wanted = [(signature, TEXT, size) for signature in INPUTS for size in BATCH_SIZES]
    return [warm_up_request(*each, tags) for each in [*wanted, *(("translate", *text) for text in texts)]]


def warm_up_request(signature, text, batch_size, tags):
    """Makes a request with a text in every row and with the example of each option, so every operation runs.

    Args:
        signature: str.
        text: str.
        batch_size: int.
        tags: see `warm_up_requests`.

    Returns:
        PredictRequest.
    """
    request = PredictRequest()
    request.model_spec.signature_name = signature
    examples = {option.name: option.example for option in OPTIONS}
    examples |= dict(zip(LANGUAGE_INPUTS, tags.default_codes, strict=True)) if tags else {}
    for name, dtype in inputs_of(signature, tags).items():
        values = [examples.get(name, text)] * batch_size
        request.inputs[name].CopyFrom(tf.make_tensor_proto(values, dtype))
    return request


def write_warm_up(directory, tags=None, texts=()):
    """Writes the requests beside a SavedModel, into the file that TensorFlow Serving reads.

    Args:
        directory: the directory of the SavedModel.
        tags, texts: see `warm_up_requests`.
    """
    path = Path(directory) / FILE
    path.parent.mkdir()
    with tf.io.TFRecordWriter(str(path)) as writer:
        for request in warm_up_requests(tags, texts):
            log = PredictionLog()
            log.predict_log.request.CopyFrom(request)
            writer.write(log.SerializeToString())


def read_warm_up(directory):
    """Reads the requests beside a SavedModel: list of PredictRequest."""
    records = tf.data.TFRecordDataset(str(Path(directory) / FILE)).as_numpy_iterator()
    return [PredictionLog.FromString(record).predict_log.request for record in records]


def describe_warm_up(directory):
    """Describes the requests beside a SavedModel for the manifest: dict."""
    requests = read_warm_up(directory)
    return {
        "file": FILE.as_posix(),
        "requests": len(requests),
        "signatures": sorted({request.model_spec.signature_name for request in requests}),
        "batch_sizes": sorted({size_of(request) for request in requests}),
    }


def replay(session, signatures, requests):
    """Runs requests one after the other, as TensorFlow Serving does when it loads a version.

    Args:
        session: tf.compat.v1.Session of a SavedModel.
        signatures: name -> SignatureDef.
        requests: list of PredictRequest.

    Raises:
        ExportError: if a request fails, if an output lacks rows, or if an output has a number that is not finite.
    """
    for request in requests:
        name, size = request.model_spec.signature_name, size_of(request)
        try:
            check_outputs(answer(session, signatures[name], request), size)
        except (tf.errors.OpError, KeyError, TypeError, ValueError) as error:
            raise ExportError(
                f"the warm-up request for signature {name} with a batch of {size} fails, so TensorFlow Serving "
                f"would not load the export: {' '.join(str(error).split())}"
            ) from error


def answer(session, signature, request):
    """Runs one request: output name -> NumPy array."""
    given, wanted = dtypes(request.inputs), dtypes(signature.inputs)
    if given != wanted:  # A Session in Python casts a wrong dtype; TensorFlow Serving refuses it.
        raise ValueError(f"its inputs are {given}, those of the signature {wanted}")
    feeds = {signature.inputs[name].name: tf.make_ndarray(tensor) for name, tensor in request.inputs.items()}
    return session.run({name: tensor.name for name, tensor in signature.outputs.items()}, feeds)


def dtypes(tensors):
    """Maps the names of TensorProtos or TensorInfos to the names of their dtypes."""
    return {name: tf.dtypes.as_dtype(tensor.dtype).name for name, tensor in sorted(tensors.items())}


def check_outputs(outputs, size):
    """Raises ValueError if an output has not `size` rows, or has a number that is not finite."""
    for name, values in outputs.items():
        if values.shape[:1] != (size,):
            raise ValueError(f"output {name} has the shape {values.shape}")
        if values.dtype.kind == "f" and not np.isfinite(values).all():
            raise ValueError(f"output {name} has numbers that are not finite")


def size_of(request):
    """Returns the batch size of a request: int."""
    return next(iter(request.inputs.values())).tensor_shape.dim[0].size
