"""What people have keeps working: runs and exports that an earlier version made load, and translate as they did.

`made_before/COMMIT.tar.xz` holds, made by that commit on tiny number words (`corpus`): `finished`, a Transformer's run
without its checkpoints; `stopped`, the same run at update 120 of 272; `gru`, a recurrent run; `saved_model` and
`litert`, exports of `finished`; `finished.de`, their translation of `text.en`; and those of the three runs with a beam
of 1: today, a larger beam ends later. `467dcb2.tar.xz` holds a
`saved_model` with two tokenizers, of which Python's loader makes one, and its translations.
"""

import shutil
import tarfile
from pathlib import Path

import pytest

import keras_transformer as kt
from keras_transformer.cli.train import parse_config
from keras_transformer.config import Config
from keras_transformer.training.checkpoints import read_progress
from keras_transformer.training.run_directory import RunDirectory

MADE_BEFORE = Path(__file__).with_name("made_before")


def unpacked(name, directory):
    with tarfile.open(MADE_BEFORE / name) as archive:
        archive.extractall(directory, filter="data")
    return directory


@pytest.fixture(scope="module")
def before(tmp_path_factory):
    return unpacked("0b16896.tar.xz", tmp_path_factory.mktemp("before"))


def lines(path):
    return path.read_text(encoding="utf-8").splitlines()


def test_a_run_translates_as_it_did_and_its_settings_are_a_file_for_the_next_one(before):
    texts = lines(before / "text.en")
    finished, stopped, gru = (kt.load(before / run, beam_size=1) for run in ("finished", "stopped", "gru"))
    for run, translator in {"finished": finished, "gru": gru, "stopped": finished}.items():
        if run == "stopped":  # of the same shape: its weights need no new graph
            assert stopped.settings == finished.settings
            finished.model.set_weights(stopped.model.get_weights())
        translations = [text.replace("\n", " ") for text in translator.translate(texts)]
        assert translations == lines(before / f"{run}_greedy.de"), run
        path = before / run / "config.yaml"
        assert parse_config(["--config", str(path)], "text") == Config.load(path)


def test_an_export_translates_as_it_did(before):
    from keras_transformer.tools.engines.translate_litert import LiteRTTranslator  # here: a tool can be deleted

    for translator in (kt.load(before / "saved_model"), LiteRTTranslator(before / "litert")):
        assert translator.translate(lines(before / "text.en")) == lines(before / "finished.de")


def test_a_saved_model_with_two_tokenizers_of_one_name_translates_as_its_run_did(tmp_path):
    two = unpacked("467dcb2.tar.xz", tmp_path)
    assert kt.load(two / "saved_model").translate(lines(two / "text.en")) == lines(two / "expected.de")


@pytest.mark.slow
def test_a_stopped_training_goes_on_to_its_end(before, tmp_path, monkeypatch, caplog):
    shutil.copytree(before, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)  # its corpus has a relative path
    settings = vars(Config.load("stopped/config.yaml")) | {"max_steps": None}
    with caplog.at_level("INFO", "keras_transformer"):
        run = kt.train(config=Config(**settings))
    assert "resuming    after update 120" in caplog.text and read_progress(RunDirectory(run.path))["step"] == 272
    assert run.evaluation.chrf > 70  # 81 where it never stopped; 60 at update 120
