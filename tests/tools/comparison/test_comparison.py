import logging
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import sacrebleu
from sacrebleu import sentence_chrf
from sacrebleu.metrics import BLEU, CHRF, TER

from keras_transformer.cli import evaluate
from keras_transformer.errors import UserError
from keras_transformer.tools.comparison import measures, sentences
from keras_transformer.tools.comparison.comet import comet_score, load_comet
from keras_transformer.tools.comparison.measures import faults_of, length_groups, repetitions, words_in
from keras_transformer.tools.comparison.sentences import RIGHT, SAME, WRONG, lists_of, marked
from keras_transformer.tools.comparison.significance import compare, describe_comparison, describe_intervals, intervals
from keras_transformer.training.preparation import prepare
from keras_transformer.training.run_directory import RunDirectory
from tests import tiny
from tests.sentences import SENTENCES


@pytest.fixture(autouse=True)
def no_other_seed(monkeypatch):
    monkeypatch.delenv("SACREBLEU_SEED", raising=False)


@pytest.fixture(scope="module")
def systems():
    """One sentence in 11 of the system and one in 7 of the baseline has its words in another order."""
    references = [f"sentence {n} of the test set says {n * n} and {n + 1} words" for n in range(101)]
    turned = [" ".join(reversed(reference.split())) for reference in references]
    system, baseline = ([turned[n] if n % k == 0 else r for n, r in enumerate(references)] for k in (11, 7))
    return system, baseline, references


def test_a_comparison_is_that_of_the_program_sacrebleu(systems, tmp_path):
    files = system, baseline, reference = [tmp_path / str(number) for number in range(3)]
    for path, lines in zip(files, systems, strict=True):
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    metrics = ("-m", "bleu", "chrf", "ter", "--width", "6", "--format", "latex")
    resampling = ("--paired-bs", "--paired-bs-n", "97")
    command = [sys.executable, "-m", "sacrebleu", reference, "-i", baseline, system, *metrics, *resampling]
    printed = subprocess.run(command, capture_output=True, check=True, encoding="utf-8", timeout=60).stdout

    comparisons = compare(*systems, resamples=97)
    assert [row.metric for row in comparisons] == ["BLEU", "chrF", "TER"]
    results = [row.baseline for row in comparisons] + [row.system for row in comparisons]
    found = [tuple(map(float, numbers)) for numbers in re.findall(r"([\d.]+) \(([\d.]+) ± ([\d.]+)\)", printed)]
    for result, numbers in zip(results, found, strict=True):
        assert (result.score, result.mean, result.ci) == pytest.approx(numbers, abs=1e-5)
    p_values = [float(number) for number in re.findall(r"\(p = ([\d.]+)\)", printed)]
    assert [row.p_value for row in comparisons] == pytest.approx(p_values, abs=1e-4)
    assert re.findall(r"nrefs:\S+", printed) == [row.signature for row in comparisons]
    # Here alone, equal scores are no difference.
    system, _, references = systems
    assert [row.p_value for row in compare(system, system, references, resamples=3)] == [1, 1, 1]


def test_intervals_are_those_of_sacrebleu_for_one_system(systems):
    system, _, references = systems
    found = intervals(system, references, resamples=97)
    for row, metric in zip(found, (BLEU(), CHRF(), TER()), strict=True):
        alone = metric.corpus_score(system, [references], n_bootstrap=97)
        shown = row.system.score, row.system.mean, row.system.ci
        assert shown == pytest.approx((alone.score, alone._mean, alone._ci)) and row.system.p_value is None
        assert row.metric == type(metric).__name__.replace("CHRF", "chrF") and "|bs:97|seed:12345|" in row.signature
    of_bleu = found[0].system
    shown = f"BLEU  {of_bleu.score:.1f} ({of_bleu.mean:.1f} +- {of_bleu.ci:.1f})"
    assert describe_intervals(found).splitlines()[0] == shown
    bleu, *_ = intervals(system, references, tokenize="char", resamples=3)  # the tokens that are asked for
    assert bleu.system.score == pytest.approx(sacrebleu.corpus_bleu(system, [references], tokenize="char").score)


