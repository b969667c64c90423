import errno
import json
import os

import pytest
import tensorflow as tf

from keras_transformer.errors import ExportError, FileError
from keras_transformer.export.versions import export_version, new_version, next_version
from tests.export.test_parity import SENTENCES, Reversing


class Writing(Reversing):
    """An export of one file."""

    libraries = ("pytest", "no-such-library")

    def write(self, directory):
        (directory / "weights").write_text("5")

    def describe(self, directory):
        return {"format": "reversing"}


def names(directory):
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*"))


def test_next_version_is_above_all_others(tmp_path):
    assert next_version(tmp_path) == 1
    for name in ("3", "11", ".18.partial", "notes"):
        (tmp_path / name).mkdir()
    assert next_version(tmp_path) == 12


def test_a_directory_that_cannot_be_made_is_a_mistake(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    with pytest.raises(FileError, match="^cannot write .*link/1: File exists$"), new_version(tmp_path / "link"):
        pass


NO_SPACE = os.strerror(errno.ENOSPC)


def test_a_full_disk_is_one_line_that_names_the_version_and_a_mistake_of_the_program_keeps_its_traceback(tmp_path):
    for error in (
        OSError(errno.ENOSPC, NO_SPACE),
        tf.errors.ResourceExhaustedError(None, None, f"weights; {NO_SPACE}"),
    ):
        with pytest.raises(FileError) as caught, new_version(tmp_path):
            raise error
        assert str(caught.value) == f"cannot write {tmp_path / '1'}: {NO_SPACE}"
    for error in (FileNotFoundError(errno.ENOENT, "no"), tf.errors.ResourceExhaustedError(None, None, "out of memory")):
        with pytest.raises(type(error)) as caught, new_version(tmp_path):
            raise error
        assert caught.value is error
    assert names(tmp_path) == []


def test_a_version_is_a_positive_number_and_an_existing_one_is_never_overwritten(tmp_path):
    (tmp_path / "5").mkdir()
    (tmp_path / "5" / "precious").write_text("text")
    with pytest.raises(ExportError, match="5 exists.*`version`"):
        export_version(Writing(), tmp_path, version=5)
    for version in (0, -3):
        with pytest.raises(ExportError, match=f"positive.*{version}"):
            export_version(Writing(), tmp_path / "new", version=version)
    assert names(tmp_path) == ["5", "5/precious"]


def test_a_version_has_its_name_when_it_is_complete_and_not_before(tmp_path):
    left_over = tmp_path / f".3.{os.getpid()}.0a1b.partial"
    left_over.mkdir()
    (left_over / "left").write_text("by one that was killed")
    with new_version(tmp_path, 3) as (directory, final):
        (directory / "weights").write_text("5")
        assert next_version(tmp_path) == 1
    assert final == tmp_path / "3" and names(tmp_path) == ["3", "3/weights"]


def test_an_export_is_written_proven_and_described(tmp_path):
    path = export_version(Writing(), tmp_path / "new", sentences=SENTENCES, origin={"corpus": "some"})
    assert names(tmp_path / "new") == ["1", "1/export.json", "1/weights"]
    manifest = json.loads((path / "export.json").read_text())
    assert (manifest["version"], manifest["format"], manifest["run"]) == (1, "reversing", {"corpus": "some"})
    assert manifest["parity"]["equal"] == 9
    assert {"pytest", "tensorflow"} < manifest["libraries"].keys() and "no-such-library" not in manifest["libraries"]


def test_an_export_that_differs_leaves_nothing(tmp_path):
    with pytest.raises(ExportError, match="'eerht'"):
        export_version(Writing(texts={"three": "else"}), tmp_path, sentences=SENTENCES)
    assert names(tmp_path) == []
