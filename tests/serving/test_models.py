import gc
import random
import shutil
import threading
import weakref
from types import SimpleNamespace

import numpy as np
import pytest
from grpc import StatusCode

from serving.errors import ServingError
from serving.loading import Loader
from serving.model_config import ModelConfig, VersionPolicy
from serving.models import Models, VersionStatus
from tests.serving import toy
from tests.serving.deadline import wait_for

QUICK = 0.01


@pytest.fixture
def serve():
    """A function from what `Models` takes to the started models."""
    started = []

    def serve(*configs, max_num_load_retries=0, load_retry_seconds=QUICK):
        loader = Loader(max_num_load_retries, load_retry_seconds)
        started.append(Models(list(configs), loader, poll_seconds=QUICK))
        started[-1].start()
        return started[-1]

    yield serve
    for models in started:
        models.stop(60)


def specific(*versions):
    return VersionPolicy(specific={"versions": versions})


def states(models, name="toy"):
    return {status.version: status.state for status in models.status(name)}


def translate(servable, text="a"):
    return list(servable.run("", {"text": np.array([text.encode()], object)})["translation"])


def error_of(function, *arguments, **options):
    with pytest.raises(ServingError) as caught:
        function(*arguments, **options)
    return caught.value.code, caught.value.message


def corrupt(base_path, version):
    """A version whose graph has been cut off."""
    path = toy.write(base_path, "tmp")
    graph = path / "saved_model.pb"
    graph.write_bytes(graph.read_bytes()[:1000])
    path.rename(base_path / str(version))


def test_a_new_version_is_picked_up_and_the_old_one_goes_after_its_last_request(tmp_path, serve):
    toy.write(tmp_path, 1)
    models = serve(ModelConfig("toy", str(tmp_path)))
    models.wait_until_available(60)
    with models.use("toy") as old:
        toy.write(tmp_path, 2)
        wait_for(lambda: states(models) == {2: "AVAILABLE", 1: "UNLOADING"})
        assert translate(old) == [toy.translation("a", 1)]
        assert error_of(models.acquire, "toy", 1)[0] == StatusCode.NOT_FOUND
        with models.use("toy") as new:
            assert translate(new) == [toy.translation("a", 2)]
    wait_for(lambda: states(models) == {2: "AVAILABLE", 1: "END"})


def test_a_corrupt_version_is_reported_while_the_old_one_goes_on(tmp_path, serve):
    toy.write(tmp_path, 1)
    models = serve(ModelConfig("toy", str(tmp_path)), max_num_load_retries=2)
    models.wait_until_available(60)
    corrupt(tmp_path, 2)
    wait_for(lambda: states(models) == {2: "END", 1: "AVAILABLE"})
    (status,) = models.status("toy", 2)
    assert status.code == StatusCode.DATA_LOSS and "Cannot parse file" in status.message
    with models.use("toy") as servable:
        assert translate(servable) == [toy.translation("a", 1)]
    shutil.rmtree(tmp_path / "2")
    wait_for(lambda: not models._versions["toy"][2].is_wanted)
    toy.write(tmp_path, 2)
    wait_for(lambda: states(models) == {2: "AVAILABLE", 1: "END"})


def test_a_version_that_was_incomplete_is_loaded_when_it_is_tried_again(tmp_path, serve):
    path = toy.write(tmp_path, 1)
    (path / "variables").rename(tmp_path / "later")
    models = serve(ModelConfig("toy", str(tmp_path)), max_num_load_retries=1000)
    wait_for(lambda: models._versions)  # read for the first time
    wait_for(lambda: states(models) == {1: "LOADING"} and models.status("toy")[0].code != StatusCode.OK)
    (tmp_path / "later").rename(path / "variables")
    models.wait_until_available(60)
    assert models.status("toy") == [VersionStatus(1, "AVAILABLE")]


def test_waiting_ends_with_the_reason_if_nothing_can_be_loaded(tmp_path, serve):
    corrupt(tmp_path, 3)
    models = serve(ModelConfig("toy", str(tmp_path)))
    code, message = error_of(models.wait_until_available, 60)
    assert code == StatusCode.UNKNOWN
    assert "1 servable(s) did not become available" in message and "version: 3 due to error: DATA_LOSS: " in message


