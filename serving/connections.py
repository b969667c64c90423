"""The connections of `Client`: they send arrays to a signature, and return its outputs as lists of values.

A connection has `predict(signature_name, inputs, timeout_s)`, which raises `ServingError`, and `close()`; one to
another process has `is_ready(timeout_s)`, whether the server says so soon that a version of the model is in service.
"""

import base64
import json
from urllib.parse import quote

import grpc
import numpy as np
import urllib3
from grpc import StatusCode

from serving.errors import HTTP_STATUS, ServingError, invalid
from serving.messages import MODEL_SERVICE, PREDICTION_SERVICE, PredictRequest, PredictResponse, to_array, to_proto
from serving.messages import get_model_status_pb2 as status_pb2
from serving.protection import NO_PLACEHOLDERS, PLACEHOLDERS

StatusRequest, StatusResponse = status_pb2.GetModelStatusRequest, status_pb2.GetModelStatusResponse
AVAILABLE = status_pb2.ModelVersionStatus.AVAILABLE

LANGUAGES = ("source_lang", "target_lang")  # Inputs of a model of many languages.
CODE_OF = {status: code for code, status in reversed(HTTP_STATUS.items())}


class RestConnection:
    """The REST API of a server: columns of values to columns of values. Thread-safe."""

    def __init__(self, url, model, version, label, connections):
        which = f"/versions/{version}" if version is not None else f"/labels/{quote(label, safe='')}" if label else ""
        self._model_url = f"{url.rstrip('/')}/v1/models/{quote(model, safe='')}{which}"
        self._url = f"{self._model_url}:predict"
        self._pool = urllib3.PoolManager(maxsize=connections, retries=False)

    def predict(self, signature_name, inputs, timeout_s):
        """Runs a signature with arrays: dict name -> list. Raises the server's error as ServingError."""
        document = {"signature_name": signature_name, "inputs": {name: x.tolist() for name, x in inputs.items()}}
        # Bytes are base64, because they may not be UTF-8.
        body = json.dumps(document, default=lambda value: {"b64": base64.b64encode(value).decode("ascii")}).encode()
        headers = {"Content-Type": "application/json"}
        try:
            reply = self._pool.request("POST", self._url, body=body, headers=headers, timeout=timeout_s)
        except urllib3.exceptions.HTTPError as error:
            late, refused = urllib3.exceptions.TimeoutError, urllib3.exceptions.NewConnectionError
            is_late = isinstance(error, late) and not isinstance(error, refused)
            code = StatusCode.DEADLINE_EXCEEDED if is_late else StatusCode.UNAVAILABLE
            raise ServingError(code, f"{error}".rpartition(": ")[2]) from None
        try:
            said = reply.json()["outputs" if reply.status == 200 else "error"]
        except (ValueError, KeyError, TypeError):  # For example a proxy's page.
            said = None
        if said is None or reply.status != 200:
            shown = f"HTTP {reply.status} {reply.data[:200].decode('utf-8', 'replace')!r}"
            raise ServingError(CODE_OF.get(reply.status, StatusCode.UNKNOWN), said or shown)
        return said

    def is_ready(self, timeout_s):
        try:
            reply = self._pool.request("GET", self._model_url, timeout=timeout_s)
        except urllib3.exceptions.HTTPError:
            return False
        return reply.status == 200 and b'"AVAILABLE"' in reply.data

    def close(self):
        """Closes all connections."""
        self._pool.clear()


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
        how = (f"/{PREDICTION_SERVICE}/Predict", PredictRequest.SerializeToString, PredictResponse.FromString)
        self._predict = self._channel.unary_unary(*how)
        how = (StatusRequest.SerializeToString, StatusResponse.FromString)
        self._status = self._channel.unary_unary(f"/{MODEL_SERVICE}/GetModelStatus", *how)

    def predict(self, signature_name, inputs, timeout_s):
        """Runs a signature; see `RestConnection.predict`."""
        request = PredictRequest(model_spec={**self._spec, "signature_name": signature_name})
        for name, array in inputs.items():
            to_proto(array, request.inputs[name])
        try:
            response = self._predict(request, timeout=timeout_s)
        except grpc.RpcError as error:
            raise ServingError(error.code(), error.details()) from None
        return {name: values_of(to_array(proto)) for name, proto in response.outputs.items()}

    def is_ready(self, timeout_s):
        try:
            reply = self._status(StatusRequest(model_spec=self._spec), timeout=timeout_s)
        except grpc.RpcError:
            return False
        return any(each.state == AVAILABLE for each in reply.model_version_status)

    def close(self):
        """Cancels all open requests."""
        self._channel.close()


class TextConnection:
    """A connection that gives a model of many languages its languages, and that keeps words."""

    def __init__(self, connection):
        self._connection, self.close = connection, connection.close
        self._is_many = self._has_placeholders = False

    def predict(self, signature_name, inputs, timeout_s, protection=None):
        """Runs a signature. With a `Protection`, placeholders go to the server, and words come back in translations.

        The pieces of `explain` stay as the server sends them. A model without placeholders is refused by ServingError.
        """
        if protection is None or signature_name == "score":  # It reads texts and translations as they are.
            return self._directed(signature_name, inputs, timeout_s)
        if not self._has_placeholders:  # Asks once whether the model reads a placeholder as one piece.
            pieces = self._directed("explain", {"text": texts_of(PLACEHOLDERS[:1])}, timeout_s)
            if PLACEHOLDERS[0] not in pieces["source_pieces"][0]:
                raise invalid(NO_PLACEHOLDERS)
            self._has_placeholders = True
        hidden = [protection.hide(text.decode("utf-8")) for text in inputs["text"]]
        inputs = {**inputs, "text": texts_of([each.text for each in hidden])}
        outputs = self._directed(signature_name, inputs, timeout_s)
        for name in {"translation", "translations"} & outputs.keys():  # One of each text, or several.
            for row, (each, value) in enumerate(zip(hidden, outputs[name], strict=True)):
                outputs[name][row] = list(map(each.restore, value)) if isinstance(value, list) else each.restore(value)
        return outputs

    def is_ready(self, timeout_s):
        return self._connection.is_ready(timeout_s)

    def _directed(self, signature_name, inputs, timeout_s):
        """Runs a signature. If a server says that languages are missing, sends "" for them, the default.

        From the first translation of such a request on, every request has languages.
        """
        is_many = self._is_many or not inputs.keys().isdisjoint(LANGUAGES)
        nothing = texts_of([""] * len(next(iter(inputs.values()), ())))
        directed = {**dict.fromkeys(LANGUAGES, nothing), **inputs}
        try:
            return self._connection.predict(signature_name, directed if is_many else inputs, timeout_s)
        except ServingError as error:
            is_missing = any(name in error.message for name in LANGUAGES)  # or the name of the model has this word
            if is_many or error.code != StatusCode.INVALID_ARGUMENT or not is_missing:
                raise
        outputs = self._connection.predict(signature_name, directed, timeout_s)
        self._is_many = True
        return outputs


def texts_of(texts):
    """Converts a list of str or bytes to an array (N,) of bytes. Half of a surrogate pair becomes U+FFFD."""
    return np.array([_bytes_of(text) if isinstance(text, str) else text for text in texts], object)


def _bytes_of(text):
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").encode("utf-8")


def values_of(array):
    """Converts an array to nested lists of values: bytes become text, with U+FFFD for bytes that are not UTF-8."""
    if array.dtype == object:
        texts = np.empty(array.size, object)
        texts[:] = [value.decode("utf-8", "replace") for value in array.flat]
        array = texts.reshape(array.shape)
    return array.tolist()
