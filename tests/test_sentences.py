"""Every function that reads text, on one sentence of many languages and scripts."""

import re
import unicodedata
from types import SimpleNamespace

import numpy as np
import pytest

from keras_transformer.normalization import mend
from keras_transformer.protection import Protection
from keras_transformer.tools.cleaning.text import skeleton
from keras_transformer.tools.documents.alignment import align_words
from keras_transformer.tools.documents.fragment import layout_of, parts_of
from keras_transformer.tools.documents.placement import place
from keras_transformer.tools.documents.units import joined
from keras_transformer.tools.variation.protected_pairs import find_shared
from keras_transformer.tools.words import is_unspaced, tokens_of
from tests.sentences import SENTENCES

TAG = re.compile("</?b>")
KATAKANA = re.compile("(?:[\u30a1-\u30fc]\u3099?)+")  # with its voiced marks
every = pytest.mark.parametrize("sentence", SENTENCES.values(), ids=SENTENCES)


class ByCharacter:
    """A model whose pieces are single characters in Unicode's composed form, and that copies with perfect attention."""

    def explain(self, texts, on_progress=None):
        pieces = [[*unicodedata.normalize("NFC", text).replace(" ", "▁"), "</s>"] for text in texts]
        return [SimpleNamespace(source_pieces=row, pieces=row, alignment=np.eye(len(row))) for row in pieces]


def with_tags(text):
    """The text with one word in a pair of tags, for every word. A run of Katakana is a word."""
    runs = [match.span() for match in KATAKANA.finditer(text)]
    words = [span for span in tokens_of(text) if len(text[slice(*span)]) > 1 and not KATAKANA.match(text, *span)]
    return [f"{text[:start]}<b>{text[start:end]}</b>{text[end:]}" for start, end in [*words, *runs]]


@every
def test_a_perfect_alignment_puts_tags_around_whole_words_and_no_alignment_puts_one_inside_a_word(sentence):
    edges = {place for span in tokens_of(sentence.text) for place in span}
    length = len(tokens_of(sentence.text))
    for seed, fragment in enumerate(with_tags(sentence.text)):
        layout = layout_of(parts_of(fragment, TAG))
        ((translation, weights),) = align_words(ByCharacter(), [layout.text])
        assert joined(place(layout, translation, weights)) == unicodedata.normalize("NFC", fragment)
        weights = np.random.default_rng(seed).random((length, length)) ** 4
        opening, inside, closing = TAG.split(joined(place(layout, sentence.text, weights)))
        assert {len(opening), len(opening + inside)} <= edges and opening + inside + closing == sentence.text


@every
def test_every_word_can_be_a_term_and_stays_in_the_text_and_none_is_found_inside_a_longer_word(sentence):
    assert Protection({sentence.inside: "x"}).hide(sentence.text).text == sentence.text
    for word in sentence.words.split():
        hidden = Protection({word: "x"}).hide(sentence.text)
        assert hidden.words and set(hidden.words) == {"x"} and set(hidden.is_kept) == {True}
        assert re.sub("⟦.⟧", "", hidden.text) == sentence.text and f"{word}⟦0⟧" in hidden.text


@every
def test_addresses_end_and_begin_at_a_script_without_spaces(sentence):
    word = sentence.words.split()[0]
    around = (word, word) if is_unspaced(word) else (f"{word} ", f" {word}")
    text = f"https://a.org/b{sentence.stop} a@b.org".join(around)
    assert Protection().hide(text).words == ("https://a.org/b", "a@b.org")


@every
def test_a_name_in_latin_letters_is_shared_by_both_sides(sentence):
    space = "" if is_unspaced(sentence.words) else " "
    source = f"{sentence.words.split()[0]}{space}Zoë{space}{sentence.words.split()[1]}"
    (((start, end), _),) = find_shared(source, "Then Zoë came")
    assert source[start:end] == "Zoë"


@every
def test_cleaning_tells_words_apart_by_their_marks(sentence):
    composed = mend(sentence.text)
    bare = "".join(char for char in unicodedata.normalize("NFD", composed) if not unicodedata.combining(char))
    has_marks = unicodedata.normalize("NFC", bare) != composed
    assert (skeleton(bare) != skeleton(composed)) == has_marks
    assert skeleton(f" {composed}!") == skeleton(composed) != ""
