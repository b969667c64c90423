"""Codes of languages and their tags: what a user may write, and the tokens that a model sees."""

from functools import partial

import pytest
import tensorflow as tf

from keras_transformer.config import BOS_ID
from keras_transformer.errors import FileError, UserError
from keras_transformer.languages import (
    find_code,
    language_of,
    likely_script,
    likely_territory,
    locale_of,
    own_codes,
    parts_of,
    short_codes,
    spellings_of,
)
from keras_transformer.tags import LanguageTags, check_direction, load_tags
from keras_transformer.tools.cleaning.text import scripts_of
from keras_transformer.tools.exported import read_export
from keras_transformer.translation.directions import found

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


def test_the_scripts_of_a_language_are_those_of_countries_and_of_cldr():
    """CLDR has data for English in the alphabets of Deseret and of Shaw. Latin data for Hindi are transcriptions."""
    scripts = {"en": "Latn Dsrt Shaw", "ja": "Jpan", "hi": "Deva", "zh": "Hans Hant", "zh-TW": "Hant Hans", "xq": ""}
    scripts |= {"zho_Hant": "Hant", "srp": "Cyrl Latn", "sr_Latn": "Latn", "uz": "Latn Cyrl Arab", "pa": "Guru Arab"}
    for code, expected in scripts.items():
        assert set(scripts_of(code)) == set(expected.split()), code
        assert scripts_of(code)[:1] == [likely_script(code)] * bool(expected)


SHORT = {
    "eng_Latn deu_Latn zho_Hans zho_Hant srp_Cyrl": "en de zh zh-Hant sr",
    "zho_Hant zho_Hans": "zh-Hant zh",  # in any order
    "en_XX zh_CN de_DE": "en zh de",
    "fra deu cmn_Hans": "fr de zh",
    "pt pt-BR x-foo qqq": "pt pt-BR x-foo qqq",
    "fr_FR fra fr pt_br pt_BR pt": "fr-FR fra fr pt-br pt-BR pt",
    "iw he zho_Hant zh-Hant zh": "iw he zho_Hant zh-Hant zh",
    "fra_Latn zho_Hant": "fr zh-Hant",  # alone, too: `zh` is written otherwise
    "zh_TW uz_Cyrl": "zh-TW uz-Cyrl",
}


def test_every_language_has_the_shortest_tag_of_bcp_47():
    assert {codes: " ".join(short_codes(codes.split()).values()) for codes in SHORT} == SHORT


# The codes of a model, and for each of its languages what users call it; "" has what it lacks.
MEANT = [
    ("en de fr", {"en": "en-GB eng EN_us", "de": "de-AT de-DE-x-formal de-1996 de-Latn-AT", "fr": "fr-CA", "": "it"}),
    (
        "eng_Latn zho_Hans zho_Hant",
        {"zho_Hans": "zh zh-CN zh-SG zh-CHS cmn", "zho_Hant": "zh-TW zh-HK zh-CHT cmn-Hant zh-Hant-HK"},
    ),
    ("en zh", {"zh": "zh-Hans zh-SG zho_Hans", "": "zh-TW zh-HK zh-Hant"}),
    ("zho_Hant en", {"zho_Hant": "zh-TW zh", "": "zh-CN"}),
    ("eng_Latn nob_Latn nno_Latn", {"nob_Latn": "no no-NO nb nor", "nno_Latn": "nn-NO"}),
    ("en no", {"no": "nb nb-NO nob_Latn", "": "nn"}),
    ("en es es_419", {"es": "es es-ES es-PH", "es_419": "es-MX es-419"}),
    ("en es", {"es": "es-419 es-MX"}),
    ("pt pt_BR", {"pt": "pt pt-PT", "pt_BR": "pt-BR"}),
    ("pt_BR pt_PT", {"pt_BR": "pt por", "pt_PT": "pt-AO pt-PT"}),
    ("en_US en_GB", {"en_US": "en", "en_GB": "en-AU en-IN"}),
    ("fr_FR fr_CA", {"fr_FR": "fr fr-BE", "fr_CA": "fr-CA"}),
    ("ar arz_Arab", {"ar": "ar-SA arb ar-EG", "arz_Arab": "arz"}),
    ("srp_Cyrl hrv_Latn", {"srp_Cyrl": "sr sr-RS sr-Cyrl-BA", "": "sr-Latn-CS sr-ME"}),
    ("sr_Latn sr", {"sr_Latn": "sr-Latn-CS sr-ME sh hbs", "sr": "sr"}),
    ("az en", {"az": "az-AZ-Latn az-Latn-AZ", "": "az-Cyrl"}),
    ("lv lvs_Latn", {"lvs_Latn": "lv-Latn lvs", "lv": "lv lv-LV"}),
    ("en_XX de_DE zh_CN", {"en_XX": "en-GB", "de_DE": "de-CH", "zh_CN": "zh", "": "zh-TW"}),
    ("pan_Guru pnb_Arab", {"pan_Guru": "pa pa-IN", "": "pa-PK"}),
    ("x-foo qqq", {"x-foo": "x-foo X_FOO", "qqq": "qqq", "": "x-bar"}),
]


