import sys

import pytest

from keras_transformer.errors import UserError
from keras_transformer.tools.cleaning import rules
from keras_transformer.tools.cleaning.rules import brackets, length_ratio, overlap, rules_of, urls, usual_ratio
from keras_transformer.tools.cleaning.settings import CleaningSettings

GOOD = [
    ("Where is the next station?", "Wo ist der nächste Bahnhof?"),
    ("Tom has 1,250 books.", "Tom hat 1.250 Bücher."),
    ("I was born on March 3, 1997.", "Ich wurde am 3. März 1997 geboren."),
    ("There were five of us.", "Wir waren zu 5."),
    ("See https://example.org/a, please (now).", "Siehe bitte https://example.org/a (jetzt)."),
    ("Hi.", "Grüß Gott!"),
    ("Tom is in Boston.", "Tom ist hier in Boston."),
]
DIRTY = {
    "blank": ("Where is the station?", "\u3000"),
    "copied": ("Where is the station?", "where is the Station"),
    "max_characters": ("word " * 121, "Wort " * 121),
    "max_ratio": ("Where is he?", "Wo ist er denn, und was hat er dort gestern abend gemacht?"),
    "min_letters": ("| 12 | 33 | -- | ** | 5", "| 12 | 33 | -- | ** | 5 a"),
    "max_overlap": ("Where is the next station please", "Where is the next bus station please"),
    "numbers": ("He is 25 years old.", "Er ist 26 Jahre alt."),
    "urls": ("Look at www.example.org now.", "Sieh dir www.example.com jetzt an."),
    "brackets": ("The president spoke (yesterday).", "Der Präsident sprach gestern."),
    "min_script": ("Where is the station?", "Где находится вокзал?"),
    "language_odds": ("Where is the next station?", "Où se trouve la prochaine gare ?"),
}


def steps_of(pair, **settings):
    """The names of all steps that would drop a pair."""
    return [name for name, rule in rules_of(CleaningSettings(**settings), "en", "de").items() if rule(*pair)]


def test_no_rule_drops_a_good_pair():
    for pair in GOOD:
        assert steps_of(pair) == steps_of(pair[::-1], language_odds=0) == []


@pytest.mark.parametrize("step", DIRTY)
def test_a_dirty_pair_is_dropped_by_its_step_and_not_without_it(step):
    assert step in steps_of(DIRTY[step])
    assert step not in steps_of(DIRTY[step], **{step: False})


def test_another_language_is_named_on_either_side():
    rule = rules_of(CleaningSettings(), "en", "de")["language_odds"]
    assert rule(*DIRTY["language_odds"]) == rule(*DIRTY["language_odds"][::-1]) == "fr"
    assert rule("Was machst du heute abend?", "Ich weiß es noch nicht.") == "de"
    assert not rule("Oui, oui!", "Non!")  # too short to be sure
    assert not rule("Samsung Galaxy S24", "20 Zloty polonais") and not rule("July – October 2098", "Juli 2098")


def test_punctuation_after_a_url_is_no_part_of_it():
    assert urls("(See WWW.Example.org/a?b=1.), me@example.org!") == ["me@example.org", "www.example.org/a?b=1"]
    for text in ("见https://a.org/b，以及www.c.org。", "„https://a.org/b“ … www.c.org…"):
        assert urls(text) == ["https://a.org/b", "www.c.org"]
    assert urls("https://a.orgをご覧ください") == urls("See https://a.org/.") == ["https://a.org"]
    assert urls("メールはme@a.orgまで") == urls("Напишите на me@a.org") == ["me@a.org"]


def test_a_full_width_bracket_is_a_bracket_and_one_of_another_kind_can_stand_for_one():
    assert brackets("（a） [b] {") == brackets("[a] (b) 3月3日（火） :)") == [1, 1, 0]
    assert "brackets" not in steps_of(("[Notice] Closed", "【お知らせ】休業"))
    assert "brackets" in steps_of(("He said (x).", "Er [x] sagte."))


def test_length_ratio_and_overlap_are_those_of_a_hand():
    assert length_ratio("a" * 10, "b" * 30) == length_ratio("b" * 30, "a" * 10) == 2
    assert length_ratio("a" * 10, "b" * 40, usual=4) == pytest.approx(1)
    assert overlap("one two two three five", "TWO one, four!") == 0.5 and overlap("one two", "one two") == 0
    assert overlap("Tel. 030 12 34, one two https://a.org/b", "Tél. 030 12 34, eins zwei https://a.org/b") == 0


def test_a_large_corpus_tells_its_usual_ratio_and_a_small_one_hardly_changes_it():
    assert usual_ratio([("ab", "abcd")] * 99_900) == pytest.approx(2, rel=1e-3)
    assert usual_ratio([("ab", "abcd")] * 100) == pytest.approx(2**0.5)
    assert usual_ratio([("ab", "abcdefgh")] * 3) < 1.05 and usual_ratio([("", "a")]) == usual_ratio([]) == 1


def test_words_that_stand_on_both_sides_are_names_in_another_script():
    rule = rules_of(CleaningSettings(language_odds=0), "en", "ja")["min_script"]
    assert not rule("Use the GitHub API with Docker.", "DockerでGitHubのAPIを使います。")
    assert rule("Where is the station?", "Wo ist der Bahnhof?") and rule("Docker", "Docker")


@pytest.mark.parametrize(
    ("language", "text", "is_foreign"),
    [
        ("sr", "Где је следећа станица?", False),
        ("sr", "Gde je sledeća stanica?", False),
        ("sr", "पुस्तक मेज़ पर है।", True),
        ("sr_Latn", "Где је следећа станица?", True),
        ("uz", "Кейинги бекат қаерда?", False),
        ("uz", "Keyingi bekat qayerda?", False),
        ("az", "Növbəti dayanacaq haradadır?", False),
        ("kk", "كەلەسى بەكەت قايدا؟", False),
        ("kk", "Where is the next stop?", True),
        ("ku", "ئێستگەی داهاتوو لە کوێیە؟", False),
        ("pa", "اگلا سٹیشن کتھے اے؟", False),
        ("pa", "ਅਗਲਾ ਸਟੇਸ਼ਨ ਕਿੱਥੇ ਹੈ?", False),
        ("zh-Hant", "下一站在哪裡？", False),
        ("hi", "Where is the next station?", True),
    ],
)
def test_every_script_of_a_language_is_its_own(language, text, is_foreign):
    rule = rules_of(CleaningSettings(language_odds=0), "de", language)["min_script"]
    assert bool(rule("Wo ist die nächste Haltestelle?", text)) == is_foreign


def test_a_language_that_the_identifier_does_not_know_is_named():
    assert rules_of(CleaningSettings(), "nb", "por_BR")["language_odds"]("Hvor er den neste stasjonen?", "Sim.") == ""
    with pytest.raises(UserError, match="py3langid does not know the language 'haw': set `language_odds` to 0"):
        rules_of(CleaningSettings(), "en", "haw")


def test_without_its_package_language_identification_says_so(monkeypatch):
    monkeypatch.setattr(rules, "_identifier", rules._identifier.__wrapped__)  # not the one that is loaded already
    monkeypatch.setitem(sys.modules, "py3langid.langid", None)
    with pytest.raises(UserError, match="pip install py3langid, or set `language_odds` to 0"):
        rules_of(CleaningSettings(), "en", "de")
