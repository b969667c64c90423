import unicodedata

import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_transformer.data.full_stops import MOST_WORDS, learn_full_stops
from keras_transformer.translation.segments import split_at
from keras_transformer.translation.sentences import DIVISION, SIGNS, breaks_of, line_breaks
from tests.abbreviations import CORPORA, PAIRS, UNSEEN, UNSPACED_PAIRS
from tests.sentences import SENTENCES

fast = settings(max_examples=59, deadline=None, derandomize=True)
any_text = st.text(max_size=61)
WORDS = 'dog Dog z. B. Prof. bzw. 3 1999 . ! ? … " “ ) ( e\u0301t\u0301 今天 。 「 」 갔다 ؟ । Ǆ ½ -'.split(" ")
WORDS += [" ", " ", " ", "\n", "\u00a0", "\u200b", "\u2028"]
compositions = st.lists(st.sampled_from(WORDS), max_size=17).map("".join)


def category(character):
    return unicodedata.category(character)


def is_blank(character):
    return category(character) in {"Zs", "Zl", "Zp", "Cc", "Cf"}


def fragments(*texts, breaks=DIVISION.breaks):
    return split_at(breaks, tf.constant(texts, tf.string, shape=[len(texts)])).to_list()


def sentences(*texts, breaks=DIVISION.breaks):
    found = fragments(*texts, breaks=breaks)
    return [[s for s in map(bytes.decode, row) if not all(is_blank(c) or c == "\ufffe" for c in s)] for row in found]


# Sentences.

WHOLE = [
    "Dec. 18, 2001",
    "from 3 p.m. to 4 p.m. PST",
    "Dr. Smith and Prof. Jones met J. R. R. Tolkien.",
    "der 3. März",
    "am 18. Dezember",
    "d. h. Hunde bzw. Katzen, z. B. Dackel",
    "1.5 m, 3.14 and 1.000,50",
    "the U.S. Army",
    "at 14:35 on http://example.org/a?b=C",
    "Wait... What",
    "e.g. this. and that? no",
    '"Stop!" he said.',
    "Dr. med. Müller, Prof. Dr. phil. habil. Weber, Prof. em. Huber und Dr. rer. nat. Schulz",
    "Bücher (Hrsg. Meyer), bspw. Romane, für 3 млрд. Рублей",
    "Brig. Gen. Smith, Insp. Gen. Lee, Univ. Prof. Dr. Huber",
    "Brig. Insp. Gen. Brown",
    "Yahoo! Inc. is here, Yahoo! Inc., and Yahoo! Ltd.",
    "See vol. II of it, vol. V, Kap. XII and vol. IX.",
]


def test_what_is_no_end_divides_nothing():
    assert sentences(*WHOLE) == [[text] for text in WHOLE]


DIVIDED = {
    "english": ["A man rides.", "Two dogs play!", "Why?", '"He knows."', "(She too.)", "In 1999.", "Then"],
    "german": ["„Ein Hund.“", "Über das Meer.", "Zwei Männer?"],
    "russian": ["Он ушёл.", "Она пришла."],
    "hindi": ["यह घर है।", "वह गया।"],
    "arabic": ["هل أنت هنا؟", "نعم.", "لا"],
    "korean": ["갔다.", "왔다.", "보았다."],
    "abbreviations": ["See vol.", "He left Zürich.", "Mr. Lee met John.", "Mr. Ray met Mary."],
    "more abbreviations": ["Stop!", "Dr. Lee came.", "We saw McPond.", "Yes."],
    "more german": ["Er kam aus Köln.", "Dr. Meyer ging.", "Sie las viel.", "Vera kam."],
    "spanish": ["Hola.", "¿Quién es?", "Yo."],
}


def test_sentences_are_divided_at_white_space_and_lines_whatever_is_around():
    for space in (" ", "  ", "\u00a0", "\t", "\n", "\r\n\r\n"):
        assert sentences(*(space.join(parts) for parts in DIVIDED.values())) == [*DIVIDED.values()]
    for line_break in ("\n", "\r\n", "\r", "\v", "\f", "\x85", "\u2028", "\u2029", " \n\n\t\n "):
        assert sentences(f"one{line_break}two") == [["one", "two"]]
    expected = [["今天。", "明天！", "你好吗？", "「是」。"], ["他说「好。」他走了。"]]
    assert sentences("今天。明天！你好吗？「是」。", "他说「好。」他走了。") == expected


