import gzip
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import sacrebleu

from keras_transformer import evaluation, runs
from keras_transformer.cli import console, evaluate
from keras_transformer.tools.comparison import significance
from keras_transformer.translation.results import Score
from tests import tiny
from tests.tools.pages import data_of


def write_lines(path, lines):
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def read_lines(work, *names):
    return [(work / name).read_text(encoding="utf-8").splitlines() for name in names]


class Dictionary:
    """Stands for a model: translates number words one by one, and leaves the last `left_out` words out."""

    width, path, languages = 4, Path("nowhere"), ("source", "target")  # which CLDR does not know: the ending tells

    def __init__(self, left_out=0):
        self.left_out, self.calls = left_out, []

    def between(self, target_lang):
        return self

    def translate(self, texts, on_progress=None, **options):
        self.calls.append((len(texts), options))
        german = dict(zip(tiny.ENGLISH, tiny.GERMAN, strict=True))
        words = [text.split() for text in texts]
        return [" ".join(german[word] for word in row[: len(row) - self.left_out]) for row in words]


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    directory = tmp_path_factory.mktemp("evaluation")
    pairs = [(source, target) for source, target in tiny.pairs(53) if len(source.split()) == 5]
    tiny.write_pairs(directory, "test", pairs)
    write_lines(directory / "good", [target for _, target in pairs])
    write_lines(directory / "bad", [target.rsplit(" ", 1)[0] for _, target in pairs])
    write_lines(directory / "shorter", [target for _, target in pairs[1:]])
    write_lines(directory / "gaps", ["coco", " ", *["coco" for _ in pairs[2:]]])
    (directory / "run").mkdir()
    (directory / "run" / "config.yaml").touch()
    (directory / "export").mkdir()
    return directory


@pytest.fixture
def program(work, monkeypatch, capsys, run):
    """Runs evaluate.py in `work`: function from flags to (exit status, lines of output, lines of errors)."""
    monkeypatch.chdir(work)

    def run_here(*flags):
        status = 0
        try:
            run(evaluate, *flags)
        except SystemExit as caught:
            status = caught.code
        return status, *map(str.splitlines, capsys.readouterr())

    return run_here


@pytest.fixture
def loaded(work, monkeypatch):
    """Replaces `runs.load`; dict of path -> (`Dictionary`, settings). An export leaves out the last word.

    The directory `litert` has an export for LiteRT, which leaves it out, too.
    """
    found = {}

    def load(path, *checkpoint, **settings):
        found[str(path)] = Dictionary(left_out=int("export" in str(path))), settings
        return found[str(path)][0]

    monkeypatch.setattr(runs, "load", load)
    (work / "litert" / "1").mkdir(parents=True, exist_ok=True)
    (work / "litert" / "1" / "model.tflite").touch()
    reader = SimpleNamespace(LiteRTTranslator=lambda path: Dictionary(left_out=1))
    monkeypatch.setitem(sys.modules, "keras_transformer.tools.engines.translate_litert", reader)
    return found


SIDES = ("--source", "test.en", "--reference", "test.de")
FILES = ("--hypotheses", "good", "--reference", "test.de")
BAD = ("--hypotheses", "bad", "--reference", "test.de")


@pytest.fixture(scope="module")
def compared(work):
    """The lines of a comparison of `good` with `bad`."""
    found = significance.compare(*read_lines(work, "good", "bad", "test.de"))
    return significance.describe_comparison(found).splitlines()


def test_a_file_of_translations_is_scored_without_a_model_and_two_are_compared_the_baseline_second(
    program, work, compared
):
    expected = console.describe_scores(evaluation.measure(*read_lines(work, "bad", "test.de")))
    assert program(*BAD) == (0, expected.splitlines(), [])
    assert program(*FILES, "--baseline", "bad") == (0, compared, [])
    bleu = re.split(r"  +", compared[1])
    assert bleu[1].startswith("100.0 ") and float(bleu[2].split()[0]) < 90 and bleu[3] == "0.001"


def test_the_ending_of_the_references_or_a_flag_names_the_language(program, work):
    for name in ("ref.zh", "ref"):
        write_lines(work / name, ["今天天气很好，我们走吧。", "你好。"])
    for flags, tokenization in (
        (("ref.zh",), "zh"),
        (("ref",), "char"),
        (("ref", "--target_lang", "zh-TW"), "zh"),
        (("ref.zh", "--tokenize", "char"), "char"),
    ):
        status, lines, errors = program("--hypotheses", "ref", "--reference", *flags)
        assert (status, errors) == (0, []) and lines[0].startswith("BLEU 100.0 ")
        assert f"|tok:{tokenization}|" in lines[0]


