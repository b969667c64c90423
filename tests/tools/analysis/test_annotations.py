import pytest
from hypothesis import given
from hypothesis import strategies as st

from keras_transformer.errors import CorpusError, FileError
from keras_transformer.normalization import mend
from keras_transformer.tools.analysis.annotations import (
    characters_of,
    pieces_of_words,
    read_alignments,
    read_conllu,
    spans_of,
    spelling,
)
from tests import tiny


def parse(*rows):
    """A sentence in CoNLL-U of rows (number, form, head, relation)."""
    return "".join(f"{number}\t{form}\t_\t_\t_\t_\t{head}\t{name}\t_\t_\n" for number, form, head, name in rows) + "\n"


DOGS = parse((1, "The", 2, "det"), (2, "dogs", 3, "nsubj"), (3, "bark", 0, "root"), (4, ".", 3, "punct"))
# "Zum" is one token of two words, and a word is left out of the text.
ZUM = "# text = Zum Haus\n" + parse(
    ("1-2", "Zum", "_", "_"), (1, "zu", 3, "case"), (2, "dem", 3, "det"), (3, "Haus", 0, "root"), ("3.1", "x", "_", "_")
)


def test_the_pieces_of_a_word_are_those_that_spell_it():
    pieces = ["▁The", "▁do", "gs", "▁b", "ark", "."]
    spans = spans_of(["The", "dogs", "bark", "."])
    assert spans == [(0, 3), (3, 7), (7, 11), (11, 12)]
    assert pieces_of_words(pieces, spans) == [[0], [1, 2], [3, 4], [5]]
    # A piece can belong to two words, and a space belongs to the word after it.
    assert pieces_of_words(["▁", "don't", "▁"], spans_of(["do", "n't"])) == [[0, 1], [1]]
    # A character can be of several pieces.
    pieces = ["▁", "<0xF0>", "<0x9F>", "<0x98>", "<0x80>", "!", "<0xC2>", "<0xA0>", "x"]  # 😀!, a space, x
    assert spelling(pieces)[0] == "😀!x"
    assert pieces_of_words(pieces, spans_of(["😀!", "x"])) == [[0, 1, 2, 3, 4, 5], [6, 7, 8]]


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\uffff"), max_size=23))
def test_the_pieces_of_any_text_spell_it(text):
    pieces = tiny.tokenizer().pieces(tiny.tokenizer().encode([text])[0]).numpy()
    assert spelling([piece.decode("utf-8") for piece in pieces])[0] == characters_of(mend(text))


def test_alignments_are_read(tmp_path):
    (tmp_path / "links").write_text("0-0 1-2\n\n0-1\r\n", encoding="utf-8")
    sources, targets = ["a b", "c", "d"], ["x y z", "u", "v w"]
    assert read_alignments(tmp_path / "links", sources, targets) == [[(0, 0), (1, 2)], [], [(0, 1)]]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0-0\n", "has 1 line, but there are 2 pairs"),
        ("0-0\n0:0\n", "line 2: not in Pharaoh's format, such as 0-0 1-2: '0:0'"),
        ("0-0\n2-0\n", "line 2: 2-0 is outside of the sentences, which have 2 and 1 words"),
        ("0-0\n0-1\n", "line 2: 0-1 is outside"),
    ],
)
def test_alignments_that_do_not_fit_are_refused(tmp_path, text, message):
    (tmp_path / "links").write_text(text, encoding="utf-8")
    with pytest.raises(CorpusError, match=message):
        read_alignments(tmp_path / "links", ["a", "b c"], ["x", "y"])


def test_files_that_cannot_be_read_are_named(tmp_path):
    with pytest.raises(FileError, match="cannot read .*nowhere: No such file"):
        read_alignments(tmp_path / "nowhere", [], [])
    (tmp_path / "latin").write_bytes(b"\xe4")
    with pytest.raises(CorpusError, match="latin: not valid UTF-8"):
        read_conllu(tmp_path / "latin", ["a"])


def test_parses_are_read_with_the_spans_of_their_words(tmp_path):
    (tmp_path / "parses").write_text(DOGS + ZUM, encoding="utf-8")
    dogs, zum = read_conllu(tmp_path / "parses", ["The dogs bark.", "Zum Haus"])
    assert dogs.spans == [(0, 3), (3, 7), (7, 11), (11, 12)]
    assert dogs.edges == [(1, "det"), (2, "nsubj"), (-1, "root"), (2, "punct")]
    assert zum.spans == [(0, 3), (0, 3), (3, 7)]
    assert zum.edges == [(2, "case"), (2, "det"), (-1, "root")]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (DOGS + DOGS, "has 2 parses, but there are 1 sentence"),
        (DOGS.replace("bark", "run"), "parse 1: its words 'The dogs run .' are not those of 'The dogs bark.'"),
        (DOGS.replace("\t2\tdet", "\t7\tdet"), "parse 1: a word depends on a word that the parse does not have"),
        (DOGS.replace("\t_\t_\n", "\n"), "parse 1: not a line of ten columns as in CoNLL-U: '1 The"),
        (DOGS.replace("\t2\tdet", "\t_\tdet"), "not a line of ten columns"),
    ],
)
def test_parses_that_do_not_fit_are_refused(tmp_path, text, message):
    (tmp_path / "parses").write_text(text, encoding="utf-8")
    with pytest.raises(CorpusError, match=message):
        read_conllu(tmp_path / "parses", ["The dogs bark."])
