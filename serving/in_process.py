"""The clients of the local server's own models, for LibreTranslate's API."""

import functools
from concurrent.futures import TimeoutError as FutureTimeoutError

from grpc import StatusCode

from serving.client import Client
from serving.connections import values_of
from serving.errors import ServingError
from serving.libretranslate import THREADS
from serving.predictor import ModelSpec


class InProcessClients:
    """The `Client` of each model that has a version in service and known languages.

    `languages` are the `Languages` of a model whose export does not name them, or None.
    """

    def __init__(self, predictor, models, languages=None):
        self._models = models
        self._languages = languages
        self._client = functools.cache(
            lambda name: Client(connection=InProcess(predictor, ModelSpec(name)), in_flight=THREADS)
        )

    def __call__(self):
        """Returns dict `Languages` -> `Client`. Of models with equal languages, the first by name counts."""
        found = {}
        for name in self._models.names():
            try:
                with self._models.use(name) as servable:
                    languages = servable.languages or self._languages
            except ServingError:  # The model has no version in service.
                continue
            if languages and languages not in found:
                found[languages] = self._client(name)
        return found


class InProcess:
    """A connection of `Client` to a model of this process. Created from a `Predictor` and a `ModelSpec`."""

    def __init__(self, predictor, model):
        self._predictor = predictor
        self._model = model

    def predict(self, signature_name, inputs, timeout_s):
        """Runs a signature with arrays: dict name -> list. Raises ServingError as the predictor does."""
        future = self._predictor.submit(self._model, signature_name, inputs, timeout_s=timeout_s)
        try:
            outputs = future.result(timeout_s).outputs
        except FutureTimeoutError:
            future.cancel()
            raise ServingError(StatusCode.DEADLINE_EXCEEDED, "no answer in time") from None
        return {name: values_of(array) for name, array in outputs.items()}

    def close(self):
        """Does nothing: the server ends by itself."""
