from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

import serving
from serving.configuration import read_message
from serving.servable import SOON_DONE, Loader, Servable
from tests.serving import toy
from tests.serving.live import refusal
from tests.serving.toy import record, texts


def test_long_work_is_given_up(tmp_path):
    config = read_message(Path(serving.__file__).parent / "config" / "session.config", tf.compat.v1.ConfigProto())
    servable = Servable.load("toy", 7, toy.write(tmp_path, 7), config)
    long = texts("wait 30" + SOON_DONE * " ")
    assert refusal(servable.run, "", long, timeout_s=0.05)[0] == "DEADLINE_EXCEEDED"
    servable.close()


@pytest.mark.parametrize(
    "file, change, code",
    [
        ("saved_model.pb", None, "NOT_FOUND"),
        ("variables/variables.index", None, "DATA_LOSS"),
        ("variables/variables.data-00000-of-00001", None, "UNKNOWN"),
        ("saved_model.pb", lambda graph: graph[: len(graph) // 2], "DATA_LOSS"),
    ],
)
def test_a_version_that_cannot_be_loaded_is_an_error_with_a_code(tmp_path, file, change, code):
    path, loader = toy.write(tmp_path, 1), Loader()
    content = (path / file).read_bytes()
    (path / file).unlink()
    if change:
        (path / file).write_bytes(change(content))
    assert refusal(loader.load, "toy", 1, path)[0] == code
    assert f'load_attempt_count{{model_path="{path}",status="fail"}} 1' in loader.metrics.page()


def test_a_default_stands_for_an_input_that_is_missing(tmp_path):
    @tf.function(input_signature=[tf.TensorSpec([], tf.int64, "x"), tf.TensorSpec([], tf.int64, "y")])
    def add(x, y):
        return {"sum": x + y}

    tf.saved_model.save(tf.Module(), str(tmp_path), {"serving_default": add})
    path = tmp_path / "saved_model.pb"
    saved = SavedModel.FromString(path.read_bytes())
    saved.meta_graphs[0].signature_def["serving_default"].defaults["y"].CopyFrom(tf.make_tensor_proto(5, tf.int64))
    path.write_bytes(saved.SerializeToString())
    servable = Servable.load("m", 1, tmp_path)
    assert servable.run("", {"x": np.int64(2)}) == {"sum": 7}
    for inputs in ({"y": np.int64(2)}, {"x": np.int64(2), "z": np.int64(2)}):
        assert refusal(servable.run, "", inputs)[0] == "INVALID_ARGUMENT"
    servable.close()


def test_a_loaded_version_has_warmed_up_and_is_counted(tmp_path):
    loader, path = Loader(), toy.write(tmp_path, 3)
    toy.warm_up(path, record("a", "b"), record("c", signature="explain"))
    servable = loader.load("toy", 3, path)
    assert list(servable.run("", texts("x"))["translation"]) == [toy.translation("x", 3)]
    servable.close()
    page = loader.metrics.page()
    assert f':tensorflow:cc:saved_model:load_attempt_count{{model_path="{path}",status="success"}} 1' in page
    assert f':tensorflow:serving:model_warmup_latency_count{{model_path="{path}",status="OK"}} 1' in page


@pytest.mark.parametrize(
    "log, bytes_lost, code", [(record("a", "raise"), 0, "INVALID_ARGUMENT"), (record("a"), 3, "DATA_LOSS")]
)
def test_a_record_that_fails_fails_the_load(tmp_path, log, bytes_lost, code):
    loader, path = Loader(), toy.write(tmp_path, 3)
    records = toy.warm_up(path, record("a"), log)
    records.write_bytes(records.read_bytes()[: records.stat().st_size - bytes_lost])
    assert refusal(loader.load, "toy", 3, path)[0] == code
    assert f'model_warmup_latency_count{{model_path="{path}",status="{code}"}} 1' in loader.metrics.page()
    Loader(has_warm_up=False).load("toy", 3, path).close()
