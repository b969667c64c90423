"""Programs of a few lines take the place of train.py."""

import os
import sys
import time

import pytest

from keras_transformer.tools.sweep import processes as module
from keras_transformer.tools.sweep.processes import Trainings, environment, share

TOGETHER = """
import pathlib, sys, time
here = pathlib.Path(sys.argv[1])
(here / sys.argv[2]).touch()
end = time.monotonic() + 20
while len([*here.iterdir()]) < 2 and time.monotonic() < end:
    time.sleep(0.01)
print(len([*here.iterdir()]))
"""
ALONE = """
import pathlib, sys, time
here = pathlib.Path(sys.argv[1], "used")
here.mkdir()
time.sleep(0.1)
here.rmdir()
"""
OBSTINATE = """
import pathlib, signal, sys, time
signals = []
def note(number, frame):
    signals.append(number)
    print("stopping", flush=True)
    if len(signals) == 2:
        pathlib.Path(sys.argv[1]).touch()
        sys.exit()
signal.signal(signal.SIGTERM, note)
print("going", flush=True)
time.sleep(20)
"""
ENDS = {
    "good": "print('done')",
    "mistake": "import sys; print('loading'); print('error: no such corpus', file=sys.stderr); print(); sys.exit(2)",
    "bug": "1 / 0",
    "silent": "import sys; sys.exit(3)",
    "killed": "import os, signal; print('update 5', flush=True); os.kill(os.getpid(), signal.SIGKILL)",
    "last": "import os; print(os.getpgid(0) == os.getpid()); print('grüße 字')",
}


@pytest.fixture
def trained(monkeypatch):
    """A function that trains runs, and gives the lines and the ends of all."""
    monkeypatch.setattr(module, "TRAIN", [sys.executable, "-X", "utf8", "-S", "-c"])

    def train(runs, processes=1):
        said, ended = [], {}
        Trainings(processes, lambda *line: said.append(line), ended.__setitem__).train(runs)
        return said, ended

    return train


def test_a_run_in_a_group_of_its_own_that_fails_ends_no_other_and_its_last_line_is_known(trained):
    said, ended = trained({name: [source] for name, source in ENDS.items()}, processes=2)
    assert ended == {
        "good": None,
        "mistake": "error: no such corpus",
        "bug": "ZeroDivisionError: division by zero",
        "silent": "exit status 3",
        "killed": "ended by SIGKILL, as when memory runs out; its last line: update 5",
        "last": None,
    }
    # A terminal sends Ctrl-C to the group of processes in its foreground. A run that gets it twice saves nothing.
    assert [line for name, line in said if name == "last"] == ["True", "grüße 字"]


def test_as_many_runs_at_a_time_as_are_asked_for(trained, tmp_path):
    said, ended = trained({name: [TOGETHER, str(tmp_path), name] for name in "ab"}, processes=2)
    assert sorted(said) == [("a", "2"), ("b", "2")]
    (tmp_path / "a").unlink(), (tmp_path / "b").unlink()
    _, ended = trained({name: [ALONE, str(tmp_path)] for name in "abc"})
    assert ended == dict.fromkeys("abc")


def test_a_second_signal_is_passed_on_as_well(monkeypatch, tmp_path):
    monkeypatch.setattr(module, "TRAIN", [sys.executable, "-S", "-c"])

    def interrupt(name, line):  # Ctrl-C at the first line, and again when the run says that it stops
        if line in ("going", "stopping"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Trainings(1, interrupt, None).train({"a": [OBSTINATE, str(tmp_path / "second")]})
    end = time.monotonic() + 20
    while not (tmp_path / "second").exists() and time.monotonic() < end:
        time.sleep(0.01)
    assert (tmp_path / "second").exists()


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="the system has no affinity")
def test_runs_share_out_the_cores_and_this_process_keeps_its_own(trained):
    before = sorted(os.sched_getaffinity(0))
    source = "import os; print(sorted(os.sched_getaffinity(0)))"
    said, _ = trained(dict.fromkeys("ab", [source]), processes=2)
    assert sorted(said) == [("a", str(share(before, 0, 2))), ("b", str(share(before, 1, 2)))]
    assert trained({"a": [source]})[0] == [("a", str(before))]
    assert sorted(os.sched_getaffinity(0)) == before


def test_shares_are_apart_as_long_as_there_are_enough_also_of_the_gpus_that_the_environment_names(monkeypatch):
    shares = {("abcdef", 2): ["ace", "bdf"], ("abcde", 2): ["ace", "bd"], ("ab", 3): ["a", "b", "a"]}
    for (things, processes), expected in {**shares, ("a", 2): ["a", "a"], ("abc", 1): ["abc"]}.items():
        assert [share([*things], place, processes) for place in range(processes)] == [[*each] for each in expected]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,3,5")
    assert [environment(place, 2)["CUDA_VISIBLE_DEVICES"] for place in (0, 1)] == ["0,5", "3"]
    assert environment(0, 2)["TF_FORCE_GPU_ALLOW_GROWTH"] == "true"
    assert environment(0, 1) is None
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert "CUDA_VISIBLE_DEVICES" not in environment(1, 2)
