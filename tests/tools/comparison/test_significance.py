import dataclasses
import logging
import math
import re
import subprocess
import sys

import pytest
import sacrebleu
from sacrebleu.metrics import BLEU, CHRF, TER

from keras_transformer.errors import UserError
from keras_transformer.tools.comparison.significance import compare, describe_comparison, describe_intervals, intervals


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


def test_a_comparison_has_the_bleu_of_the_tokens_that_are_asked_for(systems):
    system, _, references = systems
    bleu, _, _ = compare(*systems, tokenize="char", resamples=3)
    assert bleu.system.score == pytest.approx(sacrebleu.corpus_bleu(system, [references], tokenize="char").score)


def test_intervals_are_those_of_sacrebleu_for_one_system(systems):
    system, _, references = systems
    found = intervals(system, references, resamples=97)
    for row, metric in zip(found, (BLEU(), CHRF(), TER()), strict=True):
        alone = metric.corpus_score(system, [references], n_bootstrap=97)
        shown = row.system.score, row.system.mean, row.system.ci
        assert shown == pytest.approx((alone.score, alone._mean, alone._ci)) and row.system.p_value is None
        assert row.metric == type(metric).__name__.replace("CHRF", "chrF") and "|bs:97|seed:12345|" in row.signature
    assert [row.signature for row in found] == [row.signature for row in compare(*systems, resamples=97)]
    lines = describe_intervals(found).splitlines()
    assert lines[0] == f"BLEU  {found[0].system.score:.1f} ({found[0].system.mean:.1f} +- {found[0].system.ci:.1f})"
    assert lines[3].startswith("(...): mean and 95 %") and lines[4:] == [f"{r.metric} {r.signature}" for r in found]


def one_wrong_word(wrong, sentences=211):
    """Translations of five words each, with a wrong word in some of them, and their references: TER by hand is easy."""
    references = [f"a b c d {n}" for n in range(sentences)]
    return [f"a b c X {n}" if n < wrong else reference for n, reference in enumerate(references)], references


def test_the_confidence_interval_is_that_of_a_binomial_distribution():
    """In a drawn test set, the number of edits is binomial; the interval is 1.96 standard deviations."""
    wrong, sentences = 31, 211
    translations, references = one_wrong_word(wrong, sentences)
    *_, ter = compare(translations, references, references)
    deviation = math.sqrt(wrong * (1 - wrong / sentences))
    assert ter.system.score == pytest.approx(100 * wrong / (5 * sentences))
    assert ter.system.mean == pytest.approx(100 * wrong / (5 * sentences), rel=0.02)
    assert ter.system.ci == pytest.approx(100 * 1.96 * deviation / (5 * sentences), rel=0.1)
    assert (ter.baseline.score, ter.baseline.ci) == (0, 0)


@pytest.mark.parametrize("wrong", [1, 5])
def test_the_p_value_is_that_of_a_binomial_distribution(wrong):
    """It is the share of test sets with over twice as many edits; drawing decides whether exactly twice counts."""
    translations, references = one_wrong_word(wrong)
    sentences, rate = len(references), wrong / len(references)

    def at_least(edits):
        fewer = (math.comb(sentences, n) * rate**n * (1 - rate) ** (sentences - n) for n in range(edits))
        return 1 - sum(fewer)

    *_, ter = compare(references, translations, references, resamples=2003)
    error = 4 * math.sqrt(at_least(2 * wrong) / 2003)
    assert at_least(2 * wrong + 1) - error < ter.p_value < at_least(2 * wrong) + error


def test_mistakes_in_other_places_are_no_difference():
    references = [f"a b c d {n}" for n in range(23)]
    system, baseline = (["a b c X 7" if n == 7 else r for n, r in enumerate(references)] for _ in range(2))
    baseline[7], baseline[5] = references[7], "a b c X 5"
    assert [row.p_value for row in compare(system, baseline, references, resamples=101)] == [1, 1, 1]


def test_a_clear_difference_is_significant_in_either_direction(systems):
    system, _, references = systems
    worse = ["v w x y z"] * len(references)
    for first, second in ((system, worse), (worse, system)):
        rows = compare(first, second, references, resamples=199)
        assert [row.p_value for row in rows] == [pytest.approx(1 / 200)] * 3
        assert all(abs(row.system.score - row.baseline.score) > 50 for row in rows)


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
    with pytest.raises(UserError, match="2 system, 3 references"):
        intervals(["a"] * 2, ["a"] * 3)
    with pytest.raises(UserError, match="2 system, 3 baseline, 3 references"):
        compare(["a"] * 2, ["a"] * 3, ["a"] * 3)
    with pytest.raises(UserError, match="resamples=0"):
        compare(["a"], ["a"], ["a"], resamples=0)


def test_a_comparison_is_a_table_with_a_legend_and_signatures(systems):
    rows = compare(*systems, resamples=7)
    for row in rows:
        row.baseline.score, row.baseline.mean, row.baseline.ci = 9.96, 9.94, 0.06
        row.system.score, row.system.mean, row.system.ci = 38.46, 38.44, 1.25
    rows = [dataclasses.replace(row, p_value=0.03149) for row in rows]
    lines = describe_comparison(rows).splitlines()
    assert lines[0].split() == ["system", "baseline", "p"]
    assert [line.split(maxsplit=1)[0] for line in lines[1:4]] == ["BLEU", "chrF", "TER"]
    for line in lines[1:4]:
        assert re.split(r"  +", line)[1:] == ["38.5 (38.4 +- 1.2)", "10.0 (9.9 +- 0.1)", "0.031"]
        assert line.index("38.5") == lines[0].index("system") and line.index("10.0") == lines[0].index("baseline")
    assert "95 %" in lines[4] and "p:" in lines[5]
    assert lines[6:] == [f"{row.metric} {row.signature}" for row in rows]
