"""Load tests of the local server: throughput, overload, and new versions under load.

    python -m benchmarks.serving_load --saved_model exports/mine/1 --source test.en

- throughput: compares 32 clients of one sentence each, by REST and by gRPC, with the SavedModel in process, which
  translates batches of 32 in the usual way and in the fastest way (two threads). Also prints the server's memory.
  `--seconds 600 --rounds 1` is the long run.
- overload: sends ten times as many requests/s as the server answers for 32 clients. Prints the latency of accepted and
  of refused requests, and the rate afterwards.
- swaps: publishes 20 new versions, one after the other, under load. Each version gives other scores. Requests with 8
  equal sentences show whether one answer mixes two versions.

The clients are processes on the same machine, so they take processor time from the server.
"""

import argparse
import contextlib
import json
import os
import statistics
import tempfile
import time
from pathlib import Path

from benchmarks import in_process
from benchmarks.load_clients import Load
from benchmarks.load_server import MODEL, Server, publish
from keras_transformer.cli.console import import_tensorflow, program
from keras_transformer.errors import check_positive

PROTOCOLS = ("REST", "gRPC")
LONGEST_IN_PROCESS = 30  # Seconds. The rate in process settles soon.
OVERLOAD, SWAPS, ROWS = 10, 20, 8


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--saved_model", type=Path, required=True, help="EXPORT_DIR/VERSION that export.py wrote")
    parser.add_argument("--source", type=Path, required=True, help="file of sentences to translate, one a line")
    parser.add_argument("--part", action="append", choices=PARTS, help="part to run, repeatable (default: all)")
    parser.add_argument("--seconds", type=float, default=20, help="seconds of each measurement (default: 20)")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of throughput (default: 3)")
    parser.add_argument("--clients", type=int, default=32, help="clients at the same time (default: 32)")
    parser.add_argument("--swaps", type=int, default=SWAPS, help=f"new versions (default: {SWAPS})")
    parser.add_argument(
        "--batching_parameters_file", default="serving/config/batching.local.config", help="(default: %(default)s)"
    )
    parser.add_argument("--log", type=Path, default=Path("serving_load.log"), help="log file of the server")
    return parser.parse_args()


def rest_request(texts):
    """Returns the bytes of a whole POST."""
    body = json.dumps({"instances": texts})
    head = f"POST /v1/models/{MODEL}:predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
    return (head + body).encode()


def requests_of(protocol, sentences):
    """Returns one request per sentence: list of bytes."""
    if protocol == "REST":
        return [rest_request([sentence]) for sentence in sentences]
    from serving.messages import PredictRequest

    text = {"dtype": 7, "tensor_shape": {"dim": [{"size": 1}]}}
    inputs = [{"text": {**text, "string_val": [sentence.encode()]}} for sentence in sentences]
    return [PredictRequest(model_spec={"name": MODEL}, inputs=one).SerializeToString() for one in inputs]


def load_for(seconds, server, protocol, sentences, clients, memory=None, rate=None):
    """Runs clients for `seconds`: `Answers`. Appends the server's memory, in MB, to `memory` once a second."""
    with Load(protocol, server.ports[protocol], requests_of(protocol, sentences), clients, rate) as load:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            time.sleep(min(1, max(0, deadline - time.monotonic())))
            if memory is not None:
                memory.append(server.memory())
        return load.stop()


def show(name, answers):
    """Prints a line for each status."""
    for status in sorted(answers.latencies, key=lambda status: status != "OK"):
        print(f"{name:20} {answers.describe(status)}", flush=True)


