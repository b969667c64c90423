"""How good translations are: BLEU, chrF and TER of sacreBLEU, each with the signature that makes it comparable."""

import contextlib
import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sacrebleu.metrics import BLEU, CHRF, TER
from sacrebleu.significance import PairedTest, Result

from keras_transformer.errors import UserError, check_positive, counted
from keras_transformer.languages import language_of
from keras_transformer.words import count_words

if TYPE_CHECKING:  # the translator loads TensorFlow, which files of translations do not need
    from keras_transformer.translation.translator import TextTranslator

log = logging.getLogger(__name__)

RESAMPLES = 1000  # test sets that `compare` draws
AUTO = "auto"  # the tokenization of BLEU is chosen by the target language and the text
_ORDER = 4  # words of the longest runs that BLEU compares
_LEGEND = "(...): mean and 95 % confidence interval over resampled test sets. A low TER is good."
_SAMPLE = 1000  # references that show whether a tokenization divides the text


class _Once(logging.Filter):
    """Lets every message through the first time that it comes."""

    def __init__(self):
        super().__init__()
        self._seen = set()

    def filter(self, record):
        is_new = record.msg not in self._seen
        self._seen.add(record.msg)
        return is_new


_ONCE = _Once()
log.addFilter(_ONCE)


@contextlib.contextmanager
def said_once():
    """A context in which sacreBLEU says each of its messages once in a process.

    sacreBLEU warns of text that looks tokenised at every score, and training computes a score after every epoch.
    """
    logger = logging.getLogger("sacrebleu")
    logger.addFilter(_ONCE)
    try:
        yield
    finally:
        logger.removeFilter(_ONCE)


@dataclass(frozen=True)
class Evaluation:
    """The scores of a set of translations.

    Attributes:
        bleu: float, corpus BLEU, 0 to 100.
        bleu_signature: str, how sacreBLEU computed BLEU. Never compare scores of different signatures.
        chrf: float, chrF, 0 to 100.
        chrf_signature: str, how sacreBLEU computed chrF.
        exact: float, the share (0 to 1) of hypotheses that equal their reference.
        sentences: int, the number of hypotheses.
    """

    bleu: float
    bleu_signature: str
    chrf: float
    chrf_signature: str
    exact: float
    sentences: int


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


def measure(
    hypotheses: Sequence[str],
    references: Sequence[str] | Sequence[Sequence[str]],
    tokenize: str = AUTO,
    target_lang: str | None = None,
) -> Evaluation:
    """Scores translations against one reference each, or several.

    With `auto`, BLEU takes sacreBLEU's tokenization for the target language. If that does not find the words of the
    references, as in a script without spaces, BLEU counts characters. A warning names a package that is not installed,
    and a tokenization that makes BLEU meaningless.

    Args:
        hypotheses: sequence of str, the translations.
        references: sequence of str, one for each hypothesis; or sequence of sequences of str, equally many for each.
        tokenize: str, sacreBLEU's name for a way to split words: `13a` for most languages, `zh`, `ja-mecab`, ...; or
            `auto`.
        target_lang: str, the language of the translations, such as `zh` or `zho_Hans`; or None. Only `auto` needs it.

    Returns:
        Evaluation.

    Raises:
        UserError: if there are no hypotheses, or not as many as references, or if the tokenization cannot be used.
    """
    _check_counts(hypotheses=hypotheses, references=references)
    sets = _reference_sets(references)
    bleu, chrf = bleu_metric(tokenize, sets, target_lang), CHRF()
    with said_once():
        bleu_score = bleu.corpus_score(hypotheses, sets).score
        chrf_score = chrf.corpus_score(hypotheses, sets).score
    matches = sum(hypothesis in row for hypothesis, row in zip(hypotheses, zip(*sets, strict=True), strict=True))
    return Evaluation(
        bleu=bleu_score,
        bleu_signature=str(bleu.get_signature()),
        chrf=chrf_score,
        chrf_signature=str(chrf.get_signature()),
        exact=matches / len(hypotheses),
        sentences=len(hypotheses),
    )


