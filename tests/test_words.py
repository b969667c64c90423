import re
import unicodedata
from pathlib import Path

import pytest
import regex
import tensorflow as tf

from keras_transformer import words
from keras_transformer.tools.words import has_words, is_sign, is_unspaced, letters, spaced_out, tokens_of, words_of
from keras_transformer.words import count_words
from tests.sentences import SENTENCES

# They read names of flags, settings, operations and errors, which are ASCII.
READ_CODE = {"flags.py", "parser.py", "litert.py", "runner.py", "group.py"}
CHARACTERS = "".join(chr(point) for point in range(0x110000) if not 0xD800 <= point < 0xE000)


def found(pattern):
    return set(regex.findall(pattern, CHARACTERS))


@pytest.mark.parametrize("sentence", SENTENCES.values(), ids=SENTENCES)
def test_the_tokens_of_a_sentence_are_its_words_with_all_their_marks_and_its_signs(sentence):
    text = sentence.text
    tokens = [text[start:end] for start, end in tokens_of(text)]
    assert "".join(tokens) == "".join(text.split()) and "".join(tokens).endswith(sentence.stop)
    assert [token for token in tokens if not is_sign(token)] == sentence.words.split()
    apart = "".join(" " if unicodedata.category(char) in {"Po", "Zs"} else char for char in text)
    assert words_of(text) == apart.split()
    assert letters(text) == sum(unicodedata.category(char)[0] in "LM" for char in text)
    # An apostrophe of Turkish divides no word that is counted, and a run of Katakana is one word.
    undivided = sentence.words.replace("Iğdır da", "Iğdır'da")
    undivided = regex.sub(r"(?<=\p{sc=Kana}\p{M}*|ー) (?=\p{sc=Kana}|ー)", "", undivided)
    assert count_words(text) == len(undivided.split())


def test_numbers_symbols_and_mixed_scripts_are_tokens_and_only_letters_and_digits_make_words():
    tokens = {"It's 5,000 m².": "It ' s 5 , 000 m² .", "A4 snake_case": "A 4 snake_case", " \t\u3000\u2028": ""}
    tokens |= {"私のiPhone15": "私 の i Phone 15", "二〇二六年 ー々": "二 〇 二 六 年 ー 々"}
    tokens |= {"Ver\u00adsand": "Ver\u00adsand", "👩🏽‍🌾 1️⃣ ok 🇺🇦": "👩🏽‍🌾 1️⃣ ok 🇺🇦"}
    assert {text: " ".join(text[start:end] for start, end in tokens_of(text)) for text in tokens} == tokens
    assert all(map(has_words, ["a", "…5", "ম", "年", "²", "Ⅳ"]))
    assert not any(map(has_words, ["", "…", "_", " \u0301", "😀"]))


def test_scripts_without_spaces_are_those_in_which_lines_break_anywhere_or_by_a_dictionary():
    by_line_break = found(r"(?=[\p{L}\p{M}\p{Nl}])[\p{lb=SA}\p{lb=ID}\p{lb=CJ}]")
    others = {unicodedata.name(char, "UNKNOWN").split()[0] for char in by_line_break - found(words.UNSPACED)}
    wide, old = {"FULLWIDTH", "HALFWIDTH", "HANGUL", "IDEOGRAPHIC"}, {"TANGUT", "NUSHU", "EGYPTIAN", "ANATOLIAN"}
    assert others <= {*wide, *old, "UNKNOWN"}
    assert is_unspaced("のp") and not is_unspaced("pの") and not is_unspaced("한") and not is_unspaced("")


def test_clusters_of_scripts_without_spaces_get_spaces_and_signs_inside_a_word_divide_nothing():
    spaced = {"我们 ok。": "我 们 ok。", "กิน": "กิ น", "पढ़ता है": "पढ़ता है", "": ""}
    assert {text: " ".join(spaced_out(text).split()) for text in spaced} == spaced
    counts = {"It's 14.30, isn't it?": 4, "l'été d’Iğdır": 2, "A4 x_1": 2, "カフェ で": 2, "…": 0}
    assert {text: count_words(text) for text in counts} == counts


def test_re2_matches_the_same_characters_as_regex():
    """Of characters that are as old as Unicode 3.2, because the two may know different versions of Unicode."""
    old = unicodedata.ucd_3_2_0.category
    known = [x for x in CHARACTERS[1:0x3000] + CHARACTERS[0x3000::37] if old(x) == unicodedata.category(x) != "Cn"]
    text = tf.constant(known)
    inside = words.LETTER, words.LETTERS, words.LETTERS_AND_DIGITS, words.WORD_CHARACTERS
    whole = words.LETTER_WITH_MARKS, words.LETTER_OR_DIGIT, words.WORD_CHARACTER, words.NUMBER
    for pattern in (*map("[{}]".format, inside), *whole):
        expected = [regex.fullmatch(pattern, x) is not None for x in known]
        assert tf.strings.regex_full_match(text, pattern).numpy().tolist() == expected, pattern
        assert 0 < sum(expected) < len(known)
    text = "1,000.5, 14:35. १२ 3"
    assert regex.findall(words.NUMBER, text) == ["1,000.5", "14:35", "१२", "3"]  # with the marks inside
    assert tf.strings.regex_replace(tf.constant(text), words.NUMBER, "#").numpy() == b"#, #. # #"


def test_no_other_module_defines_words_or_uses_those_of_re():
    """By letters with their marks, by Unicode's word breaks, by a list of scripts, or by a range of Thai or Kana."""
    scripts = r"\\p\{+(?:sc|Script)=(?:Thai|Hani)|\\u(?:0e|30)[0-9a-f]{2}-\\u(?:0|30[^0-3])"
    definition = rf"\\p\{{+L\}}+\\p\{{+M\}}|\\p\{{+WB=|{scripts}"
    package = Path(words.__file__).parent
    paths = [*package.rglob("*.py"), *(package.parent / "serving").glob("*.py")]
    texts = {path.name: path.read_text("utf-8") for path in paths}
    assert {name for name, text in texts.items() if re.search(r"\\[wW]|isalpha\(|isalnum\(", text)} <= READ_CODE
    # `tools.cleaning.text` tells the words of one script from those of others.
    assert {path.name for path in paths if re.search(definition, path.read_text("utf-8"))} == {"words.py", "text.py"}
