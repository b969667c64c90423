"""LibreTranslate's API with documents, before any server of TensorFlow Serving's API."""

import importlib

from keras_transformer.cli import console
from keras_transformer.errors import UserError

INSTALL = "pip install -r serving/requirements.txt"


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
        arguments = gateway.parse_arguments(program="python -m keras_transformer gateway")
        console.tool("documents.apart", "`gateway`").start()
        gateway.main(arguments, _of_serving("keras_transformer.cli.document_api").DocumentApi)