def evaluate(
    translator: "TextTranslator",
    texts: Sequence[str],
    references: Sequence,
    tokenize: str = AUTO,
    on_progress: Callable[[int], Any] | None = None,
    target_lang: str | None = None,
    **options: Any,
) -> Evaluation:
    """Translates texts and scores the translations.

    Args:
        translator: `TextTranslator`, of a run or of an export.
        texts: sequence of str.
        references: as for `measure`.
        tokenize: str, as for `measure`.
        on_progress: called with the number of texts done since its last call.
        target_lang: str or None, as for `measure`. A translator of many languages translates into it.
        options: those of `TextTranslator.translate`.

    Returns:
        Evaluation.

    Raises:
        UserError: as `measure`, and for an option that is out of range.

    Example:

    ```python
    evaluate(translator, ["one two"], ["eins zwei"]).bleu  # 100.0
    ```
    """
    check_tokenization(tokenize)
    if getattr(translator, "tags", None):
        translator = translator.between(options.pop("source_lang", None), target_lang)
        target_lang = translator.tags.default_codes[1]
    return measure(translator.translate(texts, on_progress, **options), references, tokenize, target_lang)


def perplexity(
    translator: "TextTranslator",
    texts: Sequence[str],
    references: Sequence,
    on_progress: Callable[[int], Any] | None = None,
) -> tuple[float, int]:
    """How well a model predicts given translations: exp of the mean cross-entropy per piece.

    Args:
        translator: `TextTranslator`, of a run or of an export.
        texts: sequence of str.
        references: as for `measure`; all of them count.
        on_progress: called with the number of texts done since its last call.

    Returns:
        (float, the perplexity; int, the number of pieces in the mean, ends of sentences included). Never compare
        perplexities of different tokenizers.

    Raises:
        UserError: if there is not one reference for each text, or nothing but blank lines.
    """
    _check_counts(texts=texts, references=references)
    sets = _reference_sets(references)
    found = translator.score(list(texts) * len(sets), sum(sets, []), on_progress)
    log_probabilities = [value for row in found for value in row.token_scores]
    if not log_probabilities:
        raise UserError("there are only blank lines: nothing has a perplexity")
    return math.exp(-math.fsum(map(float, log_probabilities)) / len(log_probabilities)), len(log_probabilities)


def describe(evaluation: Evaluation) -> str:
    """Puts an evaluation into words.

    Args:
        evaluation: Evaluation.

    Returns:
        str of three lines: BLEU and chrF, each with its signature in parentheses, and the share of exact translations.
    """
    return (
        f"BLEU {evaluation.bleu:.1f} ({evaluation.bleu_signature})\n"
        f"chrF {evaluation.chrf:.1f} ({evaluation.chrf_signature})\n"
        f"exact {evaluation.exact:.1%} of {counted(evaluation.sentences, 'sentence')}"
    )


def describe_perplexity(translator, texts: Sequence[str], references: Sequence) -> str:
    """A line with `perplexity` and its logarithm, the loss."""
    value, pieces = perplexity(translator, texts, references)
    return f"loss {math.log(value):.4f}, perplexity {value:.3f} of {pieces:,} pieces"


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
    _check_counts(system=system, baseline=baseline, references=references)
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
    _check_counts(system=system, references=references)
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


def choose_tokenization(references: Sequence[str], target_lang: str | None) -> str:
    """Gives the tokenization of BLEU that `auto` stands for, such as `13a`, for these references in this language."""
    signature = str(bleu_metric(AUTO, _reference_sets(references), target_lang).tokenizer_signature)
    names = sorted(BLEU.TOKENIZERS, key=len, reverse=True)  # `ja-mecab` has a version behind its name
    return next(name for name in names if signature.startswith(name))


def check_tokenization(tokenize: str) -> None:
    """Raises UserError if sacreBLEU cannot split words by this name."""
    if tokenize != AUTO:
        _named_metric(tokenize)


def _reference_sets(references: Sequence) -> list[list[str]]:
    """sacreBLEU's form of references: a list for each of the references that a sentence has."""
    rows = [[reference] if isinstance(reference, str) else list(reference) for reference in references]
    if len({len(row) for row in rows}) != 1 or not rows[0]:
        raise UserError("every sentence must have the same number of references, one at least")
    return [list(column) for column in zip(*rows, strict=True)]


