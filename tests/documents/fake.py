"""Translators that need no model: word by word, with the alignment of word by word."""

from types import SimpleNamespace

import numpy as np


class WordByWord:
    """Translates each word by a function, in order.

    Args:
        word: function from str to str.
        longest: most words that `explain` explains at once, as the real one stops after `max_length` pieces.
    """

    def __init__(self, word=str, longest=1000):
        self.word, self.longest = word, longest

    def translate(self, texts, on_progress=None):
        if on_progress:
            on_progress(len(texts))
        return [" ".join(map(self.word, text.split(" "))) for text in texts]

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


SAME, UPPER = WordByWord(), WordByWord(str.upper)
