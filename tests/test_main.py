import sys

import pytest

from keras_transformer.cli import programs as command
from keras_transformer.cli import translate


def test_the_first_argument_names_the_program_and_the_others_are_its_own(monkeypatch):
    asked = []
    monkeypatch.setattr(translate, "program", lambda: asked.append(list(sys.argv)))
    monkeypatch.setattr(sys, "argv", ["keras-transformer", "translate", "--model_dir", "some"])
    command.main()
    assert asked == [["keras-transformer translate", "--model_dir", "some"]]


def test_without_a_program_all_are_listed_and_an_unknown_one_is_named(monkeypatch, capsys):
    for arguments in ([], ["--help"]):
        monkeypatch.setattr(sys, "argv", ["keras-transformer", *arguments])
        command.main()
        printed = capsys.readouterr().out
        assert [name for name in command.PROGRAMS if f"\n  {name} " in printed] == list(command.PROGRAMS)
    monkeypatch.setattr(sys, "argv", ["keras-transformer", "tranlate"])
    with pytest.raises(SystemExit, match="no program 'tranlate': there are train, translate, .*, analyze"):
        command.main()
