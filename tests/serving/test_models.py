import contextlib
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf
from grpc import StatusCode
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

import serving
from serving.configuration import ModelConfig, VersionPolicy, read_message
from serving.errors import ServingError
from serving.models import Models
from serving.servable import SOON_DONE, Loader, Servable
from tests.serving import small, toy
from tests.serving.live import refusal, wait_for
from tests.serving.toy import record, texts


class Scripted(Loader):
    """A loader without TensorFlow: a version loads, or fails, as a test tells it to."""

    def __init__(self):
        super().__init__()
        self.failing, self.loaded = set(), []

    def load(self, name, number, path):
        self.loaded.append(number)
        if number in self.failing:
            raise ServingError(StatusCode.DATA_LOSS, "cut off")
        return SimpleNamespace(name=name, version=number, uses=0, path=path, close=lambda: None)


@pytest.fixture(autouse=True)
def no_collection(monkeypatch):
    """A collection of garbage takes long, and finds nothing here."""
    monkeypatch.setattr("serving.models.gc.collect", lambda: None)


@pytest.fixture
def serve():
    """A function from configurations to the models, which are available."""
    with contextlib.ExitStack() as at_the_end:

        def serve(*configs, loader=None, retries=0):
            models = Models(list(configs), loader or Scripted(), poll_seconds=0.01, retries=retries, retry_seconds=0.0)
            at_the_end.callback(models.stop)
            models.start()
            models.wait_until_available(60)
            return models

        yield serve


def publish(base_path, *versions):
    for version in versions:
        (base_path / f"{version}").mkdir(parents=True)
    return base_path


def config(base_path, *versions, name="m", labels=()):
    """The configuration of the newest version, or of some versions."""
    policy = VersionPolicy(specific={"versions": versions}) if versions else VersionPolicy()
    return ModelConfig(name, str(base_path), policy, dict(labels))


def states(models, name="m"):
    return {version: state for version, state, *_ in models.status(name)}


def answering(models, **which):
    with models.use("m", **which) as servable:
        return servable.version


def test_a_new_version_is_picked_up_and_the_old_one_goes_after_its_last_request(tmp_path, serve):
    models = serve(config(publish(tmp_path, 1)))
    with models.use("m") as old:
        publish(tmp_path, 2)
        wait_for(lambda: states(models) == {2: "AVAILABLE", 1: "UNLOADING"})
        assert old.version == 1 and refusal(models.acquire, "m", 1)[0] == "NOT_FOUND" and answering(models) == 2
    wait_for(lambda: states(models) == {2: "AVAILABLE", 1: "END"})


def test_a_model_without_a_version_that_can_be_loaded_is_an_error_with_the_reason(tmp_path, serve):
    good, bad = config(publish(tmp_path / "good", 1)), config(publish(tmp_path / "bad", 7), name="bad")
    loader = Scripted()
    loader.failing.add(7)
    models = serve(good, loader=loader)
    for call in (lambda: serve(bad, loader=loader), lambda: models.reload([good, bad], 60)):
        code, message = refusal(call)
        assert code == "UNKNOWN" and "model bad" in message and "version 7: DATA_LOSS: cut off" in message
    assert states(models) == {1: "AVAILABLE"}


def test_a_reload_changes_models_versions_and_labels_which_must_name_a_version_in_service(tmp_path, serve):
    path, other = publish(tmp_path / "m", 1, 2), config(publish(tmp_path / "other", 5), name="b")
    models = serve(config(path, 1, labels={"stable": 1}))
    models.reload([config(path, 1, 2, labels={"stable": 1}), other], 60)
    assert models.names() == ["b", "m"] and states(models, "b") == {5: "AVAILABLE"} and "b" in models
    models.reload([config(path, 1, 2, labels={"stable": 2})], 60)
    assert answering(models, label="stable") == 2
    assert refusal(models.acquire, "b")[0] == "NOT_FOUND" and "b" not in models
    wait_for(lambda: states(models, "b") == {5: "END"})
    assert refusal(models.reload, [config(path, 1, 2, labels={"new": 3})], 60)[0] == "FAILED_PRECONDITION"
    assert refusal(models.acquire, "m", label="new")[0] == "INVALID_ARGUMENT"
    assert refusal(serve, config(path, labels={"canary": 3}))[0] == "FAILED_PRECONDITION"


def test_a_failed_version_leaves_the_old_one_in_service_is_tried_again_as_told_and_when_it_comes_again(tmp_path, serve):
    loader = Scripted()
    serve(config(publish(tmp_path / "both", 0, 1), 0, 1), loader=loader)
    assert loader.loaded == [1, 0]  # The newest first.
    loader, path = Scripted(), publish(tmp_path / "m", 1)
    loader.failing.add(2)
    models = serve(config(path), loader=loader, retries=1)
    publish(path, 2)
    wait_for(lambda: states(models) == {2: "END", 1: "AVAILABLE"})
    assert loader.loaded == [1, 2, 2] and answering(models) == 1
    loader.failing.clear()

    def comes_again():
        (path / "2").rmdir()
        time.sleep(0.02)
        publish(path, 2)
        time.sleep(0.02)
        return states(models)[2] == "AVAILABLE"

    wait_for(comes_again)


SESSION = read_message(Path(serving.__file__).parent / "config" / "session.config", tf.compat.v1.ConfigProto())


@pytest.mark.parametrize(
    "file, change, code",
    [
        ("saved_model.pb", None, "NOT_FOUND"),
        ("variables/variables.index", None, "DATA_LOSS"),
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


def test_a_model_with_variables_of_tensorflow_1_has_the_usual_executor(tmp_path, caplog):
    small.write(tmp_path, 1, serving_default=small.affine(2.0, use_resource=False))
    servable = Servable.load("old", 1, tmp_path / "1", SESSION)
    assert servable.run("", {"x": np.float32([4])})["y"].tolist() == [4.0]
    assert "version 1 of model old has variables of TensorFlow 1: the usual executor runs it" in caplog.messages
    servable.close()


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


def test_a_loaded_version_has_warmed_up_is_counted_and_gives_up_long_work(tmp_path):
    loader, path = Loader(), toy.write(tmp_path, 3)
    toy.warm_up(path, record("a", "b"), record("c", signature="explain"))
    servable = loader.load("toy", 3, path)
    assert list(servable.run("", texts("x"))["translation"]) == [toy.translation("x", 3)]
    page = loader.metrics.page()
    assert f':tensorflow:cc:saved_model:load_attempt_count{{model_path="{path}",status="success"}} 1' in page
    assert f':tensorflow:serving:model_warmup_latency_count{{model_path="{path}",status="OK"}} 1' in page
    long = texts("wait 30" + SOON_DONE * " ")
    assert refusal(servable.run, "", long, timeout_s=0.05)[0] == "DEADLINE_EXCEEDED"
    servable.close()


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
