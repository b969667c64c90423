"""How good translations are: sacreBLEU's BLEU and chrF, each with the signature that makes it comparable."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from sacrebleu.metrics import BLEU, CHRF


class _Once(logging.Filter):
    """Lets every message through the first time that it comes."""

    def __init__(self):
        super().__init__()
        self._seen = set()

    def filter(self, record):
        is_new = record.msg not in self._seen
        self._seen.add(record.msg)
        return is_new


# It warns of text that looks tokenised whenever a score is computed, which in training is after every epoch.
logging.getLogger("sacrebleu").addFilter(_Once())


@dataclass(frozen=True)
class Evaluation:
    """The scores of a set of translations.

    Attributes:
        bleu: float, corpus BLEU, 0 to 100.
        bleu_signature: str, how sacreBLEU computed it; numbers of different signatures must not be compared.
        chrf: float, chrF, 0 to 100.
        chrf_signature: str, likewise.
        exact: float, the share (0 to 1) of hypotheses that equal their reference.
        sentences: int, how many there are.
    """

    bleu: float
    bleu_signature: str
    chrf: float
    chrf_signature: str
    exact: float
    sentences: int


@dataclass(frozen=True)
class BootstrapComparison:
    """Two systems on the same test set.

    Attributes:
        baseline_bleu: float, 0 to 100.
        system_bleu: float, 0 to 100.
        difference: float, `system_bleu - baseline_bleu`.
        p_value: float, 0 to 1: how often chance alone would make so large a difference, in either direction.
    """

    baseline_bleu: float
    system_bleu: float
    difference: float
    p_value: float


def evaluate(hypotheses: Sequence[str], references: Sequence[str], tokenize: str = "13a") -> Evaluation:
    """Scores translations against one reference each.

    Args:
        hypotheses: sequence of str, the translations.
        references: sequence of str, as many.
        tokenize: str, sacreBLEU's name of how BLEU splits words: `13a` for most languages, `zh`, `ja-mecab`, ...

    Returns:
        Evaluation.

    Raises:
        ValueError: if there are no hypotheses, more or fewer of them than references, or no such tokenization.
    """
    _check_counts(hypotheses=hypotheses, references=references)
    bleu, chrf = _bleu_metric(tokenize), CHRF()
    bleu_score = bleu.corpus_score(hypotheses, [references]).score
    chrf_score = chrf.corpus_score(hypotheses, [references]).score
    matches = sum(hypothesis == reference for hypothesis, reference in zip(hypotheses, references, strict=True))
    return Evaluation(
        bleu=bleu_score,
        bleu_signature=str(bleu.get_signature()),
        chrf=chrf_score,
        chrf_signature=str(chrf.get_signature()),
        exact=matches / len(hypotheses),
        sentences=len(hypotheses),
    )


def describe(evaluation: Evaluation) -> str:
    """Puts an evaluation into words.

    Args:
        evaluation: Evaluation.

    Returns:
        str of three lines, such as `BLEU 38.5 (nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0)`.
    """
    return (
        f"BLEU {evaluation.bleu:.1f} ({evaluation.bleu_signature})\n"
        f"chrF {evaluation.chrf:.1f} ({evaluation.chrf_signature})\n"
        f"exact {evaluation.exact:.1%} of {evaluation.sentences:,} sentences"
    )


def paired_bootstrap(
    baseline: Sequence[str],
    system: Sequence[str],
    references: Sequence[str],
    tokenize: str = "13a",
    samples: int = 1000,
    seed: int = 12345,
) -> BootstrapComparison:
    """Tests whether the BLEU of two systems differs by more than chance (Koehn, 2004: paired bootstrap resampling).

    This is the test of `sacrebleu --paired-bs`, and gives its p-value for the same seed, except that here equal
    translations get 1, there the smallest value possible. It is written out because sacreBLEU takes the seed from the
    environment only.

    Args:
        baseline: sequence of str, the translations of one system.
        system: sequence of str, those of the other.
        references: sequence of str, as many.
        tokenize: str, as for `evaluate`.
        samples: int, how many test sets to draw.
        seed: int, the seed of the drawing.

    Returns:
        BootstrapComparison.

    Raises:
        ValueError: if there are no translations, not equally many of each, no such tokenization, or `samples` is
            not positive.
    """
    _check_counts(baseline=baseline, system=system, references=references)
    if samples < 1:
        raise ValueError(f"`samples` must be positive. Received: samples={samples}")
    metric = _bleu_metric(tokenize)
    statistics = [_sentence_statistics(metric, hypotheses, references) for hypotheses in (baseline, system)]
    baseline_bleu, system_bleu = (_bleu(of_sentences.sum(axis=0)) for of_sentences in statistics)
    chosen = np.random.default_rng(seed).choice(len(references), size=(samples, len(references)), replace=True)
    differences = np.abs(_resampled_bleu(statistics[1], chosen) - _resampled_bleu(statistics[0], chosen))
    extreme = np.sum(differences - differences.mean() >= abs(system_bleu - baseline_bleu))
    p_value = (int(extreme) + 1) / (samples + 1)
    return BootstrapComparison(baseline_bleu, system_bleu, system_bleu - baseline_bleu, p_value)


def _check_counts(**sentences: Sequence[str]) -> None:
    counts = {name: len(values) for name, values in sentences.items()}
    received = ", ".join(f"{count} {name}" for name, count in counts.items())
    if len(set(counts.values())) > 1:
        raise ValueError(f"There must be equally many of each. Received: {received}")
    if not all(counts.values()):
        raise ValueError(f"There is nothing to score. Received: {received}")


def _bleu_metric(tokenize: str) -> BLEU:
    if tokenize not in BLEU.TOKENIZERS:
        names = ", ".join(BLEU.TOKENIZERS)
        raise ValueError(f"`tokenize` must be one of {names}. Received: tokenize={tokenize!r}")
    # `force` silences the warning that the text looks tokenized, which with "none" is what was asked for.
    return BLEU(tokenize=tokenize, force=tokenize == "none")


def _sentence_statistics(metric: BLEU, hypotheses: Sequence[str], references: Sequence[str]) -> np.ndarray:
    """Returns what BLEU sums over sentences, (sentences, 2 + 2 * 4): both lengths, matches and totals by n-gram."""
    scores = (metric.corpus_score([h], [[r]]) for h, r in zip(hypotheses, references, strict=True))
    return np.array([[score.sys_len, score.ref_len, *score.counts, *score.totals] for score in scores])


def _resampled_bleu(of_sentences: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    return np.array([_bleu(of_sentences[indices].sum(axis=0)) for indices in chosen])


def _bleu(sums: np.ndarray) -> float:
    lengths, counts, totals = sums[:2].tolist(), *sums[2:].reshape(2, -1).tolist()
    return BLEU.compute_bleu(counts, totals, *lengths, smooth_method="exp").score
