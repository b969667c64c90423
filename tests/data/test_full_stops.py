from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_transformer.data import full_stops
from keras_transformer.data.full_stops import FullStops, Known, learn_full_stops
from keras_transformer.errors import FileError

WORRY = "Don't worry. He will."
PARAGRAPHS = [f"He sleeps. They walk. She likes {word}. We sleep. All walk." for word in ("cider", "perry")] * 2


@pytest.mark.parametrize(
    ("lines", "abbreviations"),
    [
        ([WORRY], ["worry"]),
        ([WORRY, *["Please don't worry."] * 2], []),
        ([WORRY, "do not worry now", "worry"], []),
        (["Ann Ray geb. Lee", "Eva Roe geb. Fox", *["ich geb es dir"] * 9], ["geb"]),
        (["see art. 5", "by art. 7", *["the art of war"] * 97], ["art"]),
        ([*PARAGRAPHS, "You sleep. I walk.", "She sleeps."], []),
        ([*PARAGRAPHS, *["the plan, approx. Ten"] * 9], ["approx"]),
    ],
)
def test_a_word_that_also_ends_lines_or_stands_without_a_full_stop_is_no_abbreviation(lines, abbreviations):
    assert list(learn_full_stops(lines).abbreviations) == abbreviations


def test_initials_and_parts_of_abbreviations_end_nothing():
    corpus = ["It is vitamin C.", "I like plan C.", "Take the C.", "at 3 p.m.", "at 5 p.m.", "at 7 p.m.", "by 8 p.m."]
    assert learn_full_stops(corpus).ends == ()


class Streamed:
    """Pairs without a length."""

    def __init__(self, pairs):
        self.pairs = pairs

    def __iter__(self):
        return iter(self.pairs)


def corpus(*parts):
    """A mixture of parts, each (source language, target language, training pairs)."""
    return SimpleNamespace(parts=[(SimpleNamespace(source_lang=s, target_lang=t), pairs) for s, t, pairs in parts])


ENGLISH = [*["see chap. Three", "we like art."] * 9, *["He is 12.", "come with us."] * 5, *["one + two"] * 10]
GERMAN = [*["am 12. Juni", "siehe Abschn. Drei", "ein Hund", "der us. Hund"] * 9, *["das ° eins"] * 10]
FRENCH = [*["voir art. Trois", "les chiens"] * 9, *["la vie en C."] * 3]


def pairs(sources, targets=("one",)):
    return [(source, targets[row % len(targets)]) for row, source in enumerate(sources)]


def test_the_lines_of_a_language_speak_for_this_language_alone():
    parts = [("en", "de", pairs(ENGLISH, GERMAN)), ("de", "en", pairs(GERMAN)), ("fr", "de", pairs(FRENCH, GERMAN))]
    source, target, copies_unknown = full_stops.learn_known(corpus(*parts), False)
    assert source.abbreviations == ("chap", "Abschn", "art") and copies_unknown is False
    german = [line for _, lang, own in parts if lang == "de" for _, line in own]
    assert target == learn_full_stops(german, ["one"] * len(GERMAN))
    mixed = full_stops.learn_known(corpus(*(("en", "de", own) for _, _, own in parts)), False)
    assert "art" not in mixed.source.abbreviations


def test_a_word_ends_sentences_if_no_language_has_its_full_stop_inside_lines():
    assert learn_full_stops(ENGLISH).ends == ("00", "us") and learn_full_stops(FRENCH).ends == ()
    assert learn_full_stops(ENGLISH, FRENCH).ends == ("00", "us")
    assert learn_full_stops(ENGLISH, GERMAN).ends == learn_full_stops(GERMAN, ENGLISH).ends == ()


def test_the_most_frequent_words_of_each_language_come_first(monkeypatch):
    monkeypatch.setattr(full_stops, "MOST_WORDS", 3)
    first = [f"see {word}. Two" for word in ("abax", "abax", "abbx", "abcx", "abdx")]
    second = [f"see {word}. Two" for word in ("abbx", "abex")]
    assert learn_full_stops(first, second).abbreviations == ("abax", "abbx", "abex")


@settings(max_examples=59, deadline=None, derandomize=True)
@given(
    kind=st.sampled_from([list, Streamed]),
    sizes=st.lists(st.integers(0, 211), min_size=1, max_size=5),
    most=st.integers(5, 307),
)
def test_at_most_so_many_lines_are_read_and_every_corpus_has_evenly_spaced_ones(kind, sizes, most):
    numbered = [kind([(row, row) for row in range(size)]) for size in sizes]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(full_stops, "MOST_LINES", most)
        source, target = full_stops.lines_of_languages(corpus(*((f"{n}", "en", own) for n, own in enumerate(numbered))))
    read = [list(lines) for lines in source]
    assert [list(lines) for lines in source] == read and [row for rows in read for row in rows] == list(*target)
    assert sum(map(len, read)) <= most
    for size, rows in zip(sizes, read, strict=True):
        step = rows[1] if len(rows) > 1 else max(size, 1)
        assert rows == list(range(0, size, step))
        assert 2 * len(rows) > min(size, most // len(sizes)) or size == 0
    assert sum(sizes) > most or list(map(len, read)) == sizes


def test_a_corpus_knows_better_than_the_one_before():
    new, old = FullStops(("vgl", "no"), ("us",)), FullStops(("us", "zzgl"), ("no", "me"))
    assert new.extended(old) == FullStops(("vgl", "no", "zzgl"), ("us", "me"))
    many = FullStops(tuple(map(str, range(full_stops.MOST_WORDS))))
    assert new.extended(many).abbreviations == ("vgl", "no", *many.abbreviations[:-2])


def test_full_stops_are_kept_in_a_file_and_a_damaged_one_is_named(tmp_path):
    path = tmp_path / "full_stops.json"
    assert full_stops.load_known(path) == full_stops.UNKNOWN
    known = Known(FullStops(("ул", "vgl"), ("0",)), FullStops(), copies_unknown=False)
    full_stops.save_known(path, known)
    assert full_stops.load_known(path) == known and "ул" in path.read_text(encoding="utf-8")
    for damaged in ("{", "{}", '{"source": 3}', '{"source": {"x": []}, "target": {}}'):
        path.write_text(damaged, encoding="utf-8")
        with pytest.raises(FileError, match="full_stops.json is damaged: put a copy"):
            full_stops.load_known(path)
