import functools
import random

import numpy as np
import pytest
import sentencepiece
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_transformer.config import EOS_ID
from keras_transformer.normalization import mend
from keras_transformer.tokenizer import Tokenizer, train_tokenizer
from keras_transformer.translation import segments as segments_module
from keras_transformer.translation.segments import (
    FEWEST_AT_ONCE,
    at_once,
    beginnings,
    blocks,
    divide_into_parts,
    divisions,
    join,
    join_scores,
    pairs,
    pieces_of,
    split_at,
)
from keras_transformer.translation.sentences import DIVISION
from tests import tiny
from tests.translation.test_sentences import compositions, is_blank

fast = settings(max_examples=31, deadline=None, derandomize=True)
any_text = st.text(max_size=61)

# Parts.

MAX_LENGTH = 13


@functools.cache
def identity(max_length):
    """Takes texts apart and puts them together again with nothing between: a model that copies."""
    tokenizer = tiny.tokenizer()

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
    def copied(text):
        segments = divide_into_parts(text, tokenizer, max_length)
        return join(segments, tokenizer.decode(segments.ids)[:, None])[:, 0], segments.rows, segments.ids

    return lambda *texts: copied(tf.constant(texts, tf.string, shape=[len(texts)]))


def visible(text):
    """A mended text without white space, which the tokenizer writes as U+2581, too, and without noncharacters."""
    return "".join("\ufffd" if c in "\ufdd0\ufffe\uffff" else c for c in mend(text) if c != "▁" and not is_blank(c))


@fast
@given(st.lists(any_text | compositions, max_size=5))
def test_all_but_white_space_survives_a_model_that_copies(texts):
    copies, _, ids = identity(MAX_LENGTH)(*texts)
    assert [visible(text.decode()) for text in copies.numpy()] == [visible(text) for text in texts]
    assert tf.reduce_all(ids.row_lengths() <= MAX_LENGTH) and tf.reduce_all(ids.row_lengths() > 0)


WHITE_SPACE = {  # a text, and what the tokenizer makes of its sentences; None: the same
    "one two\nthree\n\n\nfour\r\n five ": None,
    "  \n\tone.  Two  three\u00a0four\n": "  \n\tone.  Two three four\n",
    "one two three four five six seven eight nine ten " * 5 + "ten": None,
    "\u200bone\x00\ufeff": None,
    "😀\u00a0one. → Two ❤️\n👩‍🚀 three": None,
    "😀": None,
}


def test_white_space_and_symbols_survive_a_model_that_copies():
    copies, _, _ = identity(MAX_LENGTH)(*WHITE_SPACE)
    assert [copy.decode() for copy in copies.numpy()] == [copy or text for text, copy in WHITE_SPACE.items()]


def test_no_symbol_around_a_sentence_goes_through_the_model():
    text = "😀 🚀one two ❤️. Three → ★\n👩‍🚀 four!  🇩🇪 Five ✔"
    fragments = split_at(DIVISION.breaks, tf.constant([text])).to_list()[0]
    assert [part.decode() for part in fragments] == [
        "", "😀 🚀", "one two ❤️. Three", " → ★\n👩‍🚀 ", "four!", "  🇩🇪 ", "Five", " ✔", ""
    ]  # fmt: skip


def test_blank_text_has_no_parts_and_is_blank():
    copies, rows, ids = identity(MAX_LENGTH)("one", "", " \n\u2029 \ufeff", "two")
    assert copies.numpy().tolist() == [b"one", b"", b"", b"two"]
    assert rows.numpy().tolist() == [0, 3] and ids.nrows() == 2
    copies, rows, ids = identity(MAX_LENGTH)()
    assert copies.shape == rows.shape == (0,) and ids.nrows() == 0


def divided(lengths, max_length, word_lengths=(1,), character_lengths=(1,), seed=0):
    """The lengths of the parts, those of each sentence in a list, and the flags that they were made from."""
    draw = random.Random(seed)
    starts_word, starts_character = ([False] * sum(lengths) for _ in range(2))
    for flags, sizes in ((starts_character, character_lengths), (starts_word, word_lengths)):
        start = 0
        for length in lengths:
            place = 0
            while place < length:
                flags[start + place] = True
                place += draw.choice(sizes)
                while flags is starts_word and place < length and not starts_character[start + place]:
                    place += 1
            start += length
    ids = tf.RaggedTensor.from_row_lengths(tf.range(sum(lengths)), lengths)
    begins = divisions(ids, tf.constant(starts_word), tf.constant(starts_character), max_length).numpy()
    return begins, np.array(starts_word), np.array(starts_character)


