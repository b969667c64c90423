"""Translators that need no model: word by word, with the alignment of word by word."""

from types import SimpleNamespace

import numpy as np
import regex as re

from keras_transformer.translation.results import Translation


class WordByWord:
    """Translates each word by the function `word`, in order. `explain` explains the `longest` first words, as the real
    one stops after `max_length` pieces.
    """

    def __init__(self, word=str, longest=1000):
        self.word, self.longest = word, longest

    def translate(self, texts, on_progress=None):
        if on_progress:
            on_progress(len(texts))
        return [" ".join(map(self.word, text.split(" "))) for text in texts]

    def translate_scored(self, texts, on_progress=None):
        return [Translation(text, 0.0) for text in self.translate(texts, on_progress)]

    def explain(self, texts, on_progress=None):
        if on_progress:
            on_progress(len(texts))
        return [self._explanation(text.split()[: self.longest]) for text in texts]

    def _explanation(self, words):
        pieces = [f"▁{self.word(word)}" for word in words]
        return SimpleNamespace(
            source_pieces=[f"▁{word}" for word in words] + ["</s>"],
            pieces=[*pieces, "</s>"],
            alignment=np.eye(len(words) + 1),
        )


class Says(WordByWord):
    """Translates every text by the same one."""

    def translate(self, texts, on_progress=None):
        return [self.word for _ in texts]


class Backwards(WordByWord):
    """Writes the words in upper case and in reverse order, and hides words as `TextTranslator` does.

    A placeholder is one piece, as it is to a model, and comes in the place of the word before it. Attention is of no
    use: every piece looks at the first one.
    """

    def __init__(self, protection, longest=1000):
        super().__init__(str.upper, longest)
        self.protection = protection

    def explain(self, texts, on_progress=None):
        return super().explain([self.protection.hide(text).text for text in texts], on_progress)

    def _explanation(self, words):
        written = [re.sub(r"[\p{L}\p{M}_]+(?=⟦)", "", word) for word in words[::-1]]
        source_pieces, pieces = self._pieces(words), self._pieces(map(self.word, written))
        alignment = np.eye(1, len(source_pieces)).repeat(len(pieces), axis=0)
        return SimpleNamespace(source_pieces=source_pieces, pieces=pieces, alignment=alignment)

    def _pieces(self, words):
        pieces = [piece for word in words for piece in re.findall(r"⟦\d⟧|[^⟦]+", f"▁{word}")]
        return [*pieces, "</s>"]


class Reorders(WordByWord):
    """Writes the words in another order, with the alignment that says so, or with one that says nothing."""

    def __init__(self, order, is_aligned=True, word=str):
        super().__init__(word)
        self.order, self.is_aligned = order, is_aligned

    def _reordered(self, words):
        return [words[place] for place in self.order(len(words))]

    def translate(self, texts, on_progress=None):
        return super().translate([" ".join(self._reordered(text.split())) for text in texts], on_progress)

    def _explanation(self, words):
        found = super()._explanation(words)
        found.pieces = [*self._reordered(found.pieces[:-1]), "</s>"]
        alignment = found.alignment[[*self.order(len(words)), len(words)]]
        found.alignment = alignment if self.is_aligned else np.ones_like(alignment)
        return found


def source_of(found):
    """The text of which `UPPER` makes `found`: words of two capitals or more were translated, all the rest stayed."""
    return re.sub(r"\b[A-Z]{2,}\b", lambda match: match[0].lower(), found)


SAME, UPPER = WordByWord(), WordByWord(str.upper)
BACKWARDS = Reorders(lambda length: range(length - 1, -1, -1))
