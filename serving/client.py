"""A client for an exported model: a Python class, and a program that translates lines."""

import argparse
import base64
import functools
import itertools
import json
import os
import random
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import quote

import grpc
import numpy as np
import urllib3
from grpc import StatusCode
from tqdm import tqdm

from serving import messages
from serving.answers import Explanation, Score, Translation
from serving.errors import HTTP_STATUS, ServingError
from serving.protected import protected
from serving.tensor_protos import to_array, to_proto

FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0  # Seconds. Each pause is up to twice as long as the pause before.
CODE_OF = {status: code for code, status in reversed(HTTP_STATUS.items())}
CHUNK = 1024  # Lines that the program sorts by length and translates together.

DESCRIPTION = """Translate with a running server. Each line of input gives one line of output, in the same order.

  python -m serving.client --grpc localhost:8500 < new.en > new.de
      a file, with a progress bar
  python -m serving.client --url http://localhost:8501 < new.en > new.de
      the same over REST
  python -m serving.client --grpc localhost:8500 --model_name ende --label canary < new.en > new.de
      the version of another model with the label canary
  echo 'A man rides a horse.' | python -m serving.client --grpc localhost:8500 --retries 10
      retries more often, for a server that is just starting
  python -m serving.client --grpc localhost:8500 --glossary terms.tsv --protect < new.en > new.de
      with these translations of these terms; URLs, numbers with units, {variables} and their like stay

In Python:

  from serving.client import Client
  with Client(grpc="localhost:8500") as client:
      print(client.translate(["A man rides a horse."])[0].text)"""


