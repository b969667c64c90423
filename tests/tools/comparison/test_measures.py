from collections import Counter

import pytest
from sacrebleu import sentence_chrf

from keras_transformer.tools.comparison import measures, sentences
from keras_transformer.tools.comparison.measures import faults_of, length_groups, repetitions, words_in
from keras_transformer.tools.comparison.sentences import RIGHT, SAME, WRONG, lists_of, marked
from keras_transformer.training.preparation import prepare
from keras_transformer.training.run_directory import RunDirectory
from tests import tiny
from tests.sentences import SENTENCES

REFERENCE = "the cat sat on the mat by the door"


def test_groups_have_about_equally_many_sentences_the_shortest_first():
    for lengths, most, groups in (
        ([5, 1, 3, 2, 4, 6], 3, [("1 to 2", [1, 3]), ("3 to 4", [2, 4]), ("5 to 6", [0, 5])]),
        ([7, 7, 7, 9], 2, [("7", [0, 1, 2]), ("9", [3])]),  # sentences of one length stay together
        ([0, 4], 6, [("0", [0]), ("4", [1])]),
    ):
        assert length_groups(lengths, most) == groups


def test_a_word_is_found_as_often_as_both_texts_have_it():
    counts = Counter({"a": 1, "b": 5, "c": 99, "d": 12345})
    found = measures.recall_by_frequency(["a b b e", "d"], [["a b c e e", "b"], ["d d", "d"]], counts)
    # never: e, e (one of them found). once: a. 2 to 9: b, b. 10 to 99: c. 10,000: d, d and d.
    assert found == {0: (2, 1), 1: (1, 1), 2: (2, 2), 10: (1, 0), 10000: (3, 2)}
    names = ["never", "once", "2 to 9", "10 to 99", "10,000 or more"]
    assert [measures.frequency_name(group) for group in found] == names


def test_repetitions_are_counted():
    for text, places in (
        (REFERENCE, 0),
        ("the the cat", 1),
        ("a man in a man in a hat", 3),  # "a man in" twice in a row, and "man in a" behind its first word; "a man in a"
        ("on the left of it and on the left of me", 1),  # "on the left of" again
        ("Lampendelelelel, Filzzzzhut", 2),
        ("Schifffahrt, WWW, 1000000", 0),
        ("哈哈", 0),  # many words have two equal characters
        ("我我我我我我", 2),  # a word of three characters twice, and one character more than three times
        ("我们走我们走吧", 1),
        ("สวัสดีครับสวัสดีครับ", 1),
    ):
        assert repetitions(text) == places


def test_faults_are_told_by_the_source_and_the_references():
    for hypothesis, references, source, faults in (
        (REFERENCE, [REFERENCE], "x", []),
        (f"{REFERENCE} door", [REFERENCE], "x", ["repeats itself"]),
        ("no no", [REFERENCE[:11]], "nein nein", []),  # the source says it twice, too
        ("no no", ["oh no no", REFERENCE[:11]], None, []),
        ("the cat sat on the", [REFERENCE], "x", ["far too short"]),  # 5 of 9 words
        ("the", ["the cat"], "x", []),  # of short texts, one word says nothing
        ("", ["cat"], "x", ["far too short"]),
        ("the cat sat on it", [REFERENCE, "it sat there"], "x", []),  # the shortest reference counts
        ("we all saw how it sat down here", ["it sat"], "x", ["far too long"]),
        ("Die Katze saß da", ["The cat sat there"], "Die Katze saß da", ["left as the source"]),
        ("我我我我我我", ["我走吧好了呢"], "x", ["repeats itself"]),
    ):
        assert faults_of(hypothesis, references, source) == faults and set(faults) <= measures.FAULTS.keys()


def test_the_words_of_a_run_are_counted_in_its_training_corpus(tmp_path, monkeypatch):
    corpus = tiny.write_corpus(tmp_path / "corpus")
    config = tiny.config(corpus, tmp_path / "run")
    run = RunDirectory(config.model_dir)
    prepare(config, run)
    config.save(run.config)
    lines = (corpus / "train.de").read_text(encoding="utf-8").splitlines()
    assert measures.training_words(run.path) == (Counter(" ".join(lines).split()), 211)
    monkeypatch.setattr("keras_transformer.tools.comparison.measures.MOST_COUNTED", 106)
    counts, sentences = measures.training_words(run.path)
    assert sentences == 106 and counts == Counter(" ".join(lines[::2]).split())
    for path in run.tokens.glob("train/target_*"):
        path.unlink()
    assert measures.training_words(run.path) is None


def test_words_are_marked_where_another_text_differs():
    for text, other, references, parts in (
        ("a b c", "a x c", ["a b c"], [("a", SAME), (" ", SAME), ("b", RIGHT), (" c", SAME)]),
        ("a b c", "a x c", ["a y c"], [("a", SAME), (" ", SAME), ("b", WRONG), (" c", SAME)]),
        ("b b", "", ["b"], [("b", RIGHT), (" ", SAME), ("b", WRONG)]),  # as often as the reference has it
        ("a a", "a", ["a"], [("a", SAME), (" ", SAME), ("a", WRONG)]),  # the first one has used the reference up
        ("x y.", "z.", ["x q", "p y"], [("x y", RIGHT), (".", SAME)]),  # each reference has one of the words
        (" a\u00a0 ", "b", ["c"], [(" ", SAME), ("a", WRONG), ("\u00a0 ", SAME)]),
        ("我走", "我来", ["我去"], [("我", SAME), ("走", WRONG)]),
        (" ", "a", ["a"], [(" ", SAME)]),
    ):
        assert marked(text, other, references) == parts


@pytest.mark.parametrize("sentence", SENTENCES.values(), ids=SENTENCES.keys())
def test_words_are_those_that_a_reader_sees_and_no_part_divides_one(sentence):
    assert words_in(sentence.text) == sentence.words.split()
    first, *_ = sentence.words.split()
    parts = marked(sentence.text, sentence.text.replace(first, "@", 1), [sentence.text])
    assert "".join(part for part, _ in parts) == sentence.text
    assert [part for part, mark in parts if mark == RIGHT] == [first] and not any(mark == WRONG for _, mark in parts)


def test_a_sentence_has_the_chrf_of_sacrebleu():
    texts, references = ["a cat", "x"], [["a cat", "the dog"], ["a mat", "a mat"]]
    expected = [sentence_chrf(text, row).score for text, row in zip(texts, references, strict=True)]
    assert sentences.sentence_scores(texts, references) == expected and expected[0] == pytest.approx(100)


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
    assert (name, rows) == ("the system: lowest chrF", [*range(1, sentences.MOST_SHOWN + 1)])
    assert lists_of([[100.0]], [[[]]]) == []
