import pytest

from keras_transformer.errors import UserError
from keras_transformer.tools.cleaning.text import letter_share, script_of, script_share, skeleton, width, words


def test_the_skeleton_forgets_case_punctuation_and_width():
    assert skeleton("„Straße“, № １２!") == skeleton("STRASSE no 12") == "strasse no 12"
    assert words("?!") == ()


def test_a_chinese_character_is_as_wide_as_three_letters():
    assert width("我是学生。") == 15 and width("I am über") == 9


def test_letters_are_counted_with_their_marks():
    assert letter_share("नमस्ते!") == pytest.approx(6 / 7)
    assert letter_share("a 1 2 3") == 0.25 and letter_share(" ") == 0


def test_the_share_of_a_script_is_among_letters_alone():
    assert script_share("Tom sagt: 123 привет", "Latn") == pytest.approx(7 / 13)
    assert script_share("日本語のテキスト abc", "Jpan") == pytest.approx(8 / 11)
    assert script_share("42!", "Cyrl") == 1


def test_the_script_of_a_language_is_that_of_unicode():
    scripts = {"en": "Latn", "zh": "Hans", "zh-TW": "Hant", "ja": "Jpan", "sr": "Cyrl", "sr_Latn": "Latn", "hi": "Deva"}
    assert {language: script_of(language) for language in scripts} == scripts


@pytest.mark.parametrize("language", ["xq", "source", ""])
def test_a_language_that_unicode_does_not_know_is_named(language):
    with pytest.raises(UserError, match=f"no language is called '{language}'.* `min_script` to 0"):
        script_of(language)
