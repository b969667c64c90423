import pytest

from keras_transformer.errors import UserError
from keras_transformer.tools.cleaning.text import letter_share, script_share, scripts_to_keep, skeleton, width, words


def test_the_skeleton_forgets_case_punctuation_and_width_and_an_ideograph_is_as_wide_as_three_letters():
    assert skeleton("„Straße“, № １２!") == skeleton("STRASSE no 12") == "strasse no 12"
    assert words("?!") == ()
    assert width("我是学生。") == 13 and width("はい가") == 6 and width("I am über") == 9


def test_letters_are_counted_with_their_marks():
    assert letter_share("नमस्ते!") == pytest.approx(6 / 7)
    assert letter_share("** a --") == 0.2 and letter_share(" ") == letter_share("12 | 13") == 0
    texts = "10,000 yen|2026年3月3日|１万円|US$ 5|20%|%20|१२.५ किलो|5 °C|2061. 6. 14.|7 – 9".split("|")
    assert {letter_share(text) for text in texts} == {1}  # numbers are not in the way of letters


def test_the_share_of_a_script_is_among_words_alone():
    assert script_share("Tom sagt: 123 привет", "Latn") == pytest.approx(2 / 3)
    assert script_share("日本語のテキスト text", "Jpan") == pytest.approx(5 / 6)  # 日, 本, 語, の, テキスト
    assert script_share("42!", "Cyrl") == 1 and script_share("word", "Jpan", "word") == 0


@pytest.mark.parametrize(
    ("text", "script", "other"),
    [
        ("コーヒーメーカー", "Jpan", ""),  # the prolonged sound mark is in several scripts
        ("مرحبـــا", "Arab", ""),  # so is the kashida
        ("DVDプレーヤー", "Jpan", ""),
        ("99 mL", "Kore", ""),
        ("Docker를 씁니다", "Kore", "I use docker."),
        ("XX век", "Cyrl", "The 20th century"),
    ],
)
def test_shared_letters_names_and_capitals_are_no_other_script(text, script, other):
    assert script_share(text, script, other) == 1


@pytest.mark.parametrize("language", ["xq", "source", ""])
def test_a_language_that_unicode_does_not_know_is_named(language):
    with pytest.raises(UserError, match=f"no language is called '{language}'.* `min_script` to 0"):
        scripts_to_keep(language)
