"""A smoke test of a server: checks the behaviour that operators rely on, and prints a table."""

import argparse
import base64
import functools
import gzip
import json
import os
import sys

import grpc
import numpy as np
import urllib3
from grpc import StatusCode

from serving import messages
from serving.tensor_protos import to_array, to_proto

LONGEST_CONNECTING = 5.0  # Seconds.
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
TOLERANCE = 1e-3  # A batch of another shape rounds scores differently.
ONE = '{"instances": ["a"]}'
NO_SIGNATURE = f'Serving signature name: "{NOBODY}" not found in signature def'
BODY_ERRORS = {
    "an empty body": ("", "JSON Parse error: The document is empty"),
    "a body that is no JSON": ("{", "JSON Parse error"),
    "a list": ("[1]", "Is not object"),
    "a number for signature_name": ('{"signature_name": 5, "instances": ["a"]}', "'signature_name' key must be"),
    "another signature": (f'{{"signature_name": "{NOBODY}", "instances": ["a"]}}', NO_SIGNATURE),
    "an empty object": ("{}", "Missing 'inputs' or 'instances' key"),
    "both formats": ('{"instances": ["a"], "inputs": ["a"]}', "Not formatted correctly expecting only one of"),
    "rows that are no list": ('{"instances": "a"}', "Expecting 'instances' to be an list/array"),
    "an empty list of rows": ('{"instances": []}', "No values in 'instances' array"),
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


class _Api:
    """The checks that both APIs have. `translations` asks for texts, str or bytes: a list of (translation, score)."""

    def alone(self):
        found = self.translations(TEXTS)
        expect_same(found, [self.translations([text])[0] for text in TEXTS])
        return f"{len(TEXTS)} texts"

    def odd(self, text):
        _, beside = self.translations([text, TEXTS[0]])
        expect_same([beside], self.translations(TEXTS[:1]))
        return f"{len(text)} bytes"


class Rest(_Api):
    """The checks of the REST API. `arguments` are those of `parse_arguments`."""

    def __init__(self, arguments):
        self._url, self._model = arguments.url.rstrip("/"), arguments.model_name
        self._path, self._metrics_path = f"/v1/models/{arguments.model_name}", arguments.metrics_path
        self._pool = urllib3.PoolManager(retries=False, timeout=arguments.timeout)

    def checks(self):
        """Returns promise -> function that returns its finding, str, or raises an exception."""
        return {
            "a version is AVAILABLE": self._status,
            "metadata tells the signatures": self._metadata,
            "rows give a translation and a score each": lambda: repr(self.translations(TEXTS)[0][0]),
            "columns give the same": self._columns,
            "rows as objects, by the number of the version, give the same": self._objects,
            "a compressed body gives the same": self._compressed,
            "a row gives the same alone as beside others": self.alone,
            **{f"answers {name}": functools.partial(self.odd, text) for name, text in ODD_TEXTS.items()},
            **{f"refuses {name}": functools.partial(self._refused, *asked) for name, *asked in self._errors()},
            "metrics count the requests": self._metrics,
        }

    def _status(self):
        document = self._answer("GET", self._path)
        states = {version["version"]: version["state"] for version in document["model_version_status"]}
        expect("AVAILABLE" in states.values(), states)
        return f"version {', '.join(name for name, state in states.items() if state == 'AVAILABLE')}"

    def _metadata(self):
        signatures = self._answer("GET", f"{self._path}/metadata")["metadata"]["signature_def"]["signature_def"]
        default = signatures.get("serving_default", {"inputs": {}})
        expect(default["inputs"].get("text", {}).get("dtype") == "DT_STRING", f"serving_default: {default}")
        return ", ".join(sorted(signatures))

    def _columns(self):
        for inputs in (TEXTS, {"text": TEXTS}):
            outputs = self._answer("POST", f"{self._path}:predict", {"inputs": inputs})["outputs"]
            expect_same(list(zip(outputs["translation"], outputs["score"], strict=True)), self.translations(TEXTS))
        return ""

    def _objects(self):
        newest = self._answer("GET", self._path)["model_version_status"][0]["version"]
        rows = [{"text": text} for text in TEXTS]
        found = self.translations(rows, f"/versions/{newest}", signature_name="serving_default")
        expect_same(found, self.translations(TEXTS))
        return f"version {newest}"

    def _compressed(self):
        body = gzip.compress(json.dumps({"instances": TEXTS}).encode())
        document = self._answer("POST", f"{self._path}:predict", body, {"Content-Encoding": "gzip"})
        expect_same(translations_of(document), self.translations(TEXTS))
        return f"{len(body)} bytes"

    def _metrics(self):
        reply = self._pool.request("GET", self._url + self._metrics_path)
        page = reply.data.decode("utf-8", "replace")
        expect(reply.status == 200, f"HTTP {reply.status} at {self._metrics_path}")
        name = f':tensorflow:serving:request_count{{model_name="{self._model}",status="OK"}}'
        counts = [line.rpartition(" ")[2] for line in page.splitlines() if line.startswith(name)]
        expect(counts and float(counts[0]) > 0, f"no {name}")
        expect(":tensorflow:serving:request_latency" in page, "no :tensorflow:serving:request_latency")
        return f"{float(counts[0]):.0f} requests"

    def _errors(self):
        """Lists the invalid requests: (name, method, path, body, status, message)."""
        path, nobody, version = self._path, f"/v1/models/{NOBODY}", f"/versions/{NO_VERSION}"
        none = "Servable not found for request:"
        specific = f"{none} Specific({self._model}, {NO_VERSION})"
        no_label = f"Unrecognized servable version label: {NOBODY}"
        no_version = f"Could not find version {NO_VERSION} of model {self._model}"
        return [
            *((name, "POST", f"{path}:predict", body, 400, message) for name, (body, message) in BODY_ERRORS.items()),
            ("another model", "POST", f"{nobody}:predict", ONE, 404, f"{none} Latest({NOBODY})"),
            ("another version", "POST", f"{path}{version}:predict", ONE, 404, specific),
            ("another label", "POST", f"{path}/labels/{NOBODY}:predict", ONE, 400, no_label),
            ("status of another model", "GET", nobody, None, 404, f"Could not find any versions of model {NOBODY}"),
            ("status of another version", "GET", f"{path}{version}", None, 404, no_version),
            ("status without a name", "GET", "/v1/models", None, 400, "Missing model name in request."),
            ("another path", "GET", f"/v1/{NOBODY}", None, 400, f"Malformed request: GET /v1/{NOBODY}"),
        ]

    def _refused(self, method, path, body, status, message):
        found, document = self._ask(method, path, None if body is None else body.encode())
        expect(found == status, f"HTTP {found}: {document}")
        expect(isinstance(document, dict) and message in document.get("error", ""), document)
        return f"{status} {message}"

    def translations(self, rows, which="", **more):
        rows = [{"b64": base64.b64encode(row).decode("ascii")} if isinstance(row, bytes) else row for row in rows]
        return translations_of(self._answer("POST", f"{self._path}{which}:predict", {"instances": rows, **more}))

    def _answer(self, *request):
        status, document = self._ask(*request)
        expect(status == 200, f"HTTP {status}: {document}")
        return document

    def _ask(self, method, path, body=None, headers=()):
        body = json.dumps(body).encode() if isinstance(body, dict) else body
        headers = {"Content-Type": "application/json", **dict(headers)}
        reply = self._pool.request(method, self._url + path, body=body, headers=headers)
        try:
            return reply.status, reply.json()
        except ValueError:
            return reply.status, reply.data


def translations_of(document):
    """Returns a list of (translation, score) of a reply with rows."""
    rows = [(row["translation"], row["score"]) for row in document["predictions"]]
    expect(all(isinstance(text, str) and isinstance(score, float | int) for text, score in rows), rows)
    return rows


class Grpc(_Api):
    """The checks of the gRPC API. `arguments` are those of `parse_arguments`."""

    def __init__(self, arguments):
        self._spec = {"name": arguments.model_name}
        self._timeout = arguments.timeout
        self._channel = grpc.insecure_channel(arguments.grpc)
        self._predict = self._method(messages.PREDICTION_SERVICE, "Predict", messages.PredictResponse)
        metadata = messages.GetModelMetadataResponse
        self._metadata = self._method(messages.PREDICTION_SERVICE, "GetModelMetadata", metadata)
        self._status = self._method(messages.MODEL_SERVICE, "GetModelStatus", messages.GetModelStatusResponse)

    def checks(self):
        """Returns promise -> function; see `Rest.checks`."""
        return {
            "a version is AVAILABLE": self._available,
            "metadata tells the signatures": self._signatures,
            "texts give a translation and a score each": self._texts,
            "tensor_content is read as the typed field is": self._packed,
            "a row gives the same alone as beside others": self.alone,
            "output_filter leaves the other outputs out": self._output_filter,
            **{f"answers {name}": functools.partial(self.odd, text) for name, text in ODD_TEXTS.items()},
            **{f"refuses {name}": functools.partial(self._refused, *asked) for name, *asked in self._errors()},
        }

    def _available(self):
        reply = self._status(messages.GetModelStatusRequest(model_spec=self._spec))
        ready = [v.version for v in reply.model_version_status if v.state == messages.ModelVersionStatus.AVAILABLE]
        expect(ready, reply)
        return f"version {', '.join(map(str, ready))}"

    def _signatures(self):
        reply = self._metadata(self._metadata_request("signature_def"))
        signatures = messages.SignatureDefMap()
        expect(reply.metadata["signature_def"].Unpack(signatures), reply)
        expect("text" in signatures.signature_def["serving_default"].inputs, sorted(signatures.signature_def))
        return ", ".join(sorted(signatures.signature_def))

    def _texts(self):
        reply = self._predict(self._request(TEXTS))
        expect(reply.model_spec.version.value > 0, f"version {reply.model_spec.version.value}")
        return repr(self.translations(TEXTS)[0][0].decode("utf-8", "replace"))

    def _packed(self):
        request = self._request(TEXTS)
        proto = request.inputs["text"]
        texts = list(proto.string_val)
        proto.ClearField("string_val")
        proto.tensor_content = bytes(map(len, texts)) + b"".join(texts)
        expect_same(self.translations(request), self.translations(TEXTS))
        return f"{len(proto.tensor_content)} bytes"

    def _output_filter(self):
        names = sorted(self._predict(self._request(TEXTS, output_filter=["score"])).outputs)
        expect(names == ["score"], names)
        return ""

    def _refused(self, call, request, code, message):
        try:
            call(request)
        except grpc.RpcError as error:
            expect(error.code() == code and message in error.details(), f"{error.code().name}: {error.details()}")
            return f"{code.name} {message}"
        raise Shortfall("found an answer")

    def _errors(self):
        """Lists the invalid requests: (name, call, request, code, message)."""
        invalid, missing, asked = StatusCode.INVALID_ARGUMENT, StatusCode.NOT_FOUND, messages.PredictRequest
        none, model = f"Servable not found for request: Latest({NOBODY})", self._spec["name"]
        negative = self._request(TEXTS)
        negative.inputs["text"].tensor_shape.dim[0].size = -5
        numbers = self._request([])
        to_proto(np.ones(3, np.float32), numbers.inputs["text"])
        filtered = self._request(TEXTS, output_filter=[NOBODY])
        version = asked(model_spec={**self._spec, "version": {"value": NO_VERSION}})
        signature = asked(model_spec={**self._spec, "signature_name": NOBODY})
        no_signature = f'Serving signature key "{NOBODY}" not found.'
        other_field, no_field = self._metadata_request(NOBODY), f"Metadata field {NOBODY} is not supported"
        nobody = messages.GetModelStatusRequest(model_spec={"name": NOBODY})
        no_version = f"Servable not found for request: Specific({model}, {NO_VERSION})"
        no_output = f"output tensor alias not found in signature: {NOBODY}"
        no_input = "input size does not match signature: 0!=1"
        predict = self._predict
        return [
            ("a request without model_spec", predict, asked(), invalid, "Missing ModelSpec"),
            ("a model_spec without name", predict, asked(model_spec={}), invalid, "ModelSpec has no name specified."),
            ("another model", predict, asked(model_spec={"name": NOBODY}), missing, none),
            ("another version", predict, version, missing, no_version),
            ("another signature", predict, signature, StatusCode.FAILED_PRECONDITION, no_signature),
            ("a request without input", predict, asked(model_spec=self._spec), invalid, no_input),
            ("numbers for texts", predict, numbers, invalid, "to be string but float is provided"),
            ("a negative shape", predict, negative, invalid, ""),
            ("another output", predict, filtered, invalid, no_output),
            ("metadata of another kind", self._metadata, other_field, invalid, no_field),
            ("status of another model", self._status, nobody, missing, f"of model {NOBODY}"),
        ]

    def _metadata_request(self, field):
        return messages.GetModelMetadataRequest(model_spec=self._spec, metadata_field=[field])

    def _request(self, texts, **more):
        request = messages.PredictRequest(model_spec=self._spec, **more)
        array = np.array([text if isinstance(text, bytes) else text.encode() for text in texts], object)
        to_proto(array, request.inputs["text"])
        return request

    def translations(self, asked):
        reply = self._predict(self._request(asked) if isinstance(asked, list) else asked)
        translations, scores = (to_array(reply.outputs[name]).tolist() for name in ("translation", "score"))
        return list(zip(translations, scores, strict=True))

    def _method(self, service, name, response):
        call = self._channel.unary_unary(
            f"/{service}/{name}",
            request_serializer=lambda request: request.SerializeToString(),
            response_deserializer=response.FromString,
        )
        return functools.partial(call, timeout=self._timeout)


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
    if arguments.url:
        try:
            urllib3.request("GET", arguments.url, retries=False, timeout=arguments.timeout)
        except urllib3.exceptions.HTTPError as error:
            raise ValueError(f"nothing answers at --url {arguments.url}: {error}") from None
    if arguments.grpc:
        with grpc.insecure_channel(arguments.grpc) as channel:
            try:
                grpc.channel_ready_future(channel).result(min(arguments.timeout, LONGEST_CONNECTING))
            except grpc.FutureTimeoutError:
                raise ValueError(f"nothing answers at --grpc {arguments.grpc}") from None


def checks_of(arguments):
    """Returns the checks of the chosen APIs: list of (API, promise, function)."""
    apis = {"REST": arguments.url and Rest(arguments), "gRPC": arguments.grpc and Grpc(arguments)}
    return [(name, *check) for name, api in apis.items() if api for check in api.checks().items()]


def outcome(check):
    """Runs a check, a function: (whether it has passed, its finding)."""
    try:
        return True, check()
    except Shortfall as shortfall:
        return False, str(shortfall)
    except grpc.RpcError as error:
        return False, f"found {error.code().name}: {error.details()}"
    except Exception as error:  # An unexpected reply can raise any exception.
        return False, f"found no answer that makes sense: {error!r}"


def run(checks):
    """Runs checks and prints a line for each. Returns the number of failures."""
    width, failed = max(len(promise) for _, promise, _ in checks), 0
    for api, promise, check in checks:
        has_passed, found = outcome(check)
        failed += not has_passed
        found = found.encode("unicode_escape").decode("ascii")
        print(f"{'ok  ' if has_passed else 'FAIL'}  {api}  {promise:{width}}  {found}".rstrip(), flush=True)
    print(f"{len(checks) - failed} of {len(checks)} as TensorFlow Serving")
    return failed


def main():
    """Prints the table, and returns the exit status of `DESCRIPTION`."""
    try:
        arguments = parse_arguments()
        check_reached(arguments)
        failed = run(checks_of(arguments))
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr, flush=True)
        os._exit(130)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
