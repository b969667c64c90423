from types import SimpleNamespace

import numpy as np
import pytest

from keras_transformer.normalization import mend
from keras_transformer.protection import Protection
from keras_transformer.tools.documents.alignment import align_words, built
from keras_transformer.translation.translator import Translator
from keras_transformer.words import tokens_of
from tests import tiny
from tests.tools.documents.fake import UPPER, Backwards, WordByWord

GLOSSARY = {"red apple": "roter Apfel", "tree": "großer Baum", "電話": "phone"}


@pytest.mark.parametrize(
    ("pieces", "text", "of_pieces"),
    [
        (["▁ein", "s", "▁z", "</s>"], "eins z", ["ein", "s", "z", ""]),
        (["▁a", "</s>", "▁b", "</s>"], "a b", ["a", "", "b", ""]),
        (["▁", "<0xC3>", "<0xA4>", "x", "</s>"], "äx", ["", "ä", "", "x", ""]),
        (["</s>"], "", [""]),
    ],
)
def test_pieces_make_a_text_and_have_places_in_it(pieces, text, of_pieces):
    found, spans = built(pieces)
    assert found == text
    if "ä" not in text:
        assert [found[start:end] for start, end in spans] == of_pieces
    assert len(spans) == len(pieces) and all(0 <= start <= end <= len(text) for start, end in spans)


def aligned(text, source_pieces, pieces, alignment):
    """What `align_words` finds with this explanation of a text."""
    explanation = SimpleNamespace(
        source_pieces=source_pieces.split(), pieces=pieces.split(), alignment=np.array(alignment)
    )
    (found,) = align_words(SimpleNamespace(explain=lambda texts, on_progress: [explanation]), [text])
    return found


def test_words_of_several_pieces_have_the_weights_of_all():
    alignment = [[0, 0, 1, 0, 0], [0, 0, 1, 0, 0], [0.5, 0.5, 0, 0, 0], [0, 0, 0, 0, 1.0]]
    text, weights = aligned("rot Bus,", "▁ro t ▁Bus , </s>", "▁b us ▁red </s>", alignment)
    assert text == "bus red" and weights.shape == (2, 3)
    assert weights.argmax(axis=1).tolist() == [1, 0]


def test_words_belong_together_where_each_chooses_the_other():
    """Two words look at "a" most, and the second one alone looks at "b" at all; all look at the full stop."""
    alignment = [[0.4, 0, 0.1, 0.5, 0], [0.4, 0.25, 0, 0.35, 0], [0.1, 0, 0.3, 0.6, 0], [0, 0, 0, 0, 1.0]]
    _, weights = aligned("a b c.", "▁a ▁b ▁c . </s>", "▁x ▁y ▁z </s>", alignment)
    assert weights.argmax(axis=1).tolist() == [0, 1, 2]


@pytest.mark.parametrize("text", ["ﬁne  one two", "1²\u00a0three", "a\u0301 b", "x\ufffdy z", "o\u00adne tw\u200bo"])
def test_text_that_the_tokenizer_normalises_keeps_its_words_apart(text):
    class Normalising(WordByWord):
        def explain(self, texts, on_progress=None):
            return super().explain([mend(text, nfkc=True) for text in texts])

    ((_, weights),) = align_words(Normalising(), [text])
    assert weights.shape[1] == len(tokens_of(text)) and (weights.argmax(axis=0)[[0, -1]] == [0, len(weights) - 1]).all()


@pytest.mark.parametrize("text", ["😀 one two ❤️", "→one two", "one two 👩‍🚀"])
def test_symbols_around_a_text_that_the_model_does_not_read_stay(text):
    class Unreading(WordByWord):
        def explain(self, texts, on_progress=None):
            return super().explain(["one two" for _ in texts])

    ((target, weights),) = align_words(Unreading(), [text])
    plain = align_words(WordByWord(), ["one two"])[0].text
    assert target == text.replace("one two", plain)
    assert weights.argmax(axis=1).tolist() == list(range(len(tokens_of(text))))


def test_long_text_is_explained_part_by_part():
    text = "one two, three four five six seven"
    ((found, weights),) = align_words(WordByWord(str.upper, longest=3), [text])
    assert found == text.upper()
    assert weights.argmax(axis=1).tolist() == list(range(8))
    assert align_words(UPPER, ["", " "])[0].text == ""


@pytest.mark.parametrize("longest", [2, 1000])
def test_hidden_words_are_in_the_translation_and_come_from_their_source_forms(longest):
    text = "a red apple, tree of 5 m² at https://a.org/b 電話5 km"
    words = {
        "roter": "red",
        "Apfel": "apple",
        "großer": "tree",
        "Baum": "tree",
        "m²": "m²",
        "org": "org",
        "phone": "電",
    }
    translation = "phone5 km https://a.org/b AT 5 m² OF großer Baum roter Apfel, A"
    ((found, weights),) = align_words(Backwards(Protection(GLOSSARY), longest), [text])
    assert sorted(found.split()) == sorted(translation.split()) and (found == translation or longest == 2)
    tokens, source_tokens = ([t[start:end] for start, end in tokens_of(t)] for t in (found, text))
    assert {word: source_tokens[weights[tokens.index(word)].argmax()] for word in words} == words


def test_odd_signs_of_a_text_are_text():
    for text in ("one ½ m²", "one ⟦3⟧ ⟦3⟧ two"):  # signs that NFKC changes; without protection, placeholders
        assert align_words(UPPER, [text])[0].text == text.upper()


def test_real_explanations_of_the_lines_of_a_text_make_that_of_the_text():
    keeping = {"glossary": {"two": "ZWEI ODER 2"}, "protect": True}
    translator = Translator(tiny.transformer(), tiny.keeping_tokenizer(), beam_size=1, max_length=5, **keeping)
    lines = ["two one three", "five five", "ten nine eight"]
    *alone, whole = align_words(translator, [*lines, "\n".join(lines)])
    assert whole.text.replace(" ", "") == "".join(aligned.text for aligned in alone).replace(" ", "")
    assert whole.weights.shape == (len(tokens_of(whole.text)), 8)
    row = [whole.text[start:end] for start, end in tokens_of(whole.text)].index("ODER")
    assert "ZWEI ODER 2" in whole.text and whole.weights[row].tolist() == [1, *[0] * 7]
