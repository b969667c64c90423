import sys
from concurrent.futures import Future

import grpc
import pytest

from serving.errors import ServingError
from serving.smoke_test import ODD_TEXTS, main
from tests.serving import toy
from tests.serving.live import backend, serve, serve_grpc


class Spoilt:
    """A predictor that depends on the neighbours of a text, and that refuses control characters."""

    def __init__(self, predictor):
        self._predictor, self.metrics = predictor, predictor.metrics

    def submit(self, model, signature_name, inputs, outputs=None, **options):
        found, future = self._predictor.submit(model, signature_name, inputs, outputs, **options).result(60), Future()
        if any(b"\x1b" in text for text in inputs["text"]):
            raise ServingError(grpc.StatusCode.INTERNAL, "what a text")
        score = found.outputs["score"] - len(inputs["text"])
        future.set_result(found._replace(outputs=found.outputs | {"score": score.astype("float32")}))
        return future


@pytest.fixture
def check(toys, monkeypatch, capsys):
    """Function (predictor, model) -> exit status and the lines of the table of a smoke test of the whole."""

    def run(predictor, model="toy", models=toys.models):
        with serve(predictor, models) as port, serve_grpc(predictor, models) as address:
            flags = ["--url", f"http://127.0.0.1:{port}", "--grpc", address, "--model_name", model]
            monkeypatch.setattr(sys, "argv", ["smoke_test", *flags])
            with pytest.raises(SystemExit) as caught:
                main()
        return caught.value.code, [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]

    return run


@pytest.mark.parametrize("is_many", [False, True])
def test_our_server_is_as_tensorflow_serving_in_everything_that_is_checked(tmp_path, check, is_many):
    toy.write(tmp_path, 3, is_many)
    with backend({"m": tmp_path}) as found:
        status, lines = check(found.predictor, "m", found.models)
    assert [line for line in lines[:-1] if not line.startswith("ok ")] == []
    assert status == 0 and lines[-1] == f"{len(lines) - 1} of {len(lines) - 1} as TensorFlow Serving"
    assert len(lines) > 30


def test_what_falls_short_is_said_and_nothing_else(toys, check):
    status, lines = check(Spoilt(toys.predictor))
    failed = [line.removeprefix("FAIL ").partition(" found ")[0] for line in lines if line.startswith("FAIL")]
    odd = [f"answers {name}" for name in ODD_TEXTS] + ["a row gives the same alone as beside others"]
    assert status == 1 and sorted(failed) == sorted(f"{api} {promise}" for promise in odd for api in ("REST", "gRPC"))
    status, lines = check(toys.predictor, "other")
    assert status == 1 and any("FAIL gRPC texts give" in line and "Servable not found" in line for line in lines)
