"""The bodies of HTTP requests: how long they may be, how long they may take, and what they inflate to."""

import asyncio
import time
import zlib

from grpc import StatusCode

from serving.errors import ServingError, invalid


class TooLargeError(ServingError):
    """A body over the size limit."""

    def __init__(self, limit):
        super().__init__(StatusCode.RESOURCE_EXHAUSTED, f"The body must not be longer than {limit} bytes.")

    @property
    def http_status(self):
        """413, Content Too Large."""
        return 413


async def read_body(request, limit, timeout_s):
    """Reads a body, even a body over the limit to its end, so the client receives the reason of the refusal.

    Args:
        request: `starlette.requests.Request`.
        limit: int, the most bytes; 0 means no limit.
        timeout_s: float, the most seconds for the body to arrive.

    Returns:
        bytes.

    Raises:
        ServingError: `TooLargeError`, or DEADLINE_EXCEEDED.
        ClientDisconnect: if the client goes.
    """
    body, deadline = bytearray(), time.monotonic() + timeout_s

    async def collect():
        async for chunk in request.stream():
            if not limit or len(body) <= limit:
                body.extend(chunk)

    try:
        await asyncio.wait_for(collect(), deadline - time.monotonic())
    except asyncio.TimeoutError:
        message = f"The body did not arrive in {timeout_s:g} s."
        raise ServingError(StatusCode.DEADLINE_EXCEEDED, message) from None
    if 0 < limit < len(body):
        raise TooLargeError(limit)
    return bytes(body)


def inflate(body, limit):
    """Decompresses the gzip body of a request. Never produces more than `limit` bytes.

    Raises:
        ServingError: INVALID_ARGUMENT if the body is not gzip, is cut off, or inflates to more than `limit` bytes.
            TensorFlow Serving then sees an empty document.
    """
    stream = zlib.decompressobj(16 + zlib.MAX_WBITS)
    try:
        inflated = stream.decompress(body, limit + 1)
    except zlib.error:
        raise invalid("JSON Parse error: The document is empty. The body is not gzip.") from None
    if len(inflated) > limit:
        raise invalid(f"JSON Parse error: The document is empty. The body inflates to more than {limit} bytes.")
    if not stream.eof:
        raise invalid("JSON Parse error: The document is empty. The gzip body ends too early.")
    return inflated
