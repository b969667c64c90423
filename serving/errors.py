"""The one exception of serving, with the status that TensorFlow Serving would answer; and the mistakes of a user."""

import argparse
import traceback
from pathlib import Path

from grpc import StatusCode

STATUSES = {
    **{200: "OK", 400: "INVALID_ARGUMENT FAILED_PRECONDITION OUT_OF_RANGE", 401: "UNAUTHENTICATED"},
    **{403: "PERMISSION_DENIED", 404: "NOT_FOUND", 409: "ALREADY_EXISTS ABORTED"},
    **{429: "RESOURCE_EXHAUSTED", 499: "CANCELLED", 500: "UNKNOWN INTERNAL DATA_LOSS", 501: "UNIMPLEMENTED"},
    **{503: "UNAVAILABLE", 504: "DEADLINE_EXCEEDED"},
}
HTTP_STATUS = {StatusCode[name]: status for status, names in STATUSES.items() for name in names.split()}
CODES = {code.value[0]: code for code in StatusCode}


class Parser(argparse.ArgumentParser):
    """A parser of flags whose help keeps its lines. A mistake ends the program with one line and exit status 2."""

    def __init__(self, **how):
        super().__init__(allow_abbrev=False, formatter_class=argparse.RawDescriptionHelpFormatter, **how)

    def error(self, message):
        self.exit(2, f"error: {message} (--help lists all flags)\n")


class ServingError(Exception):
    """What the server cannot serve: a `grpc.StatusCode`, a message for the client, and the HTTP status of the code."""

    def __init__(self, code, message, http_status=None):
        super().__init__(message)
        self.code = code
        self.message = message
        self.http_status = http_status or HTTP_STATUS[code]


def invalid(message):
    """Returns the `ServingError` of an invalid request."""
    return ServingError(StatusCode.INVALID_ARGUMENT, message)


def place_of(error):
    """Names the line that raised an exception: str, without the exception's message, which may quote a user's text."""
    place = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__} in {Path(place.filename).name}:{place.lineno}"


def from_tensorflow(error):
    """Converts a `tf.errors.OpError` to a `ServingError`, without the op's place in the graph."""
    raw = error.__context__ if isinstance(error.__context__, type(error)) else error
    return ServingError(CODES[error.error_code], raw.message.partition("\n")[0])