class Client:
    """Asks a model for translations, with several requests at a time. The answers have the order of the texts.

    Args:
        url: str, http://HOST:PORT of the REST API. Give either `url` or `grpc`.
        grpc: str, HOST:PORT of the gRPC API.
        connection: object with `predict` and `close`, in place of `url` and `grpc`; see `serving.in_process`.
        model: str, the model's name.
        version: int, or None for the newest version.
        label: str, a version label such as "stable"; excludes `version`.
        timeout: float, the most seconds for one request, including its retries.
        retries: int, the most retries of a request while the server is UNAVAILABLE (busy, starting or not running).
        max_batch_size: int, the most texts per request. The server must accept requests of this size.
        in_flight: int, the most requests at a time.
        glossary: dict, source form -> target form, or the path of a file of terms. Translations have these target
            forms. The model must have been trained with --protect.
        protect: bool, whether URLs, e-mail addresses, numbers with units, {variables}, format directives such as %s,
            and `code` stay as they are. The same holds for the model.

    Methods raise ValueError for inputs that do not fit together, and `ServingError` if the server refuses a request.
    """

    def __init__(
        self,
        url=None,
        grpc=None,
        connection=None,
        model="translator",
        version=None,
        label=None,
        timeout=30.0,
        retries=5,
        max_batch_size=32,
        in_flight=4,
        glossary=None,
        protect=False,
    ):
        if [url, grpc, connection].count(None) != 2:
            raise ValueError(f"either `url` or `grpc` must be given. Received: url={url}, grpc={grpc}")
        if version is not None and label is not None:
            raise ValueError(f"`version` excludes `label`. Received: version={version}, label={label}")
        for name, number, least in (("max_batch_size", max_batch_size, 1), ("in_flight", in_flight, 1)):
            if number < least:
                raise ValueError(f"`{name}` must be at least {least}. Received: {name}={number}")
        make, target = (RestConnection, url) if grpc is None else (GrpcConnection, grpc)
        connection = connection or make(target, model, version, label, in_flight)
        self._connection = protected(connection, glossary, protect)
        self._timeout = timeout
        self._retries = retries
        self._max_batch_size = max_batch_size
        self._pool = ThreadPoolExecutor(in_flight, thread_name_prefix="client")

    def __enter__(self):
        """Returns the client; `with` closes the client at the end of the block."""
        return self

    def __exit__(self, *_):
        """Closes the client."""
        self.close()

    def close(self):
        """Cancels all open requests and closes the connection."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._connection.close()

    def translate(self, texts, on_progress=None):
        """Translates each text.

        Args:
            texts: list of str.
            on_progress: function, called with the number of new answers after each request.

        Returns:
            list of `Translation`.
        """
        return self._translations("translate", {"text": _strings(texts)}, on_progress)

    def alternatives(self, texts):
        """Returns for each text a list of `Translation`, best first, as many as the exported beam size."""
        return [Translation.several(row) for row in self._ask("alternatives", {"text": _strings(texts)})]

    def translate_with_options(
        self,
        texts,
        *,
        length_penalty,
        prefix="",
        beam_size=0,
        max_length=0,
        repetition_penalty=1.0,
        no_repeat_ngram=0,
    ):
        """Translates each text with options. Each option is one value for all texts, or a list with one value per text.

        `length_penalty` is required, because the server has no value that means "the exported one". The other defaults
        mean "not given". See serving/README.md.
        """
        many = functools.partial(_numbers, count=len(texts))
        inputs = {
            "text": _strings(texts),
            "prefix": _strings([prefix] * len(texts) if isinstance(prefix, str) else prefix),
            "length_penalty": many(length_penalty, np.float32),
            "beam_size": many(beam_size, np.int32),
            "max_length": many(max_length, np.int32),
            "repetition_penalty": many(repetition_penalty, np.float32),
            "no_repeat_ngram": many(no_repeat_ngram, np.int32),
        }
        return self._translations("translate_with_options", inputs)

    def sample(self, texts, *, seed, temperature=1.0, top_k=0, top_p=1.0):
        """Draws a random translation of each text. Equal seeds give equal results. See `translate_with_options`."""
        many = functools.partial(_numbers, count=len(texts))
        inputs = {
            "text": _strings(texts),
            "temperature": many(temperature, np.float32),
            "top_k": many(top_k, np.int32),
            "top_p": many(top_p, np.float32),
            "seed": many(seed, np.int64),
        }
        return self._translations("sample", inputs)

    def score(self, texts, translations):
        """Scores `translations`, list of str, as translations of `texts`. Returns a list of `Score`."""
        inputs = {"text": _strings(texts), "translation": _strings(translations)}
        return [Score.of(row) for row in self._ask("score", inputs)]

    def explain(self, texts):
        """Returns an `Explanation` for each text."""
        return [Explanation.of(row) for row in self._ask("explain", {"text": _strings(texts)})]

    def _translations(self, signature_name, inputs, on_progress=None):
        return [Translation.of(row) for row in self._ask(signature_name, inputs, on_progress)]

    def _ask(self, signature_name, inputs, on_progress=None):
        """Sends inputs, arrays (N,), in one or more requests. Returns N dicts output name -> value."""
        count = len(inputs["text"])
        if {len(array) for array in inputs.values()} != {count}:
            sizes = {name: len(array) for name, array in inputs.items()}
            raise ValueError(f"there must be one of each input for each text. Received: {sizes}")
        # The longest text determines the time of a batch. Sorting puts long texts together, and sends long texts first.
        order = sorted(range(count), key=lambda row: -len(inputs["text"][row]))
        batches = [order[start : start + self._max_batch_size] for start in range(0, count, self._max_batch_size)]
        replies = [
            self._pool.submit(self._send, signature_name, {name: array[rows] for name, array in inputs.items()})
            for rows in batches
        ]
        answers = [None] * count
        try:
            for rows, reply in zip(batches, replies, strict=True):
                columns = reply.result()
                for place, values in zip(rows, zip(*columns.values(), strict=True), strict=True):
                    answers[place] = dict(zip(columns, values, strict=True))
                if on_progress:
                    on_progress(len(rows))
        finally:
            for reply in replies:
                reply.cancel()
        return answers

    def _send(self, signature_name, inputs):
        """Sends one request, and repeats the request while the server is unavailable. The random pauses grow."""
        deadline = time.monotonic() + self._timeout
        for attempt in itertools.count():
            try:
                return self._connection.predict(signature_name, inputs, deadline - time.monotonic())
            except ServingError as error:
                if error.code == StatusCode.DEADLINE_EXCEEDED:
                    raise ServingError(error.code, f"no answer within {self._timeout:g} seconds") from None
                pause = random.uniform(0.5, 1.0) * min(FIRST_PAUSE * 2**attempt, LONGEST_PAUSE)
                is_last = attempt == self._retries or time.monotonic() + pause >= deadline
                if error.code != StatusCode.UNAVAILABLE or is_last:
                    raise
            time.sleep(pause)


class RestConnection:
    """The REST API of a server: columns of values to columns of values. Thread-safe."""

    def __init__(self, url, model, version, label, connections):
        which = f"/versions/{version}" if version is not None else f"/labels/{quote(label, safe='')}" if label else ""
        self._url = f"{url.rstrip('/')}/v1/models/{quote(model, safe='')}{which}:predict"
        self._pool = urllib3.PoolManager(maxsize=connections, retries=False)

    def predict(self, signature_name, inputs, timeout_s):
        """Runs a signature with arrays: dict name -> list. Raises the server's error as ServingError."""
        columns = {name: _json_column(array) for name, array in inputs.items()}
        body = json.dumps({"signature_name": signature_name, "inputs": columns}).encode()
        headers = {"Content-Type": "application/json"}
        try:
            reply = self._pool.request("POST", self._url, body=body, headers=headers, timeout=timeout_s)
        except urllib3.exceptions.NewConnectionError as error:
            raise ServingError(StatusCode.UNAVAILABLE, f"{error}".rpartition(": ")[2]) from None
        except urllib3.exceptions.TimeoutError:
            raise ServingError(StatusCode.DEADLINE_EXCEEDED, "no answer in time") from None
        except urllib3.exceptions.HTTPError as error:  # For example a connection that was cut.
            raise ServingError(StatusCode.UNAVAILABLE, f"{error}") from None
        try:
            document = reply.json()
            said = document["outputs" if reply.status == 200 else "error"]
        except (ValueError, KeyError, TypeError):  # For example a proxy's page.
            said, shown = None, f"HTTP {reply.status} {reply.data[:200].decode('utf-8', 'replace')!r}"
        if said is None or reply.status != 200:
            raise ServingError(CODE_OF.get(reply.status, StatusCode.UNKNOWN), said or shown)
        return said

    def close(self):
        """Closes all connections."""
        self._pool.clear()


