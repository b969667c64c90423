"""A smoke test of a server: checks the behaviour that operators rely on, and prints a table."""

import contextlib
import functools
import gzip
import json
import sys

import numpy as np
import urllib3

from serving.connections import GrpcConnection, RestConnection, TextConnection, texts_of
from serving.errors import Parser, ServingError

TEXTS = ["A man is riding a bicycle.", "Two dogs play in the snow.", "12 March 2026"]
ODD_TEXTS = {
    "an empty text": b"",
    "white space": b" \t ",
    "a long text": b"a man rides a horse " * 100,
    "control characters": b"\x00\x01\x1b[31m\x7f",
    "invalid UTF-8": b"\xff\xfe\x80 one",
    "emoji, right to left": "😀👩‍👩‍👧 שלום".encode(),
}
NOBODY, METRICS_PATH = "no-such-thing", "/monitoring/prometheus/metrics"
OUTPUTS = ("translation", "score")
REFUSALS = {  # name: (HTTP status, arguments of `Api.predict`)
    "another model": (404, {"model": NOBODY}),
    "another version": (404, {"version": 999_999_999}),
    "another label": (400, {"label": NOBODY}),
    "another signature": (400, {"signature_name": NOBODY}),
    "a request without input": (400, {"inputs": {}}),
    "numbers for texts": (400, {"inputs": {"text": np.ones(3, np.float32)}}),
}
DESCRIPTION = """Check a server of an exported model, stock or local, and print one line per promise.

  python -m serving.smoke_test --url http://localhost:8501 --grpc localhost:8500

Exit status 1 if a check fails. For metrics, TensorFlow Serving needs a --monitoring_config_file."""


class Shortfall(Exception):
    """A failed check. The message describes the finding."""


def expect(condition, found):
    """Raises Shortfall with the finding unless the condition holds."""
    if not condition:
        raise Shortfall(f"found {str(found)[:200]}")


class Api:
    """The checks that REST and gRPC have in common. `arguments` are those of `parse_arguments`."""

    def __init__(self, connection, target, arguments):
        self._connect = functools.partial(connection, target, connections=1)
        self._model, self._timeout = arguments.model_name, arguments.timeout

    def checks(self):
        """Returns promise -> function that returns its finding, str, or raises an exception."""
        return {
            "texts give a translation and a score each": lambda: repr(self.translations(TEXTS)[0][0]),
            "a row gives the same alone as beside others": lambda: self._same(
                [self.translations([x])[0] for x in TEXTS]
            ),
            **{f"answers {name}": functools.partial(self._beside, text) for name, text in ODD_TEXTS.items()},
            **{f"refuses {name}": functools.partial(self._refused, *asked) for name, asked in REFUSALS.items()},
        }

    def translations(self, texts):
        """Translates texts, str or bytes: a list of (translation, score)."""
        outputs = self._predict({"text": texts_of(texts)})
        expect(outputs.keys() == {*OUTPUTS}, sorted(outputs))
        return list(zip(*(outputs[name] for name in OUTPUTS), strict=True))

    def _predict(self, inputs, signature_name="serving_default", model=None, version=None, label=None):
        with contextlib.closing(TextConnection(self._connect(model or self._model, version, label))) as connection:
            return connection.predict(signature_name, inputs, self._timeout)

    def _same(self, found, texts=TEXTS):
        (words, scores), (expected, wanted) = (zip(*rows, strict=True) for rows in (found, self.translations(texts)))
        expect(words == expected, f"{words}, not {expected}")
        # A batch of another shape rounds scores differently.
        expect(np.allclose(scores, wanted, 1e-3, 1e-3), f"scores {scores}, not {wanted}")
        return f"{len(texts)} texts"

    def _beside(self, text):
        return self._same(self.translations([text, TEXTS[0]])[1:], TEXTS[:1])

    def _refused(self, status, asked):
        try:
            self._predict(**{"inputs": {"text": texts_of(TEXTS)}, **asked})
        except ServingError as error:
            expect(error.http_status == status, f"{error.code.name}: {error.message}")
            return f"{error.code.name} {error.message}"
        raise Shortfall("found an answer")