def test_a_model_is_scored_with_its_speed_and_its_translations_are_kept(program, loaded, work):
    status, lines, errors = program("--saved_model", "export", *SIDES, "--output", "kept.gz", "--beam_size", 3)
    assert (status, errors) == (0, []) and lines[:3] == program(*BAD)[1]
    assert len(lines) == 4 and re.fullmatch(r"[\d.]+ sentences/s", lines[3])
    assert gzip.decompress((work / "kept.gz").read_bytes()) == (work / "bad").read_bytes()
    assert loaded["export"][0].calls[-1][1] == {"beam_size": 3}


def test_of_two_references_the_better_one_counts(program, work):
    write_lines(work / "others.de", *read_lines(work, "bad"))
    status, lines, errors = program(*BAD, "others.de")
    assert (status, errors) == (0, []) and lines[0].startswith("BLEU 100.0 (nrefs:2|")
    assert lines[2].startswith("exact 100.0%")
    assert any("nrefs:2" in line for line in program(*BAD, "others.de", "--baseline", "good")[1])


def test_the_perplexity_of_the_references_is_printed_with_its_loss(program, loaded, monkeypatch):
    scores = [Score(0.0, [], [-1.0, -2.0, -0.6])]
    monkeypatch.setattr(Dictionary, "score", lambda self, texts, *_, **__: scores * len(texts), raising=False)
    flags = ("--perplexity", "--tokenize", "13a", "--target_lang", "de")  # a model takes its language with either
    status, lines, _ = program("--model_dir", "run", *SIDES, *flags)
    pieces = 3 * loaded["run"][0].calls[-1][0]
    assert (status, lines[3]) == (0, f"loss 1.2000, perplexity 3.320 of {pieces:,} pieces") and "tok:13a" in lines[0]


def test_a_baseline_has_the_options_of_the_system(program, loaded):
    options = ("--beam_size", 3, "--no_repeat_ngram", 2, "--batch_size", 5)
    status, lines, _ = program("--model_dir", "other", "--baseline", "export", *SIDES, *options)
    assert status == 0 and [line.split()[1:] for line in lines[9:]] == [["sentences/s"], ["sentences/s", "(baseline)"]]
    for name, of_run in (("export", {}), ("other", {"beam_size": 3, "length_penalty": None, "shortlist": None})):
        translator, settings = loaded[name]
        of_call = {"no_repeat_ngram": 2} | ({} if of_run else {"beam_size": 3})
        assert settings == {"batch_size": 5, **of_run} and translator.calls[-1][1] == of_call


def page_data(path):
    return data_of(path.read_text(encoding="utf-8"))


def test_a_report_has_what_is_printed_of_one_system_or_two(program, loaded, work, compared):
    status, lines, errors = program(*BAD, "--source", "test.en", "--report", "report.html")
    intervals = significance.describe_intervals(significance.intervals(*read_lines(work, "bad", "test.de")))
    assert (status, errors) == (0, []) and lines[:3] == program(*BAD)[1]
    assert lines[3:-1] == intervals.splitlines() and lines[-1] == "report report.html"
    data = page_data(work / "report.html")
    assert data["printed"].splitlines() == lines[:-1] and data["title"] == "bad"
    for line, score in zip(lines[3:6], data["scores"], strict=False):
        (system,) = score["systems"]
        metric, shown, mean, _, ci = line.split()
        found = (score["metric"], system["score"], system["interval"])
        assert found == (metric, shown, f"{mean[1:]} ± {ci[:-1]}") and f"{metric} {score['signature']}" in lines
    status, lines, _ = program("--model_dir", "run", "--baseline", "bad", *SIDES, "--report", "report.html")
    assert status == 0 and lines[:9] == compared
    data = page_data(work / "report.html")
    assert data["printed"].splitlines() == lines[:-1] and data["names"] == ["run", "bad"]
    for line, score in zip(lines[1:4], data["scores"], strict=False):
        shown = [f"{of['score']} ({of['interval'].replace('±', '+-')})" for of in score["systems"]]
        assert re.split(r"  +", line) == [score["metric"], *shown, score["p"]]


