import numpy as np
import pytest
import sentencepiece
import tensorflow as tf
from keras_transformer.scoring import (
    beginnings,
    blocks,
    explain_labels,
    pairs,
    pieces_of,
    regrouped,
    shift_right,
)
from keras_transformer.segments import split

from keras_transformer import scoring
from keras_transformer.tokenizer import BOS_ID, EOS_ID
from tests import reference, tiny

B, S, T = 3, 7, 11
POST, PRE = reference.post_norm, reference.pre_norm
RESIDUALS = pytest.mark.parametrize("residual", [POST, PRE])


def transformer(residual=POST):
    return tiny.transformer(seed=5, num_layers=2, pre_norm=residual is PRE)


def batch():
    """source_ids (B, S) and labels (B, T): rows of different lengths, and a last one that is blank."""
    rng = np.random.default_rng(3)
    source_ids, labels = (rng.integers(4, tiny.VOCABULARY, (B + 1, n)).astype("int32") for n in (S, T))
    for row in range(B):
        source_ids[row, S - 2 * row :] = 0
        labels[row, T - 3 * row :] = 0
        labels[row, T - 3 * row - 1] = EOS_ID
    source_ids[B], labels[B] = 0, 0
    return source_ids, labels


def ragged(ids):
    """As many rows, without their padding."""
    return tf.RaggedTensor.from_row_lengths(ids[ids != 0], np.count_nonzero(ids, axis=1))


def target_ids(labels):
    return np.array([[BOS_ID, *row[:-1]] for row in labels])


def reference_log_probs(model, residual, source_ids, labels):
    """float64 (B, T), 0 on padding: of the blank row, which the reference cannot attend to, there is only that."""
    weights, expected = reference.weights_of(model), np.zeros(labels.shape)
    logits = reference.transformer(weights, source_ids[:B], target_ids(labels)[:B], 2, residual)
    for b, t in zip(*np.nonzero(labels), strict=True):
        expected[b, t] = logits[b, t, labels[b, t]] - np.logaddexp.reduce(logits[b, t])
    return expected


def explain(model, sources, labels):
    return explain_labels(model, model.encode(sources.to_tensor()), sources, labels)


def score(model, sources, labels):
    return explain(model, sources, labels)[0]


def pieces(ids):
    processor = sentencepiece.SentencePieceProcessor(model_proto=tiny.tokenizer_model())
    return [[processor.id_to_piece(i).encode() if i else b"" for i in row] for row in ids.tolist()]


# What is computed.


@RESIDUALS
def test_scores_are_log_probabilities_of_the_reference(residual):
    model, (source_ids, labels) = transformer(residual), batch()
    found = score(model, ragged(source_ids), ragged(labels))
    assert found.dtype == tf.float32
    expected = reference_log_probs(model, residual, source_ids, labels)
    np.testing.assert_allclose(found, expected[labels != 0], rtol=1e-5, atol=1e-5)


@RESIDUALS
def test_alignments_are_those_of_the_reference(residual):
    model, (source_ids, labels) = transformer(residual), batch()
    token_scores, found = explain(model, ragged(source_ids), ragged(labels))
    weights = reference.weights_of(model)
    expected = reference.alignment(weights, source_ids[:B], target_ids(labels)[:B], 2, residual)
    expected = [expected[b, t, s] for b, t in np.argwhere(labels) for s in range(S) if source_ids[b, s]]
    assert found.dtype == tf.float32
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(token_scores, score(model, ragged(source_ids), ragged(labels)))


def test_pieces_are_the_tokenizers_with_the_end_written_out_and_padding_empty():
    _, labels = batch()
    found = pieces_of(tiny.tokenizer(), ragged(labels)).numpy().tolist()
    assert found == pieces(labels)
    assert found[2][4:] == [b"</s>"] + [b""] * 6


def test_target_ids_are_labels_shifted_right():
    assert shift_right(tf.constant([[5, 7, 3], [11, 3, 0]])).numpy().tolist() == [[2, 5, 7], [2, 11, 3]]
    assert shift_right(tf.zeros([2, 0], tf.int32)).shape == (2, 0)


# What nothing depends on.


def test_rows_do_not_depend_on_padding_nor_on_who_shares_the_batch():
    model, (source_ids, labels) = transformer(), (ragged(x) for x in batch())
    together = labels.with_values(score(model, source_ids, labels))
    for row in range(B):
        alone = score(model, source_ids[row : row + 1], labels[row : row + 1])
        np.testing.assert_allclose(together[row], alone, atol=1e-5)


def test_logits_are_made_of_few_tokens_at_a_time_and_of_no_padding(monkeypatch):
    model, (source_ids, labels) = transformer(), (ragged(x) for x in batch())
    expected = score(model, source_ids, labels)
    made, tied_logits = [], model.tied_logits.call
    monkeypatch.setattr(model.tied_logits, "call", lambda x: made.append(x.shape[0]) or tied_logits(x))
    monkeypatch.setattr(scoring, "LOGITS_AT_A_TIME", 5)
    np.testing.assert_allclose(score(model, source_ids, labels), expected, rtol=1e-5)
    assert made == [5, 5, 5, 5, 4] and sum(made) == labels.values.shape[0]


@pytest.mark.parametrize("rows", [0, 1, 3])
def test_blank_rows_only_have_neither_scores_nor_pieces(rows):
    none = ragged(np.zeros((rows, 0), "int32"))
    assert score(transformer(), none, none).shape == (0,)
    assert [x.shape for x in explain(transformer(), none, none)] == [(0,), (0,)]
    assert pieces_of(tiny.tokenizer(), none).shape == (rows, 0)


# Texts and their parts.

TEXTS = ["one two", "seven\nten", "", "one\ntwo\nthree", "nine", "four"]
TRANSLATIONS = ["eins zwei", "sieben\n\nzehn", "null", "eins\nzwei", "", "vier\nvier"]


def encoded(*texts, end=()):
    processor = sentencepiece.SentencePieceProcessor(model_proto=tiny.tokenizer_model())
    return [[*processor.encode(text), *end] for text in texts]


def test_parts_are_scored_in_pairs_where_there_are_as_many_and_as_a_whole_otherwise():
    both = tf.constant(TEXTS), tf.constant(TRANSLATIONS)
    parts = (split(text, tiny.tokenizer(), 31) for text in both)
    owners, sources, labels = pairs(tiny.tokenizer(), *both, *parts)
    assert owners.numpy().tolist() == [0, 1, 1, 3, 4, 5]
    assert sources.to_list() == encoded("one two", "seven", "ten", "one\ntwo\nthree", "nine", "four")
    expected = encoded("eins zwei", "sieben", "zehn", "eins\nzwei", "", "vier\nvier", end=[EOS_ID])
    assert labels.to_list() == expected


@pytest.mark.parametrize(("max_length", "kept"), [(31, [0, 1, 1, 3, 3, 3, 4, 5]), (1, [0, 1, 3, 4, 5])])
def test_of_texts_as_many_parts_are_explained_as_fit(max_length, kept):
    segments = split(tf.constant(TEXTS), tiny.tokenizer(), 31)
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


def test_parts_are_regrouped_by_their_texts():
    parts = tf.ragged.constant([[5], [7, 11], [], [13]])
    found = regrouped(parts, tf.constant([1, 1, 2, 3], tf.int64), tf.constant(5, tf.int64))
    assert found.to_list() == [[], [5, 7, 11], [], [13], []]
