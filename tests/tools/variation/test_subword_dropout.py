from collections import Counter

import numpy as np
import pytest
import sentencepiece
from sentencepiece.sentencepiece_model_pb2 import ModelProto, TrainerSpec

from keras_transformer.data.encoded import Sentences
from keras_transformer.errors import ConfigError
from keras_transformer.tokenizer import train_tokenizer
from keras_transformer.tools.variation.subword_dropout import SubwordDropout
from tests import tiny
from tests.sentences import SENTENCES

TEXTS = {
    "German and English": [text for pair in tiny.pairs(47) for text in pair],
    "twelve languages": [sentence.text for sentence in SENTENCES.values()],
}


@pytest.fixture(scope="module", params=TEXTS)
def model(request):
    """A SentencePiece model of the texts, and the texts as it normalises them."""
    texts = TEXTS[request.param]
    model = tiny.tokenizer_model() if "German" in request.param else train_tokenizer(texts * 3, 591)
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    return model, processor, processor.decode(processor.encode(texts))


def drawn(model, rate, encoded, seed=5):
    return SubwordDropout(model, rate)(Sentences.of_lists(encoded), np.random.default_rng(seed)).lists()


def test_all_rates_keep_the_text_from_the_encoding_of_sentencepiece_to_characters_and_the_seed_decides(model):
    model, processor, texts = model
    encoded = processor.encode(texts)
    assert drawn(model, 0.0, encoded) == drawn(model, 0.0, drawn(model, 0.7, encoded)) == encoded
    for rate in (0.1, 0.5, 0.9):
        first, same, other = (drawn(model, rate, encoded, seed) for seed in (5, 5, 6))
        assert processor.decode(first) == texts and encoded != first == same != other
    pieces = [processor.id_to_piece(row) for row in drawn(model, np.nextafter(1.0, 0.0), encoded)]
    assert {len(piece) for row in pieces for piece in row if not piece.startswith("<0x")} == {1}
    one, two, *_ = encoded
    assert [bool(row) for row in drawn(model, 0.5, [one, [], two, []])] == [True, False, True, False]
    assert drawn(model, 0.5, [[], []]) == [[], []]


@pytest.mark.parametrize(("number", "rate"), [(0, 0.1), (1, 0.3), (1, 0.6)])
def test_divisions_are_as_frequent_as_those_that_sentencepiece_draws(model, number, rate):
    model, processor, texts = model
    word, count = max(texts[number].split(), key=len), 20_011
    ours = Counter(map(tuple, drawn(model, rate, [processor.encode(word)] * count, seed=11)))
    draw = {"enable_sampling": True, "alpha": rate, "nbest_size": -1}
    theirs = Counter(tuple(processor.encode(word, **draw)) for _ in range(count))
    assert len(theirs) > 3
    for pieces in {*ours, *theirs}:
        share = (ours[pieces] + theirs[pieces]) / (2 * count)
        assert abs(ours[pieces] - theirs[pieces]) < 5.5 * (2 * count * share * (1 - share)) ** 0.5 + 3, pieces


def test_control_symbols_bytes_and_placeholders_stay_whole():
    model = ModelProto()
    model.trainer_spec.model_type = TrainerSpec.BPE
    kinds = {"<pad>": "CONTROL", "<0x61>": "BYTE", "aba": "USER_DEFINED", "ab": "NORMAL", "a": "NORMAL", "b": "NORMAL"}
    for rank, (piece, kind) in enumerate(kinds.items()):
        model.pieces.add(piece=piece, score=-rank, type=getattr(ModelProto.SentencePiece, kind))
    assert drawn(model.SerializeToString(), np.nextafter(1.0, 0.0), [[1, 3, 2, 0]]) == [[1, 4, 5, 2, 0]]


def test_a_tokenizer_without_merges_is_refused():
    model = ModelProto.FromString(tiny.tokenizer_model())
    model.trainer_spec.model_type = TrainerSpec.UNIGRAM
    with pytest.raises(ConfigError, match="`subword_dropout_rate` needs a tokenizer of BPE.*Received: one of unigram"):
        SubwordDropout(model.SerializeToString(), 0.1)