def show_memory(memory):
    """Compares the maxima of the first and the second half. Constant memory has equal maxima."""
    middle = max(1, len(memory) // 2)
    halves = f"{max(memory[:middle]):.0f} MB in the first half, {max(memory[middle:]):.0f} MB in the second"
    print(f"memory: {memory[0]:.0f} MB at first, at most {halves}")


def throughput(server, export, sentences, arguments):
    """Prints the rate of 32 clients by REST and by gRPC, and its ratio to the rate in process."""
    seconds_in_process = min(arguments.seconds, LONGEST_IN_PROCESS)
    alone, found, memory = [], {protocol: [] for protocol in PROTOCOLS}, [server.memory()]
    for protocol in PROTOCOLS:  # Warms up the server.
        load_for(min(5, arguments.seconds), server, protocol, sentences, arguments.clients)
    usual = in_process.rate(in_process.usual, export, sentences, seconds_in_process)
    print(f"in process by tf.saved_model.load, one batch at a time: {usual:.1f}/s", flush=True)
    for number in range(1, arguments.rounds + 1):
        alone.append(in_process.rate(in_process.fastest, export, sentences, seconds_in_process))
        print(f"round {number}  in process {alone[-1]:7.1f}/s", flush=True)
        for protocol in PROTOCOLS:
            answers = load_for(arguments.seconds, server, protocol, sentences, arguments.clients, memory)
            found[protocol].append(answers.rate())
            show(f"round {number}  {protocol}", answers)
    base = statistics.median(alone)
    for protocol, rates in found.items():
        share = statistics.median(rates) / base
        print(f"{protocol} has {share:.0%} of the {base:.0f} sentences/s in process (median)")
    show_memory(memory)


def overload(server, export, sentences, arguments):
    """Prints the results of ten times as many requests as 32 clients make."""
    for protocol in PROTOCOLS:
        usual = load_for(arguments.seconds, server, protocol, sentences, arguments.clients)
        show(f"{protocol}: usual", usual)
        clients, rate = OVERLOAD * arguments.clients, OVERLOAD * usual.rate()
        show(f"{protocol}: overload", load_for(arguments.seconds, server, protocol, sentences, clients, rate=rate))
        show(f"{protocol}: after", load_for(arguments.seconds, server, protocol, sentences, arguments.clients))


def swaps(server, export, sentences, arguments):
    """Prints the effect of 20 new versions on requests and on memory."""
    rows = [rest_request([sentence] * ROWS) for sentence in sentences]
    singles, memory, clients = requests_of("gRPC", sentences), [server.memory()], max(1, arguments.clients // ROWS)
    with (
        Load("REST", server.ports["REST"], rows, clients, judges=True) as rest,
        Load("gRPC", server.ports["gRPC"], singles, 2 * clients) as by_grpc,
    ):
        for version in range(2, arguments.swaps + 2):
            publish(export, server.base_path, version)
            server.wait_for("AVAILABLE", version)
            server.wait_for("END", version - 1)
            memory.append(server.memory())
            print(f"version {version:2} serves, {memory[-1]:.0f} MB", flush=True)
        show("REST", rest.stop())
        show("gRPC", by_grpc.stop())
    show_memory(memory)


PARTS = {"throughput": throughput, "overload": overload, "swaps": swaps}


def main(arguments):
    check_positive(**{name: getattr(arguments, name) for name in ("seconds", "rounds", "clients", "swaps")})
    if not (arguments.saved_model / "saved_model.pb").is_file():
        raise ValueError(f"no SavedModel at {arguments.saved_model}: export.py writes one")
    sentences = arguments.source.read_text(encoding="utf-8").splitlines()
    if not sentences:
        raise ValueError(f"--source must have one sentence per line. Received: {arguments.source}, which is empty")
    for name in arguments.part or PARTS:
        print(f"\n{name}", flush=True)
        with tempfile.TemporaryDirectory() as base_path, contextlib.ExitStack() as stack:
            publish(arguments.saved_model, base_path, 1)
            server = stack.enter_context(Server(base_path, arguments.log, arguments.batching_parameters_file))
            PARTS[name](server, arguments.saved_model, sentences, arguments)


if __name__ == "__main__":
    with program():
        arguments = parse_arguments()
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
        import_tensorflow()
        main(arguments)
