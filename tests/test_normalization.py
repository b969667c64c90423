"""Text whose form does not matter: `mend` says what is right, and the tokenizer's own rules do the same."""

import functools
import lzma
import random
import unicodedata
from pathlib import Path

import pytest
import sentencepiece
import tensorflow as tf

from keras_transformer.normalization import INVISIBLE, SPACE, mend
from keras_transformer.tokenizer import Tokenizer, train_tokenizer
from tests.sentences import SENTENCES

MORE = {
    "Yoruba": "Ẹ káàárọ̀, ọmọ mi dàńsákì.",
    "Lithuanian": "Mė̃nuo švi\u0328\u0301ečia ą́žuolui.",
    "Greek": "Ἐν ἀρχῇ ἦν ὁ λόγος, ᾧ ᾄδει.",
    "Persian": "می\u200cخواهم به خانه‌ام بروم.",
    "Hindi": "ज़िन्दगी बहुत अच्छी है, क्\u200dया?",
    "Thai": "ฉัน\u200bกิน\u200bข้าวที่นี่",
    "Khmer": "ភាសា\u200bខ្មែរ\u200bស្រស់\u200bស្អាត។",
    "Burmese": "မြန်မာ\u200bဘာသာ\u200bဦး",
    "Tibetan": "བོད་སྐད་\u200bཡག་པོ།",
    "English with emoji": "A family 👩‍👩‍👧 in 🏴󠁧󠁢󠁥󠁮󠁧󠁿 loves ❤️ and 葛󠄀.",
}
TEXTS = MORE | {name: sentence.text for name, sentence in SENTENCES.items() if name not in MORE}


@functools.cache
def model(nfkc=False):
    return train_tokenizer(["the year", *map(mend, TEXTS.values())] * 5, 797, nfkc=nfkc)


@functools.cache
def processor(nfkc=False):
    return sentencepiece.SentencePieceProcessor(model_proto=model(nfkc))


def written(text, nfkc=False):
    return processor(nfkc).decode(processor(nfkc).encode(text))


@pytest.mark.parametrize(
    ("text", "mended", "nfkc"),
    [
        ("u\u0308ber", "über", False),
        ("soft\u00adhyphen zero\u200bwidth \ufeffmark", "softhyphen zerowidth mark", False),
        ("\u202bright to left\u202c \u200eand\u2066 back\u2069", "right to left and back", False),
        ("bell\u0007 and\u0085next\u2028line\tend \u00a0", "bell and next line end", False),
        ("می\u200cخواهم", "می\u200cخواهم", False),  # the joiner is spelling in Persian
        ("👩\u200d🚀", "👩\u200d🚀", False),
        ("  two  spaces a\u2003\u202f\u3000b\u00a0 c", "two spaces a b c", False),
        ("ភាសា\u200b\u200bខ្មែរ a\u200bb \u200bc", "ភាសា\u200bខ្មែរ ab c", False),
        ("ᠮᠠᠩᠭᠠ\u180eᠠ", "ᠮᠠᠩᠭᠠ\u180eᠠ", False),  # Mongolian's vowel separator changes the shape of a letter
        ("１２３ ｶﾞ ﬁ", "１２３ ｶﾞ ﬁ", False),
        ("１２３ ＡＢＣ！ ｶﾞｷﾞﾊﾟ ﬁ Ⅷ ａ\u0301", "123 ABC! ガギパ fi VIII á", True),
    ],
)
def test_text_that_looks_the_same_has_one_form_and_compatibility_characters_ordinary_ones_if_asked(text, mended, nfkc):
    assert mend(text, nfkc=nfkc) == written(text, nfkc=nfkc) == mended


def test_a_mended_text_is_composed_and_stays_as_it_is():
    draw = random.Random(5)
    characters = [range(0x80), range(0x300, 0x370), range(0x2000, 0x2100), range(0xD800), range(0xE000, 0x110000)]
    for _ in range(997):
        mended = mend("".join(chr(draw.choice(draw.choice(characters))) for _ in range(draw.randint(0, 11))))
        assert mend(mended) == mended and unicodedata.is_normalized("NFC", mended)
        assert mended == " ".join(mended.split()) and "\n" not in mended


def test_every_spelling_of_a_sentence_has_the_same_ids_in_the_package_and_in_a_graph():
    texts = [mend(text) for text in TEXTS.values()]
    assert [written(text) for text in texts] == texts
    ids = processor().encode(texts)
    spaced = [text.replace(" ", " \u00a0\u202f") for text in texts]
    marked = [text.replace(" ", " \u00ad") for text in texts]
    decomposed = [unicodedata.normalize("NFD", text) for text in texts]
    encode = tf.function(Tokenizer(model()).encode)
    for spelled in (texts, decomposed, [f"\u3000{text}\t" for text in spaced], [f"\u200e{x}\ufeff" for x in marked]):
        assert encode(tf.constant(spelled)).to_list() == ids


def test_invisible_marks_inside_words_change_nothing_and_no_space_is_invisible():
    everything = "".join(map(chr, range(1, 0x110000)))
    assert not set(SPACE.findall(everything)) & set(INVISIBLE.findall(everything))
    for mark in INVISIBLE.findall(everything[:0x20000]):
        assert written(f"the ye{mark}ar{mark}") == "the year", ascii(mark)


@pytest.mark.parametrize("nfkc", [False, True])
def test_the_rules_do_to_every_character_what_mend_does(nfkc):
    """To some of Hangul, of private use and beyond the basic plane. Python has its own version of Unicode's tables."""
    ranges = range(1, 0x3400), range(0xA000, 0xD800, 29), range(0xE000, 0x10780, 13), range(0xF900, 0x10000)
    ranges += range(0x107C0, 0x1E030, 13), range(0x1E090, 0x20000, 13)  # between them, blocks of Unicode 14 and 15
    texts = [text for points in ranges for c in map(chr, points) if c != "\u2581" for text in (c, f"x{c}y")]
    rare = {"x\u0340y", "x\u0341y", "x\u0344y"}  # deprecated; their rules do not compose them
    found = processor(nfkc).decode(processor(nfkc).encode(texts))
    assert {text for text, read in zip(texts, found, strict=True) if read != mend(text, nfkc)} <= rare


@pytest.mark.skipif(unicodedata.unidata_version != "14.0.0", reason="the files are of another version of Unicode")
def test_a_file_of_rules_is_what_the_tool_writes():
    from keras_transformer.tools import mending  # here: a tool can be deleted

    packed = Path(mending.keras_transformer.__file__).with_name("nfkc.tsv.xz").read_bytes()
    assert lzma.decompress(packed).decode() == mending.mending_rules(nfkc=True)


def test_marks_in_any_order_have_the_order_of_unicode():
    draw, hebrew = random.Random(3), "\u05b0\u05b4\u05b7\u05b8\u05b9\u05bc\u05c1\u05c2"
    arabic = "\u064b\u064e\u064f\u0650\u0651\u0652\u0653\u0654\u0670"
    latin = "\u0300\u0301\u0302\u0308\u0323\u0328"
    for letters, marks in (("שבא", hebrew), ("اويب", arabic), ("aeoqu", latin)):
        for _ in range(500):
            text = draw.choice(letters) + "".join(draw.sample(marks, 2))
            assert written(text) == unicodedata.normalize("NFC", text), ascii(text)
