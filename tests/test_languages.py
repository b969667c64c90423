import pytest

from keras_transformer.errors import UserError
from keras_transformer.languages import (
    check_direction,
    language_of,
    likely_script,
    likely_territory,
    locale_of,
    own_codes,
    short_codes,
)
from keras_transformer.tools.cleaning.text import scripts_of

NLLB = ("eng_Latn", "deu_Latn", "zho_Hans", "zho_Hant", "srp_Cyrl")


def test_a_language_is_known_by_any_code():
    languages = dict.fromkeys(("zh", "ZH", "zh-CN", "zho_Hans", "cmn", "chi"), "zh")
    languages |= {"jpn": "ja", "kor-Hang": "ko", "pt-BR": "pt", "sr_Latn": "sr"}
    languages |= dict.fromkeys(("source", "txt", "", None), "")
    assert {code: language_of(code) for code in languages} == languages
    assert {code for code in languages if locale_of(code) is None} == {"source", "txt", "", None}


def test_unicode_tells_the_usual_script_and_country():
    usual = {"en": ("Latn", "US"), "hin": ("Deva", "IN"), "zh-TW": ("Hant", "TW"), "zho_Hans": ("Hans", "CN")}
    usual |= {"sr_Latn": ("Latn", "RS"), "de_AT": ("Latn", "AT"), "source": ("", "")}
    assert {code: (likely_script(code), likely_territory(code)) for code in usual} == usual


SCRIPTS = {"en": "Latn Dsrt Shaw", "de": "Latn", "ja": "Jpan", "ru": "Cyrl", "hi": "Deva", "zh": "Hans Hant"}
SCRIPTS |= {"zh-TW": "Hant Hans", "zho_Hant": "Hant", "sr": "Cyrl Latn", "srp": "Cyrl Latn", "sr_Latn": "Latn"}
SCRIPTS |= {"bs": "Latn Cyrl", "uz": "Latn Cyrl Arab", "az": "Latn Cyrl Arab", "kk": "Cyrl Arab", "pa": "Guru Arab"}
SCRIPTS |= {"tg": "Cyrl Arab", "mn": "Cyrl Mong", "xq": ""}


def test_the_scripts_of_a_language_are_those_of_countries_and_of_cldr():
    """CLDR has data for English in the alphabets of Deseret and of Shaw. Latin data for Hindi are transcriptions."""
    for code, scripts in SCRIPTS.items():
        assert set(scripts_of(code)) == set(scripts.split()), code
        assert scripts_of(code)[:1] == [likely_script(code)] * bool(scripts)


@pytest.mark.parametrize(
    "codes, short",
    [
        (NLLB, ["en", "de", "zh", "zh-Hant", "sr"]),
        (("zho_Hant", "zho_Hans"), ["zh-Hant", "zh"]),  # in any order
        (("en_XX", "zh_CN", "de_DE"), ["en", "zh", "de"]),
        (("fra", "deu", "cmn_Hans"), ["fr", "de", "zh"]),
        (("pt", "pt-BR", "x-foo", "qqq"), ["pt", "pt-BR", "x-foo", "qqq"]),
        (("fr_FR", "fra", "fr", "pt_br", "pt_BR", "pt"), ["fr-FR", "fra", "fr", "pt-br", "pt-BR", "pt"]),
        (("iw", "he", "zho_Hant", "zh-Hant", "zh"), ["iw", "he", "zho_Hant", "zh-Hant", "zh"]),
    ],
)
def test_every_language_has_the_shortest_tag_of_bcp_47(codes, short):
    assert list(short_codes(codes).values()) == short


def test_a_code_of_a_user_becomes_that_of_the_model_and_another_language_stays():
    assert own_codes(NLLB, ["eng_Latn", "en", "ENG", "en-US", "eng-latn", "zh"]) == ["eng_Latn"] * 5 + ["zho_Hans"]
    assert own_codes(NLLB, ["ja", "", None]) == ["ja", "", None]


def test_a_direction_is_checked_in_every_form_of_its_codes():
    for known, code in ((("en", "de"), "de-AT"), (("en", "deu_Latn"), "de"), ((None, "txt"), "fr"), (("en", "x"), "X")):
        check_direction(known, target_lang=code)
    with pytest.raises(UserError, match="its `target_lang` is de. Received: target_lang=fr"):
        check_direction(("en", "de"), "en", "fr")
