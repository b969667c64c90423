"""Load tests of the local server: throughput, overload, new versions under load, and faults.

    python -m benchmarks.serving_load --saved_model exports/mine/1 --source test.en

- throughput: compares 32 clients of one sentence each, by REST and by gRPC, with the SavedModel in process. The
  SavedModel translates batches of 32 in the usual way and in the fastest way (two threads). Also prints the server's
  memory. `--seconds 600 --rounds 1` is the long run.
- overload: sends ten times as many requests/s as the server answers for 32 clients. Prints the latency of accepted and
  of refused requests, and the rate afterwards.
- swaps: publishes 20 new versions, one after the other, under load. Each version gives other scores. Requests with 8
  equal sentences show whether one answer mixes two versions.
- faults: publishes broken versions; clients hang up, never end a request, and send malformed and oversized bodies.

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
from benchmarks.load_clients import Load, median_rate, same_scores
from benchmarks.load_faults import disconnect, malformed_requests, oversized, slow_lorises, statuses_of
from benchmarks.served_export import BROKEN, MODEL, Server, publish, score_otherwise
from keras_transformer.cli.console import import_tensorflow, program
from keras_transformer.errors import check_positive

PROTOCOLS = ("REST", "gRPC")
LONGEST_IN_PROCESS = 30  # Seconds. The rate in process settles soon.
OVERLOAD = 10
SWAPS = 20
ROWS = 8  # Rows of a request that can show a mixture of versions.
SAID = "Zugspitzbahnhof"  # A user's word, which must not appear in a log.


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--saved_model", type=Path, required=True, help="EXPORT_DIR/VERSION that export.py wrote")
    parser.add_argument("--source", type=Path, required=True, help="file of sentences to translate, one a line")
    parser.add_argument("--part", action="append", choices=PARTS, help="part to run, repeatable (default: all)")
    parser.add_argument("--seconds", type=float, default=20, help="seconds of each measurement (default: 20)")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of throughput (default: 3)")
    parser.add_argument("--clients", type=int, default=32, help="clients at the same time (default: 32)")
    parser.add_argument("--malformed", type=int, default=100_000, help="number of malformed bodies (default: 100000)")
    parser.add_argument(
        "--batching_parameters_file", default="serving/config/batching.local.config", help="(default: %(default)s)"
    )
    parser.add_argument("--log", type=Path, default=Path("serving_load.log"), help="log file of the server")
    return parser.parse_args()


def rest_request(body, length=None):
    """Returns the bytes of a whole POST with a JSON body, bytes or an object."""
    body = body if isinstance(body, bytes) else json.dumps(body).encode()
    length = len(body) if length is None else length
    head = f"POST /v1/models/{MODEL}:predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n"
    return head.encode() + body


def grpc_request(texts):
    """Returns the bytes of a PredictRequest."""
    import tensorflow as tf
    from tensorflow_serving.apis.predict_pb2 import PredictRequest

    request = PredictRequest()
    request.model_spec.name = MODEL
    request.inputs["text"].CopyFrom(tf.make_tensor_proto(texts))
    return request.SerializeToString()


def requests_of(protocol, sentences):
    """Returns one request per sentence: list of bytes."""
    if protocol == "REST":
        return [rest_request({"instances": [sentence]}) for sentence in sentences]
    return [grpc_request([sentence]) for sentence in sentences]


def port_of(server, protocol):
    return server.rest if protocol == "REST" else server.grpc


# The parts of the benchmark.


def load_for(seconds, server, protocol, requests, clients, memory=None, **how):
    """Runs clients for `seconds`: `Answers`. Appends the server's memory, in MB, to `memory` once a second."""
    with Load(protocol, port_of(server, protocol), requests, clients, **how) as load:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            time.sleep(min(1, max(0, deadline - time.monotonic())))
            if memory is not None:
                memory.append(server.memory())
        return load.stop()