def test_the_seed_is_always_the_same_and_part_of_the_signature(systems, monkeypatch):
    rows = compare(*systems, resamples=97)
    assert all(0.05 < row.p_value < 1 for row in rows)  # a small difference
    first, again = describe_comparison(rows), describe_comparison(compare(*systems, resamples=97))
    assert first == again and first.count("|bs:97|seed:12345|") == 3
    monkeypatch.setenv("SACREBLEU_SEED", "7")
    assert describe_comparison(compare(*systems, resamples=97)).count("|bs:97|seed:7|") == 3


def test_ter_is_left_out_where_it_finds_no_words_and_counts_characters_where_no_spaces_are_between_them():
    for reference, metrics in {"ฉันไปโรงเรียนทุกวัน": 2, "我们走吧。": 3, "eins zwei drei": 3}.items():
        assert len(compare([reference], [reference], [reference], resamples=2)) == metrics
    # It counts characters where no spaces are between words.
    references = ["我们走吧", "你好"]
    *_, ter = compare(["我们去吧", "你好"], references, references, tokenize="zh", resamples=7)
    assert ter.system.score == pytest.approx(100 * 1 / 6)  # one of 6 characters, not one of 2 words
    assert ter.signature.endswith(f"norm:yes|punct:yes|asian:yes|version:{sacrebleu.__version__}")


def test_a_comparison_says_a_warning_once_and_leaves_sacrebleu_as_it_was(caplog):
    with caplog.at_level(logging.WARNING, "sacrebleu"):
        for _ in range(2):
            compare(["a ."] * 100, ["a ."] * 100, ["a ."] * 100, resamples=2)
    assert [record.msg for record in caplog.records].count("That's 100 lines that end in a tokenized period ('.')") < 2
    assert logging.getLogger("sacrebleu").filters == []


def test_unequal_counts_are_named_and_resamples_must_be_positive():
    with pytest.raises(UserError, match="2 system, 3 baseline, 3 references"):
        compare(["a"] * 2, ["a"] * 3, ["a"] * 3)
    with pytest.raises(UserError, match="resamples=0"):
        compare(["a"], ["a"], ["a"], resamples=0)


REFERENCE = "the cat sat on the mat by the door"


def test_groups_have_about_equally_many_sentences_the_shortest_first():
    for lengths, most, groups in (
        ([5, 1, 3, 2, 4, 6], 3, [("1 to 2", [1, 3]), ("3 to 4", [2, 4]), ("5 to 6", [0, 5])]),
        ([7, 7, 7, 9], 2, [("7", [0, 1, 2]), ("9", [3])]),  # sentences of one length stay together
    ):
        assert length_groups(lengths, most) == groups


def test_a_word_is_found_as_often_as_both_texts_have_it():
    counts = Counter({"a": 1, "b": 5, "c": 99, "d": 12345})
    found = measures.recall_by_frequency(["a b b e", "d"], [["a b c e e", "b"], ["d d", "d"]], counts)
    # never: e, e (one of them found). once: a. 2 to 9: b, b. 10 to 99: c. 10,000: d, d and d.
    assert found == {0: (2, 1), 1: (1, 1), 2: (2, 2), 10: (1, 0), 10000: (3, 2)}
    names = ["never", "once", "2 to 9", "10 to 99", "10,000 or more"]
    assert [measures.frequency_name(group) for group in found] == names


def test_repetitions_are_counted():
    for text, places in (
        (REFERENCE, 0),
        ("the the cat", 1),
        ("a man in a man in a hat", 3),  # "a man in" twice in a row, and "man in a" behind its first word; "a man in a"
        ("on the left of it and on the left of me", 1),  # "on the left of" again
        ("Lampendelelelel, Filzzzzhut", 2),
        ("哈哈", 0),  # many words have two equal characters
        ("我我我我我我", 2),  # a word of three characters twice, and one character more than three times
        ("我们走我们走吧", 1),
    ):
        assert repetitions(text) == places


def test_faults_are_told_by_the_source_and_the_references():
    for hypothesis, references, source, faults in (
        (REFERENCE, [REFERENCE], "x", []),
        (f"{REFERENCE} door", [REFERENCE], "x", ["repeats itself"]),
        ("no no", [REFERENCE[:11]], "nein nein", []),  # the source says it twice, too
        ("the cat sat on the", [REFERENCE], "x", ["far too short"]),  # 5 of 9 words
        ("", ["cat"], "x", ["far too short"]),
        ("the cat sat on it", [REFERENCE, "it sat there"], "x", []),  # the shortest reference counts
        ("we all saw how it sat down here", ["it sat"], "x", ["far too long"]),
        ("Die Katze saß da", ["The cat sat there"], "Die Katze saß da", ["left as the source"]),
    ):
        assert faults_of(hypothesis, references, source) == faults and set(faults) <= measures.FAULTS.keys()


