"""The HTTP server: uvicorn in a thread. It disconnects clients that send too slowly or send too long a head."""

import logging
import socket
import threading

import uvicorn
from starlette.responses import JSONResponse
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

LONGEST_HEAD = 64 * 1024  # Bytes of the request line and the headers.
KEEP_ALIVE_SECONDS = 75
BACKLOG = 1024

logger = logging.getLogger(__name__)


class HttpServer:
    """Serves an ASGI app on a port, from a thread of its own.

    The constructor checks that the port is free. The server refuses connections until `start`.

    Args:
        app: the ASGI app.
        host: str, the address to listen on.
        port: int; 0 lets the system choose.
        arrival_seconds: float, the most seconds for a request to arrive.
        drain_seconds: float, the most seconds that `stop` waits for open requests.
        refusal: function from the target of a POST, bytes, to the starlette `Response` that refuses the POST unread, or
            None to accept the POST.

    Raises:
        OSError: if the server cannot listen on the port.
    """

    def __init__(self, app, host, port, arrival_seconds, drain_seconds, refusal=lambda target: None):
        self._socket = bind(host, port)
        self.port = self._socket.getsockname()[1]

        def make_protocol(**arguments):
            return ImpatientProtocol(arrival_seconds, refusal, **arguments)

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
        """Returns when the server accepts connections. Raises OSError if another program has taken the port."""
        self._socket.listen(BACKLOG)
        self._thread.start()
        self._server.is_listening.wait()

    def stop(self):
        """Stops accepting connections, and returns after the answers to all open requests."""
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
    """A connection that closes if a request does not arrive in time, or if the head of the request is too long.

    If `refusal` gives a response, the connection sends the response when the POST has arrived, without calling the app.

    Args:
        arrival_seconds: float, the most seconds between the first byte of a request (or the connection) and the last
            byte.
        refusal: see `HttpServer`.
        **arguments: dict, the arguments of uvicorn.
    """

    def __init__(self, arrival_seconds, refusal, **arguments):
        super().__init__(**arguments)
        self._arrival_seconds = arrival_seconds
        self._refusal = refusal
        self._refused = None  # The response that refuses the arriving request.
        self._timer = None
        self._head_bytes = None  # Bytes of an incomplete head.

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
                self._cut_off(431, f"The head is longer than {LONGEST_HEAD} bytes.")

    def on_message_begin(self):
        super().on_message_begin()
        self._head_bytes = 0
        self._start_timer()

    def on_headers_complete(self):
        self._head_bytes = None
        is_first = self.cycle is None or self.cycle.response_complete  # Pipelined requests wait for the first.
        is_post = self.parser.get_method() == b"POST" and not self.expect_100_continue
        self._refused = self._refusal(self.url) if is_first and is_post else None
        if self._refused is None:
            super().on_headers_complete()

    def on_body(self, body):
        if self._refused is None:
            super().on_body(body)

    def on_message_complete(self):
        self._timer.cancel()
        if self._refused is None:
            super().on_message_complete()
        else:
            keep_alive = self.parser.should_keep_alive()
            self._write(self._refused, keep_alive)
            if not keep_alive:
                self.transport.close()
            self.on_response_complete()

    def _write(self, response, keep_alive):
        head = [STATUS_LINE[response.status_code]]
        for name, value in [*self.server_state.default_headers, *response.raw_headers]:
            head += [name, b": ", value, b"\r\n"]
        self.transport.write(b"".join([*head, b"" if keep_alive else b"connection: close\r\n", b"\r\n", response.body]))

    def _start_timer(self):
        if self._timer:
            self._timer.cancel()
        self._timer = self.loop.call_later(self._arrival_seconds, self._give_up)

    def _give_up(self):
        logger.warning("closed a connection: the request did not arrive in %g s", self._arrival_seconds)
        self._cut_off(408, f"The request did not arrive in {self._arrival_seconds:g} s.")

    def _cut_off(self, status, message):
        """Sends a response unless the app has begun to, and closes the connection."""
        if self.transport.is_closing():
            return
        if self.cycle is None or self.cycle.response_complete or not self.cycle.response_started:
            self._write(JSONResponse({"error": message}, status), keep_alive=False)
        self.transport.close()


def bind(host, port):
    """Binds a socket to a port; 0 means any port. Raises OSError if the port is in use."""
    family, *_ = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise OSError(f"cannot listen on {host}:{port}: {error.strerror}") from None
    return listener
