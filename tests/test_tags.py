"""Codes of languages and their tags: what a user may write, and the tokens that a model sees."""

import pytest

from keras_transformer.config import BOS_ID
from keras_transformer.errors import FileError, UserError
from keras_transformer.tags import LanguageTags, check_direction, load_tags, read_export, short_codes, spellings_of

NLLB = ("eng_Latn", "deu_Latn", "zho_Hans", "zho_Hant", "srp_Cyrl")


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


@pytest.mark.parametrize(
    "form, code",
    [
        *(("en", "eng_Latn"), ("EN-us", "eng_Latn"), ("eng", "eng_Latn"), ("ENG_LATN", "eng_Latn")),
        *(("zh", "zho_Hans"), ("zho", "zho_Hans"), ("zh-CN", "zho_Hans"), ("zh_hant", "zho_Hant"), ("de", "deu_Latn")),
        ("fr", None),
    ],
)
def test_a_language_has_many_spellings(form, code):
    tags = LanguageTags("both", dict.fromkeys(NLLB, 5), {"deu_Latn": 7}, ("eng_Latn", "deu_Latn"))
    if code:
        assert tags.find(form)[0] == spellings_of(NLLB)[form.lower().replace("_", "-")] == code
    else:
        with pytest.raises(UserError, match="no `source_lang` fr, only de, en, sr, zh, zh-Hant"):
            tags.find(form)


def test_the_code_of_a_language_is_text():
    with pytest.raises(UserError, match="must be a str, such as fr. Received: 5"):
        LanguageTags("source", {"en": 11}, {"de": 13, "fr": 17}, ("en", "de")).find(target_lang=5)
    with pytest.raises(UserError, match="must be a str, such as fr. Received: 5"):
        check_direction(("en", "de"), target_lang=5)


def test_tags_stand_where_the_model_expects_them(tmp_path):
    tags = LanguageTags("source", {"en": 11}, {"de": 13, "fr": 17}, ("en", "de"))
    assert tags.ids(*tags.find()) == (13, BOS_ID)
    assert tags.ids(*tags.find(target_lang="fr")) == (17, BOS_ID)
    assert LanguageTags("both", {"en": 11}, {"de": 13}, ("en", "de")).ids("en", "de") == (11, 13)
    tags.save(tmp_path)
    assert load_tags(tmp_path) == tags
    assert load_tags(tmp_path / "elsewhere") is None
    for damaged in ("", "[]", "{}", '{"place": "both", "sources": {"en": 5}, "targets": {}, "default": ["en", "de"]}'):
        (tmp_path / "languages.json").write_text(damaged)
        with pytest.raises(FileError, match="languages.json is damaged: put a copy of it back$"):
            load_tags(tmp_path)


def test_a_damaged_manifest_is_named(tmp_path):
    assert read_export(tmp_path) == (None, (None, None))
    for damaged in ("", "[]", '{"languages": {"default": ["en", "de"], "sources": {}, "targets": {"de": "de"}}}'):
        (tmp_path / "export.json").write_text(damaged)
        with pytest.raises(FileError, match="export.json is damaged: put a copy of it back$"):
            read_export(tmp_path)