class Rest(Api):
    """The checks of REST, of its bodies, its other paths and its metrics. `arguments` as of `Api`."""

    def __init__(self, arguments):
        super().__init__(RestConnection, arguments.url, arguments)
        self._url, self._path = arguments.url.rstrip("/"), f"/v1/models/{self._model}"

    def checks(self):
        """Returns promise -> function; see `Api.checks`."""
        return {
            "a version is AVAILABLE": lambda: self._shows(self._path, '"AVAILABLE"'),
            "metadata tells the signatures": lambda: self._shows(f"{self._path}/metadata", '"serving_default"'),
            **super().checks(),
            "rows give the same": self._rows,
            "a compressed body gives the same": lambda: self._rows(gzip.compress, {"Content-Encoding": "gzip"}),
            "refuses a body that is no JSON": lambda: self._answered("POST", f"{self._path}:predict", 400, "{"),
            "metrics count the requests": lambda: self._shows(METRICS_PATH, f'"{self._model}",status="OK"}}'),
        }

    def _shows(self, path, text):
        expect(text in (found := self._answered("GET", path, 200)), found)
        return text

    def _rows(self, write=bytes, headers=None):
        metadata = json.loads(self._answered("GET", f"{self._path}/metadata", 200))["metadata"]
        inputs = metadata["signature_def"]["signature_def"]["serving_default"]["inputs"]
        instances = [{**dict.fromkeys(inputs, ""), "text": text} for text in TEXTS]
        body = write(json.dumps({"instances": instances}).encode())
        rows = json.loads(self._answered("POST", f"{self._path}:predict", 200, body, headers))["predictions"]
        return self._same([tuple(row[name] for name in OUTPUTS) for row in rows])

    def _answered(self, method, path, status, body=None, headers=None):
        how = {"body": body, "headers": headers, "retries": False, "timeout": self._timeout}
        reply = urllib3.request(method, self._url + path, **how)
        text = reply.data.decode("utf-8", "replace")
        expect(reply.status == status, f"HTTP {reply.status}: {text}")
        return json.loads(text)["error"] if status >= 400 else text


def parse_arguments(arguments=None):
    """Parses the flags."""
    parser = Parser(prog="python -m serving.smoke_test", description=DESCRIPTION)
    parser.add_argument("--url", help="REST API of the server, http://HOST:PORT")
    parser.add_argument("--grpc", help="gRPC API of the server, HOST:PORT")
    parser.add_argument("--model_name", default="translator", help="(default: translator)")
    parser.add_argument("--timeout", type=float, default=60.0, help="most seconds for a request (default: 60)")
    found = parser.parse_args(arguments)
    if not found.url and not found.grpc:
        parser.error("what to check must be given: --url, --grpc or both")
    return found


def check(arguments):
    """Makes all checks, and prints a line for each. Returns whether all have passed."""
    results = []
    apis = {"REST": arguments.url and Rest(arguments)}
    apis["gRPC"] = arguments.grpc and Api(GrpcConnection, arguments.grpc, arguments)
    for name, api in apis.items():
        for promise, find in api.checks().items() if api else ():
            try:
                has_passed, found = True, find()
            except Exception as error:  # An unexpected reply can raise any exception.
                has_passed, found = False, str(error) if isinstance(error, Shortfall) else f"found {error!r}"
            results.append(has_passed)
            found = found.encode("unicode_escape").decode("ascii")
            print(f"{'ok  ' if has_passed else 'FAIL'}  {name}  {promise:44}  {found}".rstrip(), flush=True)
    print(f"{sum(results)} of {len(results)} as TensorFlow Serving")
    return all(results)


def main():
    """Makes all checks. Ends with the exit status of `DESCRIPTION`."""
    try:
        sys.exit(0 if check(parse_arguments()) else 1)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    main()
