"""The rules, and right translations of fourteen directions, of which none drops one, in a small corpus or alone."""

import sys
from dataclasses import fields
from fractions import Fraction

import pytest

from keras_transformer.errors import UserError
from keras_transformer.tools.cleaning import rules
from keras_transformer.tools.cleaning.examination import STEPS, Examiner
from keras_transformer.tools.cleaning.numerals import NumberForms
from keras_transformer.tools.cleaning.rules import brackets, length_ratio, overlap, rules_of, urls, usual_ratio
from keras_transformer.tools.cleaning.settings import HELP, CleaningSettings
from keras_transformer.tools.cleaning.text import letter_share, script_share, scripts_to_keep, skeleton, width, words

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


def test_a_dirty_pair_is_dropped_by_its_step_and_not_without_it():
    rules = rules_of(CleaningSettings(), "en", "de")
    assert [step for step, pair in DIRTY.items() if not rules[step](*pair)] == []
    for off in (list(DIRTY)[::2], list(DIRTY)[1::2]):
        assert rules_of(CleaningSettings(**dict.fromkeys(off, False)), "en", "de").keys() == rules.keys() - {*off}


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
    have_other_brackets = rules_of(CleaningSettings(language_odds=0), "en", "de")["brackets"]
    assert not have_other_brackets("[Notice] Closed", "【お知らせ】休業")
    assert have_other_brackets("He said (x).", "Er [x] sagte.")


def test_length_ratio_and_overlap_are_those_of_a_hand():
    assert length_ratio("a" * 10, "b" * 30) == length_ratio("b" * 30, "a" * 10) == 2
    assert length_ratio("a" * 10, "b" * 40, usual=4) == pytest.approx(1)
    assert overlap("one two two three five", "TWO one, four!") == 0.5 and overlap("one two", "one two") == 0
    assert overlap("Tel. 030 12 34, one two https://a.org/b", "Tél. 030 12 34, eins zwei https://a.org/b") == 0
    # A large corpus tells its usual ratio, and a small one hardly changes it.
    assert usual_ratio([("ab", "abcd")] * 99_900) == pytest.approx(2, rel=1e-3)
    assert usual_ratio([("ab", "abcd")] * 100) == pytest.approx(2**0.5)
    assert usual_ratio([("ab", "abcdefgh")] * 3) < 1.05 and usual_ratio([("", "a")]) == usual_ratio([]) == 1


def test_every_script_of_a_language_is_its_own_and_words_that_stand_on_both_sides_are_names_in_another_one():
    for language, text, is_foreign in (
        ("sr", "Где је следећа станица?", False),
        ("sr_Latn", "Где је следећа станица?", True),
        ("kk", "كەلەسى بەكەت قايدا؟", False),
        ("zh-Hant", "下一站在哪裡？", False),
        ("ja", "Haltestelleで待つ。", False),
        ("ja", "Where is the station?", True),
        ("ja", "Haltestelle", True),
    ):
        rule = rules_of(CleaningSettings(language_odds=0), "de", language)["min_script"]
        assert bool(rule("Wo ist die nächste Haltestelle?", text)) == is_foreign


def test_a_language_that_the_identifier_does_not_know_is_named_and_so_is_the_package_that_is_missing(monkeypatch):
    assert rules_of(CleaningSettings(), "nb", "por_BR")["language_odds"]("Hvor er den neste stasjonen?", "Sim.") == ""
    with pytest.raises(UserError, match="py3langid does not know the language 'haw': set `language_odds` to 0"):
        rules_of(CleaningSettings(), "en", "haw")
    for language in ("xq", ""):
        with pytest.raises(UserError, match=f"no language is called '{language}'.* `min_script` to 0"):
            scripts_to_keep(language)
    found = [rules.unknown_steps(*pair) for pair in (("ay", "de"), ("en", "xq"))]
    assert found == [["language_odds"], ["min_script", "language_odds"]]
    monkeypatch.setattr(rules, "_identifier", rules._identifier.__wrapped__)  # not the one that is loaded already
    monkeypatch.setitem(sys.modules, "py3langid.langid", None)
    with pytest.raises(UserError, match="pip install py3langid, or set `language_odds` to 0"):
        rules_of(CleaningSettings(), "en", "de")


def test_the_skeleton_forgets_case_and_width_an_ideograph_is_three_letters_wide_and_letters_have_their_marks():
    assert skeleton("„Straße“, № １２!") == skeleton("STRASSE no 12") == "strasse no 12" and words("?!") == ()
    assert width("我是学生。") == 13 and width("はい가") == 6 and width("I am über") == 9
    assert letter_share("नमस्ते!") == pytest.approx(6 / 7)
    assert letter_share("** a --") == 0.2 and letter_share(" ") == letter_share("12 | 13") == 0
    texts = "10,000 yen|2026年3月3日|１万円|US$ 5|20%|%20|१२.५ किलो|5 °C|2061. 6. 14.|7 – 9".split("|")
    assert {letter_share(text) for text in texts} == {1}