@pytest.mark.parametrize(("own", "meant"), MEANT, ids=[own for own, _ in MEANT])
def test_language_and_script_decide_and_a_region_chooses_among_several_in_python_and_in_a_graph(own, meant):
    forms = spellings_of(own.split())
    asked = {code: right for right, codes in meant.items() for code in codes.split()}
    assert {code: find_code(forms, code) or "" for code in asked} == asked
    ids = {code: number for number, code in enumerate(own.split(), start=4)}
    assert found(ids, tf.constant([*asked])).numpy().tolist() == [ids.get(right, 0) for right in asked.values()]


def test_a_code_has_a_language_a_script_and_a_territory():
    parts = {"de-DE-x-formal": "de Latn DE", "no-NO": "nb Latn NO", "sr-Latn-CS": "sr Latn CS", "en_XX": "en Latn "}
    parts |= {"az-AZ-Latn": "az Latn AZ", "zh-CHT": "zh Hant ", "ca-ES-valencia": "ca Latn ES", "qqq": "qqq  "}
    assert {code: " ".join(parts_of(code)) for code in parts} == parts


def test_a_code_of_a_user_becomes_that_of_the_model_and_a_direction_is_checked_in_every_form_of_its_codes():
    assert own_codes(NLLB, ["eng_Latn", "en", "ENG", "zh"]) == ["eng_Latn"] * 3 + ["zho_Hans"]
    assert own_codes(NLLB, ["ja", "", None]) == ["ja", "", None]
    for known, code in ((("en", "de"), "de-AT"), (("en", "deu_Latn"), "de"), ((None, "txt"), "fr"), (("en", "x"), "X")):
        check_direction(known, target_lang=code)
    with pytest.raises(UserError, match="its `target_lang` is de. Received: target_lang=fr"):
        check_direction(("en", "de"), "en", "fr")


def test_a_tag_is_found_by_any_code_and_the_languages_are_named_for_another_one():
    tags = LanguageTags("both", dict.fromkeys(NLLB, 5), {"deu_Latn": 7}, ("eng_Latn", "deu_Latn"))
    assert [tags.find(form)[0] for form in ("EN-us", "zh_hant")] == ["eng_Latn", "zho_Hant"]
    with pytest.raises(UserError, match="no `source_lang` fr, only de, en, sr, zh, zh-Hant"):
        tags.find("fr")


def test_tags_stand_where_the_model_expects_them(tmp_path):
    tags = LanguageTags("source", {"en": 11}, {"de": 13, "fr": 17}, ("en", "de"))
    assert tags.ids(*tags.find()) == (13, BOS_ID) and tags.ids(*tags.find(target_lang="fr")) == (17, BOS_ID)
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


SOME = LanguageTags("source", {"eng_Latn": 11}, {"deu_Latn": 13, "eng_Latn": 11}, ("eng_Latn", "deu_Latn"))


@pytest.mark.parametrize(
    ("tags", "new", "targets"),
    [
        (SOME, ["fr"], {"deu_Latn": 13, "eng_Latn": 11, "fr": 17}),
        (LanguageTags("both", {"en": 11}, {"en": 11}, ("en", "en")), ["de", "fr"], {"en": 11, "fr": 18, "de": 17}),
    ],
    ids=["source", "both"],
)
def test_tags_are_extended_by_the_languages_of_directions(tags, new, targets):
    directions = [("de", "fr"), ("ENG", "de"), ("fr", "en-US")]
    assert tags.untagged(directions) == new
    ids = {f"<2{code}>": 17 + number for number, code in enumerate(new)}
    complete = tags.extended(directions, lambda piece: ids.get(piece, 1))
    assert complete.targets == targets and complete.sources.keys() == targets.keys()
    assert complete.default == (next(code for code in targets if code[:2] == "de"), "fr")
    assert complete.untagged(directions) == []
    assert complete.describe() == f"from en, de, fr to {', '.join(code[:2] for code in targets)}; tags: {tags.place}"
