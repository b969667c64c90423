"""A document as text with units: the spans that are translated. Everything else stays byte for byte."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass

from keras_transformer.errors import UserError
from keras_transformer.tools.documents.alignment import align_words
from keras_transformer.tools.documents.fragment import Mark, expanded, layout_of, with_partners
from keras_transformer.tools.documents.placement import place
from keras_transformer.tools.words import letters


@dataclass(frozen=True)
class Unit:
    """A span of a document that is translated as one text.

    Attributes:
        start, end: of the span that the translation replaces.
        parts: list of str and `Mark`, the fragment that is translated.
        written: function from the translated parts to the text that replaces the span.
        is_apart: bool, whether the translation is written beside the fragment, not in its place.
        syntax: `Syntax` of its text; None for text without variables.
        whole: equal for units that are written together or not at all, such as the plural forms of a message; None
            for a unit of its own.
    """

    start: int
    end: int
    parts: list
    written: Callable
    is_apart: bool = False
    syntax: object = None
    whole: object = None


def replaced(text, units, translated):
    """A document with the translations of its units in their places.

    Args:
        text: str, the document.
        units: list of `Unit`, in order.
        translated: list of lists of parts. A unit with unchanged parts, or with None, stays as it is.
    """
    pieces, end = [], 0
    for unit, parts in zip(units, translated, strict=True):
        if parts is not None and (parts is not unit.parts or unit.is_apart):
            pieces += [text[end : unit.start], unit.written(parts)]
            end = unit.end
    return "".join([*pieces, text[end:]])


def joined(parts, escape=str):
    """The text of parts: marks as they are, text escaped."""
    return "".join(part.text if isinstance(part, Mark) else escape(part) for part in parts)


def _divided(parts):
    """Yields the pieces of a fragment: the texts that a mark divides, and the mark alone."""
    for _, piece in itertools.groupby(parts, lambda part: id(part) if isinstance(part, Mark) and part.divides else 0):
        yield list(piece)


def in_order(parts, source):
    """The parts of a translation, where ordered marks follow each other as they do in the parts of the source."""
    places = {id(part): place for place, part in enumerate(source) if isinstance(part, Mark) and part.is_ordered}
    ordered = iter(sorted((part for part in parts if id(part) in places), key=lambda part: places[id(part)]))
    return [next(ordered) if id(part) in places else part for part in parts]


class FragmentTranslator:
    """Translates fragments: text with inline tags in, the same out.

    A fragment stays as it is if its translation has the same words as its text.

    Args:
        translator: object with the methods `translate` and `explain` of `TextTranslator`.
        on_progress: called with the number of fragments done since its last call.

    Attributes:
        remembered: that of the translator, see `translate_units`; None if it has none.

    Raises:
        UserError: if the translator does not explain, and a fragment has tags inside.
    """

    def __init__(self, translator, on_progress=None):
        self._translator = translator
        self.remembered = getattr(translator, "remembered", None)
        self._on_progress = on_progress

    def __call__(self, fragments):
        """list of lists of parts -> the same, translated."""
        pieces = [list(_divided(parts)) for parts in fragments]
        translated = iter(self._of_pieces(list(itertools.chain.from_iterable(pieces))))
        found = []
        for parts, of_parts in zip(fragments, pieces, strict=True):
            new = [next(translated) for _ in of_parts]
            is_same = all(one is other for one, other in zip(new, of_parts, strict=True))
            found.append(parts if is_same else list(itertools.chain.from_iterable(new)))
        return found

    def _of_pieces(self, fragments):
        """As `__call__`, for fragments without marks that divide."""
        in_pairs = [with_partners(parts) for parts in fragments]
        layouts = [layout_of(parts) for parts in in_pairs]
        has_words = [letters(layout.text) > 0 for layout in layouts]
        plain = [i for i, layout in enumerate(layouts) if layout.is_plain and has_words[i]]
        tagged = [i for i, layout in enumerate(layouts) if not layout.is_plain and has_words[i]]
        if tagged and not hasattr(self._translator, "explain"):
            raise UserError(
                "tags inside a sentence need alignments, which this translator does not give: use a run or a SavedModel"
            )
        translated = list(fragments)
        texts = self._translated([layouts[i].text for i in plain])
        for i, text in zip(plain, texts, strict=True):
            if text.split() != layouts[i].text.split():
                translated[i] = expanded([*layouts[i].before, text, *layouts[i].after])
        for i, aligned in zip(tagged, self._aligned([layouts[i].text for i in tagged]), strict=True):
            if aligned.text.split() != layouts[i].text.split():
                translated[i] = in_order(place(layouts[i], *aligned), in_pairs[i])
        return translated

    def _translated(self, texts):
        return self._translator.translate(texts, self._on_progress) if texts else []

    def _aligned(self, texts):
        return align_words(self._translator, texts, self._on_progress) if texts else []