def parts_of(begins, lengths):
    starts = np.cumsum([0, *lengths])
    return [
        np.diff([*(np.flatnonzero(begins[a:b])), b - a]).tolist() for a, b in zip(starts[:-1], starts[1:], strict=True)
    ]


def test_parts_are_about_equal_and_begin_with_words():
    lengths = [3, 0, 37, 38, 101, 1009, 1]
    begins, starts_word, _ = divided(lengths, 37, word_lengths=(1, 2, 3, 5))
    parts = parts_of(begins, lengths)
    assert parts[:3] == [[3], [], [37]]
    assert max(map(max, filter(None, parts))) <= 37
    assert all(max(part) - min(part) <= 9 for part in parts if part)
    assert len(parts[3]) == 2 and len(parts[5]) <= 1009 / (37 - 9 - 4) + 1
    assert not (begins & ~starts_word).any()


@fast
@given(
    st.lists(st.integers(0, 211), max_size=5).map(lambda lengths: [*lengths, 1]),
    st.integers(4, 67),
    st.sampled_from([(1,), (1, 2, 3), (11,), (997,)]),
    st.integers(0, 1000),
)
def test_no_part_is_too_long_or_divides_a_character(lengths, max_length, word_lengths, seed):
    begins, _, starts_character = divided(lengths, max_length, word_lengths, (1, 3, 4), seed)
    assert not (begins & ~starts_character).any()
    parts = parts_of(begins, lengths)
    assert [sum(part) for part in parts] == lengths
    assert all(1 <= min(part) <= max(part) <= max_length for part in parts if part)
    assert all(len(part) == 1 for part in parts if 1 <= sum(part) <= max_length)


def test_between_translations_that_end_in_a_full_width_stop_no_space_is_needed():
    segments = divide_into_parts(tf.constant(["一。二！三？四", "一。二"]), tiny.tokenizer(), MAX_LENGTH)
    translations = tf.constant(["Uno.", "二。", "さん」", "4", "1！」", "2"])
    joined = join(segments, translations[:, None])[:, 0].numpy().tolist()
    assert joined == ["Uno. 二。さん」 4".encode(), "1！」2".encode()]


def test_the_score_of_a_text_is_that_of_all_its_tokens_and_that_of_one_part_stays_as_it_is():
    segments = divide_into_parts(tf.constant(["one\ntwo\nthree", "", "four"]), tiny.tokenizer(), MAX_LENGTH)
    log_probs, lengths, alpha = np.array([-1.1, -0.7, -2.3, -0.3]), np.array([2, 5, 11, 3]), 0.7

    def penalty(length):
        return ((5 + length) / 6) ** alpha

    scores = tf.constant(log_probs / penalty(lengths), tf.float32)
    joined = join_scores(segments, scores[:, None], tf.constant(lengths, tf.int32)[:, None], alpha)
    np.testing.assert_allclose(joined[:, 0], [-4.1 / penalty(18), 0.0, -0.3 / penalty(3)], rtol=1e-6)
    segments = divide_into_parts(tf.constant(["one"] * 997), tiny.tokenizer(), MAX_LENGTH)
    scores = np.random.default_rng(3).normal(size=(997, 2)).astype(np.float32)
    lengths = tf.reshape(tf.range(2 * 997), [997, 2]) % 311
    for alpha in (0.0, 0.6, 1.8, -0.3):
        assert join_scores(segments, tf.constant(scores), lengths, alpha).numpy().tolist() == scores.tolist()


def test_as_many_parts_are_translated_side_by_side_as_there_are_texts_and_never_few():
    assert [int(at_once(tf.fill([count], "one"))) for count in (0, 1, 97)] == [FEWEST_AT_ONCE, FEWEST_AT_ONCE, 97]


# The parts of two texts that belong together.

TEXTS = ["one two", "seven\nten", "", "one\ntwo\nthree", "nine", "four"]
TRANSLATIONS = ["eins zwei", "sieben\n\nzehn", "null", "eins\nzwei", "", "vier\nvier"]


def encoded(*texts, model=None, end=()):
    processor = sentencepiece.SentencePieceProcessor(model_proto=model or tiny.tokenizer_model())
    return [[*processor.encode(text), *end] for text in texts]


