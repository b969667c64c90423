"""Overload: refuses requests unread while their queue is full, to keep the processor free for accepted requests."""

import math
import time
from typing import Any, NamedTuple

from serving.errors import ServingError

REMEMBERED = 0.1  # Seconds. Then the server reads a request again, and drops requests of gone clients.
LATELY = 0.2  # Seconds after which a refusal counts one third (1 / e).
ALONE = 10  # Seconds without other requests, after which a new request is assumed to be of the same kind.


class QueueFullError(ServingError):
    """A request for which the queue has no room.

    Args:
        code: `grpc.StatusCode`.
        message: str, for the client.
        refuses: function () -> bool, whether the queue still has no room. The function counts a refusal.
    """

    def __init__(self, code, message, refuses):
        super().__init__(code, message)
        self.refuses = refuses


class Refusals:
    """The rate of refusals."""

    def __init__(self):
        self._rate, self._last = 0.0, time.monotonic()

    def count(self):
        """Counts one refusal."""
        self._rate, self._last = self.rate() + 1 / LATELY, time.monotonic()

    def rate(self):
        """Returns refusals/s, with most weight on the latest refusals."""
        return self._rate * math.exp((self._last - time.monotonic()) / LATELY)


class Overload:
    """Remembers the last refusal, and refuses requests of the same kind at once while the queue is full.

    To read, check and queue a request costs several times as much as a refusal; in an overload, that would be most of
    the server's work. Not thread-safe.

    Args:
        metrics: `Metrics`, which counts the refusals.
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
            kind: a comparable value, equal for requests of the same kind.
            model_name: str.
            error: `QueueFullError`.
            answer: the value that `answer_to` returns for requests of this kind.
        """
        self._last = _Refusal(kind, model_name, error, answer, time.monotonic() + REMEMBERED)

    def answer_to(self, kind):
        """Returns the last refusal's answer if it is recent and of this kind, and the queue is full; else None."""
        if kind != self._kind:
            self._kind, self._since = kind, time.monotonic()
        if self._last and time.monotonic() >= self._last.until:
            self._last = None  # The refusal holds a model, which the server may have unloaded.
        last = self._last
        if last is None or last.kind != kind or not last.error.refuses():
            return None
        self._metrics.request_ended(last.model_name, last.error.code.name, 0.0, self._entrypoint)
        return last.answer

    def answer_unread(self):
        """Returns the last refusal's answer for an unread request, or None if the request may be of another kind."""
        last = self._last
        return None if last is None or time.monotonic() < self._since + ALONE else self.answer_to(last.kind)


class _Refusal(NamedTuple):
    kind: Any
    model_name: str
    error: QueueFullError
    answer: Any
    until: float
