"""Bulk translation from its flags: mistakes, and (slow) real processes that are killed and go on."""

import glob
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
import tensorflow as tf

from keras_transformer.cli import translate
from keras_transformer.tools.beam import INSTALL
from keras_transformer.tools.lines import CHUNK

ROOT = Path(__file__).parents[2]
PARTS = 60


def test_flags_that_do_not_go_with_the_engine_are_one_line(tmp_path, mistake):
    beam, model = ("--engine", "beam"), ("--saved_model", tmp_path)
    files = ("--input", tmp_path / "in", "--output", tmp_path / "out")
    assert "export.py makes one" in mistake(translate, *beam, "--model_dir", tmp_path, *files)
    assert "no --output" in mistake(translate, *beam, *model, *files[:2])
    assert "no --input" in mistake(translate, *beam, *model, *files[2:])
    assert "quotes around the pattern" in mistake(translate, *beam, *model, *files[:2], tmp_path / "b", *files[2:])
    assert "has a flag --no_such" in mistake(translate, *beam, *model, *files, "--no_such", 3)
    assert "without --reverse" in mistake(translate, *beam, *model, *files, "--reverse", "b")
    assert "no SavedModel" in mistake(translate, *beam, *model, *files)
    assert "unrecognized arguments: --direct_num" in mistake(translate, *model, "--direct_num_workers", 2)  # of beam
    assert not (tmp_path / "out").exists()


def test_without_apache_beam_the_flag_says_what_to_install(tmp_path, monkeypatch, mistake):
    monkeypatch.setitem(sys.modules, "apache_beam", None)
    for name in [name for name in sys.modules if name.startswith("keras_transformer.tools.beam")]:
        monkeypatch.delitem(sys.modules, name)
    assert INSTALL in mistake(translate, "--engine=beam", "--saved_model", tmp_path, "--input=a", "--output=b")
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert all(f'"{package}"' in project for package in INSTALL.split("'")[1::2])


class Upper(tf.Module):
    """A model that is made and loaded in no time; its translation is the text in capital letters."""

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="text")])
    def translate(self, text):
        return {"translation": tf.strings.upper(text), "score": tf.zeros(tf.shape(text))}


@pytest.fixture
def desk(tmp_path):
    """A directory with a SavedModel in model/1 and many lines in in/."""
    model = Upper()
    tf.saved_model.save(model, str(tmp_path / "model" / "1"), {"translate": model.translate})
    (tmp_path / "in").mkdir()
    text = "".join(f"this is line {i}\n" for i in range(PARTS * CHUNK))
    (tmp_path / "in/long.txt").write_text(text + "the end", encoding="utf-8")
    (tmp_path / "in/short.txt").write_text("one\n\ntwo", encoding="utf-8")
    return tmp_path


def flags_of(desk):
    flags = ["--engine", "beam", "--saved_model", desk / "model", "--input", desk / "in/*.txt"]
    return [*flags, "--output", desk / "out"]


def start(desk, workers):
    """translate.py on the files of a desk, in a session of its own."""
    command = [sys.executable, "translate.py", *flags_of(desk), "--direct_num_workers", str(workers)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return subprocess.Popen(command, cwd=ROOT, **pipes, start_new_session=True)


def parts(desk):
    return glob.glob(str(desk / "out/.translation/*/" / ("[0-9]" * 12)))


def end(desk, kill):
    """Starts a translation, and ends it when it has more parts than before. Returns what it printed, and the status."""
    before, process = len(parts(desk)), start(desk, 1)
    while len(parts(desk)) <= before + 1:
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.01)
    workers = psutil.Process(process.pid).children()
    kill(process, workers)
    printed = process.communicate(timeout=100)[0]
    _, alive = psutil.wait_procs(workers, timeout=10)
    assert alive == []
    return printed.splitlines(), process.returncode


@pytest.mark.slow
def test_a_bulk_translation_that_is_stopped_and_killed_goes_on_to_the_same_text(desk, run, capsys):
    interrupted = end(desk, lambda process, workers: process.send_signal(signal.SIGINT))
    assert interrupted == (["the same command goes on from here", "interrupted"], 130)
    (line,), status = end(desk, lambda process, workers: workers[0].kill())
    assert line.startswith("error: a worker process was killed") and status == 2
    _, status = end(desk, lambda process, workers: process.kill())
    assert status == -signal.SIGKILL and sorted(os.listdir(desk / "out")) == [".translation"]
    done = len(parts(desk))
    assert 3 < done < PARTS

    process = start(desk, 2)
    (line,) = process.communicate(timeout=300)[0].splitlines()
    assert process.returncode == 0
    most = f"{(PARTS - done + 2) * CHUNK:,}"  # of the parts that were there, one may be that of the short file
    assert line.startswith("2 files translated, ") and len(line.split()[3]) <= len(most), line
    for name in ("long.txt", "short.txt"):
        text = (desk / "in" / name).read_text(encoding="utf-8")
        assert (desk / "out" / name).read_text(encoding="utf-8") == text.upper() + "\n"
    assert parts(desk) == []
    run(translate, *flags_of(desk))
    assert "2 of 2 files there already" in capsys.readouterr().out
