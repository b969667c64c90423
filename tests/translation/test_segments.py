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
    beginnings,
    divide_into_parts,
    divisions,
    join,
    join_scores,
    pairs,
    split_at,
)
from keras_transformer.translation.sentences import DIVISION
from tests import tiny
from tests.translation.test_sentences import compositions, is_blank

fast = settings(max_examples=31, deadline=None, derandomize=True)
any_text = st.text(max_size=61)

# Parts.

MAX_LENGTH = 13


@tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
def copied(texts):
    """Takes texts apart and puts them together again with nothing between: a model that copies."""
    segments = divide_into_parts(texts, tiny.tokenizer(), MAX_LENGTH)
    return join(segments, tiny.tokenizer().decode(segments.ids)[:, None])[:, 0], segments.rows, segments.ids


def visible(text):
    """A mended text without white space, which the tokenizer writes as U+2581, too, and without noncharacters."""
    return "".join("\ufffd" if c in "\ufdd0\ufffe\uffff" else c for c in mend(text) if c != "▁" and not is_blank(c))


@fast
@given(st.lists(any_text | compositions, max_size=5))
def test_all_but_white_space_survives_a_model_that_copies(texts):
    copies, _, ids = copied(tf.constant(texts, tf.string, shape=[len(texts)]))
    assert [visible(copy.decode()) for copy in copies.numpy()] == [visible(text) for text in texts]
    assert all(0 < length <= MAX_LENGTH for length in ids.row_lengths().numpy())


WHITE_SPACE = {  # a text, and what the tokenizer makes of its sentences; None: the same
    "one two\nthree\n\n\nfour\r\n five ": None,
    "  \n\tone.  Two  three\u00a0four\n": "  \n\tone.  Two three four\n",
    "one two three four five six seven eight nine ten " * 5 + "ten": None,
    "\u200bone\x00\ufeff": None,
    "😀\u00a0one. → Two ❤️\n👩‍🚀 three": None,
    "😀": None,
    "": None,
    " \n\u2029 \ufeff": "",
}


def test_white_space_and_symbols_survive_a_model_that_copies_and_blank_text_has_no_parts():
    copies, rows, _ = copied(tf.constant([*WHITE_SPACE]))
    expected = [text if copy is None else copy for text, copy in WHITE_SPACE.items()]
    assert [copy.decode() for copy in copies.numpy()] == expected and {*rows.numpy().tolist()} == {0, 1, 2, 3, 4}
    copies, rows, ids = copied(tf.constant([], tf.string))
    assert copies.shape == rows.shape == (0,) and ids.nrows() == 0


def test_no_symbol_around_a_sentence_goes_through_the_model():
    text = "😀 🚀one two ❤️. Three → ★\n👩‍🚀 four!  🇩🇪 Five ✔"
    fragments = split_at(DIVISION.breaks, tf.constant([text])).to_list()[0]
    assert [part.decode() for part in fragments] == [
        "", "😀 🚀", "one two ❤️. Three", " → ★\n👩‍🚀 ", "four!", "  🇩🇪 ", "Five", " ✔", ""
    ]  # fmt: skip


def starts_of(length, sizes, draw, allowed=None):
    """Where a sentence of so many pieces has words or characters of random `sizes`, at places that are allowed."""
    flags, place = [False] * length, 0
    while place < length:
        flags[place] = True
        place += draw.choice(sizes)
        while allowed and place < length and not allowed[place]:
            place += 1
    return flags


def divided(lengths, max_length, word_lengths=(1,), character_lengths=(1,), seed=0):
    """The lengths of the parts, a list for each sentence. None begins inside a character, or inside a short word."""
    draw = random.Random(seed)
    characters = [starts_of(length, character_lengths, draw) for length in lengths]
    words = [starts_of(len(own), word_lengths, draw, own) for own in characters]
    ids = tf.RaggedTensor.from_row_lengths(tf.range(sum(lengths)), lengths)
    begins = divisions(ids, *(tf.constant(sum(flags, [])) for flags in (words, characters)), max_length).numpy()
    assert not (begins & ~np.array(sum(characters, []))).any()
    longest_word = max(word_lengths) + max(character_lengths) - 1
    assert longest_word > max_length // 4 or not (begins & ~np.array(sum(words, []))).any()
    rows = np.split(begins, np.cumsum(lengths)[:-1])
    return [np.diff([*np.flatnonzero(row), len(row)]).tolist() for row in rows]