def test_parts_are_scored_in_pairs_where_there_are_as_many_and_as_a_whole_otherwise():
    german = train_tokenizer([text for _, text in tiny.pairs(211)], 311)  # with other pieces than the source
    tokenizers = tiny.tokenizer(), Tokenizer(german)
    both = tf.constant(TEXTS), tf.constant(TRANSLATIONS)
    parts = (divide_into_parts(text, tokenizer, 31) for text, tokenizer in zip(both, tokenizers, strict=True))
    owners, sources, labels = pairs(tokenizers, *both, *parts)
    assert owners.numpy().tolist() == [0, 1, 1, 3, 4, 5]
    assert sources.to_list() == encoded("one two", "seven", "ten", "one\ntwo\nthree", "nine", "four")
    translations = ("eins zwei", "sieben", "zehn", "eins\nzwei", "", "vier\nvier")
    assert labels.to_list() == encoded(*translations, model=german, end=[EOS_ID])


def test_of_a_whole_text_only_its_beginning_is_scored(monkeypatch):
    monkeypatch.setattr(segments_module, "LONGEST_SCORED", 3)
    both = tf.constant(["one\ntwo"]), tf.constant(["seven eight nine ten"])
    parts = (divide_into_parts(text, tiny.tokenizer(), 31) for text in both)
    _, sources, labels = pairs((tiny.tokenizer(),) * 2, *both, *parts)
    (source,), (label,) = (encoded(text.numpy()[0].decode()) for text in both)
    assert min(len(source), len(label)) > 3
    assert sources.to_list() == [source[:3]] and labels.to_list() == [[*label[:3], EOS_ID]]


@pytest.mark.parametrize(("max_length", "kept"), [(31, [0, 1, 1, 3, 3, 3, 4, 5]), (1, [0, 1, 3, 4, 5])])
def test_of_texts_as_many_parts_are_explained_as_fit(max_length, kept):
    segments = divide_into_parts(tf.constant(TEXTS), tiny.tokenizer(), 31)
    lengths = segments.ids.row_lengths().numpy().tolist()
    owners, offsets, ids = beginnings(segments, max_length)
    rows = segments.rows.numpy().tolist()
    chosen = [p for p, row in enumerate(rows) if row in kept and (kept.count(row) > 1 or p == rows.index(row))]
    assert owners.numpy().tolist() == [rows[p] for p in chosen]
    assert ids.to_list() == [segments.ids[p].numpy().tolist() for p in chosen]
    assert offsets.numpy().tolist() == [sum(lengths[q] for q in range(p) if rows[q] == rows[p]) for p in chosen]


def test_alignments_of_parts_are_blocks_of_their_text():
    labels, sources = tf.ragged.constant([[5, 6, 3], [7, 3], [8, 9, 3]]), tf.ragged.constant([[5, 6], [7, 8, 9], [4]])
    owners, offsets = tf.constant([0, 0, 2], tf.int64), tf.constant([0, 2, 0], tf.int64)
    values = tf.range(1.0, 16.0)
    expected = np.zeros((3, 5, 5))
    expected[0, :3, :2] = np.arange(1, 7).reshape(3, 2)
    expected[0, 3:, 2:] = np.arange(7, 13).reshape(2, 3)
    expected[2, :3, :1] = np.arange(13, 16).reshape(3, 1)
    found = blocks(values, labels, sources, owners, offsets, tf.constant(3, tf.int64))
    np.testing.assert_array_equal(found, expected)


def test_pieces_are_the_tokenizers_with_the_end_written_out_and_padding_empty():
    rows = [[*range(4, 15)], [7, EOS_ID], [*range(300, 305), EOS_ID], []]
    processor = sentencepiece.SentencePieceProcessor(model_proto=tiny.tokenizer_model())
    found = pieces_of(tiny.tokenizer(), tf.ragged.constant(rows, tf.int32)).numpy().tolist()
    assert found == [[processor.id_to_piece(i).encode() for i in row] + [b""] * (11 - len(row)) for row in rows]
    assert found[1][:3] == [processor.id_to_piece(7).encode(), b"</s>", b""]
    for count in (0, 1, 3):
        nothing = tf.RaggedTensor.from_row_lengths(tf.zeros([0], tf.int32), [0] * count)
        assert pieces_of(tiny.tokenizer(), nothing).shape == (count, 0)
