import pytest

from keras_transformer.languages import language_of, likely_script, likely_territory, locale_of


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
