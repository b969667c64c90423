import runpy
import sys

import pytest


def test_the_program_starts_by_its_name_in_the_package(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["back_translate.py", "--help"])
    with pytest.raises(SystemExit) as caught:
        runpy.run_module("keras_transformer.data.back_translate", run_name="__main__")
    assert caught.value.code == 0
    assert "--monolingual" in capsys.readouterr().out
