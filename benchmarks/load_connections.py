"""Connections to a server that are cheap, because clients share the processor with the server."""

import asyncio
import re

import grpc

LONGEST_WAIT = 60  # Seconds for an answer. If a client waits longer, the server hangs.


class RestConnection(asyncio.Protocol):
    """A persistent HTTP/1.1 connection to a port with one request at a time. Reconnects if the server has closed it."""

    LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)

    def __init__(self, port):
        self.port = port
        self.transport = self.answer = None
        self.received = bytearray()

    async def ask(self, request):
        """Sends all bytes of a request: (status, body). The status is "OK", the server's, "lost" or "hang"."""
        loop = asyncio.get_running_loop()
        try:
            if self.transport is None or self.transport.is_closing():
                await loop.create_connection(lambda: self, "127.0.0.1", self.port)
            self.answer = loop.create_future()
            self.transport.write(request)
            return await asyncio.wait_for(self.answer, LONGEST_WAIT)
        except asyncio.TimeoutError:
            self.transport.abort()
            return "hang", b""
        except (OSError, AttributeError):  # The server has already closed the connection.
            return "lost", b""

    def connection_made(self, transport):
        self.transport = transport
        self.received.clear()

    def data_received(self, data):
        self.received += data
        end = self.received.find(b"\r\n\r\n") + 4
        length = self.LENGTH.search(self.received, 0, end) if end > 3 else None
        if length and len(self.received) >= end + int(length[1]) and not self.answer.done():
            status, body = self.received[9:12].decode(), bytes(self.received[end:])
            self.received.clear()
            self.answer.set_result(("OK" if status == "200" else status, body))

    def connection_lost(self, error):
        self.transport = None
        if self.answer and not self.answer.done():
            self.answer.set_exception(ConnectionResetError())


class GrpcConnection:
    """A connection of gRPC to a port. Requests and answers are bytes."""

    def __init__(self, port):
        own = [("grpc.use_local_subchannel_pool", 1)]  # Without the option, all clients share one connection.
        self.channel = grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=own)
        self.predict = self.channel.unary_unary("/tensorflow.serving.PredictionService/Predict")

    async def ask(self, request):
        """Sends a request: (status, body). The status is "OK" or the name of gRPC's code."""
        try:
            return "OK", await self.predict(request, timeout=LONGEST_WAIT)
        except grpc.aio.AioRpcError as error:
            return error.code().name, b""
