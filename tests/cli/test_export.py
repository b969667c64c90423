import sys

import pytest

from keras_transformer.cli import export


def test_an_unknown_flag_is_named(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["export.py", "--model_dir", "a", "--export_dir", "b", "--no_such_flag", "1"])
    with pytest.raises(SystemExit) as caught:
        export.program()
    assert caught.value.code == 2
    out, err = capsys.readouterr()
    assert out == "" and "--no_such_flag" in err


def test_a_run_that_is_not_there_is_one_line(tmp_path, mistake):
    flags = ("--model_dir", tmp_path / "nowhere", "--export_dir", tmp_path / "exports")
    assert "no run in" in mistake(export, *flags)
    assert not [*tmp_path.iterdir()]


def test_an_export_is_never_overwritten(learned, tmp_path, mistake):
    (tmp_path / "1").mkdir()
    flags = ("--model_dir", learned.path, "--export_dir", tmp_path, "--version", 1)
    assert f"{tmp_path / '1'} exists" in mistake(export, *flags)
    assert [*tmp_path.iterdir()] == [tmp_path / "1"]
