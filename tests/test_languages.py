import pytest

from keras_transformer.languages import language_of, likely_script, likely_territory, locale_of, scripts_of


@pytest.mark.parametrize(
    ("code", "language"),
    [
        ("zh", "zh"),
        ("ZH", "zh"),
        ("zh-CN", "zh"),
        ("zho_Hans", "zh"),
        ("cmn", "zh"),
        ("chi", "zh"),
        ("jpn", "ja"),
        ("kor-Hang", "ko"),
        ("pt-BR", "pt"),
        ("sr_Latn", "sr"),
        ("source", ""),
        ("txt", ""),
        ("", ""),
        (None, ""),
    ],
)
def test_a_language_is_known_by_any_code(code, language):
    assert language_of(code) == language and (locale_of(code) is None) == (language == "")


@pytest.mark.parametrize(
    ("code", "script", "territory"),
    [
        ("en", "Latn", "US"),
        ("hin", "Deva", "IN"),
        ("zh-TW", "Hant", "TW"),
        ("zho_Hans", "Hans", "CN"),
        ("sr_Latn", "Latn", "RS"),
        ("de_AT", "Latn", "AT"),
        ("source", "", ""),
    ],
)
def test_unicode_tells_the_usual_script_and_country(code, script, territory):
    assert (likely_script(code), likely_territory(code)) == (script, territory)


@pytest.mark.parametrize(
    ("code", "scripts"),
    [
        ("en", {"Latn", "Dsrt", "Shaw"}),  # CLDR has data for English in the alphabets of Deseret and of Shaw
        ("de", {"Latn"}),
        ("ja", {"Jpan"}),
        ("ru", {"Cyrl"}),
        ("hi", {"Deva"}),  # CLDR's Latin data for Hindi and Chinese are transcriptions
        ("zh", {"Hans", "Hant"}),
        ("zh-TW", {"Hant", "Hans"}),
        ("zho_Hant", {"Hant"}),
        ("sr", {"Cyrl", "Latn"}),
        ("srp", {"Cyrl", "Latn"}),
        ("sr_Latn", {"Latn"}),
        ("bs", {"Latn", "Cyrl"}),
        ("uz", {"Latn", "Cyrl", "Arab"}),
        ("az", {"Latn", "Cyrl", "Arab"}),
        ("kk", {"Cyrl", "Arab"}),
        ("pa", {"Guru", "Arab"}),
        ("tg", {"Cyrl", "Arab"}),
        ("mn", {"Cyrl", "Mong"}),
        ("xq", set()),
    ],
)
def test_the_scripts_of_a_language_are_those_of_countries_and_of_cldr(code, scripts):
    assert set(scripts_of(code)) == scripts and scripts_of(code)[:1] == [likely_script(code)] * bool(scripts)