def test_the_words_of_a_run_are_counted_in_its_training_corpus(tmp_path, monkeypatch):
    corpus = tiny.write_corpus(tmp_path / "corpus")
    config = tiny.config(corpus, tmp_path / "run")
    run = RunDirectory(config.model_dir)
    prepare(config, run)
    config.save(run.config)
    lines = (corpus / "train.de").read_text(encoding="utf-8").splitlines()
    assert measures.training_words(run.path) == (Counter(" ".join(lines).split()), 211)
    monkeypatch.setattr("keras_transformer.tools.comparison.measures.MOST_COUNTED", 106)
    counts, sentences = measures.training_words(run.path)
    assert sentences == 106 and counts == Counter(" ".join(lines[::2]).split())
    for path in run.tokens.glob("train/target_*"):
        path.unlink()
    assert measures.training_words(run.path) is None


def test_words_are_marked_where_another_text_differs():
    for text, other, references, parts in (
        ("a b c", "a x c", ["a b c"], [("a", SAME), (" ", SAME), ("b", RIGHT), (" c", SAME)]),
        ("a b c", "a x c", ["a y c"], [("a", SAME), (" ", SAME), ("b", WRONG), (" c", SAME)]),
        ("b b", "", ["b"], [("b", RIGHT), (" ", SAME), ("b", WRONG)]),  # as often as the reference has it
        ("a a", "a", ["a"], [("a", SAME), (" ", SAME), ("a", WRONG)]),  # the first one has used the reference up
        (" a\u00a0 ", "b", ["c"], [(" ", SAME), ("a", WRONG), ("\u00a0 ", SAME)]),
        ("我走", "我来", ["我去"], [("我", SAME), ("走", WRONG)]),
        (" ", "a", ["a"], [(" ", SAME)]),
    ):
        assert marked(text, other, references) == parts


@pytest.mark.parametrize("sentence", SENTENCES.values(), ids=SENTENCES.keys())
def test_words_are_those_that_a_reader_sees_and_no_part_divides_one(sentence):
    assert words_in(sentence.text) == sentence.words.split()
    first, *_ = sentence.words.split()
    parts = marked(sentence.text, sentence.text.replace(first, "@", 1), [sentence.text])
    assert "".join(part for part, _ in parts) == sentence.text
    assert [part for part, mark in parts if mark == RIGHT] == [first] and not any(mark == WRONG for _, mark in parts)


def test_the_lists_of_two_systems_begin_with_what_is_most_striking():
    scores = [[50.0, 90.0, 20.0, 70.0], [50.04, 10.0, 80.0, 60.0]]
    faults = [[[], [], ["far too short"], []], [["repeats itself"], [], [], ["repeats itself"]]]
    assert lists_of(scores, faults) == [
        ("the system is better", [1, 3]),
        ("the baseline is better", [2]),
        ("the system: lowest chrF", [2, 0, 3, 1]),
        ("the system: far too short", [2]),
        ("the baseline: lowest chrF", [1, 0, 3, 2]),
        ("the baseline: repeats itself", [0, 3]),
    ]
    # A list is short, and a perfect translation is in none.
    ((name, rows),) = lists_of([[100.0, *range(100)]], [[[]] * 101])
    assert (name, rows) == ("the system: lowest chrF", [*range(1, sentences.MOST_SHOWN + 1)])
    assert lists_of([[100.0]], [[[]]]) == []
    texts, references = ["a cat", "x"], [["a cat", "the dog"], ["a mat", "a mat"]]
    expected = [sentence_chrf(text, row).score for text, row in zip(texts, references, strict=True)]
    assert sentences.sentence_scores(texts, references) == expected and expected[0] == pytest.approx(100)


