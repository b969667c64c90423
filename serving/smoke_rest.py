"""The checks of the REST API of an exported model, all of which TensorFlow Serving documents."""

import base64
import functools
import gzip
import json

import urllib3

from serving.smoke_checks import NO_VERSION, NOBODY, ODD_TEXTS, TEXTS, Check, expect, expect_same

ONE = '{"instances": ["a"]}'
BODY_ERRORS = [
    ("an empty body", "", "JSON Parse error: The document is empty"),
    ("a body that is no JSON", "{", "JSON Parse error"),
    ("a list", "[1]", "Is not object"),
    ("a number for signature_name", '{"signature_name": 5, "instances": ["a"]}', "'signature_name' key must be"),
    (
        "another signature",
        f'{{"signature_name": "{NOBODY}", "instances": ["a"]}}',
        f'Serving signature name: "{NOBODY}" not found in signature def',
    ),
    ("an empty object", "{}", "Missing 'inputs' or 'instances' key"),
    ("both formats", '{"instances": ["a"], "inputs": ["a"]}', "Not formatted correctly expecting only one of"),
    ("rows that are no list", '{"instances": "a"}', "Expecting 'instances' to be an list/array"),
    ("an empty list of rows", '{"instances": []}', "No values in 'instances' array"),
    ("a number for a text", '{"instances": [1]}', "Failed to process element: 0 of 'instances' list"),
    ("bad base64", '{"instances": [{"b64": "?"}]}', "Unable to base64 decode"),
]


class Rest:
    """The checks of the REST API.

    Args:
        url: str, http://HOST:PORT.
        model: str.
        timeout: float, the most seconds for a request.
        metrics_path: str, the path of the page for Prometheus.
    """

    def __init__(self, url, model, timeout, metrics_path):
        self._url = url.rstrip("/")
        self._model = model
        self._path = f"/v1/models/{model}"
        self._metrics_path = metrics_path
        self._pool = urllib3.PoolManager(retries=False, timeout=timeout)

    def checks(self):
        """Lists the `Check`s."""
        found = {
            "a version is AVAILABLE": self.status,
            "metadata tells the signatures": self.metadata,
            "rows give a translation and a score each": self.rows,
            "columns give the same": self.columns,
            "rows as objects, by the number of the version, give the same": self.objects,
            "a compressed body gives the same": self.compressed,
            "a row gives the same alone as beside others": self.alone,
            **{f"answers {name}": functools.partial(self.odd, text) for name, text in ODD_TEXTS.items()},
            **{f"refuses {name}": functools.partial(self.refused, *asked) for name, *asked in self._errors()},
            "metrics count the requests": self.metrics,
        }
        return [Check("REST", promise, run) for promise, run in found.items()]

    def status(self):
        """Checks the status of the model, as probes ask for it."""
        document = self._get(self._path)
        states = {version["version"]: version["state"] for version in document["model_version_status"]}
        expect("AVAILABLE" in states.values(), states)
        return f"version {', '.join(name for name, state in states.items() if state == 'AVAILABLE')}"

    def metadata(self):
        """Checks the signatures."""
        signatures = self._get(f"{self._path}/metadata")["metadata"]["signature_def"]["signature_def"]
        default = signatures.get("serving_default", {"inputs": {}})
        expect(default["inputs"].get("text", {}).get("dtype") == "DT_STRING", f"serving_default: {default}")
        return ", ".join(sorted(signatures))

    def rows(self):
        """Checks texts as rows."""
        return f"{self._translations(instances=TEXTS)[0][0]!r}"

    def columns(self):
        """Checks texts as columns."""
        for inputs in (TEXTS, {"text": TEXTS}):
            outputs = self._predict(inputs=inputs)["outputs"]
            rows = list(zip(outputs["translation"], outputs["score"], strict=True))
            expect_same(rows, self._translations(instances=TEXTS))
        return ""

    def objects(self):
        """Checks rows with names, and a version in the path."""
        newest = self._get(self._path)["model_version_status"][0]["version"]
        rows = [{"text": text} for text in TEXTS]
        found = self._translations(path=f"/versions/{newest}:predict", signature_name="serving_default", instances=rows)
        expect_same(found, self._translations(instances=TEXTS))
        return f"version {newest}"

    def compressed(self):
        """Checks a gzip body."""
        body = gzip.compress(json.dumps({"instances": TEXTS}).encode())
        status, document = self._ask("POST", f"{self._path}:predict", body, {"Content-Encoding": "gzip"})
        expect(status == 200, document)
        expect_same(translations_of(document), self._translations(instances=TEXTS))
        return f"{len(body)} bytes"

    def alone(self):
        """Checks that neighbours do not change a result."""
        singles = [self._translations(instances=[text])[0] for text in TEXTS]
        expect_same(self._translations(instances=TEXTS), singles)
        return f"{len(TEXTS)} texts"

    def odd(self, text):
        """Checks that an odd text does not change the result of an ordinary text beside it."""
        row = {"b64": base64.b64encode(text).decode("ascii")}
        _, beside = self._translations(instances=[row, TEXTS[0]])
        expect_same([beside], self._translations(instances=TEXTS[:1]))
        return f"{len(text)} bytes"

    def metrics(self):
        """Checks the page for Prometheus."""
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
            *((name, "POST", f"{path}:predict", body, 400, message) for name, body, message in BODY_ERRORS),
            ("another model", "POST", f"{nobody}:predict", ONE, 404, f"{none} Latest({NOBODY})"),
            ("another version", "POST", f"{path}{version}:predict", ONE, 404, specific),
            ("another label", "POST", f"{path}/labels/{NOBODY}:predict", ONE, 400, no_label),
            ("status of another model", "GET", nobody, None, 404, f"Could not find any versions of model {NOBODY}"),
            ("status of another version", "GET", f"{path}{version}", None, 404, no_version),
            ("status without a name", "GET", "/v1/models", None, 400, "Missing model name in request."),
            ("another path", "GET", f"/v1/{NOBODY}", None, 400, f"Malformed request: GET /v1/{NOBODY}"),
        ]

    def refused(self, method, path, body, status, message):
        """Checks that a request is refused with this status and a message that contains `message`."""
        found, document = self._ask(method, path, None if body is None else body.encode())
        expect(found == status, f"HTTP {found}: {document}")
        expect(isinstance(document, dict) and message in document.get("error", ""), document)
        return f"{status} {message}"

    def _translations(self, path=":predict", **body):
        return translations_of(self._predict(path, **body))

    def _predict(self, path=":predict", **body):
        status, document = self._ask("POST", self._path + path, json.dumps(body).encode())
        expect(status == 200, f"HTTP {status}: {document}")
        return document

    def _get(self, path):
        status, document = self._ask("GET", path)
        expect(status == 200, f"HTTP {status}: {document}")
        return document

    def _ask(self, method, path, body=None, headers=None):
        """Sends a request. Returns the status and the reply's JSON, or the reply's bytes if it has no JSON."""
        headers = {"Content-Type": "application/json", **(headers or {})}
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
