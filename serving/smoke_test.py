"""A smoke test of a server: checks the behaviour that operators rely on, and prints a table."""

import argparse
import functools
import gzip
import json
import os
import socket
import sys
from urllib.parse import urlsplit

import numpy as np
import urllib3

from serving.connections import GrpcConnection, RestConnection
from serving.errors import ServingError

TEXTS = ["A man is riding a bicycle.", "Two dogs play in the snow.", "12 March 2026"]
ODD_TEXTS = {
    "an empty text": b"",
    "white space": b" \t ",
    "a long text": b"a man rides a horse " * 100,
    "control characters": b"\x00\x01\x1b[31m\x7f",
    "invalid UTF-8": b"\xff\xfe\x80 one",
    "emoji, right to left": "😀👩‍👩‍👧 שלום".encode(),
}
NOBODY, NO_VERSION = "no-such-thing", 999_999_999
OUTPUTS = ("translation", "score")
TOLERANCE = 1e-3  # A batch of another shape rounds scores differently.
BODY_ERRORS = {
    "an empty body": ("", "JSON Parse error: The document is empty"),
    "a body that is no JSON": ("{", "JSON Parse error"),
    "both formats": ('{"instances": ["a"], "inputs": ["a"]}', "Not formatted correctly expecting only one of"),
    "rows that are no list": ('{"instances": "a"}', "Expecting 'instances' to be an list/array"),
    "a number for a text": ('{"instances": [1]}', "Failed to process element: 0 of 'instances' list"),
    "bad base64": ('{"instances": [{"b64": "?"}]}', "Unable to base64 decode"),
}

DESCRIPTION = """Check a server of an exported model, stock or local, and print one line per promise.

  python -m serving.smoke_test --url http://localhost:8501 --grpc localhost:8500
      the model called translator
  python -m serving.smoke_test --url http://localhost:8501 --model_name ende
      the model called ende, over REST only

Exit status 0 if all checks pass, 1 if a check fails, 2 if no server answers.
For metrics, TensorFlow Serving needs a --monitoring_config_file."""


class Shortfall(Exception):
    """A failed check. The message describes the finding."""


def expect(condition, found):
    """Raises Shortfall with the finding unless the condition holds."""
    if not condition:
        raise Shortfall(f"found {str(found)[:200]}")


def expect_same(found, expected):
    """Raises Shortfall unless two lists of (translation, score) are equal."""
    expect([text for text, _ in found] == [text for text, _ in expected], f"{found}, not {expected}")
    scores, wanted = ([score for _, score in rows] for rows in (found, expected))
    expect(np.allclose(scores, wanted, TOLERANCE, TOLERANCE), f"scores {scores}, not {wanted}")


class Api:
    """The checks that REST and gRPC have in common. `arguments` are those of `parse_arguments`."""

    def __init__(self, connection, target, arguments):
        self._connect = functools.partial(connection, target, connections=1)
        self._model, self._timeout = arguments.model_name, arguments.timeout

    def checks(self):
        """Returns promise -> function that returns its finding, str, or raises an exception."""
        none = "Servable not found for request:"
        refusals = {  # name: (HTTP status, part of the message, arguments of `_predict`)
            "another model": (404, f"{none} Latest({NOBODY})", {"model": NOBODY}),
            "another version": (404, f"Specific({self._model}, {NO_VERSION})", {"version": NO_VERSION}),
            "another label": (400, "Unrecognized servable version label", {"label": NOBODY}),
            "another signature": (400, "Serving signature", {"signature_name": NOBODY}),
            "a request without input": (400, "input", {"inputs": {}}),
            "numbers for texts": (400, "string", {"inputs": {"text": np.ones(3, np.float32)}}),
        }
        return {
            "texts give a translation and a score each": lambda: repr(self.translations(TEXTS)[0][0]),
            "a row gives the same alone as beside others": self._alone,
            **{f"answers {name}": functools.partial(self._odd, text) for name, text in ODD_TEXTS.items()},
            **{f"refuses {name}": functools.partial(self._refused, *asked) for name, asked in refusals.items()},
        }

    def translations(self, texts):
        """Translates texts, str or bytes: a list of (translation, score)."""
        outputs = self._predict({"text": _strings(texts)})
        expect(outputs.keys() == {"translation", "score"}, sorted(outputs))
        return list(zip(outputs["translation"], outputs["score"], strict=True))

    def _predict(self, inputs, signature_name="serving_default", model=None, version=None, label=None):
        connection = self._connect(model or self._model, version, label)
        try:
            return connection.predict(signature_name, inputs, self._timeout)
        finally:
            connection.close()

    def _alone(self):
        expect_same(self.translations(TEXTS), [self.translations([text])[0] for text in TEXTS])
        return f"{len(TEXTS)} texts"

    def _odd(self, text):
        _, beside = self.translations([text, TEXTS[0]])
        expect_same([beside], self.translations(TEXTS[:1]))
        return f"{len(text)} bytes"

    def _refused(self, status, message, asked):
        try:
            self._predict(**{"inputs": {"text": _strings(TEXTS)}, **asked})
        except ServingError as error:
            expect(error.http_status == status and message in error.message, f"{error.code.name}: {error.message}")
            return f"{error.code.name} {error.message}"
        raise Shortfall("found an answer")


