"""Reranking: a model of the reverse direction ranks the translations of a beam again."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from keras_transformer.errors import UserError
from keras_transformer.normalization import mend
from keras_transformer.tags import direction_of
from keras_transformer.translation.lines import of_one_or_many
from keras_transformer.translation.results import Translation

if TYPE_CHECKING:  # it loads TensorFlow
    from keras_transformer.translation.translator import TextTranslator


@of_one_or_many
def rerank(
    translator: "TextTranslator",
    texts: str | Iterable[str],
    reverse: "TextTranslator",
    on_progress: Callable[[int], Any] | None = None,
) -> list[Translation] | list[list[Translation]]:
    """The translations of a beam, ranked again with the help of a model of the reverse direction.

    The score of a translation is score(translation | text) + score(text | translation). Each of the two is a
    log-probability over the length penalty of its own model. A text of which the search has found fewer translations
    repeats the last one.

    Args:
        translator: `TextTranslator` whose beam has 2 or more hypotheses.
        texts: list of str, or one str.
        reverse: `TextTranslator` from the language of the translations to that of the texts. A model of many languages
            takes this direction by itself.
        on_progress: called with the number of texts translated since its last call.

    Returns:
        list of list of `Translation`, best first, as `TextTranslator.alternatives`; one list for one str.

    Raises:
        UserError: as `check_reverse`.

    Example:

    ```python
    best, *others = kt.rerank(kt.load("runs/en-de"), "one two", kt.load("runs/de-en"))
    ```
    """
    reverse = check_reverse(translator, reverse)
    rows = translator.alternatives(texts, on_progress)
    distinct = [_distinct(row) for row in rows]
    pairs = [(found.text, text) for found_of_text, text in zip(distinct, texts, strict=True) for found in found_of_text]
    scores = iter(_scores(translator, reverse, pairs))
    ranked = []
    for row, candidates in zip(rows, distinct, strict=True):
        both = [Translation(each.text, each.score + next(scores)) for each in candidates]
        both.sort(key=lambda each: -each.score)
        ranked.append(both + both[-1:] * (len(row) - len(both)))
    return ranked


def check_reverse(translator, reverse):
    """The model of the reverse direction, with the languages of a translator the other way round.

    Args:
        translator, reverse: `TextTranslator`.

    Raises:
        UserError: if `reverse` translates other languages, or if the beam of `translator` leaves nothing to rank.
    """
    if translator.width < 2:
        raise UserError("`reverse` ranks the hypotheses of a beam, and `beam_size` is 1: choose a larger one")
    source, target = direction_of(translator)
    try:
        return reverse.between(target, source)
    except UserError as error:
        raise UserError(f"`reverse` must translate from {target} to {source}: {error}") from None


def _distinct(translations):
    """The translations without those whose text has come before, and without blank ones if there are others.

    The reverse model reads a translation, and gives blank text the score 0: it would win.
    """
    first = {each.text: each for each in reversed(translations)}
    return [each for each in translations if first[each.text] is each and mend(each.text)] or translations[:1]


def _scores(translator, reverse, pairs):
    """score(text | translation) of (translation, text) pairs: list of float."""
    translations, texts, languages = [each for each, _ in pairs], [text for _, text in pairs], {}
    if translator.tags:
        from keras_transformer.translation.directions import written_tag  # imported late: it loads TensorFlow

        untagged = [written_tag(text, translator.tags) for text in texts]
        texts, languages = [text for text, _ in untagged], {"source_lang": [code for _, code in untagged]}
    return [each.score for each in reverse.score(translations, texts, **languages)]