def test_waiting_goes_on_until_there_is_a_version(tmp_path, serve):
    models = serve(ModelConfig("toy", str(tmp_path / "base")))
    assert error_of(models.wait_until_available, 0.05)[0] == StatusCode.DEADLINE_EXCEEDED
    (tmp_path / "base").mkdir()
    toy.write(tmp_path / "base", 1)
    models.wait_until_available(60)


def test_a_directory_that_cannot_be_read_changes_nothing_and_an_empty_one_unloads(tmp_path, serve):
    base_path = tmp_path / "base"
    base_path.mkdir()
    toy.write(base_path, 1)
    models = serve(ModelConfig("toy", str(base_path)))
    models.wait_until_available(60)
    base_path.rename(tmp_path / "away")
    wait_for(lambda: models._complaints["toy"])
    assert states(models) == {1: "AVAILABLE"}
    base_path.mkdir()
    wait_for(lambda: states(models) == {1: "END"})


def test_a_label_of_a_version_that_is_not_served_is_a_mistake_at_the_start(tmp_path, serve):
    toy.write(tmp_path, 1)
    models = serve(ModelConfig("toy", str(tmp_path), labels={"canary": 2}))
    code, message = error_of(models.wait_until_available, 60)
    assert code == StatusCode.FAILED_PRECONDITION and "to version 2 of model toy" in message


def test_a_reload_changes_models_versions_and_labels(tmp_path, serve):
    first, other = tmp_path / "first", tmp_path / "other"
    for path in (first, other):
        path.mkdir()
    for version in (1, 2):
        toy.write(first, version)
    toy.write(other, 5)
    models = serve(ModelConfig("toy", str(first), specific(1), {"stable": 1}))
    models.wait_until_available(60)
    models.reload([ModelConfig("toy", str(first), specific(1, 2), {"stable": 1}), ModelConfig("b", str(other))], 60)
    with models.use("b") as servable:
        assert translate(servable) == [toy.translation("a", 5)]
    models.reload([ModelConfig("toy", str(first), specific(1, 2), {"stable": 2})], 60)
    with models.use("toy", label="stable") as servable:
        assert translate(servable) == [toy.translation("a", 2)]
    assert error_of(models.acquire, "b")[0] == StatusCode.NOT_FOUND
    wait_for(lambda: states(models, "b") == {5: "END"})


def test_a_reload_tells_of_a_new_model_that_cannot_be_loaded(tmp_path, serve):
    good, bad = tmp_path / "good", tmp_path / "bad"
    for path in (good, bad):
        path.mkdir()
    toy.write(good, 1)
    corrupt(bad, 1)
    models = serve(ModelConfig("toy", str(good)))
    models.wait_until_available(60)
    code, message = error_of(models.reload, [ModelConfig("toy", str(good)), ModelConfig("bad", str(bad))], 60)
    assert code == StatusCode.UNKNOWN and "name: bad version: 1 due to error: DATA_LOSS" in message
    assert states(models) == {1: "AVAILABLE"}


def test_stopping_waits_for_the_last_request_and_frees_everything(tmp_path, serve):
    toy.write(tmp_path, 1)
    models = serve(ModelConfig("toy", str(tmp_path)))
    models.wait_until_available(60)
    servable = models.acquire("toy")
    stopping = threading.Thread(target=models.stop, args=[60])
    stopping.start()
    wait_for(lambda: states(models) == {1: "UNLOADING"})
    assert translate(servable) == [toy.translation("a", 1)]
    models.release(servable)
    stopping.join(60)
    assert states(models) == {1: "END"}
    reference = weakref.ref(servable)
    del servable
    gc.collect()
    assert reference() is None