def test_each_corpus_has_its_own_score(program, work):
    translations, references = read_lines(work, "bad", "test.de")
    names = ["flickr" if row % 3 else "coco" for row in range(len(references))]
    write_lines(work / "names", names)
    status, lines, errors = program(*BAD, "--corpora", "names", "--report", "report.html")
    printed, shown = lines[-3:-1], page_data(work / "report.html")["corpora"]
    assert (status, errors) == (0, []) and [group["name"] for group in shown] == ["coco", "flickr"]
    for line, group in zip(printed, shown, strict=True):
        rows = [row for row, name in enumerate(names) if name == group["name"]]
        hypotheses, chosen = ([texts[row] for row in rows] for texts in (translations, references))
        score = sacrebleu.corpus_bleu(hypotheses, [chosen]).score
        assert line == f"BLEU {score:.1f} of {len(rows)} sentences: {group['name']}"
        assert group["bleu"] == [pytest.approx(score)] and group["size"] == len(rows)
    both = program(*FILES, "--baseline", "bad", "--corpora", "names", "--tokenize", "none")[1]
    assert both[-2:] == [line.replace("BLEU ", "BLEU 100.0 and ") for line in printed] and "tok:none" in "".join(both)


def test_either_side_of_a_comparison_is_a_run_an_export_of_either_kind_or_a_file(program, loaded, compared):
    assert program("--litert", "litert", *SIDES)[1][:3] == program(*BAD)[1]
    for system, baseline in (("--model_dir", "run"), "litert"), (("--hypotheses", "good"), "export"):
        status, lines, _ = program(*system, "--baseline", baseline, *SIDES)
        assert (status, lines[:9]) == (0, compared) and lines[-1].endswith("(baseline)")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a file that cannot be written is needed")
def test_scores_are_printed_even_if_the_translations_cannot_be_kept(program, loaded):
    status, lines, errors = program("--model_dir", "run", *SIDES, "--output", "/dev/full")
    assert status == 2 and lines[0].startswith("BLEU 100.0 ")
    assert errors == ["error: cannot write /dev/full: No space left on device"]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ((*FILES, "--baseline", "shorter"), "not line-aligned: shorter has"),
        (("--hypotheses", "nowhere", "--reference", "test.de"), "nowhere: No such file"),
        ((*FILES, "--baseline", "nowhere"), "--baseline nowhere: there is no such file or directory"),
        ((*FILES, "--tokenize", "14a"), "--tokenize must be one of auto, "),
        ((*FILES, "--tokenize", "13a", "--target_lang", "de"), "--target_lang has no effect without --tokenize auto"),
        ((*FILES, "--perplexity"), "--perplexity needs a model, and does not go with --hypotheses"),
        (("--litert", "run", *SIDES, "--perplexity"), "--perplexity does not go with --litert"),
        ((*FILES, "--beam_size", 3), "--beam_size needs a model"),
        ((*FILES, "--checkpoint", "last"), "--checkpoint needs a model"),
        ((*FILES, "--baseline", "run"), "a model needs --source"),
        (("--model_dir", "run", *SIDES, "--output", "no/kept"), "cannot write no/kept: there is no directory"),
        (("--model_dir", "run", *SIDES, "--baseline", "bad", "--output", "bad"), "bad for both"),
        ((*FILES, "--comet", "comet"), "--comet needs --source"),
        ((*FILES, "--source", "test.en", "--comet", "nowhere"), "no COMET model at nowhere: there is no file"),
        ((*FILES, "--report", "good"), "good for both"),
        ((*FILES, "--corpora", "shorter"), "not line-aligned: shorter has"),
        ((*FILES, "--corpora", "gaps"), "every line of --corpora names a corpus. Received: line 2 is blank"),
        (("--model_dir", "run", *SIDES, "--output", "a", "--report", "a"), "--report and --output need a file each"),
        (SIDES[2:], "one of the arguments"),
        ((*FILES, "--model_dir", "run"), "--model_dir: not allowed with"),
    ],
)
def test_a_mistake_is_one_line_before_anything_is_translated(program, loaded, flags, message):
    status, lines, errors = program(*flags)
    assert (status, lines, len(errors)) == (2, [], 1)
    assert errors[0].startswith("error: ") and message in errors[0] and not loaded


def test_what_is_not_installed_or_no_model_is_found_before_the_translation(program, work, monkeypatch):
    (work / "unfinished").mkdir(exist_ok=True)
    for message in ("no run and no export in unfinished", "no weights in unfinished yet"):
        status, lines, errors = program(*FILES, "--source", "test.en", "--baseline", "unfinished")
        assert (status, lines) == (2, []) and message in errors[-1]
        (work / "unfinished" / "config.yaml").touch()
    monkeypatch.setitem(sys.modules, "keras_transformer.tools.comparison.report", None)
    said = "error: --report needs keras_transformer/tools/comparison, which is not installed"
    assert program(*FILES, "--report", "report.html") == (2, [], [said])
