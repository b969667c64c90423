import subprocess
import sys
from concurrent.futures import Future
from pathlib import Path

import grpc
import numpy as np
import pytest

from serving.errors import ServingError
from serving.smoke_test import ODD_TEXTS, checks_of, main, outcome, parse_arguments
from tests.serving.live import serve, serve_grpc

ROOT = Path(__file__).parents[2]


class Spoilt:
    """A predictor that does one thing otherwise than it should."""

    def __init__(self, predictor, spoil):
        self._predictor = predictor
        self.metrics = predictor.metrics
        self._spoil = spoil

    def submit(self, model, signature_name, inputs, outputs=None, **options):
        prediction = self._predictor.submit(model, signature_name, inputs, outputs, **options).result(60)
        future = Future()
        future.set_result(prediction._replace(outputs=self._spoil(inputs["text"], dict(prediction.outputs))))
        return future


@pytest.fixture
def failures(toys, monkeypatch, capsys):
    """Function (predictor, flags) -> exit status and the lines of the table of a smoke test of the whole."""

    def run(predictor, model="toy"):
        with serve(predictor, toys.models) as port, serve_grpc(predictor, toys.models) as address:
            flags = ["--url", f"http://127.0.0.1:{port}", "--grpc", address, "--model_name", model]
            monkeypatch.setattr(sys, "argv", ["smoke_test", *flags])
            with pytest.raises(SystemExit) as caught:
                main()
        lines = capsys.readouterr().out.splitlines()
        return caught.value.code, [" ".join(line.split()) for line in lines]

    return run


def test_our_server_is_as_tensorflow_serving_in_everything_that_is_checked(toys, failures):
    status, lines = failures(toys.predictor)
    assert [line for line in lines[:-1] if not line.startswith("ok ")] == []
    assert status == 0 and lines[-1] == f"{len(lines) - 1} of {len(lines) - 1} as TensorFlow Serving"
    assert len(lines) > 35


def depends_on_neighbours(texts, outputs):
    return outputs | {"score": outputs["score"] - np.float32(len(texts))}


def raises_for_odd_text(texts, outputs):
    if any(b"\x1b" in text for text in texts):
        raise ServingError(grpc.StatusCode.INTERNAL, "what a text")
    return outputs


ALONE = [f"{api} a row gives the same alone as beside others" for api in ("REST", "gRPC")]
ODD = [f"{api} answers {name}" for api in ("REST", "gRPC") for name in ODD_TEXTS]


@pytest.mark.parametrize(
    "spoil, promises",
    [
        (depends_on_neighbours, ALONE + ODD),
        (raises_for_odd_text, [promise for promise in ODD if "control characters" in promise]),
    ],
)
def test_what_falls_short_is_said_and_nothing_else(toys, failures, spoil, promises):
    status, lines = failures(Spoilt(toys.predictor, spoil))
    failed = [line.removeprefix("FAIL ").partition(" found ")[0] for line in lines if line.startswith("FAIL")]
    assert status == 1 and sorted(failed) == sorted(promises)
    assert lines[-1] == f"{len(lines) - 1 - len(failed)} of {len(lines) - 1} as TensorFlow Serving"


def test_a_model_that_is_not_there_fails_all_that_needs_it(toys, failures):
    status, lines = failures(toys.predictor, "other")
    assert status == 1
    for api in ("REST", "gRPC"):
        (line,) = [line for line in lines if f"{api} texts give a translation" in line]
        assert line.startswith("FAIL") and "Servable not found for request: Latest(other)" in line


def test_a_reply_that_makes_no_sense_is_a_shortfall_and_no_traceback():
    for *_, check in checks_of(parse_arguments(["--url", "http://127.0.0.1:1", "--grpc", "127.0.0.1:1"])):
        has_passed, found = outcome(check)
        assert not has_passed and "efused" in found


@pytest.mark.parametrize("flags", [["--url", "http://127.0.0.1:1"], ["--grpc", "127.0.0.1:1", "--timeout", "0.3"]])
def test_a_server_that_is_not_there_is_one_line(flags):
    command = [sys.executable, "-m", "serving.smoke_test", *flags]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    (line,) = result.stderr.splitlines()
    assert result.returncode == 2 and line.startswith(f"error: nothing answers at {flags[0]} {flags[1]}")
