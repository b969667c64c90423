import contextlib
from types import SimpleNamespace

import pytest

from keras_transformer.errors import ExportError
from keras_transformer.export.parity import PROBES, prove

SENTENCES = ["one", "two", "three"]


class Reversing:
    """Of an export and its run: both reverse texts and score their length, but for what a test changes."""

    def __init__(self, least_equal=1.0, score_tolerance=0.1, texts=(), added=0.0):
        self.least_equal, self.score_tolerance = least_equal, score_tolerance
        self.reference, self.expected = SimpleNamespace(settings={"beam_size": 7}), self.reverse
        self.advice = "try again"
        self.texts, self.added = dict(texts), added

    def reverse(self, texts):
        return [text[::-1] for text in texts], [-float(len(text)) for text in texts]

    @contextlib.contextmanager
    def opened(self, directory):
        yield lambda texts: (
            [self.texts.get(text, text[::-1]) for text in texts],
            [self.added - len(text) for text in texts],
        )


def test_equal_translations_are_counted_with_the_probes():
    parity, loading = prove(Reversing(added=0.0625), None, SENTENCES)
    assert (parity.sentences, parity.equal) == (len(PROBES) + 3,) * 2
    assert (parity.beam_size, parity.largest_score_difference) == (7, 0.0625)
    assert loading.seconds >= 0 and loading.memory_bytes >= 0


def test_a_different_translation_is_named_unless_the_format_allows_it():
    with pytest.raises(ExportError, match="'two' to 'else', the run directory to 'owt'; they agree on 8 of 9 .* again"):
        prove(Reversing(texts={"two": "else"}), None, SENTENCES)
    assert prove(Reversing(8 / 9, texts={"two": "else"}), None, SENTENCES)[0].equal == 8
    with pytest.raises(ExportError, match="90.0% would do"):
        prove(Reversing(0.9, texts={"two": "else"}), None, SENTENCES)


def test_the_score_of_a_different_translation_is_not_compared():
    everything = dict.fromkeys((*PROBES, *SENTENCES), "else")
    parity, _ = prove(Reversing(0.0, texts=everything, added=53.0), None, SENTENCES)
    assert (parity.equal, parity.largest_score_difference) == (0, 0)


@pytest.mark.parametrize("added", [0.11, -0.11, float("nan")])
def test_another_score_is_refused(added):
    with pytest.raises(ExportError, match="scores a translation otherwise"):
        prove(Reversing(added=added), None, SENTENCES)
