from types import SimpleNamespace

import pytest
import tensorflow as tf

from keras_transformer.errors import CheckpointError
from keras_transformer.training import workers as module
from keras_transformer.training.preparation import prepare
from keras_transformer.training.run_directory import RunDirectory
from keras_transformer.training.workers import Workers, prepare_on_all, run_directory
from tests import tiny

ONE = tf.distribute.get_strategy()


class FiveWorkers:
    """As much of MultiWorkerMirroredStrategy as can be seen without the others: two replicas each."""

    num_replicas_in_sync = 10

    def __init__(self, task_type="worker", task_id=3, chiefs=()):
        cluster = {"chief": list(chiefs), "worker": ["any:2222"] * (5 - len(chiefs))}
        self.cluster_resolver = SimpleNamespace(
            task_type=task_type,
            task_id=task_id,
            cluster_spec=lambda: SimpleNamespace(as_dict=lambda: cluster),
        )


@pytest.fixture
def five(monkeypatch):
    """Makes the `Workers` of one of five. `others` maps this one's value for `gather` to the values of all five."""
    monkeypatch.setattr(tf.distribute, "MultiWorkerMirroredStrategy", FiveWorkers)

    def make(*arguments, others=lambda value: [value] * 5, **keywords):
        workers = Workers(FiveWorkers(*arguments, **keywords))
        workers.gather = others
        return workers

    return make


def test_a_process_of_its_own_is_the_chief_and_does_all():
    alone = Workers(ONE)
    assert alone.is_chief and alone.first_replica == 0
    assert alone.gather({"any": "value"}) == [{"any": "value"}]
    assert alone.anywhere(True, False) == (True, False)
    assert alone.share(lambda texts: [text.upper() for text in texts])(["a", "b", "c"]) == ["A", "B", "C"]


@pytest.mark.parametrize(
    ("task", "name", "first_replica"),
    [
        ({"task_id": 0}, "worker 0", 0),
        ({"task_id": 3}, "worker 3", 6),
        ({"task_type": "chief", "task_id": 0, "chiefs": ["any:2222"]}, "chief 0", 0),
        ({"task_id": 3, "chiefs": ["any:2222"]}, "worker 3", 8),
    ],
)
def test_the_chief_is_the_first_of_them(five, task, name, first_replica):
    workers = five(**task)
    assert len(workers.names) == 5 and workers.names[workers.index] == name
    assert workers.is_chief == (first_replica == 0)
    assert workers.first_replica == first_replica


def test_every_worker_translates_its_part_and_all_get_the_whole(five):
    texts = [f"text {number}" for number in range(13)]
    parts = []

    def translate(part):
        parts.append(part)
        return [text.upper() for text in part]

    for task_id in range(5):
        together = five(task_id=task_id, others=lambda part: [[t.upper() for t in texts[i::5]] for i in range(5)])
        assert together.share(translate)(texts) == [text.upper() for text in texts]
    assert sorted(sum(parts, [])) == sorted(texts) and max(map(len, parts)) == 3


def test_workers_that_do_not_train_the_same_all_name_the_difference(five):
    facts = {"epochs": 7, "update": 11}
    five(others=lambda value: [value] * 5).check_equal(facts)
    different = [facts, facts, {"epochs": 5, "update": 11}, facts, facts]
    with pytest.raises(CheckpointError, match="worker 2 does not train the same as worker 0: epochs is 5, not 7. All"):
        five(others=lambda value: different).check_equal(facts)


@pytest.mark.parametrize(
    ("message", "gone"),
    [
        ("Socket closed\nfrom /job:chief/replica:0/task:0 while calling", "chief 0"),
        ("/job:worker/replica:0/task:3 has heard from /job:worker/task:1: heartbeats", "worker 1"),
        ("Cancelled by /job:worker/replica:0/task:3", "another worker"),
    ],
)
def test_the_loss_of_a_worker_is_a_line_that_names_it(five, message, gone):
    with pytest.raises(SystemExit) as ended, five().ending_together():
        raise tf.errors.UnavailableError(None, None, message)
    assert (
        ended.value.code == f"error: {gone} is gone (UnavailableError): start all workers again with the same command"
    )


def test_other_errors_are_left_alone(five):
    with pytest.raises(tf.errors.UnavailableError), Workers(ONE).ending_together():
        raise tf.errors.UnavailableError(None, None, "of a file system, perhaps")
    with (
        pytest.raises(tf.errors.InternalError),
        five().ending_together(),
    ):  # a bug of ours, on the device of this worker
        raise tf.errors.InternalError(
            None, None, "in /job:worker/replica:0/task:3/device:CPU:0, and /job:localhost/task:0"
        )
    with pytest.raises(tf.errors.ResourceExhaustedError), five().ending_together():
        raise tf.errors.ResourceExhaustedError(None, None, "memory")


# Preparation.


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return tiny.write_corpus(tmp_path_factory.mktemp("corpus") / "pairs")


def contents(directory):
    return {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}


@pytest.mark.parametrize("shared", [True, False], ids=["one vocabulary", "two vocabularies"])
def test_others_begin_with_the_files_of_the_chief_and_write_elsewhere(five, corpus, tmp_path, monkeypatch, shared):
    config, own = tiny.config(corpus, tmp_path / "run", share_vocabulary=shared), tmp_path / "own"
    monkeypatch.setattr(module, "own_directory", lambda: own)
    chief = RunDirectory(config.model_dir)

    def meet(value):
        """When they meet, the chief is ready."""
        prepare(config, chief)
        chief.checkpoints.mkdir()
        chief.last.write_bytes(b"state")
        before.update(contents(chief.path))
        return [value] * 5

    before = {}
    workers = five(others=meet)
    run = run_directory(config, workers)
    data = prepare_on_all(config, run, workers)
    assert run.path == own and contents(chief.path) == before
    for path in (run.config, *run.tokenizer_files(shared), run.last):
        assert path.read_bytes() == before[chief.path / path.relative_to(own)]
    monkeypatch.setattr("keras_transformer.training.preparation.encode_pairs", None)  # no need to tokenise again
    assert len(prepare(config, run).train) == len(data.train) == 211


def test_the_chief_prepares_in_the_run_directory_before_it_meets_the_others(five, corpus, tmp_path):
    config, met = tiny.config(corpus, tmp_path / "run"), []
    workers = five(task_id=0, others=lambda value: met.append(run.config.exists()))
    run = run_directory(config, workers)
    prepare_on_all(config, run, workers)
    assert met == [True] and run.path == tmp_path / "run"


def test_a_run_directory_that_is_not_shared_is_reported_in_a_line_and_not_made(five, corpus, tmp_path):
    config = tiny.config(corpus, tmp_path / "run")
    with pytest.raises(
        CheckpointError, match=f"worker 3 does not see {config.model_dir}/config.yaml, which worker 0 has"
    ):
        prepare_on_all(config, RunDirectory(tmp_path / "own"), five())
    assert not (tmp_path / "run").exists()


def test_the_directory_of_another_worker_is_gone_when_it_ends(monkeypatch):
    at_exit = []
    monkeypatch.setattr(module.atexit, "register", lambda *arguments, **keywords: at_exit.append((arguments, keywords)))
    directory = module.own_directory()
    assert directory.is_dir()
    ((remove, *arguments), keywords), *others = at_exit
    remove(*arguments, **keywords)
    assert not directory.exists() and not others
