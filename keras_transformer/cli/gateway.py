"""LibreTranslate's API with documents, before any server of TensorFlow Serving's API."""

import importlib

import numpy as np

from keras_transformer.cli import console
from keras_transformer.errors import UserError
from keras_transformer.process import find_tool
from keras_transformer.translation.results import Explanation

NAME = "python -m keras_transformer gateway"
OFFERED = "the APIs of LibreTranslate and DeepL, with HTML and files"
INSTALL = "pip install -r serving/requirements.txt"


class ClientTranslator:
    """A `serving.client.Client` with the methods of `TextTranslator` that documents need.

    Args:
        client: `Client`.
        languages: dict, its inputs that name the direction; empty for a model of one direction.

    Attributes:
        protection: `Protection` of the client, or None.
    """

    def __init__(self, client, languages):
        self._client, self._languages = client, languages
        self.protection = client.protection

    def translate(self, texts, on_progress=None):
        """See `TextTranslator.translate`. Raises ServingError."""
        return [found.text for found in self._client.translate(texts, on_progress, **self._languages)]

    def explain(self, texts, on_progress=None):
        """See `TextTranslator.explain`. Raises ServingError."""
        return [
            Explanation(
                found.source_pieces,
                found.pieces,
                np.asarray(found.token_scores, np.float32),
                np.asarray(found.alignment, np.float32).reshape(len(found.pieces), len(found.source_pieces)),
            )
            for found in self._client.explain(texts, **self._languages)
        ]


def _of_serving(module):
    """Imports a module that needs serving/ and its packages. Raises UserError if they are missing."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing == "serving":
            raise UserError("`gateway` needs serving/ of the project: start it in the directory of serving/") from error
        raise UserError(f"`gateway` needs the package {missing}, which is not installed: {INSTALL}") from error


def program():
    """The program, from its command line to its exit status."""
    with console.program():
        gateway = _of_serving("serving.gateway")
        arguments = gateway.parse_arguments(program=NAME, what=OFFERED)
        find_tool("documents.apart", "`gateway`").start()
        gateway.main(arguments, _of_serving("keras_transformer.cli.document_api").DocumentApi)
