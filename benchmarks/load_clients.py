"""Clients that ask a server all the time and cost little, in a process of their own: they share its processor."""

import asyncio
import collections
import itertools
import json
import multiprocessing
import os
import statistics
import threading
import time
from dataclasses import dataclass, field

import uvloop

from benchmarks.load_connections import LONGEST_WAIT, GrpcConnection, RestConnection

KINDS = {"REST": RestConnection, "gRPC": GrpcConnection}
PAUSE = 0.002  # seconds between two looks whether requests are due


@dataclass
class Answers:
    """What clients were told.

    Attributes:
        seconds: float, how long they asked.
        latencies: status -> list of seconds until the answer; a status is "OK", such as "503" or "UNAVAILABLE", or
            "lost" for a connection that ended without an answer, "hang" for none in time.
        due: int, requests that a rate asked for, sent or not.
    """

    seconds: float = 0.0
    latencies: dict = field(default_factory=lambda: collections.defaultdict(list))
    due: int = 0

    def rate(self, status="OK"):
        """Answers/s."""
        return len(self.latencies[status]) / self.seconds

    def milliseconds(self, *percentiles, status="OK"):
        """Percentiles of the latency."""
        latencies = sorted(self.latencies[status]) or [float("nan")]
        return [1e3 * latencies[min(len(latencies) - 1, int(len(latencies) * p / 100))] for p in percentiles]

    def others(self):
        """status -> number of all answers that are not OK."""
        return {status: len(found) for status, found in self.latencies.items() if status != "OK" and found}


def fine(body):
    """Every answer is."""
    return "OK"


def same_scores(body):
    """Of a REST answer for several times the same text: "OK" or, where versions have been mixed, "mixed"."""
    scores = [prediction["score"] for prediction in json.loads(body)["predictions"]]
    return "OK" if max(scores) - min(scores) < 1e-3 else "mixed"


async def timed(client, request, answers):
    started = time.perf_counter()
    status = await client.ask(request)
    answers.latencies[status].append(time.perf_counter() - started)


async def keep_asking(clients, requests, stopping, answers):
    """Each client asks again when it has its answer, until `stopping` is set; if it is None, each request once."""
    queue = iter(requests) if stopping is None else itertools.cycle(requests)

    async def go(client):
        for request in queue:
            if stopping is not None and stopping.is_set():
                return
            await timed(client, request, answers)

    await asyncio.gather(*(go(client) for client in clients))


async def ask_at_rate(clients, requests, stopping, answers, rate):
    """So many requests/s, whatever the answers; those that find all clients waiting are not sent."""
    requests, idle, going = itertools.cycle(requests), list(clients), set()

    async def go(client):
        await timed(client, next(requests), answers)
        idle.append(client)

    started = time.perf_counter()
    while not stopping.is_set():
        due = int((time.perf_counter() - started) * rate)
        for _ in range(min(due - answers.due, len(idle))):
            task = asyncio.create_task(go(idle.pop()))
            going.add(task)
            task.add_done_callback(going.discard)
        answers.due = due
        await asyncio.sleep(PAUSE)
    await asyncio.gather(*going)


async def ask(protocol, port, requests, clients, rate, judge, stopping):
    """What `Load` runs: `Answers`."""
    clients, answers = [KINDS[protocol](port, judge) for _ in range(clients)], Answers()
    started = time.perf_counter()
    if rate:
        await ask_at_rate(clients, requests, stopping, answers, rate)
    else:
        await keep_asking(clients, requests, stopping, answers)
    answers.seconds = time.perf_counter() - started
    answers.latencies = dict(answers.latencies)  # a defaultdict of a lambda cannot be sent
    return answers


def run(sender, protocol, *arguments):
    threading.Thread(target=end_with_parent, daemon=True).start()
    sender.send(uvloop.run(ask(protocol, *arguments)))


def end_with_parent():
    """Ends this process when the one that started it is gone, even if that was killed."""
    multiprocessing.parent_process().join()
    os._exit(1)


class Load:
    """Clients at work, from `with` to `stop`.

    Args:
        protocol: "REST" or "gRPC".
        port: int.
        requests: list of bytes; each client takes the next.
        clients: int, connections.
        rate: requests/s; without it, each client asks when it has its answer.
        judge: function from the body of a good answer to a status.
        once: ask each request once rather than until `stop`.
    """

    def __init__(self, protocol, port, requests, clients, rate=None, judge=fine, once=False):
        context = multiprocessing.get_context("spawn")
        self.stopping = context.Event()
        self.receiver, self.sender = context.Pipe(duplex=False)
        arguments = (self.sender, protocol, port, requests, clients, rate, judge, None if once else self.stopping)
        self.process = context.Process(target=run, args=arguments, daemon=True)

    def __enter__(self):
        """Starts them."""
        self.process.start()
        self.sender.close()  # the other process has it: when that ends, `stop` does not wait for ever
        return self

    def stop(self):
        """The `Answers`, once the last one is there."""
        self.stopping.set()
        answers = self.receiver.recv()
        answers.latencies = collections.defaultdict(list, answers.latencies)
        return answers

    def __exit__(self, *error):
        """Ends them, if `stop` has not."""
        self.stopping.set()
        self.process.join(LONGEST_WAIT)


def median_rate(rounds):
    """Of several `Answers`, the median of their rates."""
    return statistics.median(answers.rate() for answers in rounds)
