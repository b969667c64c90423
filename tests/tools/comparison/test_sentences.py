import pytest
from sacrebleu import sentence_chrf

from keras_transformer.tools.comparison.sentences import (
    MOST_SHOWN,
    RIGHT,
    SAME,
    WRONG,
    lists_of,
    marked,
    sentence_scores,
)
from tests.sentences import SENTENCES


@pytest.mark.parametrize(
    ("text", "other", "references", "parts"),
    [
        ("a b c", "a b c", ["x"], [("a b c", SAME)]),
        ("a b c", "a x c", ["a b c"], [("a", SAME), (" ", SAME), ("b", RIGHT), (" c", SAME)]),
        ("a b c", "a x c", ["a y c"], [("a", SAME), (" ", SAME), ("b", WRONG), (" c", SAME)]),
        ("b b", "", ["b"], [("b", RIGHT), (" ", SAME), ("b", WRONG)]),  # as often as the reference has it
        ("a a", "a", ["a"], [("a", SAME), (" ", SAME), ("a", WRONG)]),  # the first one has used the reference up
        ("x y.", "z.", ["x q", "p y"], [("x y", RIGHT), (".", SAME)]),  # each reference has one of the words
        (" a\u00a0 ", "b", ["c"], [(" ", SAME), ("a", WRONG), ("\u00a0 ", SAME)]),
        ("我走", "我来", ["我去"], [("我", SAME), ("走", WRONG)]),
        ("", "a", ["a"], []),
        (" ", "a", ["a"], [(" ", SAME)]),
    ],
)
def test_words_are_marked_where_another_text_differs(text, other, references, parts):
    assert marked(text, other, references) == parts


@pytest.mark.parametrize("sentence", SENTENCES.values(), ids=SENTENCES.keys())
def test_the_parts_are_the_text_and_no_word_is_divided(sentence):
    first, *_ = sentence.words.split()
    parts = marked(sentence.text, sentence.text.replace(first, "@", 1), [sentence.text])
    assert "".join(part for part, _ in parts) == sentence.text
    assert [part for part, mark in parts if mark == RIGHT] == [first] and not any(mark == WRONG for _, mark in parts)


def test_a_sentence_has_the_chrf_of_sacrebleu():
    texts, references = ["a cat", "x"], [["a cat", "the dog"], ["a mat", "a mat"]]
    expected = [sentence_chrf(text, row).score for text, row in zip(texts, references, strict=True)]
    assert sentence_scores(texts, references) == expected and expected[0] == pytest.approx(100)


def test_the_lists_of_two_systems_begin_with_what_is_most_striking():
    scores = [[50.0, 90.0, 20.0, 70.0], [50.04, 10.0, 80.0, 60.0]]
    faults = [[[], [], ["far too short"], []], [["repeats itself"], [], [], ["repeats itself"]]]
    assert lists_of(scores, faults) == [
        ("the system is better", [1, 3]),
        ("the baseline is better", [2]),
        ("the system: lowest chrF", [2, 0, 3, 1]),
        ("the system: far too short", [2]),
        ("the baseline: lowest chrF", [1, 0, 3, 2]),
        ("the baseline: repeats itself", [0, 3]),
    ]
    # A list is short, and a perfect translation is in none.
    ((name, rows),) = lists_of([[100.0, *range(100)]], [[[]] * 101])
    assert (name, rows) == ("the system: lowest chrF", [*range(1, MOST_SHOWN + 1)])
    assert lists_of([[100.0]], [[[]]]) == []