def describe(answers):
    """Describes rate, latency and errors: str of one line."""
    median, p95, p99 = answers.milliseconds(50, 95, 99)
    return (
        f"{answers.rate():7.1f}/s   p50 {median:6.0f} ms   p95 {p95:6.0f} ms   p99 {p99:6.0f} ms   "
        f"{len(answers.latencies['OK']):,} answers, others: {answers.others() or 'none'}"
    )


def throughput(server, export, sentences, arguments):
    """Prints the rate of 32 clients by REST and by gRPC, and its ratio to the rate in process."""
    seconds_in_process = min(arguments.seconds, LONGEST_IN_PROCESS)
    alone, found = [], {protocol: [] for protocol in PROTOCOLS}
    requests = {protocol: requests_of(protocol, sentences) for protocol in PROTOCOLS}
    memory = []
    for protocol in PROTOCOLS:  # Warms up the server.
        load_for(min(5, arguments.seconds), server, protocol, requests[protocol], arguments.clients)
    usual = in_process.rate(in_process.usual, export, sentences, seconds_in_process)
    print(f"in process by tf.saved_model.load, one batch at a time: {usual:.1f}/s", flush=True)
    for number in range(arguments.rounds):
        alone.append(in_process.rate(in_process.fastest, export, sentences, seconds_in_process))
        print(f"round {number + 1}  in process {alone[-1]:7.1f}/s", flush=True)
        for protocol in PROTOCOLS:
            answers = load_for(
                arguments.seconds, server, protocol, requests[protocol], arguments.clients, memory=memory
            )
            found[protocol].append(answers)
            print(f"round {number + 1}  {protocol:10} {describe(answers)}", flush=True)
    base = statistics.median(alone)
    for protocol, rounds in found.items():
        print(f"{protocol} has {median_rate(rounds) / base:.0%} of the {base:.0f} sentences/s in process (median)")
    print(f"memory: {memory[0]:.0f} MB at first, {halves(memory)}")


def halves(memory):
    """Compares the maximum memory of the first and the second half: str. Constant memory has equal maxima."""
    middle = len(memory) // 2
    return f"at most {max(memory[:middle]):.0f} MB in the first half, {max(memory[middle:]):.0f} MB in the second"


def overload(server, export, sentences, arguments):
    """Prints the results of ten times as many requests as 32 clients make."""
    for protocol in PROTOCOLS:
        requests = requests_of(protocol, sentences)
        usual = load_for(arguments.seconds, server, protocol, requests, arguments.clients)
        print(f"{protocol}: usual    {describe(usual)}", flush=True)
        clients, rate = OVERLOAD * arguments.clients, OVERLOAD * usual.rate()
        answers = load_for(arguments.seconds, server, protocol, requests, clients, rate=rate)
        sent = sum(map(len, answers.latencies.values()))
        print(f"{protocol}: overload {describe(answers)}")
        print(f"          {sent / answers.seconds:.0f}/s sent of {rate:.0f}/s wanted (all clients were busy)")
        for status in answers.others():
            median, p99 = answers.milliseconds(50, 99, status=status)
            print(f"          {status} after p50 {median:.0f} ms, p99 {p99:.0f} ms")
        ratios = [
            now / before for now, before in zip(answers.milliseconds(50, 95), usual.milliseconds(50, 95), strict=True)
        ]
        print(
            f"          accepted requests: {ratios[0]:.1f} times the usual latency (p50), {ratios[1]:.1f} times (p95)"
        )
        after = load_for(arguments.seconds, server, protocol, requests, arguments.clients)
        print(f"{protocol}: after    {describe(after)}", flush=True)


