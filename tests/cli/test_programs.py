"""train, export, clean, analyze and align. Flags alone: test_flags.py."""

import argparse
import functools
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from keras_transformer import runs
from keras_transformer.cli import align, analyze, clean, export, train, translate
from keras_transformer.tags import check_direction
from tests import tiny
from tests.tools.pages import data_of

ROOT = Path(__file__).parents[2]
SETTINGS = {"source_lang": "en", "target_lang": "de", "vocabulary_size": tiny.VOCABULARY, **tiny.SIZES}
SETTINGS |= {"batch_tokens": 97, "warmup_steps": 11, "precision": "float32"}
SETTINGS["strategy"] = "one_device"  # any other changes this process for good


def test_a_mistake_in_training_is_one_line(learned, tmp_path, mistake):
    def refused(corpus, model_dir, **settings):
        flags = {"dataset": f"files:{corpus}", "model_dir": model_dir, **SETTINGS, **settings}
        return mistake(train, *[part for name, value in flags.items() for part in (f"--{name}", value)])

    corpus = tiny.write_corpus(tmp_path / "corpus", train=20)
    assert "no such directory" in refused(tmp_path / "nowhere", tmp_path / "x")
    assert "train.fr" in refused(corpus, tmp_path / "y", target_lang="fr")
    (corpus / "train.de").write_text("eins\n", encoding="utf-8")
    assert "20 lines" in refused(corpus, tmp_path / "z") and not [*tmp_path.glob("[xyz]/config.yaml")]
    assert "a model and no checkpoints" in refused(learned.path.parent / "corpus", learned.path)


def test_a_run_that_is_not_there_is_one_line_and_writes_nothing(tmp_path, mistake):
    flags = ("--model_dir", tmp_path / "nowhere", "--export_dir", tmp_path)
    assert "no run in" in mistake(export, *flags)
    assert "unrecognized arguments: --no_such_flag 1" in mistake(export, *flags, "--no_such_flag", 1)
    for flag in ("--model_dir", "--saved_model"):
        assert "no run and no export in" in mistake(translate, flag, tmp_path / "nowhere")
    assert not [*tmp_path.iterdir()]


def test_a_model_that_cannot_rank_or_that_searches_less_is_one_line_and_writes_nothing(tmp_path, monkeypatch, mistake):
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
    assert "--n_best must be at most the model's beam size, 4" in mistake(translate, *asked, "en-de", "--n_best", 5)
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


QUICK = ["--language_odds", 0, "--max_ratio", 0, "--workers", 1]


@pytest.fixture
def raw(tmp_path):
    """A directory with a dirty corpus: one line has no translation."""
    directory = tiny.write_corpus(tmp_path / "raw")
    for language, line in {"en": "a line that is all alone\n", "de": "\n"}.items():
        with open(directory / f"train.{language}", "a", encoding="utf-8") as file:
            file.write(line)
    return directory


def test_clean_writes_a_corpus_and_says_what_it_dropped(raw, tmp_path, run, capsys):
    output, test = tmp_path / "deep" / "clean", [raw / "test.en", raw / "test.de"]
    run(clean, "--input", f"files:{raw}", "--output", output, "--without", *test, "--numbers", "false", *QUICK)
    about = json.loads((output / "clean.json").read_text("utf-8"))
    assert (about["source_lang"], about["target_lang"]) == ("de", "en")  # found in the directory
    assert about["settings"]["numbers"] is False and about["dropped"]["blank"] == 1
    assert about["pairs"]["read"] == 212 and about["without"] == [*map(str, test)]
    *_, kept, report = capsys.readouterr().out.splitlines()
    assert kept.split() == ["kept", str(about["pairs"]["kept"]), "of", "212", "pairs"]
    assert report == f"report           {output / 'report.html'}"
    held = set(test[0].read_text("utf-8").splitlines())
    assert not held & set((output / "train.en").read_text("utf-8").splitlines())


def test_clean_holds_out_a_validation_set_where_there_is_none(raw, tmp_path, run):
    for language in ("en", "de"):
        (raw / f"val.{language}").unlink()
    run(clean, "--input", f"files:{raw}@en-de", "--output", tmp_path / "clean", "--hold_out", *QUICK)
    held, kept = ((tmp_path / "clean" / f"{name}.en").read_text("utf-8").splitlines() for name in ("val", "train"))
    assert len(held) == 10 and not {*held} & {*kept}  # 5 % of 212


