import pytest

from keras_transformer.languages import language_of, locale_of


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
