"""The one exception of serving, with the status that TensorFlow Serving would answer."""

import traceback
from pathlib import Path

from grpc import StatusCode

HTTP_STATUS = {
    StatusCode.OK: 200,
    StatusCode.INVALID_ARGUMENT: 400,
    StatusCode.FAILED_PRECONDITION: 400,
    StatusCode.OUT_OF_RANGE: 400,
    StatusCode.UNAUTHENTICATED: 401,
    StatusCode.PERMISSION_DENIED: 403,
    StatusCode.NOT_FOUND: 404,
    StatusCode.ALREADY_EXISTS: 409,
    StatusCode.ABORTED: 409,
    StatusCode.RESOURCE_EXHAUSTED: 429,
    StatusCode.CANCELLED: 499,
    StatusCode.UNKNOWN: 500,
    StatusCode.INTERNAL: 500,
    StatusCode.DATA_LOSS: 500,
    StatusCode.UNIMPLEMENTED: 501,
    StatusCode.UNAVAILABLE: 503,
    StatusCode.DEADLINE_EXCEEDED: 504,
}
CODES = {code.value[0]: code for code in StatusCode}


class ServingError(Exception):
    """A request, a model or a configuration that the server cannot serve.

    Args:
        code: `grpc.StatusCode`.
        message: str, for the client.
        http_status: int, the status of REST; by default that of the code.
    """

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
