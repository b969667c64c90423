"""Cheap clients that send requests all the time, in a separate process, because they share the processor with the
server."""

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
PAUSE = 0.002  # Seconds between two checks for due requests.


@dataclass
class Answers:
    """The answers that clients received.

    Attributes:
        seconds: float, the time of the clients.
        latencies: status -> list of seconds until the answer. A status is "OK", an error such as "503" or
            "UNAVAILABLE", "lost" for a connection that ended without an answer, or "hang" for no answer in time.
        due: int, the requests of the rate, sent or not.
    """

    seconds: float = 0.0
    latencies: dict = field(default_factory=lambda: collections.defaultdict(list))
    due: int = 0

    def rate(self, status="OK"):
        """Returns answers/s."""
        return len(self.latencies[status]) / self.seconds

    def milliseconds(self, *percentiles, status="OK"):
        """Returns percentiles of the latency, in milliseconds."""
        latencies = sorted(self.latencies[status]) or [float("nan")]
        return [1e3 * latencies[min(len(latencies) - 1, int(len(latencies) * p / 100))] for p in percentiles]

    def others(self):
        """Returns status -> number of answers, without OK."""
        return {status: len(found) for status, found in self.latencies.items() if status != "OK" and found}


def fine(body):
    """Judges every answer as OK."""
    return "OK"


def same_scores(body):
    """Judges a REST answer for several equal texts: "OK", or "mixed" if the scores differ between rows."""
    scores = [prediction["score"] for prediction in json.loads(body)["predictions"]]
    return "OK" if max(scores) - min(scores) < 1e-3 else "mixed"


async def timed(client, request, answers):
    started = time.perf_counter()
    status = await client.ask(request)
    answers.latencies[status].append(time.perf_counter() - started)


async def keep_asking(clients, requests, stopping, answers):
    """Sends each client's next request after its answer, until `stopping` is set (None: each request once)."""
    queue = iter(requests) if stopping is None else itertools.cycle(requests)

    async def go(client):
        for request in queue:
            if stopping is not None and stopping.is_set():
                return
            await timed(client, request, answers)

    await asyncio.gather(*(go(client) for client in clients))


async def ask_at_rate(clients, requests, stopping, answers, rate):
    """Sends requests at a rate. While all clients wait for answers, due requests are not sent."""
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
    """Runs the clients in the process of `Load`: `Answers`."""
    clients, answers = [KINDS[protocol](port, judge) for _ in range(clients)], Answers()
    started = time.perf_counter()
    if rate:
        await ask_at_rate(clients, requests, stopping, answers, rate)
    else:
        await keep_asking(clients, requests, stopping, answers)
    answers.seconds = time.perf_counter() - started
    answers.latencies = dict(answers.latencies)  # A defaultdict of a lambda cannot be pickled.
    return answers


def run(sender, protocol, *arguments):
    threading.Thread(target=end_with_parent, daemon=True).start()
    sender.send(uvloop.run(ask(protocol, *arguments)))


def end_with_parent():
    """Ends this process when its parent ends, even if the parent was killed."""
    multiprocessing.parent_process().join()
    os._exit(1)


class Load:
    """Clients that send requests from `with` to `stop`.

    Args:
        protocol: "REST" or "gRPC".
        port: int.
        requests: list of bytes; each client takes the next.
        clients: int, the number of connections.
        rate: float, requests/s; None sends each client's next request after its answer.
        judge: function from the body of a good answer to a status.
        once: bool, whether to send each request once, instead of until `stop`.
    """

    def __init__(self, protocol, port, requests, clients, rate=None, judge=fine, once=False):
        context = multiprocessing.get_context("spawn")
        self.stopping = context.Event()
        self.receiver, self.sender = context.Pipe(duplex=False)
        arguments = (self.sender, protocol, port, requests, clients, rate, judge, None if once else self.stopping)
        self.process = context.Process(target=run, args=arguments, daemon=True)

    def __enter__(self):
        """Starts the clients."""
        self.process.start()
        self.sender.close()  # The other process keeps the sender, so `stop` does not wait after its end.
        return self

    def stop(self):
        """Stops the clients, and returns the `Answers`."""
        self.stopping.set()
        answers = self.receiver.recv()
        answers.latencies = collections.defaultdict(list, answers.latencies)
        return answers

    def __exit__(self, *error):
        """Ends the clients, if `stop` has not."""
        self.stopping.set()
        self.process.join(LONGEST_WAIT)


def median_rate(rounds):
    """Returns the median of the rates of several `Answers`."""
    return statistics.median(answers.rate() for answers in rounds)
