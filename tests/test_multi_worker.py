"""Two workers of one training, as processes."""

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

SETTINGS = {**test_interruptions.SETTINGS, "dropout_rate": 0.0, "batch_tokens": 401, "save_minutes": 0}
MINUTE = 60


def start_workers(warm, corpus, model_dir, temporary):
    """Two processes, the chief first."""
    settings = {**SETTINGS, "strategy": "multi_worker", "workers": f"localhost:{{{pair_of_ports()}}}"}
    for index in range(2):
        environment = {"JOB_COMPLETION_INDEX": str(index), "TMPDIR": str(temporary)}
        yield start(warm, corpus, model_dir, environment, **settings)


def files(run):
    others = (path for path in run.path.rglob("*") if "tfevents" not in path.name and path.name != ".lock")
    return {str(path.relative_to(run.path)) for path in others}


def test_a_worker_that_waits_for_the_others_can_be_stopped(tmp_path, warm):
    with socket.create_server(("", 0)) as free, socket.create_server(("", 0)) as other:
        cluster = {"worker": [f"localhost:{port.getsockname()[1]}" for port in (free, other)]}
    task = {"cluster": cluster, "task": {"type": "worker", "index": 0}, "environment": "cloud"}
    settings = {**SETTINGS, "strategy": "multi_worker"}
    process = start(warm, tmp_path, tmp_path / "run", {"TF_CONFIG": json.dumps(task)}, **settings)
    said = next(line for line in process.stdout if "waiting for the other workers" in line)
    assert cluster["worker"][1] in said
    process.send_signal(signal.SIGTERM)
    printed = process.communicate(timeout=MINUTE)[0]
    assert (process.returncode, "Traceback" in printed) == (143, False)


def test_two_workers_train_to_the_weights_of_one_also_after_one_was_killed_and_only_the_chief_writes(tmp_path, warm):
    corpus, temporary = tiny.write_corpus(tmp_path / "corpus"), tmp_path / "temporary"
    temporary.mkdir()
    expected, found = (RunDirectory(tmp_path / name) for name in ("expected", "found"))
    kt.train(config=Config(dataset=f"files:{corpus}", model_dir=str(expected.path), **SETTINGS))

    # The loss of a worker ends the other one within a minute, with lines that say how to go on.
    chief, other = start_workers(warm, corpus, found.path, temporary)
    end(other, signal.SIGKILL, 3)
    printed = chief.communicate(timeout=MINUTE)[0]
    assert chief.returncode == 1 and "Traceback" not in printed, printed
    (update,) = re.findall(r"^stopped     update (\d+) of 10 is saved; the same command goes on", printed, re.M)
    assert int(update) >= 2
    assert re.search(r"^error: worker 1 is gone \(\w+\): start all workers again with the same command$", printed, re.M)
    left = set(temporary.iterdir())  # by the one that was killed

    processes = list(start_workers(warm, corpus, found.path, temporary))
    printed = [end(process, None, -1) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], printed
    assert all(f"\nresuming    after update {update}\n" in text for text in printed)
    assert ["\nfinished " in text for text in printed] == [True, False] and set(temporary.iterdir()) <= left
    with np.load(expected.last) as one, np.load(found.last) as other:
        assert one.files == other.files
        for name in {*one.files} - {"progress"}:
            np.testing.assert_allclose(other[name], one[name], atol=1e-5, err_msg=name)
    assert files(found) == files(expected) | {"results.yaml", "run.log"}  # which `train` writes
    assert len(list(found.logs.glob("train/*tfevents*"))) == 2  # one of each start
