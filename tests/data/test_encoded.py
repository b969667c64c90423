import numpy as np
import pytest
import sentencepiece
import tensorflow as tf

from keras_transformer.data import encoded
from keras_transformer.data.corpus import CorpusError
from keras_transformer.data.encoded import EncodedPairs, Sentences, encode_pairs
from keras_transformer.tokenizer import Tokenizer, train_tokenizer

PAIRS = [(f"a house for {n} cats", f"ein Haus für {n} Katzen und {n**5} Mäuse") for n in range(23)]


@pytest.fixture(scope="module")
def model():
    return train_tokenizer([text for pair in PAIRS for text in pair], 307)


@pytest.fixture(scope="module")
def tokenizer(model):
    return Tokenizer(model)


@pytest.fixture(scope="module")
def processor(model):
    """The oracle: the same model in the sentencepiece package."""
    return sentencepiece.SentencePieceProcessor(model_proto=model)


def as_lists(sentences):
    return [sentences.ids[a:b].tolist() for a, b in zip(sentences.starts, sentences.starts[1:], strict=False)]


def longest_side(pair, processor):
    return max(len(processor.encode(text)) for text in pair)


def sentences_of(lists):
    ids = np.array([token for sentence in lists for token in sentence], np.int32)
    return Sentences(ids, np.concatenate([[0], np.cumsum([len(sentence) for sentence in lists])]).astype(np.int64))


LISTS = [[5, 7, 11], [13], [], [17, 19, 23, 29, 31], [37, 41]]


def test_lengths_are_those_of_the_sentences():
    assert sentences_of(LISTS).lengths.tolist() == [3, 1, 0, 5, 2]


@pytest.mark.parametrize("shift", [0, 1, 2])
@pytest.mark.parametrize("width", [3, 7])  # narrower and wider than the longest sentence
@pytest.mark.parametrize("rows", [[0, 1, 2, 3, 4], [3, 0, 3], [4], [2]])
def test_padded_is_shift_sentence_and_zeros(rows, width, shift):
    padded = sentences_of(LISTS).padded(np.array(rows), width, shift)
    assert padded.dtype == np.int32
    assert padded.tolist() == [([0] * shift + LISTS[row] + [0] * width)[:width] for row in rows]


def test_pairs_are_tokenised_in_order_without_control_symbols(tokenizer, processor):
    pairs = encode_pairs(iter(PAIRS), tokenizer, 101)
    sources, targets = zip(*PAIRS, strict=True)
    assert as_lists(pairs.source) == processor.encode(list(sources))
    assert as_lists(pairs.target) == processor.encode(list(targets))
    assert len(pairs) == len(PAIRS)
    assert (pairs.source.ids.dtype, pairs.target.ids.dtype) == (np.int32, np.int32)
    assert sum(pairs.dropped.values()) == 0


def test_pairs_blank_on_one_side_are_dropped_and_counted(tokenizer, processor):
    blank = [("", "eins"), ("two", ""), ("  ", "drei"), ("four", "\t\n"), ("\u00a0", "\u3000")]
    pairs = encode_pairs([blank[0], *PAIRS[:3], *blank[1:], *PAIRS[3:]], tokenizer, 101)
    assert pairs.dropped == {"blank on one side": 5, "longer than 101 tokens": 0}
    assert as_lists(pairs.target) == processor.encode([target for _, target in PAIRS])


@pytest.mark.parametrize("swap", [False, True], ids=["target longer", "source longer"])
def test_pairs_with_a_longer_side_are_dropped_and_counted(tokenizer, processor, swap):
    pairs = [pair[::-1] if swap else pair for pair in PAIRS]
    limit = sorted(longest_side(pair, processor) for pair in pairs)[11]
    fitting = [pair for pair in pairs if longest_side(pair, processor) <= limit]
    assert any(longest_side(pair, processor) == limit for pair in fitting) and len(fitting) < len(pairs)
    kept = encode_pairs(pairs, tokenizer, limit)
    assert as_lists(kept.source) == processor.encode([source for source, _ in fitting])
    assert as_lists(kept.target) == processor.encode([target for _, target in fitting])
    assert kept.dropped == {"blank on one side": 0, f"longer than {limit} tokens": len(pairs) - len(fitting)}


def test_nothing_is_lost_between_chunks(tokenizer, monkeypatch):
    long = ("a house " * 97, "ein Haus")
    pairs = [*PAIRS[:11], *[("", "x")] * 14, *[long] * 15, *PAIRS[11:]]  # chunks wholly blank, and wholly too long
    whole = encode_pairs(pairs, tokenizer, 101)
    monkeypatch.setattr(encoded, "CHUNK", 7)
    in_chunks = encode_pairs(iter(pairs), tokenizer, 101)
    assert as_lists(in_chunks.source) == as_lists(whole.source)
    assert as_lists(in_chunks.target) == as_lists(whole.target)
    assert in_chunks.dropped == whole.dropped == {"blank on one side": 14, "longer than 101 tokens": 15}
    assert len(in_chunks) == len(PAIRS)


@pytest.mark.parametrize(
    ("pairs", "reasons"),
    [
        ([], "0 blank on one side, 0 longer than 2 tokens"),
        ([("", "eins"), ("two", " "), ("", "")], "3 blank on one side, 0 longer than 2 tokens"),
        ([*PAIRS, ("", "")], "1 blank on one side, 23 longer than 2 tokens"),
    ],
    ids=["no pairs", "blank pairs", "long pairs"],
)
def test_no_pair_left_is_an_error_that_says_why(tokenizer, pairs, reasons):
    with pytest.raises(CorpusError) as caught:
        encode_pairs(pairs, tokenizer, 2, name="files:DIR, train")
    assert "files:DIR, train: " in str(caught.value) and f"({reasons})" in str(caught.value)


def test_description_counts_pairs_tokens_and_reasons():
    source, target = sentences_of([[5] * 1009, [7]]), sentences_of([[5, 7], [11]])
    counts = {"blank on one side": 0, "longer than 2003 tokens": 1499}
    described = EncodedPairs(source, target, counts).describe()
    assert described == "2 pairs (1,010 source and 3 target tokens); dropped 1,499 longer than 2003 tokens"
    assert EncodedPairs(source, target, dict.fromkeys(counts, 0)).describe().endswith("; none dropped")


def test_text_with_control_symbols_in_it_has_none_as_ids(tokenizer):
    pairs = encode_pairs([("</s> one <pad>", "<s> eins <unk>")], tokenizer, 101)
    assert min(pairs.source.ids.min(), pairs.target.ids.min()) > 3
    assert tokenizer.decode(tf.constant([pairs.source.ids])).numpy() == [b"</s> one <pad>"]
