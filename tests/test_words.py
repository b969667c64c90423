import re
import unicodedata
from pathlib import Path

import pytest
import regex

from keras_transformer import protection, words
from keras_transformer.words import has_words, is_sign, is_unspaced, letters, spaced_out, tokens_of, words_of
from tests.sentences import SENTENCES

# They read names of flags, settings, operations and errors, which are ASCII.
READ_CODE = {"flags.py", "parser.py", "litert.py", "runner.py", "strategy.py"}
CHARACTERS = "".join(chr(point) for point in range(0x110000) if not 0xD800 <= point < 0xE000)


def found(pattern):
    return set(regex.findall(pattern, CHARACTERS))


@pytest.mark.parametrize("sentence", SENTENCES.values(), ids=SENTENCES)
def test_the_tokens_of_a_sentence_are_its_words_and_signs(sentence):
    tokens = [sentence.text[start:end] for start, end in tokens_of(sentence.text)]
    assert "".join(tokens) == "".join(sentence.text.split())
    assert [token for token in tokens if not is_sign(token)] == sentence.words.split()
    assert "".join(tokens).endswith(sentence.stop)


@pytest.mark.parametrize("sentence", SENTENCES.values(), ids=SENTENCES)
def test_a_word_has_all_its_marks(sentence):
    apart = "".join(" " if unicodedata.category(char) in {"Po", "Zs"} else char for char in sentence.text)
    assert words_of(sentence.text) == apart.split()
    by_hand = sum(unicodedata.category(char)[0] in "LM" for char in sentence.text)
    assert letters(sentence.text) == by_hand


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("It's 5,000 m².", "It ' s 5 , 000 m² ."),
        ("A4 snake_case", "A 4 snake_case"),
        ("私のiPhone15", "私 の iPhone 15"),
        ("👩🏽‍🌾 1️⃣ ok 🇺🇦", "👩🏽‍🌾 1️⃣ ok 🇺🇦"),
        ("Ver\u00adsand", "Ver\u00adsand"),
        ("二〇二六年 ー々", "二 〇 二 六 年 ー 々"),
        (" \t\u3000\u2028", ""),
    ],
)
def test_numbers_symbols_and_mixed_scripts_are_tokens(text, tokens):
    assert [text[start:end] for start, end in tokens_of(text)] == tokens.split()


def test_only_letters_and_digits_make_words():
    assert all(map(has_words, ["a", "…5", "ম", "年", "²", "Ⅳ"]))
    assert not any(map(has_words, ["", "…", "_", " \u0301", "😀"]))
    assert is_sign("。") and not is_sign("é") and not is_sign("5")


def test_scripts_without_spaces_are_those_in_which_lines_break_anywhere_or_by_a_dictionary():
    by_line_break = found(r"(?=[\p{L}\p{M}\p{Nl}])[\p{lb=SA}\p{lb=ID}\p{lb=CJ}]")
    others = {unicodedata.name(char, "UNKNOWN").split()[0] for char in by_line_break - found(words.UNSPACED)}
    wide, old = {"FULLWIDTH", "HALFWIDTH", "HANGUL", "IDEOGRAPHIC"}, {"TANGUT", "NUSHU", "EGYPTIAN", "ANATOLIAN"}
    assert others <= {*wide, *old, "UNKNOWN"}
    assert is_unspaced("のp") and not is_unspaced("pの") and not is_unspaced("한") and not is_unspaced("")


@pytest.mark.parametrize(
    ("text", "expected"), [("我们 ok。", "我 们 ok。"), ("กิน", "กิ น"), ("पढ़ता है", "पढ़ता है"), ("", "")]
)
def test_clusters_of_scripts_without_spaces_get_spaces(text, expected):
    assert " ".join(spaced_out(text).split()) == expected


def test_protection_tells_words_as_the_core_does():
    assert found(protection.LETTER) == found(words.SPACED)
    assert found(protection.UNSPACED) == found(words.UNSPACED)


def test_no_module_uses_the_words_of_re():
    package = Path(words.__file__).parent
    paths = [*package.rglob("*.py"), *(package.parent / "serving").glob("*.py")]
    using = {path.name for path in paths if re.search(r"\\[wW]|isalpha\(|isalnum\(", path.read_text("utf-8"))}
    assert using <= READ_CODE
