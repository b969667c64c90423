from collections import Counter

import pytest

from keras_transformer.tools.back_translation.noise import DELETED, FILLER, FURTHEST, REPLACED, add_noise, seed_of

WORDS = [f"w{number}" for number in range(13)]
TEXT = " ".join(WORDS)


def test_words_are_left_out_and_replaced_as_often_as_in_the_paper():
    found = [add_noise(TEXT, seed).split() for seed in range(1000)]
    kept = sum(map(len, found)) / (1000 * len(WORDS))
    filled = sum(words.count(FILLER) for words in found) / sum(map(len, found))
    assert kept == pytest.approx(1 - DELETED, abs=0.015) and filled == pytest.approx(REPLACED, abs=0.015)
    assert all(Counter(words) - Counter(WORDS) == Counter({FILLER: words.count(FILLER)}) for words in found)


def test_no_word_moves_further_than_past_three_others_and_some_do(monkeypatch):
    monkeypatch.setattr("keras_transformer.tools.back_translation.noise.DELETED", 0.0)
    monkeypatch.setattr("keras_transformer.tools.back_translation.noise.REPLACED", 0.0)
    distances = []
    for seed in range(500):
        order = [WORDS.index(word) for word in add_noise(TEXT, seed).split()]
        assert sorted(order) == list(range(len(WORDS)))
        distances += [abs(place - number) for place, number in enumerate(order)]
    assert max(distances) == FURTHEST and distances.count(0) < 0.6 * len(distances)


def test_a_text_of_a_word_or_none_stays_as_long_and_seeds_are_small_numbers():
    for text in ("", "  ", "one", "\u3000", "\ud800"):
        assert {len(add_noise(text, seed).split()) for seed in range(50)} == {len(text.split())}
        assert all(0 <= seed_of(text, seed) < 2**32 for seed in (-5, 0, 2**70))
