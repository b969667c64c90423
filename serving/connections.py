"""The client's connections: REST and gRPC behind one function, from columns of values to columns of values."""

import base64
import json
from urllib.parse import quote

import grpc
import numpy as np
import urllib3
from grpc import StatusCode

from serving import messages
from serving.errors import HTTP_STATUS, ServingError
from serving.tensor_protos import to_array, to_proto

CODE_OF = {status: code for code, status in reversed(HTTP_STATUS.items())}


class RestConnection:
    """The REST API of a server. Thread-safe.

    Args:
        url: str, http://HOST:PORT.
        model: str.
        version: int, or None for the newest.
        label: str, such as "stable"; excludes `version`.
        connections: int, the most requests at a time.
    """

    def __init__(self, url, model, version=None, label=None, connections=1):
        which = f"/versions/{version}" if version is not None else f"/labels/{quote(label, safe='')}" if label else ""
        self.target = url.rstrip("/")
        self._url = f"{self.target}/v1/models/{quote(model, safe='')}{which}:predict"
        self._pool = urllib3.PoolManager(maxsize=connections, retries=False)

    def predict(self, signature_name, inputs, timeout_s):
        """Runs a signature.

        Args:
            signature_name: str.
            inputs: dict name -> array of numbers or of bytes objects.
            timeout_s: float, seconds.

        Returns:
            dict name -> list, with strings as bytes or str. For a signature with one output, REST returns the list
            without the dict.

        Raises:
            ServingError: the server's error, or UNAVAILABLE or DEADLINE_EXCEEDED without an answer.
        """
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
        if reply.status != 200:
            raise ServingError(CODE_OF.get(reply.status, StatusCode.UNKNOWN), _said(reply, "error"))
        return _said(reply, "outputs")

    def close(self):
        """Closes all connections."""
        self._pool.clear()


def _json_column(array):
    return [text_or_b64(value) for value in array] if array.dtype == object else array.tolist()


def text_or_b64(value):
    """Converts bytes to JSON: text, or base64 for bytes that are not UTF-8."""
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        return {"b64": base64.b64encode(value).decode("ascii")}


def _said(reply, key):
    """Returns a reply's value of `key`. If the reply has none, shows the reply instead, for example a proxy's page."""
    try:
        return reply.json()[key]
    except (ValueError, KeyError, TypeError):
        shown = f"HTTP {reply.status} {reply.data[:200].decode('utf-8', 'replace')!r}"
    if key == "error":
        return shown
    raise ServingError(StatusCode.UNKNOWN, f"the reply has no {key!r}: {shown}")


class GrpcConnection:
    """The gRPC API of a server. Thread-safe.

    Args:
        target: str, HOST:PORT.
        model: str.
        version: int, or None for the newest.
        label: str, such as "stable"; excludes `version`.
        connections: int, unused: one connection carries any number of requests.
    """

    def __init__(self, target, model, version=None, label=None, connections=1):
        self.target = target
        self._spec = {"name": model}
        if version is not None:
            self._spec["version"] = {"value": version}
        elif label:
            self._spec["version_label"] = label
        # The client has its own pauses between retries. gRPC's reconnect pauses would come on top, so they are short.
        pauses = [(f"grpc.{which}_reconnect_backoff_ms", 100) for which in ("initial", "min", "max")]
        options = [("grpc.max_receive_message_length", -1), *pauses]
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


def column(values, dtype):
    """Makes an array (N,) for an input; `dtype` is str for text, else a NumPy dtype."""
    if dtype is not str:
        return np.array(values, dtype)
    array = np.empty(len(values), object)
    array[:] = [value.encode("utf-8") for value in values]
    return array