class Rest(Api):
    """The checks of REST, of its bodies, its other paths and its metrics. `arguments` as of `Api`."""

    def __init__(self, arguments):
        super().__init__(RestConnection, arguments.url, arguments)
        self._url, self._metrics_path = arguments.url.rstrip("/"), arguments.metrics_path
        self._path = f"/v1/models/{self._model}"

    def checks(self):
        """Returns promise -> function; see `Api.checks`."""
        rows, columns = (json.dumps({key: TEXTS}).encode() for key in ("instances", "inputs"))
        path, zipped = f"{self._path}:predict", {"Content-Encoding": "gzip"}
        refusals = {name: ("POST", path, 400, said, body) for name, (body, said) in BODY_ERRORS.items()}
        refusals["the status of another model"] = ("GET", f"/v1/models/{NOBODY}", 404, f"versions of model {NOBODY}")
        return {
            "a version is AVAILABLE": self._status,
            "metadata tells the signatures": self._metadata,
            **super().checks(),
            "rows give the same": lambda: self._same(rows),
            "a compressed body gives the same": lambda: self._same(gzip.compress(columns), zipped),
            **{f"refuses {name}": functools.partial(self._answered, *asked) for name, asked in refusals.items()},
            "metrics count the requests": self._metrics,
        }

    def _status(self):
        versions = json.loads(self._answered("GET", self._path, 200, "model_version_status"))["model_version_status"]
        available = [version["version"] for version in versions if version["state"] == "AVAILABLE"]
        expect(available, versions)
        return f"version {', '.join(available)}"

    def _metadata(self):
        metadata = json.loads(self._answered("GET", f"{self._path}/metadata", 200, "metadata"))
        signatures = metadata["metadata"]["signature_def"]["signature_def"]
        default = signatures.get("serving_default", {"inputs": {}})
        expect(default["inputs"].get("text", {}).get("dtype") == "DT_STRING", f"serving_default: {default}")
        return ", ".join(sorted(signatures))

    def _same(self, body, headers=None):
        reply = json.loads(self._answered("POST", f"{self._path}:predict", 200, "", body, headers))
        columns = reply.get("outputs") or {name: [row[name] for row in reply["predictions"]] for name in OUTPUTS}
        expect_same(list(zip(*(columns[name] for name in OUTPUTS), strict=True)), self.translations(TEXTS))
        return f"{len(body)} bytes"

    def _metrics(self):
        page = self._answered("GET", self._metrics_path, 200, ":tensorflow:serving:request_latency")
        name = f':tensorflow:serving:request_count{{model_name="{self._model}",status="OK"}}'
        counts = [line.rpartition(" ")[2] for line in page.splitlines() if line.startswith(name)]
        expect(counts and float(counts[0]) > 0, f"no {name}")
        return f"{float(counts[0]):.0f} requests"

    def _answered(self, method, path, status, message, body=None, headers=None):
        """Expects a status and a part of the answer. Returns the answer, str."""
        how = {"body": body, "headers": headers, "retries": False, "timeout": self._timeout}
        reply = urllib3.request(method, self._url + path, **how)
        text = reply.data.decode("utf-8", "replace")
        said = json.loads(text)["error"] if status >= 400 else text
        expect(reply.status == status and message in said, f"HTTP {reply.status}: {said}")
        return said


def _strings(texts):
    return np.array([text if isinstance(text, bytes) else text.encode() for text in texts], object)


def parse_arguments(arguments=None):
    """Parses the flags."""
    how = {"description": DESCRIPTION, "formatter_class": argparse.RawDescriptionHelpFormatter}
    parser = argparse.ArgumentParser(prog="python -m serving.smoke_test", **how)
    parser.add_argument("--url", help="REST API of the server, http://HOST:PORT")
    parser.add_argument("--grpc", help="gRPC API of the server, HOST:PORT")
    parser.add_argument("--model_name", default="translator", help="(default: translator)")
    parser.add_argument("--timeout", type=float, default=60.0, help="most seconds for a request (default: 60)")
    path = "path of the REST API's page for Prometheus (default: %(default)s)"
    parser.add_argument("--metrics_path", default="/monitoring/prometheus/metrics", help=path)
    found = parser.parse_args(arguments)
    if not found.url and not found.grpc:
        parser.error("what to check must be given: --url, --grpc or both")
    return found


def check_reached(arguments):
    """Raises ValueError if no server answers at an address."""
    for flag, address in (("--url", arguments.url), ("--grpc", arguments.grpc)):
        parts = urlsplit(address if "//" in (address or "//") else f"//{address}")
        try:
            if address:
                port = parts.port or {"https": 443}.get(parts.scheme, 80)
                socket.create_connection((parts.hostname, port), arguments.timeout).close()
        except OSError as error:
            raise ValueError(f"nothing answers at {flag} {address}: {error}") from None


def checks_of(arguments):
    """Returns the checks of the chosen APIs: list of (API, promise, function)."""
    grpc_api = arguments.grpc and Api(GrpcConnection, arguments.grpc, arguments)
    apis = {"REST": arguments.url and Rest(arguments), "gRPC": grpc_api}
    return [(name, *check) for name, api in apis.items() if api for check in api.checks().items()]


def outcome(check):
    """Runs a check, a function: (whether it has passed, its finding)."""
    try:
        return True, check()
    except Shortfall as shortfall:
        return False, str(shortfall)
    except ServingError as error:
        return False, f"found {error.code.name}: {error.message}"
    except Exception as error:  # An unexpected reply can raise any exception.
        return False, f"found no answer that makes sense: {error!r}"


def main():
    """Prints a line for each check. Ends with the exit status of `DESCRIPTION`."""
    arguments = parse_arguments()
    try:
        check_reached(arguments)
        checks = checks_of(arguments)
        width, failed = max(len(promise) for _, promise, _ in checks), 0
        for api, promise, check in checks:
            has_passed, found = outcome(check)
            failed += not has_passed
            found = found.encode("unicode_escape").decode("ascii")
            print(f"{'ok  ' if has_passed else 'FAIL'}  {api}  {promise:{width}}  {found}".rstrip(), flush=True)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr, flush=True)
        os._exit(130)
    print(f"{len(checks) - failed} of {len(checks)} as TensorFlow Serving")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
