"""What an operator sees of a gateway: a line of the log for each request, and metrics for Prometheus."""

import logging
import time

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from starlette.responses import Response

METRICS_PATH = "/metrics"
SECONDS = [0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300]

logger = logging.getLogger("serving.access")


class Observed:
    """An ASGI app with a log and metrics around another one. `paths` are the paths that metrics have labels for.

    Neither has a text, a key or the rest of an address, which are secrets of a client.
    """

    def __init__(self, app, paths):
        self._app, self._paths, registry = app, {*paths}, CollectorRegistry()
        self._registry = registry
        labels = ["method", "path", "status"]
        self._requests = Counter("gateway_requests", "Answered requests.", labels, registry=registry)
        how = {"buckets": SECONDS, "registry": registry}
        self._seconds = Histogram("gateway_request_seconds", "Seconds until the answer.", ["path"], **how)

    async def __call__(self, scope, receive, send):
        if scope["path"] == METRICS_PATH:
            await Response(generate_latest(self._registry), media_type="text/plain")(scope, receive, send)
            return
        begun, status = time.monotonic(), 499  # of a client that has gone

        async def watch(message):
            nonlocal status
            status = message.get("status", status)
            await send(message)

        try:
            await self._app(scope, receive, watch)
        finally:
            seconds, first = time.monotonic() - begun, "/" + scope["path"].strip("/").partition("/")[0]
            path = next((path for path in (scope["path"], first) if path in self._paths), "other")
            method = scope["method"] if scope["method"] in ("GET", "POST", "OPTIONS", "HEAD") else "other"
            self._requests.labels(method, path, status).inc()
            self._seconds.labels(path).observe(seconds)
            host, *_ = scope.get("client") or ("-",)
            logger.info("%s %s %s %s %.3f s", host, method, path, status, seconds)