def test_the_share_of_a_script_is_among_words_alone_and_letters_names_and_capitals_are_no_other_script():
    assert script_share("Tom sagt: 123 привет", "Latn") == pytest.approx(2 / 3)
    assert script_share("日本語のテキスト text", "Jpan") == pytest.approx(5 / 6)  # 日, 本, 語, の, テキスト
    assert script_share("42!", "Cyrl") == 1 and script_share("word", "Jpan", "word") == 0
    for text, script, other in (
        ("コーヒーメーカー", "Jpan", ""),  # the prolonged sound mark is in several scripts
        ("DVDプレーヤー", "Jpan", ""),
        ("Docker를 씁니다", "Kore", "I use docker."),
        ("XX век", "Cyrl", "The 20th century"),
    ):
        assert script_share(text, script, other) == 1


ENGLISH_AND_GERMAN = NumberForms(["en", "de"])


def test_marks_within_a_number_are_read_in_every_way_that_fits():
    read = {"1,250": {1250, Fraction("1.25")}, "1.250,50": {Fraction("1250.5")}, "1,00,000": {100_000}}
    read |= {"1 234 567": {1_234_567}, "１２．５": {Fraction("12.5")}, "٣٫٥": {Fraction("3.5")}, "10²": {10}}
    read |= {"2½": {Fraction("2.5")}, "3/4": {Fraction(3, 4)}, "1.2.3": set()}
    for text, expected in read.items():
        assert [number.values for number in ENGLISH_AND_GERMAN.numbers(text)] == [expected]
    assert [number.parts for number in ENGLISH_AND_GERMAN.numbers("In 2015 300 came.")] == [(2015,), (300,)]
    assert ENGLISH_AND_GERMAN.numbers("9" * 5000) == []


def test_words_of_scale_are_those_of_the_languages_and_of_unicode():
    for languages, text, expected in (
        ("ko", "1억 2천만, 3만 5천", [120_000_000, 35_000]),
        ("ja", "3億3千万", [330_000_000]),
        ("ru", "5 миллионами", [5_000_000]),
        ("en hi", "1.5 Cr, 2 करोड़", [15_000_000, 20_000_000]),
        ("en", "5 m, 5M, 5 miles, 5 Kinder", [5_000_000, 5_000_000, 5, 5]),
    ):
        assert [[*number.values] for number in NumberForms(languages.split()).numbers(text)] == [[n] for n in expected]


OTHER_NUMBERS = (
    "He is 25. | Er ist 26.; 1,250 books | 1.950 Bücher; in 1990 | 1980; in 1997 | 1998; 12. A house | 13. Ein Haus; "
    "2 of 3 | 2 von 4; 3 and 3 | 3 und 4; 1.5 | 1,6; 8:30 p.m. | 20:45 Uhr; 10 km | 00 km; May 5 | 8. Mai; "
    "5 million | 6 Millionen; 20 km | 200 km; 3,000 people | 5000 Menschen"
).split("; ")


def test_other_numbers_are_found_in_either_direction():
    for source, target in (pair.split(" | ") for pair in OTHER_NUMBERS):
        assert ENGLISH_AND_GERMAN.differ(source, target) and ENGLISH_AND_GERMAN.differ(target, source), source
    # A number on one side alone can be a word on the other. A language that CLDR does not know has the signs of all.
    assert not ENGLISH_AND_GERMAN.differ("2 cats and 3 dogs", "zwei Katzen und 3 Hunde")
    assert not NumberForms(["source", "target"]).differ("10,000", "1万")


def test_a_number_out_of_its_range_is_refused_by_its_name():
    for name, value, limits in (
        ("min_script", 1.1, "between 0 and 1"),
        ("near_duplicates", 0.5, "between 0.8 and 1"),
        ("near_held_out", -1, "between 0.5 and 1"),
        ("language_odds", float("nan"), "at least 1"),
    ):
        with pytest.raises(UserError, match=f"^`{name}` must be {limits}, or 0 .* Received: {value}$"):
            CleaningSettings(**{name: value})


def test_every_setting_is_a_step_0_switches_every_number_off_and_near_duplicates_are_not_found_without_exact_ones():
    assert {field.name for field in fields(CleaningSettings)} == set(HELP) == {"normalize", *STEPS}
    numbers = {field.name: 0 for field in fields(CleaningSettings) if field.type is not bool}
    assert CleaningSettings(**numbers).near_duplicates == 0
    with pytest.raises(UserError, match="`near_duplicates` .* must be 0"):
        CleaningSettings(duplicates=False)