@fast
@given(st.lists(any_text | compositions, max_size=5))
def test_nothing_is_lost_between_fragments_and_invalid_utf8_becomes_the_replacement_character(texts):
    *found, invalid = fragments(*texts, b"one \xff\xfe. \xe2\x82 \xed\xa0\x80")
    assert b"".join(invalid).decode() == b"one \xff\xfe. \xe2\x82 \xed\xa0\x80".decode("utf-8", "replace")
    noncharacters = str.maketrans("\ufdd0\ufdd1\ufffe\uffff", "\ufffd" * 4)
    expected = ["" if all(map(is_blank, text)) else text.translate(noncharacters) for text in texts]
    assert [b"".join(row).decode().replace("\ufffe", "") for row in found] == expected


def test_without_sentences_only_lines_divide():
    for line in map(" ".join, DIVIDED.values()):
        found = fragments(line, f" {line}\r\n{line}\n", "今天。明天！", " \t", "", breaks=line_breaks())
        assert [[part.decode() for part in row if part] for row in found] == [
            *([line], [" ", line, "\r\n", line, "\n"], ["今天。明天！"], [], [])
        ]


def test_the_signs_are_those_that_unicode_says_end_sentences():
    assert set("؟۔।॥။៕។።፧։。！？｡‼⁇⁈⁉᙮᠃꓿𑅁།") <= set(SIGNS) and not set("၊،,;:.…·．﹒") & set(SIGNS)
    assert {category(sign) for sign in SIGNS} <= {"Po", "Cn"}  # some are younger than this Python


def rows(text):
    return text.split("\n")


@pytest.mark.parametrize("language", {**CORPORA, **PAIRS})
def test_a_corpus_knows_its_abbreviations_and_two_sentences_are_divided(language):
    known = breaks_of(learn_full_stops(rows(CORPORA.get(language, ""))))
    lines = rows(f"{CORPORA[language]}\n{UNSEEN[language]}") if language in CORPORA else []
    assert sentences(*lines, breaks=known) == [[line] for line in lines]
    pairs = [pair.split("|") for pair in rows(PAIRS[language])] if language in PAIRS else []
    assert sentences(*map(" ".join, pairs), breaks=known) == pairs


@pytest.mark.parametrize("language", UNSPACED_PAIRS)
def test_signs_of_other_scripts_divide_without_a_space(language):
    pairs = [pair.split("|") for pair in rows(UNSPACED_PAIRS[language])]
    assert sentences(*map("".join, pairs)) == pairs


@pytest.mark.parametrize("sentence", SENTENCES.values(), ids=SENTENCES)
def test_a_sentence_of_any_script_is_one_and_two_are_two(sentence):
    text = sentence.text
    assert sentences(text) == [[text]]
    if sentence.stop:
        assert sentences(f"{text}\u00a0{text}") == [[text, text]]


def test_numbers_end_sentences_where_ordinals_have_no_full_stop():
    english, german = ["She is 12.", "We are 30.", "He has 50."], ["am 3. Mai", "am 12. Juni", "am 30. Juli", "nur 50."]
    assert sentences("I am 12. Yes.", breaks=breaks_of(learn_full_stops(english))) == [["I am 12.", "Yes."]]
    for corpus in (german, [*german, *english], []):
        assert sentences("am 12. August", breaks=breaks_of(learn_full_stops(corpus))) == [["am 12. August"]]


def test_the_lists_are_bounded_and_their_patterns_are_not_those_of_other_words():
    letters = "abcdefghijklmnopqrstuvwxyz"
    words = [f"{a}{b}{c}x" for a in letters for b in letters for c in "abc"]
    known = learn_full_stops([*(f"see {word}. Two" for word in words), f"see {'x' * 17}. Two", *["by abax. Four"] * 2])
    assert len(known.abbreviations) == MOST_WORDS and known.abbreviations[0] == "abax"
    assert sentences("See Abax. Two. It is cabax. Three.", breaks=breaks_of(known)) == [
        ["See Abax. Two.", "It is cabax.", "Three."]
    ]