def test_mistakes_in_cleaning_are_one_line_before_any_work(raw, tmp_path, mistake):
    asked = ["--input", f"files:{raw}", "--output", tmp_path / "clean"]
    os.mkfifo(raw / "pipe")
    for flags, message in (
        (["--workers", 0], "--workers must be at least 1"),
        (["--workers", 2, "--engine", "beam"], "--workers needs --engine local"),
        (["--runner", "DirectRunner"], "unrecognized arguments: --runner DirectRunner"),
        (["--without", "nowhere"], "cannot read nowhere"),
        (["--without", raw / "pipe"], "pipe is a pipe, which can be read only once"),
        (["--without", raw / "val.en", "--near_held_out", 0], "leave one out"),
        (["--max_ratio", 0.5], "--max_ratio must be at least 1, or 0"),
        (["--output", raw], "it exists already"),
        (["--input", "raw"], "unknown corpus 'raw'"),
        (["--input", "files:nowhere"], "no such directory"),
        (["--input", "cldr:en-de", "--skip_bad_lines"], "--skip_bad_lines needs a corpus files:DIR"),
        ([*QUICK, "--max_characters", 1], "no pair of files:"),
    ):
        assert message in mistake(clean, *asked, *flags)
    assert [path.name for path in tmp_path.iterdir()] == ["raw"]
    words = ["--input", "files:raw", "--output", "clean", "--engine", "beam", "--runner", "DirectRunner"]
    assert clean.parse_arguments(clean.make_parser(), words)[1] == words[-2:]


def test_bad_lines_are_skipped_counted_and_written_if_the_user_wants_that(tmp_path, run, capsys, mistake):
    (tmp_path / "raw").mkdir()
    pairs = [f"{source}\t{target}\n" for source, target in tiny.pairs(40)]
    (tmp_path / "raw/train.tsv").write_text("".join([*pairs, "no tab\n"]), encoding="utf-8")
    asked = ["--input", f"files:{tmp_path / 'raw'}", "--source_lang", "en", "--target_lang", "de", *QUICK]
    asked += ["--output", tmp_path / "clean"]
    assert "With --skip_bad_lines, bad lines are" in mistake(clean, *asked)
    run(clean, *asked, "--skip_bad_lines")
    assert "bad lines are skipped: 1 of train.tsv. The first one is line 41 " in capsys.readouterr().out
    assert json.loads((tmp_path / "clean/clean.json").read_text("utf-8"))["bad_lines"] == 1
    (bad,) = map(json.loads, (tmp_path / "clean/bad_lines.jsonl").read_text("utf-8").splitlines())
    assert (bad["file"], bad["line"], bad["text"]) == ("train.tsv", 41, "no tab")


@pytest.mark.slow
def test_ctrl_c_ends_all_processes_with_one_line_and_leaves_nothing(tmp_path):
    (tmp_path / "raw").mkdir()
    tiny.write_pairs(tmp_path / "raw", "train", tiny.pairs(5000) * 40)
    command = [sys.executable, "-m", "keras_transformer", "clean", "--input", f"files:{tmp_path}/raw"]
    command += ["--output", str(tmp_path / "clean"), "--language_odds", "0", "--workers", "2"]
    program = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    pattern = ".clean.*.partial/scratch/examined"
    while not any(path.stat().st_size for path in tmp_path.glob(pattern)) and program.poll() is None:
        time.sleep(0.1)
    os.kill(program.pid, signal.SIGINT)
    out, err = program.communicate(timeout=300)
    assert (program.returncode, out, err) == (130, "", "interrupted\n")
    assert [path.name for path in tmp_path.iterdir()] == ["raw"]


PAIR = ("ten nine eight four zero", "zehn neun acht vier null")  # which `learned` knows
PARSE = """\
1	ten	_	_	_	_	0	root	_	_
2	nine	_	_	_	_	1	nummod	_	_
3	eight	_	_	_	_	1	nummod	_	_
4	four	_	_	_	_	5	nummod	_	_
5	zero	_	_	_	_	1	nummod	_	_

"""


@pytest.fixture
def sides(tmp_path):
    """Flags of a corpus of two pairs, in a directory of its own."""
    tiny.write_pairs(tmp_path, "val", [PAIR] * 2)
    (tmp_path / "val.conllu").write_text(PARSE * 2, encoding="utf-8")
    (tmp_path / "val.links").write_text("0-0 1-1\n" * 2, encoding="utf-8")
    return ["--source", tmp_path / "val.en", "--reference", tmp_path / "val.de"]


