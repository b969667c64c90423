import argparse
import json
import re

import pytest

from keras_transformer.cli import analyze
from keras_transformer.models.recurrent import RecurrentNetwork
from keras_transformer.training.run_directory import RunDirectory
from tests import tiny

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
    page = (output / "report.html").read_text(encoding="utf-8")
    data = json.loads(re.search(r'id="data">(.*?)</script>', page)[1])
    assert len(data["heads"]) == 6 and len(data["sentences"]) == 2 and data["relations"][0]["relation"] == "nummod"
    assert all(head["aligned"] is not None for head in data["heads"] if head["kind"] == "cross")
    assert data["score"].startswith("BLEU of the first 2 sentences (nrefs:1|")
    silent, pruned, _ = [curve["points"] for curve in data["curves"]]
    assert silent[0] == pytest.approx([0, 100]) and silent[-1][0] == 1 and silent[-1][1] < 50 and len(silent) == 7
    assert pruned[0] == pytest.approx([0, 100]) and pruned[-1][0] == 0.5 and len(pruned) == 4
    assert pruned[1:] == [point for point in silent if point[0] in {share for share, _ in pruned[1:]}]
    assert f"train it on    python train.py --config {tmp_path}/small/config.yaml\n" in printed.out
    run(analyze, "--model_dir", tmp_path / "small", *sides, "--output", output)  # a pruned run has fewer heads
    assert len((output / "heads.tsv").read_text(encoding="utf-8").splitlines()) == 1 + 3
    assert all(head["lost"] >= 0 for head in data["heads"])


@pytest.fixture
def refused(mistake, learned, sides, tmp_path):
    """The line of a mistake, which is found before there is an output."""

    def refuse(*flags):
        line = mistake(analyze, "--model_dir", learned.path, *sides, "--output", tmp_path / "report", *flags)
        assert not (tmp_path / "report").exists()
        return line

    return refuse


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--model_dir", "nowhere"], "no run in nowhere"),
        (["--source", "nowhere"], "cannot read nowhere: No such file"),
        (["--reference", "short"], "not line-aligned: "),
        (["--conllu", "short"], "has 1 parse, but there are 2 sentences"),
        (["--conllu", "other"], "parse 1: its words 'ten nine eight four three' are not those of 'ten nine"),
        (["--alignments", "short"], "has 1 line, but there are 2 pairs"),
        (["--output", "short/report"], "cannot write short/report: Not a directory"),
        (["--sentences", 0], "--sentences must be at least 1. Received: 0"),
        (["--prune", 0.5], "--prune and --pruned_dir need each other"),
        (["--prune", 1.5, "--pruned_dir", "new"], "--prune must be between 0 and 1. Received: 1.5"),
        (["--prune", 0.5, "--pruned_dir", "short"], "cannot write short: it exists already"),
        (["--batch_size", 0], "--batch_size must be between"),
    ],
)
def test_a_mistake_is_one_line_before_the_long_work(refused, tmp_path, monkeypatch, flags, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "short").write_text("eins\n", encoding="utf-8")
    (tmp_path / "other").write_text(PARSE.replace("zero", "three") * 2, encoding="utf-8")
    assert message in refused(*flags)


def test_bleu_divides_words_as_the_run_does(tmp_path):
    tiny.config("nowhere", tmp_path, tokenize="none").save(tmp_path / "config.yaml")
    arguments = argparse.Namespace(model_dir=tmp_path, target_lang=None)
    assert "tok:none" in analyze.describe_score(arguments, ["eins zwei ."])


def test_a_model_without_heads_is_refused(refused, tmp_path):
    run = RunDirectory(tmp_path / "recurrent")
    run.path.mkdir()
    tiny.config("nowhere", run.path).save(run.config)
    (run.path / "tokenizer.model").write_bytes(tiny.tokenizer_model())
    RecurrentNetwork(vocabulary_size=tiny.VOCABULARY, d_model=6).save(run.model)
    assert refused("--model_dir", run.path).endswith(
        "only a Transformer has heads. Received: a model of type RecurrentNetwork"
    )
