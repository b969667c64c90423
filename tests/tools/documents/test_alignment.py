import re
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from keras_transformer.data.full_stops import Known
from keras_transformer.normalization import mend
from keras_transformer.protection import Protection
from keras_transformer.tools.documents.alignment import align_words
from keras_transformer.tools.documents.fragment import layout_of, parts_of
from keras_transformer.tools.documents.placement import place
from keras_transformer.tools.documents.units import joined
from keras_transformer.tools.documents.xml import parse
from keras_transformer.tools.words import tokens_of
from keras_transformer.translation.translator import Translator
from tests import tiny
from tests.tools.documents.fake import UPPER, Backwards, WordByWord

TAG = re.compile(r"<[^<>]+>")
GLOSSARY = {"red apple": "roter Apfel", "tree": "großer Baum", "電話": "phone"}


def aligned(text, source_pieces, pieces, alignment):
    """What `align_words` finds with this explanation of a text."""
    pieces = {"source_pieces": source_pieces.split(), "pieces": pieces.split()}
    explanation = SimpleNamespace(**pieces, alignment=np.array(alignment))
    (found,) = align_words(SimpleNamespace(explain=lambda texts, on_progress: [explanation]), [text])
    return found


def test_words_of_several_pieces_have_the_weights_of_all_and_belong_together_where_each_chooses_the_other():
    alignment = [[0, 0, 1, 0, 0], [0, 0, 1, 0, 0], [0.5, 0.5, 0, 0, 0], [0, 0, 0, 0, 1.0]]
    text, weights = aligned("rot Bus,", "▁ro t ▁Bus , </s>", "▁b us ▁red </s>", alignment)
    assert text == "bus red" and weights.shape == (2, 3) and weights.argmax(axis=1).tolist() == [1, 0]
    # Two pieces are the bytes of a letter.
    alignment = np.eye(5)[[3, 0, 1, 2, 2, 4]]
    text, weights = aligned("ä b", "▁ <0xC3> <0xA4> ▁b </s>", "▁c ▁ <0xC3> <0xA4> x </s>", alignment)
    assert text == "c äx" and weights.argmax(axis=1).tolist() == [1, 0]
    # Two words look at "a" most, and the second one alone looks at "b" at all; all look at the full stop.
    alignment = [[0.4, 0, 0.1, 0.5, 0], [0.4, 0.25, 0, 0.35, 0], [0.1, 0, 0.3, 0.6, 0], [0, 0, 0, 0, 1.0]]
    _, weights = aligned("a b c.", "▁a ▁b ▁c . </s>", "▁x ▁y ▁z </s>", alignment)
    assert weights.argmax(axis=1).tolist() == [0, 1, 2]


class Reading(WordByWord):
    """Translates what the function `read` makes of a text."""

    def __init__(self, read, word=str):
        super().__init__(word)
        self.read = read

    def explain(self, texts, on_progress=None):
        return super().explain([self.read(text) for text in texts], on_progress)


@pytest.mark.parametrize("text", ["ﬁne  one two", "1²\u00a0three", "a\u0301 b", "x\ufffdy z", "o\u00adne tw\u200bo"])
def test_text_that_the_tokenizer_normalises_keeps_its_words_apart(text):
    ((_, weights),) = align_words(Reading(lambda text: mend(text, nfkc=True)), [text])
    assert weights.shape[1] == len(tokens_of(text)) and (weights.argmax(axis=0)[[0, -1]] == [0, len(weights) - 1]).all()


def test_symbols_around_a_text_that_the_model_does_not_read_stay():
    for text in ("😀 one two ❤️", "→one two", "one two 👩‍🚀"):
        ((target, weights),) = align_words(Reading(lambda text: "one two"), [text])
        assert target == text and weights.argmax(axis=1).tolist() == list(range(len(tokens_of(text))))
    (found,) = align_words(Reading(str.lower, str.upper), ["One A three ★"])
    assert found.text == "ONE A THREE ★"


def test_long_text_is_explained_part_by_part():
    text = "one two, three four five six seven"
    ((found, weights),) = align_words(WordByWord(str.upper, longest=3), [text])
    assert found == text.upper() and weights.argmax(axis=1).tolist() == list(range(8))
    assert align_words(UPPER, ["", " "])[0].text == ""


