import pytest
from grpc import StatusCode

from serving.errors import ServingError
from serving.smoke_checks import Shortfall
from serving.smoke_grpc import Grpc
from tests.serving.fake_server import serve


def upper(which, signature_name, inputs):
    texts = inputs["text"]
    return {"translation": [text.upper() for text in texts], "score": [float(len(text)) for text in texts]}


def checks(grpc):
    return {check.promise: check.run for check in Grpc(grpc, "toy", 60.0).checks()}


def test_a_server_that_translates_and_does_nothing_else_falls_short_of_the_rest():
    with serve("grpc", upper) as where:
        found = checks(**where)
        assert found["a row gives the same alone as beside others"]() == "3 texts"
        assert found["tensor_content is read as the typed field is"]()
        assert found["answers invalid UTF-8"]() == "7 bytes"
        for promise, instead in (
            ("texts give a translation and a score each", "version 0"),
            ("output_filter leaves the other outputs out", "translation"),
            ("refuses another model", "UNKNOWN"),
        ):
            with pytest.raises(Shortfall, match=instead):
                found[promise]()


def test_a_refusal_must_have_the_code_and_the_message():
    errors = {
        "": (StatusCode.INVALID_ARGUMENT, "Missing ModelSpec"),
        "no-such-thing": (StatusCode.INTERNAL, "Servable not found for request: Latest(no-such-thing)"),
    }

    def refuse(which, signature_name, inputs):
        raise ServingError(*errors.get(which.partition("/")[0], (StatusCode.NOT_FOUND, "no")))

    with serve("grpc", refuse) as where:
        found = checks(**where)
        assert found["refuses a request without model_spec"]() == "INVALID_ARGUMENT Missing ModelSpec"
        with pytest.raises(Shortfall, match="INTERNAL"):
            found["refuses another model"]()
        with pytest.raises(Shortfall, match="NOT_FOUND: no"):
            found["refuses another version"]()