RIGHT = {
    ("en", "ja"): [
        ("10,000 yen", "１万円"),
        ("March 3, 2026", "2026年3月3日"),
        ("Menu", "メニュー"),
        ("About 120 million people live in Japan.", "日本には約1億2000万人が住んでいます。"),
        ("My iPhone 15 Pro Max is broken.", "私のiPhone 15 Pro Maxが壊れました。"),
        ("The temperature is 25 °C (77 °F).", "気温は２５℃（７７℉）です。"),
        ("Chapter 3, page 45", "第３章 四十五ページ"),
        ("It opened in 2021.", "令和3年に開業した。"),
    ],
    ("en", "zh"): [
        ("Call me at 8:15 p.m.", "晚上8点15分给我打电话。"),
        ("See www.example.com (in English).", "请看www.example.com（英文）。"),
        ("He bought an HP LaserJet printer.", "他买了一台惠普打印机。"),
    ],
    ("en", "ko"): [
        ("The KBS news starts at 9.", "KBS 뉴스는 9시에 시작합니다."),
        ("Visit https://example.kr now.", "지금 https://example.kr을 방문하세요."),
        ("Mon, Jun 6, 1960", "1960년 6월 6일 (월)"),
        ("11:54 – 11:58 PM", "PM 11:54~11:58"),
        ("3/6/1997", "1997. 3. 6."),
    ],
    ("en", "hi"): [
        ("100,000 rupees", "1,00,000 रुपये"),
        ("It costs 20 million rupees.", "इसकी कीमत 2 करोड़ रुपये है।"),
        ("The book has 250 pages.", "किताब में २५० पन्ने हैं।"),
    ],
    ("en", "ar"): [
        ("Welcome!", "مرحبـــا بكم!"),
        ("The company has 3,000 users.", "للشركة ٣ آلاف مستخدم."),
        ("See https://example.com, please.", "يرجى الاطلاع على https://example.com،"),
    ],
    ("en", "ru"): [
        ("1,250.75 rubles", "1 250,75 рубля"),
        ("Hello :)", "Привет))"),
        ("On 9 May 1945", "9.05.1945"),
        ("In 100 metres, turn left.", "Через 100 м поверните налево."),
        ("12,000 copies were sold.", "Было продано 12 тыс. экземпляров."),
        ("Thanks!", "Большое спасибо!"),
        ("The 20th century", "XX век"),
    ],
    ("en", "de"): [
        ("1.50 kg", "1,5 kg"),
        ("the 1990s", "die 90er Jahre"),
        ("It is half past 8 p.m., 8:30 sharp.", "Es ist Punkt 20.30 Uhr."),
        ("10 thousand people came.", "10.000 Menschen kamen."),
        ("2½ hours", "2,5 Stunden"),
        ("3/4 of a liter", "0,75 Liter"),
        ("US$ 5", "5 US-Dollar"),
        ("Phone: +49 30 123456-78", "Tel.: +49 30 12345678"),
        ("Version 1.2.3 came out on 1/2/2024.", "Version 1.2.3 erschien am 2.1.2024."),
        ("No smoking", "Rauchen verboten"),
        ("In the 1800s", "Im 19. Jahrhundert"),
    ],
    ("de", "fr"): [
        ("Das kostet 1.234.567,89 Euro.", "Cela coûte 1 234 567,89 euros."),
        ("Der Zug fährt um 17.05 Uhr.", "Le train part à 17 h 05."),
        ("Ich komme am 1. Mai.", "Je viens le 1er mai."),
        ("Das 18. Jahrhundert", "Le XVIIIe siècle"),
        ("Er sagte: „Guten Tag!“", "Il dit : « Bonjour ! »"),
    ],
    ("en", "th"): [
        ("The ticket costs 1,500 baht.", "ตั๋วราคา ๑,๕๐๐ บาท"),
        ("See https://example.com for details.", "ดูรายละเอียดที่https://example.comได้เลย"),
    ],
    ("en", "tr"): [
        ("100,000 PEOPLE CAME.", "100 BİN KİŞİ GELDİ."),
        ("It starts at 4 p.m.", "Saat 16.00'da başlıyor."),
        ("I live in Istanbul.", "İstanbul'da yaşıyorum."),
    ],
    ("es", "pl"): [
        ("Cuesta 1500 millones de euros.", "Kosztuje 1,5 mld euro."),
        ("Nació el 3 de mayo de 1791.", "Urodził się 3.05.1791 r."),
        ("La reunión es a las 5 de la tarde.", "Spotkanie jest o 17:00."),
        ("El siglo XXI", "XXI wiek"),
    ],
    ("en", "fa"): [
        ("He was born in 1990.", "او در سال ۱۳۶۹ به دنیا آمد."),
        ("The book costs 250,000 tomans.", "قیمت کتاب ۲۵۰ هزار تومان است."),
        ("March 21, 2024", "۱ فروردین ۱۴۰۳"),
    ],
    ("zh", "ja"): [("请看https://example.com。", "https://example.comをご覧ください。")],
    ("en", "el"): [("2 million tourists came in the 1980s.", "2 εκατομμύρια τουρίστες ήρθαν τη δεκαετία του '80.")],
}


@pytest.mark.parametrize("languages", RIGHT, ids="-".join)
def test_no_right_pair_is_dropped(languages):
    usual = usual_ratio(RIGHT[languages])
    for direction, ratio in ((1, usual), (-1, 1.0)):  # of the corpus; about that of each pair alone, either way
        examiner = Examiner(CleaningSettings(), *languages[::direction], usual=ratio)
        turned = [pair[::direction] for pair in RIGHT[languages]]
        assert [(one.step, one.detail, one.pair) for one in examiner.examine(turned)[0] if one.step] == []