@pytest.mark.parametrize("longest", [2, 1000])
def test_hidden_words_are_in_the_translation_and_come_from_their_source_forms(longest):
    text = "a red apple, tree of 5 m² at https://a.org/b 電話5 km"
    words = {"roter": "red", "Apfel": "apple", "großer": "tree", "Baum": "tree", "m²": "m²", "phone": "電"}
    translation = "phone5 km https://a.org/b AT 5 m² OF großer Baum roter Apfel, A"
    ((found, weights),) = align_words(Backwards(Protection(GLOSSARY), longest), [text])
    assert sorted(found.split()) == sorted(translation.split()) and (found == translation or longest == 2)
    tokens, source_tokens = ([t[start:end] for start, end in tokens_of(t)] for t in (found, text))
    assert {word: source_tokens[weights[tokens.index(word)].argmax()] for word in words} == words

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


# Source, reference, and alignment: source token - target token, signs counted; "" is 0-0 1-1 2-2 ...
REFERENCES = [
    ("I have <i>seen <b>the dog</b></i>", "Ich habe <i><b>den Hund</b> gesehen</i>", "0-0 1-1 2-4 3-2 4-3"),
    ("See <a>this page</a>, please", "Siehe bitte <a>diese Seite</a>", "0-0 1-2 2-3 4-1"),
    ("The dog <b>of the man</b> barks", "<b>Des Mannes</b> Hund bellt", "0-2 1-2 2-0 3-0 4-1 5-3"),
    ("He <u>takes off</u> his hat", "Er <u>nimmt</u> den Hut ab", "0-0 1-1 2-4 3-2 4-3"),
    ("<p><b>The <i>whole</i> text</b></p>", "<p><b>Der <i>ganze</i> Text</b></p>", ""),
    ("in <i>the</i> morning", "<i>am</i> Morgen", "0-0 1-0 2-1"),
    ("the dog <br> that I saw", "der Hund <br> den ich sah", "0-0 1-1 2-2 3-3 4-4"),
    ("a <img/>cat sleeps here", "hier schläft eine <img/>Katze", "0-2 1-3 2-1 3-0"),
    ("Press <kbd/>.", "Drücken <kbd/>.", ""),
    ("the <a>European Union</a>'s law", "das Gesetz der <a>Europäischen Union</a>", "0-0 1-3 2-4 3-2 4-2 5-1"),
    ("He said: “<i>Come here</i>”", "Er sagte: „<i>Komm her</i>“", ""),
    ("a book <b> about</b> love", "ein Buch <b> über</b> die Liebe", "0-0 1-1 2-2 3-4"),
    ("<b>red</b> and <b>green</b> apples", "<b>grüne</b> und <b>rote</b> Äpfel", "0-2 1-1 2-0 3-3"),
    ("the <a>man</a> <i>who <a>sings</a></i>", "der <a>Mann</a>, <i>der <a>singt</a></i>", "0-0 1-1 2-3 3-4"),
    ("<a></a>Chapter one", "<a></a>Kapitel eins", ""),
    ("Choose <b>Insert - Frame</b>.", "Wählen Sie <b>Einfügen – Rahmen…</b>.", "0-0 0-1 1-2 2-3 3-4 4-5 4-6"),
    ("the <b>file</b> type", "der <b>Datei</b>/Typ", "0-0 1-1 2-3"),  # this sign joins words
    # A run of Katakana is one word, and a tag does not divide it where the alignment errs.
    ("Click <b>Break</b>", "<b>ブレークポイント</b>をクリック", "1-0 1-1 1-2 1-3 0-4 0-5 1-6 1-7 0-9 0-10 0-11 0-12"),
    # Words that are written as one are divided where tags divide them in the source, and only there.
    ("Press <b>Ctrl</b><b>Shift</b> here", "Hier <b>Strg</b><b>Umschalt</b>", "3-0 1-1 2-1 1-2 2-2"),
    ("an <b>ImageMap</b> is", "eine <b>ImageMap</b> ist", "0-0 1-1 2-1 1-2 3-2 3-3"),
    # A pair has its own brackets, quotes and stops, and no others.
    ("call <b>f()</b> now", "jetzt <b>f()</b> rufen", "4-0 1-1 2-2 4-3 0-4"),
    ("call <b>(x)</b> now", "jetzt <b>(x)</b> rufen", "4-0 0-1 2-2 3-3 0-4"),
    ("call <b>f(x)</b> now", "eins <b>x) (y)</b> zwei", "0-0 3-1 4-2 2-3 3-4 5-5 5-6"),
    ("one (<b>*</b>) two", "eins (<b>*</b>), zwei", "0-0 1-1 2-1 2-2 2-3 2-4 4-5"),
    ("see <b>A - B</b> now", "siehe »<b>A – B</b>« jetzt", "0-0 1-1 1-2 2-3 3-4 3-5 4-6"),
    ("see <b>A - B</b> now", "siehe <b>[A] – [B]</b> jetzt", "0-0 1-2 2-4 3-6 4-8"),
    ("open <b>A - B</b> to see", "<b>A – B</b>, um zu", "1-0 2-1 3-2 3-3 4-4 5-5"),
]