def test_a_label_may_come_before_its_version_if_told_so(tmp_path):
    toy.write(tmp_path, 1)
    models = Models([ModelConfig("toy", str(tmp_path))], Loader(0), QUICK, early_labels=True)
    models.start()
    models.wait_until_available(60)
    models.reload([ModelConfig("toy", str(tmp_path), VersionPolicy(all={}), {"new": 2})], 60)
    assert error_of(models.acquire, "toy", label="new")[0] == StatusCode.NOT_FOUND
    toy.write(tmp_path, 2)
    wait_for(lambda: states(models) == {2: "AVAILABLE", 1: "AVAILABLE"})
    with models.use("toy", label="new") as servable:
        assert servable.version == 2
    moved = ModelConfig("toy", str(tmp_path), VersionPolicy(all={}), {"new": 3})
    assert error_of(models.reload, [moved], 60)[0] == StatusCode.FAILED_PRECONDITION
    models.stop(60)


def test_directories_are_searched_once_if_told_so(tmp_path):
    toy.write(tmp_path, 1)
    models = Models([ModelConfig("toy", str(tmp_path))], Loader(0), poll_seconds=0)
    models.start()
    models.wait_until_available(60)
    toy.write(tmp_path, 2)
    models._wake.set()
    wait_for(lambda: not models._wake.is_set())
    assert states(models) == {1: "AVAILABLE"}
    models.stop(60)


class Scripted(Loader):
    """A loader whose versions load, or fail, as a test tells it to."""

    def __init__(self, **how):
        super().__init__(**how)
        self.failing, self.loaded = set(), []

    def load(self, name, number, path):
        self.loaded.append(number)
        if number in self.failing:
            raise ServingError(StatusCode.DATA_LOSS, "cut off")
        return SimpleNamespace(name=name, version=number, uses=0, close=lambda: None)


def scripted(**how):
    models = Models([ModelConfig("m", "/m")], Scripted(**how))
    return models, models._loader


def want(models, *numbers):
    models._want("m", dict.fromkeys(numbers, "/m"))


def settle(models):
    while models._load_next():
        pass
    models._unload()
    return states(models, "m")


def test_the_newest_is_loaded_first():
    models, loader = scripted()
    want(models, 2, 5, 3)
    assert states(models, "m") == {5: "START", 3: "START", 2: "START"}
    settle(models)
    assert loader.loaded == [5, 3, 2]


def test_a_failed_version_is_tried_again_as_often_as_told_and_when_it_has_gone_and_come_again():
    models, loader = scripted(max_num_load_retries=1, load_retry_seconds=0.0)
    want(models, 1)
    settle(models)
    loader.failing.add(2)
    want(models, 2)
    assert settle(models) == {2: "END", 1: "AVAILABLE"} and loader.loaded == [1, 2, 2]
    want(models, 2)
    assert settle(models) == {2: "END", 1: "AVAILABLE"} and loader.loaded == [1, 2, 2]
    loader.failing.clear()
    want(models)
    want(models, 2)
    assert settle(models) == {2: "AVAILABLE", 1: "END"}


def test_a_version_wanted_again_stays_or_is_loaded_anew():
    models, loader = scripted()
    want(models, 1)
    settle(models)
    want(models, 2)
    want(models, 1)
    assert settle(models) == {2: "END", 1: "AVAILABLE"} and loader.loaded == [1]
    with models.use("m"):
        want(models)
        assert settle(models) == {2: "END", 1: "UNLOADING"}
        want(models, 1)
        assert settle(models) == {2: "END", 1: "UNLOADING"}
    want(models, 1)
    assert settle(models) == {2: "END", 1: "END"}
    want(models, 1)
    assert settle(models) == {2: "END", 1: "AVAILABLE"} and loader.loaded == [1, 1]


def test_whatever_happens_a_version_in_service_is_replaced_only_by_one_in_service(monkeypatch):
    monkeypatch.setattr("serving.models.gc.collect", lambda: None)
    chance = random.Random(5)
    for _ in range(100):
        models, loader = scripted(max_num_load_retries=chance.randrange(2), load_retry_seconds=0.0)
        was_available = False
        for _ in range(60):
            loader.failing = {*chance.sample(range(5), chance.randrange(4))}
            if chance.random() < 0.3:
                want(models, *chance.sample(range(5), 2))
            else:
                chance.choice([models._load_next, models._unload])()
            assert bool(models._available("m")) >= was_available
            was_available |= bool(models._available("m"))