def _json_column(array):
    """Converts an array to JSON values: text, or base64 for bytes that are not UTF-8."""
    values = array.tolist()
    for place, value in enumerate(values):
        if isinstance(value, bytes):
            try:
                values[place] = value.decode("utf-8")
            except UnicodeDecodeError:
                values[place] = {"b64": base64.b64encode(value).decode("ascii")}
    return values


class GrpcConnection:
    """The gRPC API of a server. Thread-safe. One connection carries any number of requests."""

    def __init__(self, target, model, version, label, connections):
        which = {"version": {"value": version}} if version is not None else {"version_label": label} if label else {}
        self._spec = {"name": model, **which}
        # The client has its own pauses between retries. gRPC's reconnect pauses would come on top, so they are short.
        pauses = [(f"grpc.{which}_reconnect_backoff_ms", 100) for which in ("initial", "min", "max")]
        # With a name of several addresses, such as a headless Service of Kubernetes, each server gets its share.
        options = [("grpc.max_receive_message_length", -1), ("grpc.lb_policy_name", "round_robin"), *pauses]
        self._channel = grpc.insecure_channel(target, options=options)
        self._predict = self._channel.unary_unary(
            f"/{messages.PREDICTION_SERVICE}/Predict",
            request_serializer=messages.PredictRequest.SerializeToString,
            response_deserializer=messages.PredictResponse.FromString,
        )

    def predict(self, signature_name, inputs, timeout_s):
        """Runs a signature; see `RestConnection.predict`."""
        request = messages.PredictRequest(model_spec={**self._spec, "signature_name": signature_name})
        for name, array in inputs.items():
            to_proto(array, request.inputs[name])
        try:
            response = self._predict(request, timeout=timeout_s)
        except grpc.RpcError as error:
            raise ServingError(error.code(), error.details()) from None
        return {name: to_array(proto).tolist() for name, proto in response.outputs.items()}

    def close(self):
        """Cancels all open requests."""
        self._channel.close()


