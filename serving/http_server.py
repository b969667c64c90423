"""HTTP connections: uvicorn in a thread, with clients that send too slowly or too long a head cut off."""

import logging
import socket
import threading

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

LONGEST_HEAD = 64 * 1024  # bytes of request line and headers
KEEP_ALIVE_SECONDS = 75
BACKLOG = 1024

logger = logging.getLogger(__name__)


class HttpServer:
    """Serves an ASGI app on a port, from a thread of its own.

    That the port is free is known at once, but it refuses connections until `start`.

    Args:
        app: the ASGI app.
        host: str, address to listen on.
        port: int; 0 lets the system choose.
        arrival_seconds: longest time that a request takes to arrive.
        drain_seconds: longest time that `stop` waits for requests that are under way.

    Raises:
        OSError: if it cannot listen there.
    """

    def __init__(self, app, host, port, arrival_seconds, drain_seconds):
        self._socket = bind(host, port)
        self.port = self._socket.getsockname()[1]

        def make_protocol(**arguments):
            return ImpatientProtocol(arrival_seconds, **arguments)

        config = uvicorn.Config(
            app,
            http=make_protocol,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            backlog=BACKLOG,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=drain_seconds,
        )
        self._server = _Server(config)
        self._thread = threading.Thread(target=self._server.run, args=([self._socket],), name="http", daemon=True)

    def start(self):
        """Returns when connections are accepted. Raises OSError if another program listens there by now."""
        self._socket.listen(BACKLOG)
        self._thread.start()
        self._server.is_listening.wait()

    def stop(self):
        """Accepts no more connections and returns when the requests that are under way have been answered."""
        self._server.should_exit = True
        self._thread.join()


class _Server(uvicorn.Server):
    def __init__(self, config):
        super().__init__(config)
        self.is_listening = threading.Event()

    async def startup(self, sockets=None):
        await super().startup(sockets)
        self.is_listening.set()


class ImpatientProtocol(HttpToolsProtocol):
    """A connection that is closed if a request does not arrive in time, or if its head has no end.

    Args:
        arrival_seconds: longest time between the first byte of a request (or the connection) and its last.
        **arguments: what uvicorn passes.
    """

    def __init__(self, arrival_seconds, **arguments):
        super().__init__(**arguments)
        self._arrival_seconds = arrival_seconds
        self._timer = None
        self._head_bytes = None  # of a head that is not complete

    def connection_made(self, transport):
        super().connection_made(transport)
        self._start_timer()

    def connection_lost(self, exc):
        self._timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data):
        super().data_received(data)
        if self._head_bytes is not None:
            self._head_bytes += len(data)
            if self._head_bytes > LONGEST_HEAD:
                self._refuse(431, "Request Header Fields Too Large", f"The head is longer than {LONGEST_HEAD} bytes.")

    def on_message_begin(self):
        super().on_message_begin()
        self._head_bytes = 0
        self._start_timer()

    def on_headers_complete(self):
        self._head_bytes = None
        super().on_headers_complete()

    def on_message_complete(self):
        self._timer.cancel()
        super().on_message_complete()

    def _start_timer(self):
        if self._timer:
            self._timer.cancel()
        self._timer = self.loop.call_later(self._arrival_seconds, self._give_up)

    def _give_up(self):
        logger.warning("request given up: it did not arrive in %g s", self._arrival_seconds)
        self._refuse(408, "Request Timeout", f"The request did not arrive in {self._arrival_seconds:g} s.")

    def _refuse(self, status, phrase, message):
        """Answers in place of the app, unless that has begun to, and closes the connection."""
        if self.transport.is_closing():
            return
        if self.cycle is None or self.cycle.response_complete or not self.cycle.response_started:
            body = f'{{"error": "{message}"}}'
            head = f"HTTP/1.1 {status} {phrase}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
            self.transport.write(f"{head}Connection: close\r\n\r\n{body}".encode("ascii"))
        self.transport.close()


def bind(host, port):
    """A socket that has a port, 0 for any. Raises OSError if it cannot be had."""
    family, *_ = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise OSError(f"cannot listen on {host}:{port}: {error.strerror}") from None
    return listener
