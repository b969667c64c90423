"""The messages of TensorFlow Serving's gRPC API, imported without TensorFlow.

The generated modules import modules of `tensorflow.core`. A normal import would also run `tensorflow` itself, which
takes seconds and half a gigabyte. This module puts an empty package with the same path in the place of `tensorflow`.
"""

import contextlib
import importlib.util
import sys
import types

PREDICTION_SERVICE = "tensorflow.serving.PredictionService"
MODEL_SERVICE = "tensorflow.serving.ModelService"


@contextlib.contextmanager
def _without_starting_tensorflow():
    """Allows imports of modules inside `tensorflow` without running `tensorflow` itself."""
    if "tensorflow" in sys.modules:
        yield
        return
    package = types.ModuleType("tensorflow")
    package.__path__ = importlib.util.find_spec("tensorflow").submodule_search_locations
    sys.modules["tensorflow"] = package
    try:
        yield
    finally:
        del sys.modules["tensorflow"]


with _without_starting_tensorflow():
    from tensorflow.core.framework.tensor_pb2 import TensorProto  # noqa: F401
    from tensorflow_serving.apis import get_model_metadata_pb2, get_model_status_pb2, model_management_pb2  # noqa: F401
    from tensorflow_serving.apis.predict_pb2 import PredictRequest, PredictResponse  # noqa: F401
