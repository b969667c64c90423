"""The HTTP server, and the bodies of its requests: their size, their time, and what they inflate to."""

import asyncio
import contextlib
import logging
import signal
import socket
import threading
import time
import zlib

import h11
import uvicorn
from grpc import StatusCode
from starlette.requests import ClientDisconnect
from uvicorn.protocols.http.h11_impl import H11Protocol

from serving.errors import ServingError, invalid

MOST_CONNECTIONS = 1024
LONGEST_HEAD = 64 * 1024  # Bytes of the request line and the headers.


class HttpServer:
    """Serves an ASGI app by uvicorn, from a thread of its own. Accepts connections when the constructor returns.

    `stop` waits at most `drain_seconds` for open requests. Raises OSError if the port is in use; 0 means any port.
    """

    def __init__(self, app, host, port, drain_seconds):
        _allow_connections()
        listener = bind(host, port)
        self.port = listener.getsockname()[1]
        how = {"http": _Connection, "h11_max_incomplete_event_size": LONGEST_HEAD, "ws": "none", "lifespan": "off"}
        how |= {"log_config": None, "access_log": False, "server_header": False, "limit_concurrency": MOST_CONNECTIONS}
        how |= {"timeout_keep_alive": 75, "timeout_graceful_shutdown": drain_seconds}
        how["forwarded_allow_ips"] = "*"  # a proxy says whether its clients use https: only the URL of a file tells
        config = uvicorn.Config(app, **how)
        self._server = uvicorn.Server(config)
        self._server.server_state.connections = _ByAge()
        self._thread = threading.Thread(target=self._server.run, args=([listener],), name="http", daemon=True)
        self._thread.start()
        while not self._server.started:
            time.sleep(0.001)

    def stop(self):
        """Stops accepting connections, and returns after the answers to all open requests."""
        self._server.should_exit = True
        self._thread.join()


class _ByAge(dict):
    """A set of connections, the oldest first, with the methods that uvicorn calls."""

    def add(self, connection):
        self[connection] = None

    def discard(self, connection):
        self.pop(connection, None)


class _Connection(H11Protocol):
    """A connection. Where there are too many, a new one takes the place of the oldest that has sent no whole request.

    So a client that opens connections and says nothing takes no place of others.
    """

    def connection_made(self, transport):
        super().connection_made(transport)
        if len(self.connections) >= MOST_CONNECTIONS:
            silent = (each for each in self.connections if each.conn.their_state in (h11.IDLE, h11.SEND_BODY))
            oldest = next(silent)  # The new one is silent, too.
            oldest.transport.abort()
            self.connections.discard(oldest)  # The event loop tells it later.


class _OneLine(logging.Filter):
    """Shortens the traceback of a client that breaks HTTP, or that has no answer when the server stops, to one line."""

    def filter(self, record):
        error = record.exc_info and record.exc_info[1]
        if isinstance(error, h11.ProtocolError | ConnectionError | asyncio.CancelledError):
            is_late = isinstance(error, asyncio.CancelledError)
            reason = "when the server stopped" if is_late else "on which the client broke HTTP"
            record.msg, record.args, record.exc_info = f"closed a connection {reason}", (), None
            record.levelno, record.levelname = logging.WARNING, "WARNING"
        return True


for _name in ("uvicorn.error", "asyncio"):
    logging.getLogger(_name).addFilter(_OneLine())


def address_of(host, port):
    """Writes HOST:PORT, with brackets around an address of IPv6."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def bind(host, port):
    """Binds a socket to a port; 0 means any port. Raises OSError if the port is in use or the host is not known."""
    try:
        family, *_ = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        return socket.create_server((host, port), family=family, backlog=MOST_CONNECTIONS)
    except (OSError, UnicodeError) as error:  # The latter is for a name that no host can have.
        why = getattr(error, "strerror", None) or error
        raise OSError(f"cannot listen on {address_of(host, port)}: {why}") from None


def _allow_connections():
    """Lets this process have `MOST_CONNECTIONS`: many systems allow 1,024 open files, but more to those that ask."""
    with contextlib.suppress(ImportError, ValueError, OSError):  # Not every system has such limits.
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 4 * MOST_CONNECTIONS)), hard))


def stop_on_signals():
    """Returns an Event that the first SIGTERM or Ctrl-C sets. A second signal ends the program at once."""
    stopping = threading.Event()

    def stop(number, frame):
        signal.signal(number, signal.SIG_DFL)
        stopping.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    return stopping


async def read_body(request, limit, timeout_s):
    """Reads the body of a `starlette.requests.Request`, bytes. A client that sends too much has the reason at the end.

    Raises ServingError: RESOURCE_EXHAUSTED with the status 413 for more than `limit` bytes (0 means no limit), or
    DEADLINE_EXCEEDED after `timeout_s` seconds; ClientDisconnect if the client goes.
    """
    body = bytearray()

    async def collect():
        async for chunk in request.stream():
            if not limit or len(body) <= limit:
                body.extend(chunk)

    try:
        await asyncio.wait_for(collect(), timeout_s)
    except asyncio.TimeoutError:
        raise ServingError(StatusCode.DEADLINE_EXCEEDED, f"The body did not arrive in {timeout_s:g} s.") from None
    if 0 < limit < len(body):
        raise ServingError(StatusCode.RESOURCE_EXHAUSTED, f"The body must not be longer than {limit} bytes.", 413)
    return bytes(body)


async def while_connected(request, future, timeout_s=None):
    """Awaits a future for a `starlette.requests.Request` whose body has been read.

    Raises ClientDisconnect if the client goes, and ServingError, DEADLINE_EXCEEDED, after `timeout_s` seconds. In these
    cases, the future is cancelled.
    """
    gone = asyncio.ensure_future(request.receive())  # Only the disconnect can follow the body.
    try:
        await asyncio.wait((future, gone), timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        if future.done():
            return future.result()
        if gone.done():
            raise ClientDisconnect
        raise ServingError(StatusCode.DEADLINE_EXCEEDED, "Timed out waiting for the answer.")
    finally:
        future.cancel()
        gone.cancel()


def inflate(body, limit):
    """Decompresses a gzip body, to at most `limit` bytes. Raises ServingError: INVALID_ARGUMENT for any other body."""
    stream, inflated = zlib.decompressobj(16 + zlib.MAX_WBITS), b""
    with contextlib.suppress(zlib.error):
        inflated = stream.decompress(body, limit + 1)
    if not stream.eof or len(inflated) > limit:
        raise invalid(f"JSON Parse error: The document is empty: the body is no gzip of at most {limit} bytes.")
    return inflated
