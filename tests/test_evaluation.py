import dataclasses
import logging
import math

import pytest
import sacrebleu
from sacrebleu.metrics import BLEU
from sacrebleu.significance import PairedTest

from keras_transformer.evaluation import describe, evaluate, paired_bootstrap

REFERENCE = "the cat sat on the mat"


def test_equal_translations_score_full_marks():
    evaluation = evaluate([REFERENCE, "a b c d e"], [REFERENCE, "a b c d e"])
    assert evaluation.bleu == pytest.approx(100)
    assert evaluation.chrf == pytest.approx(100)
    assert (evaluation.exact, evaluation.sentences) == (1, 2)


def test_nothing_in_common_scores_nothing():
    evaluation = evaluate(["v w x y z"], ["a b c d e"])
    assert (evaluation.bleu, evaluation.chrf, evaluation.exact) == (0, 0, 0)


@pytest.mark.parametrize(
    ("hypotheses", "references", "bleu"),
    [
        # 6 of 7 words, 5 of 6 bigrams, 4 of 5 trigrams and 3 of 4 quadrigrams match; too long goes unpunished.
        ([f"{REFERENCE} today"], [REFERENCE], 100 * (6 / 7 * 5 / 6 * 4 / 5 * 3 / 4) ** (1 / 4)),
        # Everything matches, but 4 words for 6 cost the brevity penalty.
        (["the cat sat on"], [REFERENCE], 100 * math.exp(1 - 6 / 4)),
        # No quadrigram matches: the first order without a match counts as half a match ("exp").
        (["a b c d e"], ["a b c x e"], 100 * (4 / 5 * 2 / 4 * 1 / 3 * 0.5 / 2) ** (1 / 4)),
        # Matches are summed over the corpus, not averaged over sentences: 6 of 11, 5 of 9, 4 of 7, 3 of 5.
        ([REFERENCE, "v w x y z"], [REFERENCE, "a b c d e"], 100 * (6 / 11 * 5 / 9 * 4 / 7 * 3 / 5) ** (1 / 4)),
    ],
)
def test_bleu_by_hand(hypotheses, references, bleu):
    assert evaluate(hypotheses, references).bleu == pytest.approx(bleu)


def test_chrf_by_hand():
    # 2 of 3 characters, 1 of 2 bigrams and 0 of 1 trigrams match, on either side; there are no longer ones.
    assert evaluate(["abc"], ["abd"]).chrf == pytest.approx(100 * (2 / 3 + 1 / 2 + 0) / 3)


def test_exact_is_the_share_of_equal_sentences():
    assert evaluate(["a", "b ", "C", "d", "e"], ["a", "b", "c", "d", "f"]).exact == 2 / 5


def test_the_signature_tells_the_tokenization():
    evaluation = evaluate(["我们走吧。"], ["我们走吧!"], tokenize="zh")
    assert evaluation.bleu_signature == f"nrefs:1|case:mixed|eff:no|tok:zh|smooth:exp|version:{sacrebleu.__version__}"
    assert evaluation.bleu == pytest.approx(100 * (4 / 5 * 3 / 4 * 2 / 3 * 1 / 2) ** (1 / 4))
    assert evaluation.chrf_signature.startswith("nrefs:1|case:mixed|eff:yes|nc:6|nw:0|")


def test_description_has_scores_and_signatures():
    evaluation = dataclasses.replace(
        evaluate(["a b c d"] * 1999, ["a b c d"] * 1999), bleu=38.46, chrf=61.04, exact=0.125
    )
    assert describe(evaluation).splitlines() == [
        f"BLEU 38.5 ({evaluation.bleu_signature})",
        f"chrF 61.0 ({evaluation.chrf_signature})",
        "exact 12.5% of 1,999 sentences",
    ]


@pytest.mark.parametrize(("tokenize", "warns"), [("13a", True), ("none", False)])
def test_only_unasked_tokenization_is_warned_of(caplog, tokenize, warns):
    with caplog.at_level(logging.WARNING, logger="sacrebleu"):
        evaluate(["so be it ."] * 101, ["so be it ."] * 101, tokenize)
    assert any("tokenized" in record.message for record in caplog.records) == warns


