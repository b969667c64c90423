"""Whether a difference of scores is more than chance: intervals and p-values of BLEU, chrF and TER, by sacreBLEU."""

from collections.abc import Sequence
from dataclasses import dataclass

from sacrebleu.metrics import CHRF, TER
from sacrebleu.significance import PairedTest, Result

from keras_transformer.errors import check_positive
from keras_transformer.evaluation import AUTO, bleu_metric, check_counts, finds_words, reference_sets, said_once

RESAMPLES = 1000  # test sets that `compare` draws
_LEGEND = "(...): mean and 95 % confidence interval over resampled test sets. A low TER is good."


@dataclass(frozen=True)
class Interval:
    """A score of a system with its 95 % confidence interval, by one metric.

    sacreBLEU's `Result` has `score`, the score of the test set, and `mean` and `ci`: in 95 % of the test sets that were
    drawn, the score is about `mean - ci` to `mean + ci`.

    Attributes:
        metric: str, `BLEU`, `chrF` or `TER`.
        signature: str, how sacreBLEU computed the scores and drew the test sets.
        system: Result.
    """

    metric: str
    signature: str
    system: Result


@dataclass(frozen=True)
class Comparison(Interval):
    """A system and its baseline on the same test set, by one metric.

    Attributes:
        baseline: Result, as `system`.
        p_value: float, 0 to 1: how often chance alone makes so large a difference, in either direction.
    """

    baseline: Result
    p_value: float


def compare(
    system: Sequence[str],
    baseline: Sequence[str],
    references: Sequence[str] | Sequence[Sequence[str]],
    tokenize: str = AUTO,
    resamples: int = RESAMPLES,
    target_lang: str | None = None,
) -> list[Comparison]:
    """Tests whether two systems differ by more than chance: paired bootstrap resampling (Koehn, 2004).

    The test is `sacrebleu --paired-bs`. The environment variable SACREBLEU_SEED replaces its seed, 12345.

    Relative to sacreBLEU: equal scores have a p-value of 1. sacreBLEU gives a system that is compared with itself the
    smallest p-value.

    Args:
        system: sequence of str, the translations of one system.
        baseline: sequence of str, the translations of the other.
        references: as for `measure`.
        tokenize: str, as for `measure`.
        resamples: int, the number of test sets that are drawn.
        target_lang: str or None, as for `measure`.

    Returns:
        list of Comparison: BLEU, chrF and TER. TER counts Chinese and Japanese characters instead of words. TER is not
        there for other scripts without spaces.

    Raises:
        UserError: as `measure`, and if `resamples` is not positive.
    """
    system, baseline, references = check_counts(system=system, baseline=baseline, references=references)
    found = _resampled([baseline, system], references, tokenize, resamples, target_lang)
    return [
        Comparison(metric, signature, ours, theirs, 1.0 if ours.score == theirs.score else ours.p_value)
        for metric, signature, (theirs, ours) in found
    ]


def intervals(
    system: Sequence[str],
    references: Sequence[str] | Sequence[Sequence[str]],
    tokenize: str = AUTO,
    resamples: int = RESAMPLES,
    target_lang: str | None = None,
) -> list[Interval]:
    """How far the scores of a system depend on the choice of the test set: bootstrap resampling, as `compare` does.

    Args:
        system: sequence of str, the translations.
        references, tokenize, resamples, target_lang: as for `compare`.

    Returns:
        list of Interval: those of `compare`.

    Raises:
        UserError: as `compare`.
    """
    system, references = check_counts(system=system, references=references)
    found = _resampled([system], references, tokenize, resamples, target_lang)
    return [Interval(metric, signature, *results) for metric, signature, results in found]


def describe_comparison(comparisons: Sequence[Comparison]) -> str:
    """Puts what `compare` gives into words: str, a table with a line for every metric, its legend, the signatures."""
    rows = [("", "system", "baseline", "p")]
    rows += [(row.metric, _interval(row.system), _interval(row.baseline), f"{row.p_value:.3f}") for row in comparisons]
    table = [f"{metric:4}  {system:20}  {baseline:20}  {p}" for metric, system, baseline, p in rows]
    p_value = "p: how likely so large a difference is if both systems are equally good."
    return "\n".join([*table, _LEGEND, p_value, *(f"{row.metric} {row.signature}" for row in comparisons)])


def describe_intervals(found: Sequence[Interval]) -> str:
    """Puts what `intervals` gives into words: str, a line for every metric, a legend, and the signatures."""
    rows = [f"{row.metric:4}  {_interval(row.system)}" for row in found]
    return "\n".join([*rows, _LEGEND, *(f"{row.metric} {row.signature}" for row in found)])


def _resampled(systems: list, references: Sequence, tokenize: str, resamples: int, target_lang: str | None) -> list:
    """A list of (metric, signature, a `Result` of each system), with p-values against the first system."""
    check_positive(resamples=resamples)
    sets = reference_sets(references)
    metrics = {"BLEU": bleu_metric(tokenize, sets, target_lang), "chrF": CHRF()}
    ways = (TER(), TER(normalized=True, asian_support=True))
    metrics |= next(({"TER": ter} for ter in ways if finds_words(ter, sets)), {})
    named = [(str(number), system) for number, system in enumerate(systems)]
    with said_once():
        signatures, results = PairedTest(named, metrics, sets, test_type="bs", n_samples=resamples)()
    return [
        (metric, str(signature), results[name])
        for metric, (name, signature) in zip(metrics, signatures.items(), strict=True)  # sacreBLEU says chrF2
    ]


def _interval(result: Result) -> str:
    return f"{result.score:.1f} ({result.mean:.1f} +- {result.ci:.1f})"
