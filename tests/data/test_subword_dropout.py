import numpy as np
import pytest
import sentencepiece
from sentencepiece.sentencepiece_model_pb2 import ModelProto

from keras_transformer.data.encoded import Sentences
from keras_transformer.data.subword_dropout import SubwordDropout, find_halves
from tests import tiny

SENTENCES = [text for pair in tiny.pairs(47) for text in pair]


@pytest.fixture(scope="module")
def processor():
    return sentencepiece.SentencePieceProcessor(model_proto=tiny.tokenizer_model())


@pytest.fixture(scope="module")
def encoded(processor):
    return [processor.encode(text) for text in SENTENCES]


def sentences_of(lists):
    return Sentences(np.concatenate(lists).astype(np.uint16), np.cumsum([0, *map(len, lists)]))


def lists_of(sentences):
    return [ids.tolist() for ids in np.split(sentences.ids, sentences.starts[1:-1])]


def vary(encoded, rate, seed=5):
    return lists_of(SubwordDropout(tiny.tokenizer_model(), rate)(sentences_of(encoded), np.random.default_rng(seed)))


def a_model(*pieces):
    """A SentencePiece model of control symbols and these pieces, the first merged first."""
    model = ModelProto()
    for symbol in ("<pad>", "<unk>", "<s>", "</s>"):
        model.pieces.add(piece=symbol, type=ModelProto.SentencePiece.CONTROL)
    model.pieces.add(piece="<0x61>", type=ModelProto.SentencePiece.BYTE)
    for rank, piece in enumerate(pieces):
        model.pieces.add(piece=piece, score=-rank)
    return model.SerializeToString(), {piece.piece: number for number, piece in enumerate(model.pieces)}


def test_halves_are_the_two_pieces_of_the_last_merge():
    # "abcd": bc first, then cd cannot be, a + bc has the better rank than bc + d, then abc + d.
    model, ids = a_model("bc", "cd", "abc", "bcd", "abcd", "xx", "xxxx", "a", "b", "c", "d", "x")
    halves = find_halves(model)
    expected = {"bc": "b c", "cd": "c d", "abc": "a bc", "bcd": "bc d", "abcd": "abc d", "xx": "x x", "xxxx": "xx xx"}
    for piece, number in ids.items():
        pair = [ids[half] for half in expected[piece].split()] if piece in expected else [0, 0]
        assert halves[number].tolist() == pair, piece


def test_pieces_with_a_half_that_is_no_piece_are_not_divided():
    model, ids = a_model("ab", "a")
    assert find_halves(model)[ids["ab"]].tolist() == [0, 0]


def test_divided_sentences_have_the_same_text(encoded, processor):
    for rate in (0.1, 0.5, 0.9):
        varied = vary(encoded, rate)
        assert [processor.decode(ids) for ids in varied] == SENTENCES
        assert varied != encoded


def test_at_rate_zero_nothing_changes(encoded):
    assert vary(encoded, 0.0) == encoded


def test_at_rate_one_every_piece_is_a_character(encoded, processor):
    almost_one = np.nextafter(1.0, 0.0)
    characters = [[processor.piece_to_id(c) for c in "▁" + text.replace(" ", "▁")] for text in SENTENCES]
    assert vary(encoded, almost_one) == characters


def test_a_piece_is_divided_as_often_as_the_rate_says_and_its_halves_again():
    model, ids = a_model("ab", "abc", "a", "b", "c")
    count, rate = 40_009, 0.3
    varied = SubwordDropout(model, rate)(sentences_of([[ids["abc"]]] * count), np.random.default_rng(11))
    found = [tuple(sentence) for sentence in lists_of(varied)]
    expected = {("abc",): 1 - rate, ("ab", "c"): rate * (1 - rate), ("a", "b", "c"): rate**2}
    for pieces, share in expected.items():
        deviation = (share * (1 - share) / count) ** 0.5
        assert abs(found.count(tuple(ids[piece] for piece in pieces)) / count - share) < 5 * deviation


def test_the_seed_decides(encoded):
    assert vary(encoded, 0.3, seed=5) == vary(encoded, 0.3, seed=5) != vary(encoded, 0.3, seed=6)


def test_empty_sentences_stay_where_they_are(encoded):
    varied = vary([encoded[0], [], encoded[1], []], 0.5)
    assert [bool(sentence) for sentence in varied] == [True, False, True, False]
