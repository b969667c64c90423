"""Codes of languages and their tags: what a user may write, and the tokens that a model sees."""

from functools import partial

import pytest

from keras_transformer.config import BOS_ID
from keras_transformer.errors import FileError, UserError
from keras_transformer.tags import LanguageTags, check_direction, load_tags, read_export

NLLB = ("eng_Latn", "deu_Latn", "zho_Hans", "zho_Hant", "srp_Cyrl")


def test_a_language_has_many_spellings_and_the_languages_are_named_for_another_one():
    tags = LanguageTags("both", dict.fromkeys(NLLB, 5), {"deu_Latn": 7}, ("eng_Latn", "deu_Latn"))
    for code, spellings in {"eng_Latn": "en EN-us ENG_LATN", "zho_Hans": "zh zh-CN", "zho_Hant": "zh_hant"}.items():
        assert {tags.find(form)[0] for form in spellings.split()} == {code}
    with pytest.raises(UserError, match="no `source_lang` fr, only de, en, sr, zh, zh-Hant"):
        tags.find("fr")


def test_tags_stand_where_the_model_expects_them(tmp_path):
    tags = LanguageTags("source", {"en": 11}, {"de": 13, "fr": 17}, ("en", "de"))
    assert tags.ids(*tags.find()) == (13, BOS_ID)
    assert tags.ids(*tags.find(target_lang="fr")) == (17, BOS_ID)
    assert LanguageTags("both", {"en": 11}, {"de": 13}, ("en", "de")).ids("en", "de") == (11, 13)
    for find in (tags.find, partial(check_direction, ("en", "de"))):
        with pytest.raises(UserError, match="must be a str, such as fr. Received: 5"):
            find(target_lang=5)
    tags.save(tmp_path)
    assert load_tags(tmp_path) == tags
    assert load_tags(tmp_path / "elsewhere") is None and read_export(tmp_path) == (None, (None, None))


@pytest.mark.parametrize(
    ("name", "read", "damaged"),
    [
        ("languages", load_tags, '{"place": "both", "sources": {"en": 5}, "targets": {}, "default": ["en", "de"]}'),
        ("export", read_export, '{"languages": {"default": ["en", "de"], "sources": {}, "targets": {"de": "de"}}}'),
    ],
)
def test_a_damaged_file_is_named(tmp_path, name, read, damaged):
    for text in ("", "[]", damaged):
        (tmp_path / f"{name}.json").write_text(text)
        with pytest.raises(FileError, match=f"{name}.json is damaged: put a copy of it back$"):
            read(tmp_path)


@pytest.mark.parametrize(
    ("tags", "new", "targets", "described"),
    [
        (
            LanguageTags("source", {"eng_Latn": 11}, {"deu_Latn": 13, "eng_Latn": 11}, ("eng_Latn", "deu_Latn")),
            ["fr"],
            {"deu_Latn": 13, "eng_Latn": 11, "fr": 17},
            "from en, de, fr to de, en, fr; tags: source",
        ),
        (
            LanguageTags("both", {"en": 11}, {"en": 11}, ("en", "en")),
            ["de", "fr"],
            {"en": 11, "fr": 18, "de": 17},
            "from en, de, fr to en, fr, de; tags: both",
        ),
    ],
    ids=["source", "both"],
)
def test_tags_are_extended_by_the_languages_of_directions(tags, new, targets, described):
    directions = [("de", "fr"), ("ENG", "de"), ("fr", "en-US")]
    assert tags.untagged(directions) == new
    ids = {f"<2{code}>": 17 + number for number, code in enumerate(new)}
    complete = tags.extended(directions, lambda piece: ids.get(piece, 1))
    assert complete.targets == targets and complete.sources.keys() == targets.keys()
    assert complete.default == (next(code for code in targets if code[:2] == "de"), "fr")
    assert complete.untagged(directions) == [] and complete.describe() == described