def _resampled(systems: list, references: Sequence, tokenize: str, resamples: int, target_lang: str | None) -> list:
    """A list of (metric, signature, a `Result` of each system), with p-values against the first system."""
    check_positive(resamples=resamples)
    sets = _reference_sets(references)
    metrics = {"BLEU": bleu_metric(tokenize, sets, target_lang), "chrF": CHRF()}
    ways = (TER(), TER(normalized=True, asian_support=True))
    metrics |= next(({"TER": ter} for ter in ways if _finds_words(ter, sets)), {})
    named = [(str(number), system) for number, system in enumerate(systems)]
    with said_once():
        signatures, results = PairedTest(named, metrics, sets, test_type="bs", n_samples=resamples)()
    return [
        (metric, str(signature), results[name])
        for metric, (name, signature) in zip(metrics, signatures.items(), strict=True)  # sacreBLEU says chrF2
    ]


def _interval(result: Result) -> str:
    return f"{result.score:.1f} ({result.mean:.1f} +- {result.ci:.1f})"


def _check_counts(**sentences: Sequence[str]) -> None:
    counts = {name: len(values) for name, values in sentences.items()}
    received = ", ".join(f"{count} {name}" for name, count in counts.items())
    if len(set(counts.values())) > 1:
        raise UserError(f"There must be equally many of each. Received: {received}")
    if not all(counts.values()):
        raise UserError(f"There is nothing to score. Received: {received}")


def bleu_metric(tokenize: str, references: list[list[str]], target_lang: str | None) -> BLEU:
    """sacreBLEU's BLEU with the named tokenization, or with the one that suits the target language and the references.

    `references` has a list of str for each reference that a sentence has: sacreBLEU's form. Raises UserError.
    """
    language = language_of(target_lang)
    metric = _chosen_metric(references, language) if tokenize == AUTO else _named_metric(tokenize)
    if tokenize == AUTO and target_lang and not language:
        log.warning(
            f"CLDR knows no language {target_lang!r}, so BLEU divides words by tok:{metric.tokenizer_signature}"
        )
    is_chosen_for_text = tokenize in (AUTO, "none")
    if not _has_runs(metric, references) or not (is_chosen_for_text or _finds_words(metric, references)):
        log.warning(
            f"BLEU (tok:{metric.tokenizer_signature}) means nothing here, because it does not find {_ORDER} words in a "
            f"row in the references. Use chrF{'' if tokenize == AUTO else f', or `tokenize` {AUTO}'}"
        )
    return metric


def _chosen_metric(references: list[list[str]], language: str) -> BLEU:
    try:
        metric = BLEU(trg_lang=language)
    except (RuntimeError, ImportError, OSError) as error:  # a package is not installed
        log.warning(f"BLEU cannot use sacreBLEU's own tokenization for {language}: {_on_one_line(error)}")
        metric = BLEU()
    if metric.tokenizer_signature != BLEU.TOKENIZER_DEFAULT:
        return metric
    return metric if _finds_words(metric, references) and _has_runs(metric, references) else BLEU(tokenize="char")


def _has_runs(metric: BLEU, references: list[list[str]]) -> bool:
    """Whether a reference has enough words for BLEU. Without one, BLEU is 0 even for equal translations."""
    return any(len(metric.tokenizer(text).split()) >= _ORDER for column in references for text in column)


def _finds_words(metric: BLEU | TER, references: list[list[str]]) -> bool:
    """Whether the tokens of a metric are about as many as the words of the references."""
    texts = references[0][:_SAMPLE]
    tokens = sum(len(metric.tokenizer(text).split()) for text in texts)
    return sum(map(count_words, texts)) < 2 * max(1, tokens)


def _named_metric(tokenize: str) -> BLEU:
    if tokenize not in BLEU.TOKENIZERS:
        names = ", ".join([AUTO, *BLEU.TOKENIZERS])
        raise UserError(f"`tokenize` must be one of {names}. Received: tokenize={tokenize!r}")
    try:
        # `force` silences the warning that the text looks tokenised: the caller of "none" knows that.
        return BLEU(tokenize=tokenize, force=tokenize == "none")
    except (RuntimeError, ImportError, OSError) as error:  # a package is not installed, a download failed
        raise UserError(f"tokenize={tokenize!r} cannot be used: {_on_one_line(error)}") from error


def _on_one_line(error: Exception) -> str:
    return " ".join(str(error).split())
