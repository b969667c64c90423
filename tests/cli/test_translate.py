import dataclasses
import functools
import sys
from types import SimpleNamespace

import pytest

from keras_transformer import runs
from keras_transformer.cli import translate
from keras_transformer.cli.request import Request
from keras_transformer.languages import check_direction


def test_an_unknown_flag_is_named(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["translate.py", "--model_dir", "some", "--no_such_flag", "1"])
    with pytest.raises(SystemExit) as caught:
        translate.program()
    assert caught.value.code == 2
    out, err = capsys.readouterr()
    assert out == "" and "--no_such_flag" in err


def test_a_model_that_is_not_there_is_one_line(tmp_path, mistake):
    assert "no run and no export in" in mistake(translate, "--model_dir", tmp_path / "nowhere")
    assert "no run and no export in" in mistake(translate, "--saved_model", tmp_path / "nowhere")
    assert not (tmp_path / "nowhere").exists()


def test_options_that_a_search_does_not_have_are_one_line(tmp_path, monkeypatch, mistake):
    monkeypatch.setattr(runs, "load", lambda *arguments, **settings: SimpleNamespace(width=4))
    most = "must be at most the model's beam size, 4"
    assert f"--n_best {most}" in mistake(translate, "--saved_model", tmp_path, "--n_best", 5)
    assert f"--beam_size {most}" in mistake(translate, "--saved_model", tmp_path, "--beam_size", 5)
    assert "beam_size=0" in mistake(translate, "--model_dir", tmp_path, "--beam_size", 0)


def test_a_reverse_model_that_cannot_rank_is_one_line_and_writes_nothing(tmp_path, monkeypatch, mistake):
    def load(path, *arguments, **settings):
        languages, width = {"en-de": (("en", "de"), 4), "de-en": (("de", "en"), 4), "greedy": (("en", "de"), 1)}[path]
        between = functools.partial(check_direction, languages)
        return SimpleNamespace(width=width, files=[], tags=None, languages=languages, between=between)

    monkeypatch.setattr(runs, "load", load)
    (tmp_path / "in").write_text("one\n")
    asked = ["--input", tmp_path / "in", "--output", tmp_path / "out", "--model_dir"]
    line = mistake(translate, *asked, "en-de", "--reverse", "en-de")
    assert "--reverse must translate from de to en" in line and "its `source_lang` is en" not in line
    assert "--reverse ranks the hypotheses of a beam" in mistake(translate, *asked, "greedy", "--reverse", "de-en")
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


def test_a_translation_into_another_language_is_another_one():
    """So that no file goes on with the lines of another language, and one without languages goes on as before."""

    def asked(*flags):
        arguments = translate.make_parser().parse_args(["--model_dir", "some", *flags])
        return translate.all_asked(arguments, Request({}), SimpleNamespace(files=[]))

    assert asked() == [[], [None, None, None, {}], dataclasses.asdict(Request({}))]
    others = [asked("--target_lang", "fr"), asked("--source_lang", "fr"), asked("--target_lang", "de"), asked()]
    assert all(one not in others[number + 1 :] for number, one in enumerate(others))
    arguments = translate.make_parser().parse_args(["--model_dir", "some"])
    reverse = SimpleNamespace(files=[__file__])
    assert translate.all_asked(arguments, Request({}), SimpleNamespace(files=[]), reverse) != asked()
