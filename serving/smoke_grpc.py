"""The checks of the gRPC API of an exported model, all of which TensorFlow Serving documents."""

import functools

import grpc
import numpy as np
from grpc import StatusCode

from serving import messages
from serving.smoke_checks import NO_VERSION, NOBODY, ODD_TEXTS, TEXTS, Check, Shortfall, expect, expect_same
from serving.tensor_protos import to_array, to_proto


class Grpc:
    """The checks of the gRPC API.

    Args:
        target: str, HOST:PORT.
        model: str.
        timeout: float, the most seconds for a request.
    """

    def __init__(self, target, model, timeout):
        self._model = model
        self._timeout = timeout
        self._channel = grpc.insecure_channel(target)
        self._predict = self._method(messages.PREDICTION_SERVICE, "Predict", messages.PredictResponse)
        self._metadata = self._method(
            messages.PREDICTION_SERVICE, "GetModelMetadata", messages.GetModelMetadataResponse
        )
        self._status = self._method(messages.MODEL_SERVICE, "GetModelStatus", messages.GetModelStatusResponse)

    def checks(self):
        """Lists the `Check`s."""
        found = {
            "a version is AVAILABLE": self.status,
            "metadata tells the signatures": self.metadata,
            "texts give a translation and a score each": self.texts,
            "tensor_content is read as the typed field is": self.packed,
            "a row gives the same alone as beside others": self.alone,
            "output_filter leaves the other outputs out": self.output_filter,
            **{f"answers {name}": functools.partial(self.odd, text) for name, text in ODD_TEXTS.items()},
            **{f"refuses {name}": functools.partial(self.refused, *asked) for name, *asked in self._errors()},
        }
        return [Check("gRPC", promise, run) for promise, run in found.items()]

    def status(self):
        """Checks the status of the model."""
        reply = self._status(messages.GetModelStatusRequest(model_spec={"name": self._model}))
        ready = [v.version for v in reply.model_version_status if v.state == messages.ModelVersionStatus.AVAILABLE]
        expect(ready, reply)
        return f"version {', '.join(map(str, ready))}"

    def metadata(self):
        """Checks the signatures."""
        reply = self._metadata(self._metadata_request("signature_def"))
        signatures = messages.SignatureDefMap()
        expect(reply.metadata["signature_def"].Unpack(signatures), reply)
        expect("text" in signatures.signature_def["serving_default"].inputs, sorted(signatures.signature_def))
        return ", ".join(sorted(signatures.signature_def))

    def texts(self):
        """Checks translations."""
        reply = self._predict(self._request(TEXTS))
        expect(reply.model_spec.version.value > 0, f"version {reply.model_spec.version.value}")
        return repr(translations_of(reply)[0][0].decode("utf-8", "replace"))

    def packed(self):
        """Checks strings in `tensor_content`."""
        request = self._request(TEXTS)
        proto = request.inputs["text"]
        texts = list(proto.string_val)
        proto.ClearField("string_val")
        proto.tensor_content = bytes(map(len, texts)) + b"".join(texts)
        expect_same(translations_of(self._predict(request)), self._translations(TEXTS))
        return f"{len(proto.tensor_content)} bytes"

    def alone(self):
        """Checks that neighbours do not change a result."""
        expect_same(self._translations(TEXTS), [self._translations([text])[0] for text in TEXTS])
        return f"{len(TEXTS)} texts"

    def output_filter(self):
        """Checks a request for one of two outputs."""
        request = self._request(TEXTS)
        request.output_filter.append("score")
        names = sorted(self._predict(request).outputs)
        expect(names == ["score"], names)
        return ""

    def odd(self, text):
        """Checks that an odd text does not change the result of an ordinary text beside it."""
        _, beside = self._translations([text, TEXTS[0]])
        expect_same([beside], self._translations(TEXTS[:1]))
        return f"{len(text)} bytes"

    def refused(self, call, request, code, message):
        """Checks that a call is refused with this code and a message that contains `message`."""
        try:
            call(request)
        except grpc.RpcError as error:
            expect(error.code() == code and message in error.details(), f"{error.code().name}: {error.details()}")
            return f"{code.name} {message}"
        raise Shortfall("found an answer")

    def _errors(self):
        """Lists the invalid requests: (name, call, request, code, message)."""
        invalid, none = StatusCode.INVALID_ARGUMENT, f"Servable not found for request: Latest({NOBODY})"
        negative = self._request(TEXTS)
        negative.inputs["text"].tensor_shape.dim[0].size = -5
        numbers = self._request([])
        to_proto(np.ones(3, np.float32), numbers.inputs["text"])
        asked = messages.PredictRequest
        filtered = self._request(TEXTS)
        filtered.output_filter.append(NOBODY)
        of_version = {"name": self._model, "version": {"value": NO_VERSION}}
        no_version = f"Servable not found for request: Specific({self._model}, {NO_VERSION})"
        missing = "input size does not match signature: 0!=1"
        signature = {"name": self._model, "signature_name": NOBODY}
        no_signature = f'Serving signature key "{NOBODY}" not found.'
        no_output = f"output tensor alias not found in signature: {NOBODY}"
        other_field = self._metadata_request(NOBODY)
        status_of_nobody = messages.GetModelStatusRequest(model_spec={"name": NOBODY})
        return [
            ("a request without model_spec", self._predict, asked(), invalid, "Missing ModelSpec"),
            (
                "a model_spec without name",
                self._predict,
                asked(model_spec={}),
                invalid,
                "ModelSpec has no name specified.",
            ),
            ("another model", self._predict, asked(model_spec={"name": NOBODY}), StatusCode.NOT_FOUND, none),
            ("another version", self._predict, asked(model_spec=of_version), StatusCode.NOT_FOUND, no_version),
            (
                "another signature",
                self._predict,
                asked(model_spec=signature),
                StatusCode.FAILED_PRECONDITION,
                no_signature,
            ),
            ("a request without input", self._predict, asked(model_spec={"name": self._model}), invalid, missing),
            ("numbers for texts", self._predict, numbers, invalid, "to be string but float is provided"),
            ("a negative shape", self._predict, negative, invalid, ""),
            ("another output", self._predict, filtered, invalid, no_output),
            (
                "metadata of another kind",
                self._metadata,
                other_field,
                invalid,
                f"Metadata field {NOBODY} is not supported",
            ),
            ("status of another model", self._status, status_of_nobody, StatusCode.NOT_FOUND, f"of model {NOBODY}"),
        ]

    def _metadata_request(self, field):
        return messages.GetModelMetadataRequest(model_spec={"name": self._model}, metadata_field=[field])

    def _request(self, texts):
        request = messages.PredictRequest(model_spec={"name": self._model})
        array = np.array([text if isinstance(text, bytes) else text.encode() for text in texts], object)
        to_proto(array, request.inputs["text"])
        return request

    def _translations(self, texts):
        return translations_of(self._predict(self._request(texts)))

    def _method(self, service, name, response):
        call = self._channel.unary_unary(
            f"/{service}/{name}",
            request_serializer=lambda request: request.SerializeToString(),
            response_deserializer=response.FromString,
        )
        return functools.partial(call, timeout=self._timeout)


def translations_of(reply):
    """Returns a list of (translation, score)."""
    translations, scores = (to_array(reply.outputs[name]).tolist() for name in ("translation", "score"))
    return list(zip(translations, scores, strict=True))