def _strings(texts):
    """Converts a list of str to an array (N,) of bytes objects."""
    if isinstance(texts, str) or not all(isinstance(text, str) for text in texts):
        raise ValueError(f"texts must be a list of str. Received: {str(texts)[:80]!r}")
    array = np.empty(len(texts), object)
    array[:] = [text.encode("utf-8") for text in texts]
    return array


def _numbers(value, dtype, count):
    return np.broadcast_to(np.asarray(value, dtype), (count,))


def translate_lines(client, source, target, chunk, on_progress=None):
    """Translates every line of a binary stream. Invalid UTF-8 becomes U+FFFD.

    Args:
        client: `Client`.
        source: iterable of bytes, lines with their ends.
        target: binary stream.
        chunk: int, the number of lines to read before each translation.
        on_progress: see `Client.translate`.
    """
    texts = (line.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8", "replace") for line in source)
    while lines := list(itertools.islice(texts, chunk)):
        translations = (found.text.replace("\n", " ") for found in client.translate(lines, on_progress))
        target.write("".join(f"{text}\n" for text in translations).encode("utf-8"))
        target.flush()


def parse_arguments(arguments=None):
    """Parses the flags: dict of arguments of `Client`."""
    parser = argparse.ArgumentParser(
        prog="python -m serving.client", description=DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    server = parser.add_mutually_exclusive_group(required=True)
    server.add_argument("--url", help="REST API of the server, http://HOST:PORT")
    server.add_argument("--grpc", help="gRPC API of the server, HOST:PORT")
    parser.add_argument("--model_name", dest="model", default="translator", help="(default: translator)")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--version", type=int, help="version (default: the newest)")
    which.add_argument("--label", help="label of a version, such as stable; excludes --version")
    parser.add_argument("--timeout", type=float, default=60.0, help="most seconds for a request (default: 60)")
    parser.add_argument("--retries", type=int, default=5, help="most retries of a request (default: 5)")
    parser.add_argument("--max_batch_size", type=int, default=32, help="most sentences per request (default: 32)")
    parser.add_argument("--in_flight", type=int, default=4, help="most requests at a time (default: 4)")
    add_protection_arguments(parser)
    return vars(parser.parse_args(arguments))


def add_protection_arguments(parser):
    """Adds to an argparse parser the flags of words that translations keep."""
    terms = (
        "file of terms, a source form, a tab and its target form on every line; needs a model trained with --protect"
    )
    parser.add_argument("--glossary", help=terms)
    kept = "keep URLs, e-mail addresses, numbers with units, {variables}, %%s and `code`; needs the same model"
    parser.add_argument("--protect", action="store_true", help=kept)


def main():
    """Translates standard input to standard output. A mistake ends the program with one line."""
    options = parse_arguments()
    target = options["grpc"] or options["url"]
    chunk = 1 if sys.stdin.isatty() else CHUNK  # A person who types waits for each answer.
    try:
        with Client(**options) as client, tqdm(unit=" sentences", disable=None) as progress:
            translate_lines(client, sys.stdin.buffer, sys.stdout.buffer, chunk, progress.update)
    except KeyboardInterrupt:
        _leave("interrupted", 130)
    except BrokenPipeError:  # The reader has closed the pipe, as in `... | head`.
        _leave(None, 1)
    except ServingError as error:
        _leave(f"error: {target} does not translate: {error.code.name}: {error.message}", 2)
    except (ValueError, OSError) as error:
        _leave(f"error: {error}", 2)


def _leave(line, status):
    """Ends the program at once, without waiting for open requests."""
    if line:
        print(line, file=sys.stderr, flush=True)
    os._exit(status)


if __name__ == "__main__":
    main()