def test_a_warning_comes_once_however_often_one_scores(caplog, monkeypatch):
    (once,) = logging.getLogger("sacrebleu").filters
    monkeypatch.setattr(once, "_seen", set())
    with caplog.at_level(logging.WARNING, "sacrebleu"):
        for _ in range(3):
            evaluate(["a ."] * 100, ["a ."] * 100)
    assert [record.msg for record in caplog.records].count("That's 100 lines that end in a tokenized period ('.')") == 1


def test_unequal_counts_are_named():
    with pytest.raises(ValueError, match="2 hypotheses, 3 references"):
        evaluate(["a", "b"], ["a", "b", "c"])
    with pytest.raises(ValueError, match="3 baseline, 2 system, 3 references"):
        paired_bootstrap(["a"] * 3, ["a"] * 2, ["a"] * 3)


def test_no_sentences_are_refused():
    with pytest.raises(ValueError, match="0 hypotheses, 0 references"):
        evaluate([], [])


def test_an_unknown_tokenization_lists_those_there_are():
    with pytest.raises(ValueError, match=r"13a.*ja-mecab.*Received: tokenize='14a'"):
        evaluate(["a"], ["a"], tokenize="14a")


@pytest.fixture(scope="module")
def systems():
    """One sentence in 7 of the baseline and one in 11 of the system has its words in another order."""
    references = [f"sentence {n} of the test set says {n * n} and {n + 1} words" for n in range(211)]
    turned = [" ".join(reversed(reference.split())) for reference in references]
    baseline, system = ([turned[n] if n % k == 0 else r for n, r in enumerate(references)] for k in (7, 11))
    return baseline, system, references


def test_bootstrap_agrees_with_sacrebleu(systems, monkeypatch):
    monkeypatch.setenv("SACREBLEU_SEED", "12345")
    baseline, system, references = systems
    named = [("baseline", baseline), ("system", system)]
    _, scores = PairedTest(named, {"BLEU": BLEU()}, [references], test_type="bs", n_samples=499)()
    comparison = paired_bootstrap(baseline, system, references, samples=499)
    assert comparison.p_value == pytest.approx(scores["BLEU"][1].p_value)
    assert comparison.baseline_bleu == pytest.approx(scores["BLEU"][0].score)
    assert comparison.system_bleu == pytest.approx(scores["BLEU"][1].score)
    assert comparison.difference == comparison.system_bleu - comparison.baseline_bleu > 0
    assert 1 / 500 < comparison.p_value < 1


def test_bootstrap_agrees_with_evaluation(systems):
    baseline, system, references = systems
    comparison = paired_bootstrap(baseline, system, references, tokenize="char", samples=3)
    assert comparison.baseline_bleu == pytest.approx(evaluate(baseline, references, "char").bleu)
    assert comparison.system_bleu == pytest.approx(evaluate(system, references, "char").bleu)


def test_a_system_does_not_differ_from_itself(systems):
    baseline, _, references = systems
    comparison = paired_bootstrap(baseline, baseline, references, samples=101)
    assert (comparison.difference, comparison.p_value) == (0, 1)


def test_a_clear_difference_is_significant_in_either_direction(systems):
    _, system, references = systems
    worse = ["v w x y z"] * len(references)
    comparison = paired_bootstrap(worse, system, references, samples=199)
    assert comparison.difference > 50 and comparison.p_value == pytest.approx(1 / 200)
    assert paired_bootstrap(system, worse, references, samples=199).p_value == pytest.approx(1 / 200)


def test_the_seed_decides_the_draw(systems):
    first, again, other = (paired_bootstrap(*systems, samples=97, seed=seed) for seed in (0, 0, 1))
    assert first == again != other


def test_samples_must_be_positive():
    with pytest.raises(ValueError, match="samples=0"):
        paired_bootstrap(["a"], ["a"], ["a"], samples=0)
