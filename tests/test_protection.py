import re
import time
from pathlib import Path

import pytest

from keras_transformer.protection import PLACEHOLDERS, Protection, read_glossary

ROOT = Path(__file__).parents[1]
GLOSSARY = {"apple": "Apfel", "apple tree": "Apfelbaum", "C++": "C++", "電話": "phone"}


# A text, and its parts that must not change, with " | " between them.
HIDDEN = {
    "see https://a.org/x_(y)?q=1, (http://b.c/d) or www.e.f.": "https://a.org/x_(y)?q=1 | http://b.c/d | www.e.f",
    "write to a.b+c@d-e.org.": "a.b+c@d-e.org",
    "5 km, 3.5kg, 20 °C, 50% off, 1,000 €, $5.50": "5 km | 3.5kg | 20 °C | 50% | 1,000 € | $5.50",
    "15.50 EUR, CHF 9 and -3 m/s": "15.50 EUR | CHF 9 | -3 m/s",
    "5 may, 12 dogs, A4 and 2012": "",
    "Gleis 3 am Bahnhof, Haus 5 in Berlin, 12 a Day, Zimmer 7 a, open at 3 am or 4 pm": "",
    "5 s přáteli, 3 v „Praze“, 4 s (ním), 2 W Warszawie, 3 min vän, 2 bit errors, 6 TV sets": "",
    "9am, 10pm, 3s and 7\u00a0m away": "9am | 10pm | 3s | 7\u00a0m",
    "12 V, 5 m; (3 h) 7 min. It is 9 kB in 20 ms": "12 V | 5 m | 3 h | 7 min | 9 kB | 20 ms",
    "{name} has {0:d MM}, {x:%d %b}, ${x} and {{ a b }}": "{name} | {0:d MM} | {x:%d %b} | ${x} | {{ a b }}",
    "%s of %(n)d, %1$s, %5.2f%%, a 100% discount": "%s | %(n)d | %1$s | %5.2f | %% | 100%",
    "%1 of %2, %'d, % d, %<PRIu64> and %{count}": "%1 | %2 | %'d | % d | %<PRIu64> | %{count}",
    "%@, %1$lld, $count, %0:d, {{ n }}, {n, number}": "%@ | %1$lld | $count | %0:d | {{ n }} | {n, number}",
    "a {n, plural, one {# file in {x}} other {{g, select, a {b} other {c}} d}} e {two words}": (
        "{n, plural, one {# file in {x}} other {{g, select, a {b} other {c}} d}}"
    ),
    "100 % der, le % d'eau, 100%sure, %50 and US$6": "100 % | 100% | $6",
    "run `ls -l https://a.b` now": "`ls -l https://a.b`",
    "run --headless --convert-to=pdf, (--nologo) オプション--viewを": "--headless | --convert-to | --nologo | --view",
    "well--known, a -- b, --, ---x, --x--, --Word and -v": "",
    "=SUM(A1:B6), $A$1:$AB20; D1:E100. But A4, 12:30, A1:B, A1:B2:C3 and Ä1:B2": "A1:B6 | $A$1:$AB20 | D1:E100",
    "keep ⟦3⟧ and ⟦12⟧": "⟦3⟧",
    "`open, {open, %": "",
}


@pytest.mark.parametrize("text", HIDDEN)
def test_what_must_not_change_is_hidden_and_put_back(text):
    hidden, words = Protection().hide(text), HIDDEN[text].split(" | ") if HIDDEN[text] else []
    assert list(hidden.words) == words and hidden.restore(hidden.text) == text
    assert re.findall("⟦[0-9]⟧", hidden.text) == list(PLACEHOLDERS[: len(words)])


