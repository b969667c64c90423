"""Clients that send requests all the time, in a separate process."""

import asyncio
import collections
import itertools
import json
import multiprocessing
import os
import threading
import time
from dataclasses import dataclass, field

import uvloop

from benchmarks.load_connections import LONGEST_WAIT, GrpcConnection, RestConnection

KINDS = {"REST": RestConnection, "gRPC": GrpcConnection}


@dataclass
class Answers:
    """The answers: the seconds of the clients, and status -> list of seconds until the answer."""

    seconds: float = 0.0
    latencies: dict = field(default_factory=dict)

    def rate(self):
        """Returns good answers/s."""
        return len(self.latencies.get("OK", ())) / self.seconds

    def describe(self, status="OK"):
        """Describes the answers of a status: rate, number and percentiles of the latency, str of one line."""
        found = sorted(self.latencies.get(status, ())) or [float("nan")]
        times = [f"p{p} {1e3 * found[min(len(found) - 1, len(found) * p // 100)]:5.0f} ms" for p in (50, 95, 99)]
        return f"{len(found) / self.seconds:7.1f}/s   {'   '.join(times)}   {len(found):,} answers {status}"


def is_mixed(body):
    """Returns whether a REST answer for several equal texts has different scores: a mixture of two versions."""
    scores = [prediction["score"] for prediction in json.loads(body)["predictions"]]
    return max(scores) - min(scores) >= 1e-3


async def _ask(protocol, port, requests, clients, rate, judges, stopping):
    """Runs the clients in the process of `Load`: `Answers`."""
    latencies, queue, due = collections.defaultdict(list), itertools.cycle(requests), itertools.count()
    started = time.perf_counter()

    async def go(client):
        while not stopping.is_set():
            if rate:  # The next due request, or the next after an answer that came late.
                await asyncio.sleep(max(0.0, started + next(due) / rate - time.perf_counter()))
            begun = time.perf_counter()
            status, body = await client.ask(next(queue))
            status = "mixed" if judges and status == "OK" and is_mixed(body) else status
            latencies[status].append(time.perf_counter() - begun)

    await asyncio.gather(*(go(KINDS[protocol](port)) for _ in range(clients)))
    return Answers(time.perf_counter() - started, dict(latencies))


def _run(sender, *arguments):
    threading.Thread(target=lambda: (multiprocessing.parent_process().join(), os._exit(1)), daemon=True).start()
    sender.send(uvloop.run(_ask(*arguments)))


class Load:
    """Clients that send requests, bytes, from `with` to `stop`: at a given rate, or each client its next request after
    an answer.

    If the load `judges`, an answer with different scores counts as "mixed".
    """

    def __init__(self, protocol, port, requests, clients, rate=None, judges=False):
        context = multiprocessing.get_context("spawn")
        self.stopping = context.Event()
        self.receiver, self.sender = context.Pipe(duplex=False)
        arguments = (self.sender, protocol, port, requests, clients, rate, judges, self.stopping)
        self.process = context.Process(target=_run, args=arguments, daemon=True)

    def __enter__(self):
        """Starts the clients."""
        self.process.start()
        self.sender.close()  # The other process keeps the sender, so `stop` does not wait after its end.
        return self

    def stop(self):
        """Stops the clients, and returns the `Answers`."""
        self.stopping.set()
        return self.receiver.recv()

    def __exit__(self, *error):
        """Ends the clients, if `stop` has not."""
        self.stopping.set()
        self.process.join(LONGEST_WAIT)
