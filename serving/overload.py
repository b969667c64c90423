"""Requests that find their queue full, refused unread: the processor is for those that were accepted."""

import math
import time
from typing import Any, NamedTuple

from serving.errors import ServingError

REMEMBERED = 0.1  # seconds; then a request is looked at again, which makes room of those whose clients have gone
LATELY = 0.2  # seconds, in which a refusal comes to count a third
ALONE = 10  # seconds; when no other kind has been asked for so long, what arrives is taken to be of the same


class QueueFullError(ServingError):
    """A request for which there is no room.

    Args:
        code: `grpc.StatusCode`.
        message: str, for the client.
        refuses: function () -> bool, whether there is no room for another now either; counts it if so.
    """

    def __init__(self, code, message, refuses):
        super().__init__(code, message)
        self.refuses = refuses


class Refusals:
    """Tells how many requests are being refused."""

    def __init__(self):
        self._rate, self._last = 0.0, time.monotonic()

    def count(self):
        """One more."""
        self._rate, self._last = self.rate() + 1 / LATELY, time.monotonic()

    def rate(self):
        """Refusals/s, the latest counting most."""
        return self._rate * math.exp((self._last - time.monotonic()) / LATELY)


class Overload:
    """Knows who was refused last, and refuses the next of that kind at once while the queue is still full.

    Reading, checking and queueing a request costs several times as much, which in an overload is most of the server's
    work. Not for several threads.

    Args:
        metrics: `Metrics`, where what is refused is counted.
        entrypoint: "REST" or "GRPC".
    """

    def __init__(self, metrics, entrypoint):
        self._metrics = metrics
        self._entrypoint = entrypoint
        self._last = None
        self._kind, self._since = None, time.monotonic()

    def refused(self, kind, model_name, error, answer):
        """Remembers a refusal.

        Args:
            kind: what requests of this kind have in common; it can be compared.
            model_name: str.
            error: `QueueFullError`.
            answer: what `answer_to` is to give for others of this kind.
        """
        self._last = _Refusal(kind, model_name, error, answer, time.monotonic() + REMEMBERED)

    def answer_to(self, kind):
        """The answer to the last refusal if it was a moment ago, of this kind, and would be made again; else None."""
        if kind != self._kind:
            self._kind, self._since = kind, time.monotonic()
        if self._last and time.monotonic() >= self._last.until:
            self._last = None  # it knows a model, which may have been unloaded
        last = self._last
        if last is None or last.kind != kind or not last.error.refuses():
            return None
        self._metrics.request_ended(last.model_name, last.error.code.name, 0.0, self._entrypoint)
        return last.answer

    def answer_unread(self):
        """The same for a request whose kind is not known before it is read; None if it may well be another."""
        last = self._last
        return None if last is None or time.monotonic() < self._since + ALONE else self.answer_to(last.kind)


class _Refusal(NamedTuple):
    kind: Any
    model_name: str
    error: QueueFullError
    answer: Any
    until: float