ROOT = Path(__file__).parents[3]
# A stand-in for the package unbabel-comet, with the part of its interface (version 2.2.7) that is used: COMET is 1
# where a translation is its reference, and 0.25 where it is not. It needs the source of each.
COMET = """
import logging
import pathlib
from types import SimpleNamespace

logging.basicConfig(level=logging.INFO, force=True)


class Model:
    def predict(self, samples, batch_size=16, progress_bar=True):
        assert batch_size == 7 and not progress_bar
        assert all(sample["src"] == sample["ref"].upper() for sample in samples)
        scores = [1.0 if sample["mt"] == sample["ref"] else 0.25 for sample in samples]
        return SimpleNamespace(system_score=sum(scores) / len(scores))


def load_from_checkpoint(checkpoint_path, local_files_only=False):
    assert local_files_only and checkpoint_path.endswith("model.ckpt")
    if not pathlib.Path(checkpoint_path).read_bytes():
        raise OSError("We couldn't connect to 'https://huggingface.co'\\nto load xlm-roberta-large.")
    return Model()
"""
# A process with COMET has no TensorFlow: the two packages need different versions of protobuf.
WITHOUT_TENSORFLOW = """
import runpy, sys
for name in ("tensorflow", "keras", "sentencepiece", "google.protobuf"):
    sys.modules[name] = None
sys.argv[0] = "evaluate.py"
runpy.run_path("evaluate.py", run_name="__main__")
"""


@pytest.fixture
def work(tmp_path, monkeypatch):
    """A directory with a COMET model, a test set and the translations of two systems. The stand-in can be imported."""
    for name in ("checkpoints", "package/comet"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "package/comet/__init__.py").write_text(COMET, encoding="utf-8")
    (tmp_path / "checkpoints/model.ckpt").write_bytes(b"weights")
    (tmp_path / "hparams.yaml").touch()
    files = {
        "test.en": "ONE TWO ÖL FOUR",
        "test.de": "one two öl four",
        "new.de": "one two öl x",
        "old.de": "x x x four",
    }
    for name, words in files.items():
        (tmp_path / name).write_text("".join(f"{line}\n" for line in words.split()), encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path / "package"))
    yield tmp_path
    sys.modules.pop("comet", None)


def flags_of(work, **others):
    flags = {"source": work / "test.en", "reference": work / "test.de", "hypotheses": work / "new.de", "batch_size": 7}
    return [str(word) for name, value in {**flags, "comet": work, **others}.items() for word in (f"--{name}", value)]


def test_comet_is_printed_and_reported_for_one_system_and_for_two(work, monkeypatch, capsys):
    alone = f"COMET 0.8125 ({work})"  # (1 + 1 + 1 + 0.25) / 4
    report = work / "report.html"
    for others, expected in (
        ({"report": report}, [alone]),
        ({"baseline": work / "old.de"}, [alone, f"COMET 0.4375 ({work}) (baseline)"]),
    ):
        monkeypatch.setattr(sys, "argv", ["evaluate.py", *flags_of(work, **others)])
        evaluate.program()
        assert [line for line in capsys.readouterr().out.splitlines() if line.startswith("COMET")] == expected
    assert '"metric":"COMET"' in report.read_text("utf-8") and '"0.8125"' in report.read_text("utf-8")


def test_a_model_leaves_the_log_as_it_was_and_one_that_is_missing_or_cannot_be_opened_is_named_in_one_line(work):
    model = work / "checkpoints/model.ckpt"
    unknown = "We couldn't connect to 'https://huggingface.co' to load xlm-roberta-large."
    root = logging.getLogger()
    before = [*root.handlers], root.level
    references = [["a", "a"], ["b", "b"]]  # all of them count
    assert comet_score(load_comet(work), ["a", "x"], references, ["A", "B"], 7) == (1 + 1 + 0.25 + 0.25) / 4
    assert ([*root.handlers], root.level) == before
    for change, message in (
        (lambda: model.write_bytes(b""), f"the COMET model {work} cannot be opened: {unknown}"),
        (model.unlink, f"no COMET model at {work}: there is no file checkpoints/model.ckpt"),
    ):
        change()
        with pytest.raises(UserError) as caught:
            load_comet(work)
        assert str(caught.value) == message


def test_comet_works_where_tensorflow_is_not_installed(work):
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(work / "package")])}
    command = [sys.executable, "-c", WITHOUT_TENSORFLOW, *flags_of(work)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120)
    assert (done.stderr, done.stdout.splitlines()[-1]) == ("", f"COMET 0.8125 ({work})")