def swaps(server, export, sentences, arguments):
    """Prints the effect of 20 new versions on requests and on memory."""
    requests = [rest_request({"instances": [sentence] * ROWS}) for sentence in sentences]
    singles, memory = requests_of("gRPC", sentences), []
    with (
        Load("REST", server.rest, requests, arguments.clients // ROWS, judge=same_scores) as rest,
        Load("gRPC", server.grpc, singles, arguments.clients // 4) as by_grpc,
    ):
        for version in range(2, SWAPS + 2):
            publish(export, server.base_path, version, score_otherwise(version))
            server.wait_for("AVAILABLE", {"AVAILABLE"}, version)
            server.wait_for("END", {"END"}, version - 1)
            memory.append(server.memory())
            print(f"version {version:2} serves, {memory[-1]:.0f} MB", flush=True)
        for protocol, load in (("REST", rest), ("gRPC", by_grpc)):
            print(f"{protocol:5} {describe(load.stop())}")
    print(f"memory: {halves(memory)}")


def broken_versions(server, export, newest):
    """Prints the server's report on each broken version, and removes the version."""
    for version, (name, change) in enumerate(BROKEN.items(), start=newest + 1):
        publish(export, server.base_path, version, change)
        state, code, message = server.wait_for("decided", {"END", "AVAILABLE"}, version)
        serving = [number for number, (other, *_) in server.states().items() if other == "AVAILABLE"]
        failed = server.failed_loads(version)
        print(f"{name:18} {state} {code} {message[:70]!r}; failed loads {failed}; serving {serving}", flush=True)
        server.remove(version)


def faults(server, export, sentences, arguments):
    """Prints the effect of broken versions and bad clients on other clients."""
    requests = requests_of("REST", sentences)
    before, first = server.memory(), server.translate(sentences[0])
    with Load("REST", server.rest, requests, arguments.clients) as load:
        broken_versions(server, export, max(server.states()))
        print(f"meanwhile   {describe(load.stop())}")
    with Load("REST", server.rest, requests, arguments.clients // 4) as load:
        print(f"hung up     {disconnect(server.rest, rest_request({'instances': [SAID] * 100}), 500)} times")
        seconds, ended = slow_lorises(server.rest, 200, arguments.seconds)
        print(f"slow lorises: {ended} of 200 were hung up on within {seconds:.0f} s")
        print(f"oversized   {oversized(server.rest, rest_request)}")
        print(f"meanwhile   {describe(load.stop())}", flush=True)
    malformed = [rest_request(body) for body in malformed_requests(arguments.malformed, SAID)]
    with Load("REST", server.rest, malformed, arguments.clients, once=True) as load:
        answers = load.stop()
    print(f"malformed   {statuses_of(answers)} in {answers.seconds:.1f} s")
    print(f"after       {describe(load_for(5, server, 'REST', requests, arguments.clients))}")
    same = server.translate(sentences[0]) == first
    said = SAID.encode() in server.log.read_bytes()
    print(f"the same translation as before: {same}; users' words in the log: {said}")
    print(f"memory: {before:.0f} MB before, {server.memory():.0f} MB after")


PARTS = {"throughput": throughput, "overload": overload, "swaps": swaps, "faults": faults}


def main(arguments):
    numbers = ("seconds", "rounds", "clients", "malformed")
    check_positive(**{name: getattr(arguments, name) for name in numbers})
    if not (arguments.saved_model / "saved_model.pb").is_file():
        raise ValueError(f"no SavedModel at {arguments.saved_model}: export.py writes one")
    sentences = arguments.source.read_text(encoding="utf-8").splitlines()
    if not sentences:
        raise ValueError(f"--source must have one sentence per line. Received: {arguments.source}, which is empty")
    for name in arguments.part or PARTS:
        print(f"\n{name}", flush=True)
        with tempfile.TemporaryDirectory() as base_path, contextlib.ExitStack() as stack:
            publish(arguments.saved_model, base_path, 1)
            timeout_s = 10 if name == "faults" else 30  # Slow clients are disconnected sooner.
            server = stack.enter_context(
                Server(base_path, arguments.log, arguments.batching_parameters_file, timeout_s)
            )
            PARTS[name](server, arguments.saved_model, sentences, arguments)


if __name__ == "__main__":
    with program():
        arguments = parse_arguments()
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
        import_tensorflow()
        main(arguments)