@pytest.mark.slow
def test_a_run_has_a_report_of_its_heads_with_the_bleu_lost_without_each(learned, sides, tmp_path, run, capsys):
    flags = ["--conllu", tmp_path / "val.conllu", "--alignments", tmp_path / "val.links", "--beam_size", 1]
    flags += ["--prune", 0.5, "--pruned_dir", tmp_path / "small"]
    output = tmp_path / "deep" / "report"
    run(analyze, "--model_dir", learned.path, *sides, *flags, "--output", output, "--silence", "true")
    printed = capsys.readouterr()
    assert printed.err == "" and printed.out.splitlines()[-1] == f"report         {output / 'report.html'}"
    assert re.search(r"^most needed    (\w+ 0\.[01](, |$)){3}$", printed.out, re.MULTILINE)
    data = data_of((output / "report.html").read_text(encoding="utf-8"))
    assert len(data["heads"]) == 6 and len(data["sentences"]) == 2 and data["relations"][0]["relation"] == "nummod"
    assert all(head["aligned"] is not None for head in data["heads"] if head["kind"] == "cross")
    assert data["score"].startswith("BLEU of the first 2 sentences (nrefs:1|")
    silent, pruned, _ = [curve["points"] for curve in data["curves"]]
    assert silent[0] == pytest.approx([0, 100]) and silent[-1][0] == 1 and silent[-1][1] < 50 and len(silent) == 7
    assert pruned[0] == pytest.approx([0, 100]) and pruned[-1][0] == 0.5 and len(pruned) == 4
    assert pruned[1:] == [point for point in silent if point[0] in {share for share, _ in pruned[1:]}]
    assert re.search(rf"^train it on    .*train.* --config {tmp_path}/small/config.yaml$", printed.out, re.MULTILINE)
    assert (tmp_path / "small" / "config.yaml").exists() and all(head["lost"] >= 0 for head in data["heads"])


def test_a_mistake_in_analysis_is_one_line_before_the_long_work(mistake, learned, sides, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "short").write_text("eins\n", encoding="utf-8")
    (tmp_path / "other").write_text(PARSE.replace("zero", "three") * 2, encoding="utf-8")
    os.mkfifo("pipe")
    for flags, message in (
        (["--model_dir", "nowhere"], "no run in nowhere"),
        (["--source", "nowhere"], "cannot read nowhere: No such file"),
        (["--reference", "short"], "not line-aligned: "),
        (["--conllu", "short"], "has 1 parse, but there are 2 sentences"),
        (["--conllu", "other"], "parse 1: its words 'ten nine eight four three' are not those of 'ten nine"),
        (["--alignments", "short"], "has 1 line, but there are 2 pairs"),
        *((["--" + name, "pipe"], "pipe, which can be read only once") for name in ("alignments", "conllu", "source")),
        (["--output", "short/report"], "cannot write short/report: Not a directory"),
        (["--sentences", 0], "--sentences must be at least 1. Received: 0"),
        (["--prune", 0.5], "--prune and --pruned_dir need each other"),
        (["--prune", 1.5, "--pruned_dir", "new"], "--prune must be between 0 and 1. Received: 1.5"),
        (["--prune", 0.5, "--pruned_dir", "short"], "cannot write short: it exists already"),
        (["--prune", 0.01, "--pruned_dir", "new"], "--prune must be at least half of one of 6 heads. Received: 0.01"),
        (["--batch_size", 0], "--batch_size must be between"),
    ):
        assert message in mistake(analyze, "--model_dir", learned.path, *sides, "--output", "report", *flags)
        assert not (tmp_path / "report").exists()


def test_bleu_divides_words_as_the_run_does(tmp_path):
    tiny.config("nowhere", tmp_path, tokenize="none").save(tmp_path / "config.yaml")
    arguments = argparse.Namespace(model_dir=tmp_path, target_lang=None)
    assert "tok:none" in analyze.describe_score(arguments, ["eins zwei ."])


def test_align_writes_a_line_of_links_for_each_pair(tmp_path, run, mistake, capsys, monkeypatch):
    pairs = tiny.learned_pairs()[:5]
    tiny.write_pairs(tmp_path, "test", pairs)
    flags = ["--model_dir", "nowhere", "--source", tmp_path / "test.en", "--target", tmp_path / "test.de"]
    assert "no run in" in mistake(align, *flags)
    translator = tiny.beam_translator()
    monkeypatch.setattr(runs.Run, "translator", lambda *given, **settings: translator)
    run(align, *flags)
    printed = capsys.readouterr().out
    for line, (source, target) in zip(printed.splitlines(), pairs, strict=True):
        links = [tuple(map(int, re.fullmatch(r"(\d+)-(\d+)", link).groups())) for link in line.split()]
        assert [word for _, word in links] == list(range(len(target.split())))
        assert all(word < len(source.split()) for word, _ in links)
    run(align, *flags, "--output", tmp_path / "links")
    assert (tmp_path / "links").read_text(encoding="utf-8") == printed
    (tmp_path / "test.de").write_text("eins\n", encoding="utf-8")
    assert "not line-aligned" in mistake(align, *flags)
