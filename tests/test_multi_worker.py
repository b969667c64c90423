"""Two workers of one training, as processes; few starts, since each imports TensorFlow."""

import json
import re
import signal
import socket

import numpy as np
import pytest

import keras_transformer as kt
from keras_transformer.config import Config
from keras_transformer.training.run_directory import RunDirectory
from tests import test_interruptions, tiny
from tests.test_docs import pair_of_ports
from tests.test_interruptions import end, start

pytestmark = pytest.mark.slow

SETTINGS = {**test_interruptions.SETTINGS, "dropout_rate": 0.0, "epochs": 2, "batch_tokens": 401, "save_minutes": 0}
MINUTE = 60


def start_workers(corpus, model_dir, temporary):
    """Two processes, the chief first."""
    settings = {**SETTINGS, "strategy": "multi_worker", "workers": f"localhost:{{{pair_of_ports()}}}"}
    for index in range(2):
        environment = {"JOB_COMPLETION_INDEX": str(index), "TMPDIR": str(temporary)}
        yield start(corpus, model_dir, environment, **settings)


def one_device(corpus, model_dir):
    """The same run by one process."""
    settings = {**SETTINGS, "dataset": f"files:{corpus}", "model_dir": str(model_dir), "strategy": "one_device"}
    return RunDirectory(kt.train(config=Config(**settings)).path)


def test_a_worker_that_waits_for_the_others_can_be_stopped(tmp_path):
    with socket.create_server(("", 0)) as free, socket.create_server(("", 0)) as other:
        cluster = {"worker": [f"localhost:{port.getsockname()[1]}" for port in (free, other)]}
    task = {"cluster": cluster, "task": {"type": "worker", "index": 0}, "environment": "cloud"}
    settings = {**SETTINGS, "strategy": "multi_worker"}
    process = start(tmp_path, tmp_path / "run", {"TF_CONFIG": json.dumps(task)}, **settings)
    said = next(line for line in process.stdout if "waiting for the other workers" in line)
    assert cluster["worker"][1] in said
    process.send_signal(signal.SIGTERM)
    printed = process.communicate(timeout=MINUTE)[0]
    assert (process.returncode, "Traceback" in printed) == (143, False)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """(a run on one device, one of two workers, the text that these printed).

    Of the two, the second is killed after three updates; then both are started again.
    """
    directory = tmp_path_factory.mktemp("multi_worker")
    corpus, temporary = tiny.write_corpus(directory / "corpus"), directory / "temporary"
    temporary.mkdir()
    expected, found = one_device(corpus, directory / "expected"), RunDirectory(directory / "found")

    chief, other = start_workers(corpus, found.path, temporary)
    end(other, signal.SIGKILL, 3)
    printed = [chief.communicate(timeout=MINUTE)[0]]
    assert chief.returncode == 1, printed
    left = set(temporary.iterdir())  # by the one that was killed

    processes = list(start_workers(corpus, found.path, temporary))
    printed += [end(process, None, -1) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], printed
    assert set(temporary.iterdir()) <= left
    return expected, found, printed


def test_a_worker_that_is_killed_ends_the_other_within_a_minute_with_lines_that_say_how_to_go_on(runs):
    _, _, (printed, *_) = runs
    assert re.search(r"^stopped     update \d+ of 10 is saved; the same command goes on from there$", printed, re.M)
    assert re.search(r"^error: worker 1 is gone \(\w+\): start all workers again with the same command$", printed, re.M)
    assert "Traceback" not in printed


def test_both_go_on_after_the_last_update_saved(runs):
    _, _, (first, *others) = runs
    (update,) = re.findall(r"update (\d+) of 10 is saved", first)
    assert int(update) >= 2
    for printed in others:
        assert f"\nresuming    after update {update}\n" in printed


def test_two_workers_train_to_the_weights_of_one(runs):
    expected, found, _ = runs
    with np.load(expected.last) as one, np.load(found.last) as other:
        assert one.files == other.files
        for name in {*one.files} - {"progress"}:
            np.testing.assert_allclose(other[name], one[name], atol=1e-5, err_msg=name)


def test_only_the_chief_writes(runs):
    expected, found, (_, chief, other) = runs

    def files(run):
        others = (path for path in run.path.rglob("*") if "tfevents" not in path.name and path.name != ".lock")
        return {str(path.relative_to(run.path)) for path in others}

    assert files(found) == files(expected) | {"results.yaml", "run.log"}  # which `train` writes
    assert len(list(found.logs.glob("train/*tfevents*"))) == 2  # one of each start
    assert "\nfinished " in chief and "finished" not in other
