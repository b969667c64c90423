import json
import os
import re
import subprocess
import sys
from pathlib import Path
from unittest import mock

import pytest

import keras_transformer
from keras_transformer.cli.line_files import keep_record, write_lines
from keras_transformer.errors import FileError, UserError, check_positive, counted
from keras_transformer.files import whole_directory
from keras_transformer.tools import duration, page_of
from keras_transformer.tools.exported import find_saved_model


def test_the_latest_version_is_found_and_any_other_by_its_name(tmp_path):
    for version in ("9", "10", "drafts", "1²", "1٣", f"{2**63}"):
        (tmp_path / version).mkdir()
        (tmp_path / version / "saved_model.pb").touch()
    assert find_saved_model(tmp_path) == tmp_path / "10" and find_saved_model(str(tmp_path / "9")) == tmp_path / "9"
    with pytest.raises(UserError, match=r"no SavedModel at .*nowhere: `export\.py --format saved_model` writes one"):
        find_saved_model(tmp_path / "nowhere")


def test_two_who_fill_the_same_directory_leave_each_other_alone_and_a_bug_keeps_its_traceback(tmp_path):
    with pytest.raises(FileNotFoundError), whole_directory(tmp_path / "new" / "1"):
        (tmp_path / "nowhere").read_text()
    assert not [*tmp_path.iterdir()]
    assert "cannot write /proc/no" in str(pytest.raises(FileError, whole_directory("/proc/no").__enter__).value)
    with whole_directory(tmp_path / "1") as first:
        (first / "a").write_text("first")
        with pytest.raises(FileError, match="cannot write .*/1: Directory not empty"):
            with whole_directory(tmp_path / "1") as second:
                (second / "b").write_text("second")
                first.rename(tmp_path / "1")  # as at the end of the first
                first.mkdir()
        (tmp_path / "1").rename(tmp_path / "2")
    assert (tmp_path / "2" / "a").read_text() == "first" and not [*tmp_path.glob(".*")]
    (tmp_path / "link").symlink_to("3")
    with whole_directory(tmp_path / "link") as third:
        (third / "a").write_text("third")
    assert (tmp_path / "3" / "a").read_text() == "third"


def test_what_a_killed_process_has_left_goes_and_what_a_living_one_writes_stays(tmp_path):
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    left, living = tmp_path / f".1.{process.pid}.0a.partial", tmp_path / f".1.{os.getppid()}.0a.partial"
    left.mkdir()
    living.mkdir()
    with whole_directory(tmp_path / "1"):
        assert not left.exists() and living.exists()


def test_a_record_is_whole_and_of_one_origin_and_of_files_that_nobody_else_has_written(tmp_path, monkeypatch):
    record, file = tmp_path / "new" / "record.json", tmp_path / "train.en"
    file.write_text("mine\n")
    with pytest.raises(UserError, match="train.en exists: choose another `output`"):
        keep_record(record, {"seed": 1}, [tmp_path / "train.de", file])
    file.unlink()
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):  # a killed start leaves no half
        patched.setattr("os.replace", mock.Mock(side_effect=KeyboardInterrupt))
        keep_record(record, {"seed": 1}, [])
    assert not record.exists()
    keep_record(record, {"seed": 1, "text": ["a", 2]}, [file])
    assert json.loads(record.read_text()) == {"seed": 1, "text": ["a", 2]}
    file.write_text("ours\n")
    keep_record(record, {"seed": 1, "text": ["a", 2]}, [file])
    with pytest.raises(UserError, match="has pairs of another seed, text: remove it, or choose another `output`"):
        keep_record(record, {"seed": 2, "text": ["b", 2]}, [file])
    record.write_text("{")
    assert "record.json is damaged: remove it" in str(pytest.raises(FileError, keep_record, record, {}, []).value)


def test_every_text_is_one_line(tmp_path):
    write_lines(tmp_path / "new" / "a", iter(["one\u2028two", "", "three\nfour\r"]))
    assert (tmp_path / "new" / "a").read_bytes() == "one\u2028two\n\nthree four\r\n".encode()


def test_the_data_survive_the_page_of_every_tool():
    text = ["<", ">", "</script>", "&", '"', "'", "\\u003c", "\u2028", "{{DATA}}", "😀"]
    data = {"text": text, "number": 0.1, "nothing": None}
    templates = [*Path(keras_transformer.__file__).parent.glob("tools/*/report.html")]
    for template in templates:
        page = page_of(f"keras_transformer.tools.{template.parent.name}", data)
        assert json.loads(re.search(r'id="data">(.*?)</script>', page)[1]) == data
    pytest.raises(ValueError, page_of, f"keras_transformer.tools.{templates[0].parent.name}", {"number": float("nan")})


def test_a_size_below_1_is_refused_by_its_name_a_number_has_its_noun_and_a_duration_its_two_largest_units():
    for value in (0, -7):
        with pytest.raises(UserError, match=f"must be a whole number of at least 1. Received: batch_size={value}$"):
            check_positive(n_best=1, batch_size=value)
    assert [counted(1, "pair"), counted(0, "pair"), counted(1234, "epoch")] == ["1 pair", "0 pairs", "1,234 epochs"]
    assert counted(2, "batch", "batches") == "2 batches"
    texts = {7: "7 s", 29: "29 s", 60: "1 min", 3540: "59 min", 59.6 * 60: "1 h 0 min", 3720: "1 h 2 min"}
    assert {seconds: duration(seconds) for seconds in texts} == texts