def test_terms_are_found_as_they_are_written_as_whole_words_the_longest_first():
    text = "An apple tree, an apple, Apple, apples, pineapple, C++ and 電話です"
    hidden = Protection(GLOSSARY, patterns=False).hide(text)
    assert hidden.text == "An ⟦0⟧, an apple⟦1⟧, Apple, apples, pineapple, ⟦2⟧ and 電話⟦3⟧です"
    assert hidden.is_kept == (False, True, False, True)
    assert [text[slice(*span)] for span in hidden.spans] == ["apple tree", "apple", "C++", "電話"]
    assert hidden.words == ("Apfelbaum", "Apfel", "C++", "phone")
    assert Protection(GLOSSARY, patterns=False).hide("5 km at a@b.c").text == "5 km at a@b.c"
    assert Protection(GLOSSARY).hide("http://apple.org/apple {apple}").words == ("http://apple.org/apple", "{apple}")


def test_a_term_is_found_however_its_accents_are_written():
    composed, decomposed = "caf\u00e9", "cafe\u0301"
    for term in (composed, decomposed):
        hidden = Protection({term: "bar", "cafe": "x"}, patterns=False).hide(f"{composed}, {decomposed}s, {decomposed}")
        assert hidden.text == f"{composed}⟦0⟧, {decomposed}s, {decomposed}⟦1⟧" and set(hidden.words) == {"bar"}


def test_a_long_text_has_the_numbers_again_and_the_words_in_their_order():
    text = ". ".join(f"It is {n} km from {n} kg" for n in range(13))
    hidden = Protection().hide(text)
    assert len(hidden.words) == 26 and hidden.restore(hidden.text) == text
    swapped = re.sub("(⟦.⟧) from (⟦.⟧)", r"\2 from \1", hidden.text)  # each sentence in another order
    assert hidden.restore(swapped) == ". ".join(f"It is {n} kg from {n} km" for n in range(13))
    one = Protection(GLOSSARY).hide("apple")
    assert one.restore("⟦1⟧ ⟦0⟧ ⟦0⟧") == "⟦1⟧ Apfel ⟦0⟧"  # a placeholder that the text does not have stays


@pytest.mark.parametrize("unit", ["1.", "1:", "1,1:", "{a}", "$", "a@", "% ", "--a", "A1:"])
def test_a_long_text_takes_no_longer_than_its_length(unit):
    text, begun = unit * (300_000 // len(unit)), time.monotonic()
    hidden = Protection().hide(text)
    assert hidden.restore(hidden.text) == text and time.monotonic() - begun < 20


def test_a_glossary_is_read_and_its_mistakes_are_named_with_their_line(tmp_path):
    path = tmp_path / "terms.tsv"
    path.write_text("\ufeff# terms\napple\tApfel\n\n apple tree \t Apfelbaum \napple\tApfel\n", encoding="utf-8")
    assert read_glossary(path) == {"apple": "Apfel", "apple tree": "Apfelbaum"}
    for text, said in (
        ("a\tb\nc d\n", r"line 2: write a source form, a tab and its target form\. Received: 'c d'"),
        ("a\tb\tc\n", "line 1: write"),
        ("\tb\n", "line 1: write"),
        ("a\tb\n\na\tc\n", "line 3: 'a' is 'c' here and 'b' in line 1: keep one"),
    ):
        path.write_text(text, encoding="utf-8")
        with pytest.raises(ValueError, match=said):
            read_glossary(path)
    path.write_bytes(b"a\t\xff\n")
    for unreadable in (path, tmp_path / "none.tsv"):
        with pytest.raises(ValueError, match="cannot read the glossary"):
            read_glossary(unreadable)


@pytest.mark.parametrize("copied", ["protection.py protection.py", "words.py words.py", "codes.py languages.py"])
def test_serving_has_a_copy_of_the_module_byte_for_byte_but_for_the_package_that_it_imports(copied):
    """sed 's/^from keras_transformer.words/from serving.words/' makes it."""
    parts = zip(("serving", "keras_transformer"), copied.split(), strict=True)
    copy, original = ((ROOT / part / name).read_bytes() for part, name in parts)
    assert copy == original.replace(b"from keras_transformer.words", b"from serving.words")