def test_parts_are_about_equal_and_begin_with_words():
    lengths = [3, 0, 37, 38, 101, 1009, 1]
    parts = divided(lengths, 37, word_lengths=(1, 2, 3, 5))
    assert parts[:3] == [[3], [], [37]] and max(map(max, filter(None, parts))) <= 37
    assert all(max(part) - min(part) <= 9 for part in parts if part)
    assert len(parts[3]) == 2 and len(parts[5]) <= 1009 / (37 - 9 - 4) + 1


@fast
@given(
    st.lists(st.integers(0, 211), max_size=5).map(lambda lengths: [*lengths, 1]),
    st.integers(4, 67),
    st.sampled_from([(1,), (1, 2, 3), (11,), (997,)]),
    st.integers(0, 1000),
)
def test_no_part_is_too_long_or_divides_a_character(lengths, max_length, word_lengths, seed):
    parts = divided(lengths, max_length, word_lengths, (1, 3, 4), seed)
    assert [sum(part) for part in parts] == lengths
    assert all(1 <= min(part) <= max(part) <= max_length for part in parts if part)
    assert all(len(part) == 1 for part in parts if 1 <= sum(part) <= max_length)


def test_between_translations_that_end_in_a_full_width_stop_no_space_is_needed():
    segments = divide_into_parts(tf.constant(["一。二！三？四", "一。二"]), tiny.tokenizer(), MAX_LENGTH)
    translations = tf.constant(["Uno.", "二。", "さん」", "4", "1！」", "2"])
    joined = join(segments, translations[:, None])[:, 0].numpy().tolist()
    assert joined == ["Uno. 二。さん」 4".encode(), "1！」2".encode()]


def test_the_score_of_a_text_of_one_part_stays_as_it_is_to_the_bit():
    segments = divide_into_parts(tf.constant(["one"] * 997), tiny.tokenizer(), MAX_LENGTH)
    scores = np.random.default_rng(3).normal(size=(997, 2)).astype(np.float32)
    lengths = tf.reshape(tf.range(2 * 997), [997, 2]) % 311
    for alpha in (0.0, 0.6, 1.8, -0.3):
        assert join_scores(segments, tf.constant(scores), lengths, alpha).numpy().tolist() == scores.tolist()


# The parts of two texts that belong together.

TEXTS = ["one two", "seven\nten", "", "one\ntwo\nthree", "nine", "four"]
TRANSLATIONS = ["eins zwei", "sieben\n\nzehn", "null", "eins\nzwei", "", "vier\nvier"]


def encoded(*texts, model=None):
    return sentencepiece.SentencePieceProcessor(model_proto=model or tiny.tokenizer_model()).encode(list(texts))


def test_parts_are_scored_in_pairs_where_there_are_as_many_and_otherwise_the_beginning_of_the_whole(monkeypatch):
    monkeypatch.setattr(segments_module, "LONGEST_SCORED", 3)
    german = train_tokenizer([text for _, text in tiny.pairs(211)], 311)  # with other pieces than the source
    tokenizers = tiny.tokenizer(), Tokenizer(german)
    both = tf.constant(TEXTS), tf.constant(TRANSLATIONS)
    parts = (divide_into_parts(text, tokenizer, 31) for text, tokenizer in zip(both, tokenizers, strict=True))
    owners, sources, labels = pairs(tokenizers, *both, *parts)
    assert owners.numpy().tolist() == [0, 1, 1, 3, 4, 5]
    whole = {3: 3, 5: 3}  # pair -> pieces
    expected = encoded("one two", "seven", "ten", "one\ntwo\nthree", "nine", "four")
    assert sources.to_list() == [ids[: whole.get(pair)] for pair, ids in enumerate(expected)] != expected
    expected = encoded("eins zwei", "sieben", "zehn", "eins\nzwei", "", "vier\nvier", model=german)
    assert labels.to_list() == [[*ids[: whole.get(pair)], EOS_ID] for pair, ids in enumerate(expected)]


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