def translated(source, target, alignment):
    """The target with the tags of the source, by an alignment of words."""
    layout = layout_of(parts_of(source, TAG))
    columns, rows = tokens_of(layout.text), tokens_of(target)
    weights = np.zeros((len(rows), len(columns)))
    for pair in alignment.split() or [f"{i}-{i}" for i in range(len(rows))]:
        column, row = map(int, pair.split("-"))
        weights[row, column] = 1
    weights.flags.writeable = False  # they are the caller's
    return joined(place(layout, target, weights))


def text_of(fragment):
    """A reference without its tags, as a model would translate it."""
    text = TAG.sub("", fragment.replace("<br>", " "))
    return re.sub(r" +(\.?)", lambda match: match[1] or " ", text).strip()


def test_tags_are_around_the_words_of_references_made_by_hand():
    found = {reference: translated(source, text_of(reference), pairs) for source, reference, pairs in REFERENCES}
    assert {reference: text for reference, text in found.items() if text != reference} == {}


WORDS = st.text("ab ()", min_size=1, max_size=7).map(lambda text: f" {text}x" if text[0] == " " else f"{text}x")
GAPS = st.sampled_from(["<br/>", "<img/>", "\n  "])
FRAGMENTS = st.recursive(
    WORDS | GAPS,
    lambda inside: st.builds(
        lambda name, parts: f" <{name}>{''.join(parts)}</{name}>",
        st.sampled_from("abi"),
        st.lists(inside, min_size=1, max_size=3),
    ),
    max_leaves=9,
)


@given(FRAGMENTS, st.integers(0, 2**32 - 1), st.lists(st.sampled_from(["word", "(", ")"]), max_size=6))
def test_whatever_the_alignment_every_tag_is_there_once_and_the_text_is_the_translation(fragment, seed, words):
    layout, target = layout_of(parts_of(fragment, TAG)), " ".join(words)
    weights = np.random.default_rng(seed).random((len(words), len(tokens_of(layout.text)))) ** 4
    written = joined(place(layout, target, weights))
    parse(f"<p>{written}</p>", "the fragment")
    assert sorted(TAG.findall(written)) == sorted(TAG.findall(fragment))
    assert TAG.sub(" ", written).split() == target.split()


def test_signs_that_the_model_does_not_read_stay_between_the_words_around_them():
    """Inside a sentence, too, where `explain` shows no piece of them."""
    known = Known(copies_unknown=False)
    translator = Translator(tiny.trained_transformer(), tiny.tokenizer(), beam_size=1, max_length=31, known=known)
    (one, _), (two, _), *_ = tiny.learned_pairs()
    texts = [f"{one} ★ {two}", f"{one} 今天+{two} ※ {one} …", f"{one} “{two}”"]
    translated, aligned = translator.translate(texts), align_words(translator, texts)
    for text, right, (translation, weights) in zip(texts, translated, aligned, strict=True):
        assert translation.replace(" ", "") == right.replace(" ", "")
        tokens, source_tokens = ([words[slice(*span)] for span in tokens_of(words)] for words in (translation, text))
        for sign in {*"★今天+※"} & {*tokens}:
            assert weights[tokens.index(sign)].tolist() == [float(token == sign) for token in source_tokens]
