"""How good translations are: BLEU, chrF and TER of sacreBLEU, each with the signature that makes it comparable."""

import contextlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sacrebleu.metrics import BLEU, CHRF, TER

from keras_transformer.errors import UserError, listed
from keras_transformer.languages import language_of
from keras_transformer.tags import direction_of
from keras_transformer.words import count_words

if TYPE_CHECKING:  # the translator loads TensorFlow, which files of translations do not need
    from keras_transformer.translation.translator import TextTranslator

log = logging.getLogger(__name__)

AUTO = "auto"  # the tokenization of BLEU is chosen by the target language and the text
_ORDER = 4  # words of the longest runs that BLEU compares
_SAMPLE = 1000  # references that show whether a tokenization divides the text


_said: set[str] = set()  # messages of this process


def _is_new(record: logging.LogRecord) -> bool:
    """Lets every message through the first time that it comes."""
    is_new = record.msg not in _said
    _said.add(record.msg)
    return is_new


log.addFilter(_is_new)


@contextlib.contextmanager
def said_once():
    """A context in which sacreBLEU says each of its messages once in a process.

    sacreBLEU warns of text that looks tokenised at every score, and training computes a score after every epoch.
    """
    logger = logging.getLogger("sacrebleu")
    logger.addFilter(_is_new)
    try:
        yield
    finally:
        logger.removeFilter(_is_new)


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
    hypotheses, references = check_counts(hypotheses=hypotheses, references=references)
    sets = reference_sets(references)
    bleu, chrf = bleu_metric(tokenize, sets, target_lang), CHRF()
    matches = sum(hypothesis in row for hypothesis, row in zip(hypotheses, zip(*sets, strict=True), strict=True))
    with said_once():  # a signature is known when there is a score
        return Evaluation(
            bleu=bleu.corpus_score(hypotheses, sets).score,
            bleu_signature=str(bleu.get_signature()),
            chrf=chrf.corpus_score(hypotheses, sets).score,
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
    texts, references = check_counts(texts=texts, references=references)
    if hasattr(translator, "between"):
        translator = translator.between(options.pop("source_lang", None), target_lang)
    target_lang = target_lang or written_by(translator)
    return measure(translator.translate(texts, on_progress, **options), references, tokenize, target_lang)


def written_by(translator: object) -> str | None:
    """The code of the language that a translator writes by default; None for one that CLDR does not know."""
    return next(filter(language_of, direction_of(translator)[1:]), None)


def choose_tokenization(references: Sequence[str], target_lang: str | None) -> str:
    """Gives the tokenization of BLEU that `auto` stands for, such as `13a`, for these references in this language."""
    signature = str(bleu_metric(AUTO, reference_sets(references), target_lang).tokenizer_signature)
    names = sorted(BLEU.TOKENIZERS, key=len, reverse=True)  # `ja-mecab` has a version behind its name
    return next(name for name in names if signature.startswith(name))


def check_tokenization(tokenize: str) -> None:
    """Raises UserError if sacreBLEU cannot split words by this name."""
    if tokenize != AUTO:
        _named_metric(tokenize)


def reference_sets(references: Sequence) -> list[list[str]]:
    """sacreBLEU's form of references: a list for each of the references that a sentence has."""
    rows = [[reference] if isinstance(reference, str) else list(reference) for reference in references]
    if len({len(row) for row in rows}) != 1 or not rows[0]:
        raise UserError("every sentence must have the same number of references, one at least")
    return [list(column) for column in zip(*rows, strict=True)]


def check_counts(**sentences: Sequence[str]) -> list[list]:
    """The sentences of each name as a list. Raises UserError unless they are equally many, one at least."""
    lists = {name: listed(name, values) for name, values in sentences.items()}
    received = ", ".join(f"{len(values)} {name}" for name, values in lists.items())
    if len({*map(len, lists.values())}) > 1:
        raise UserError(f"There must be equally many of each. Received: {received}")
    if not all(lists.values()):
        raise UserError(f"There is nothing to score. Received: {received}")
    return [*lists.values()]


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
    if not _has_runs(metric, references) or not (is_chosen_for_text or finds_words(metric, references)):
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
    return metric if finds_words(metric, references) and _has_runs(metric, references) else BLEU(tokenize="char")


def _has_runs(metric: BLEU, references: list[list[str]]) -> bool:
    """Whether a reference has enough words for BLEU. Without one, BLEU is 0 even for equal translations."""
    return any(len(metric.tokenizer(text).split()) >= _ORDER for column in references for text in column)


def finds_words(metric: BLEU | TER, references: list[list[str]]) -> bool:
    """Whether the tokens of a metric are about as many as the words of the references."""
    texts = references[0][:_SAMPLE]
    return sum(map(count_words, texts)) < 2 * max(1, sum(len(metric.tokenizer(text).split()) for text in texts))


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
