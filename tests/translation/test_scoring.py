import functools

import numpy as np
import pytest
import tensorflow as tf

from keras_transformer.config import BOS_ID, EOS_ID, PAD_ID
from keras_transformer.models.transformer import Transformer
from keras_transformer.translation import scoring as scoring_module
from keras_transformer.translation.scoring import explain_labels
from tests import reference, tiny

B, S, T = 3, 7, 11
POST, PRE = reference.post_norm, reference.pre_norm
RESIDUALS = pytest.mark.parametrize("residual", [POST, PRE])
SIDE_BY_SIDE = tf.constant(2, tf.int64)  # fewer than there are pairs


@functools.cache
def scored_model(residual=POST):
    """A model of two layers."""
    return tiny.transformer(seed=5, num_layers=2, pre_norm=residual is PRE)


def batch():
    """source_ids (B, S) and labels (B, T): rows of different lengths, and a last one that is blank."""
    rng = np.random.default_rng(3)
    source_ids, labels = (rng.integers(4, tiny.VOCABULARY, (B + 1, n)).astype("int32") for n in (S, T))
    for row in range(B):
        source_ids[row, S - 2 * row :] = PAD_ID
        labels[row, T - 3 * row :] = PAD_ID
        labels[row, T - 3 * row - 1] = EOS_ID
    source_ids[B], labels[B] = PAD_ID, PAD_ID
    return source_ids, labels


def ragged(ids):
    """As many rows, without their padding."""
    return tf.RaggedTensor.from_row_lengths(ids[ids != PAD_ID], np.count_nonzero(ids, axis=1))


def target_ids(labels):
    return np.array([[BOS_ID, *row[:-1]] for row in labels])


def reference_log_probs(model, residual, source_ids, labels):
    """float64 (B, T), 0 on padding: the reference cannot attend to the blank row, which has nothing but padding."""
    weights, expected = reference.weights_of(model), np.zeros(labels.shape)
    logits = reference.transformer(weights, source_ids[:B], target_ids(labels)[:B], 2, residual)
    for b, t in zip(*np.nonzero(labels), strict=True):
        expected[b, t] = logits[b, t, labels[b, t]] - np.logaddexp.reduce(logits[b, t])
    return expected


@RESIDUALS
def test_token_scores_are_log_probabilities_of_the_reference(residual):
    model, (source_ids, labels) = scored_model(residual), batch()
    found, _ = explain_labels(model, model.encode, ragged(source_ids), ragged(labels), SIDE_BY_SIDE)
    assert found.dtype == tf.float32
    expected = reference_log_probs(model, residual, source_ids, labels)
    np.testing.assert_allclose(found, expected[labels != PAD_ID], rtol=1e-5, atol=1e-5)


@RESIDUALS
def test_alignments_are_those_of_the_reference(residual):
    model, (source_ids, labels) = scored_model(residual), batch()
    _, found = explain_labels(model, model.encode, ragged(source_ids), ragged(labels), SIDE_BY_SIDE)
    weights = reference.weights_of(model)
    expected = reference.alignment(weights, source_ids[:B], target_ids(labels)[:B], 2, residual)
    expected = [expected[b, t, s] for b, t in np.argwhere(labels) for s in range(S) if source_ids[b, s]]
    assert found.dtype == tf.float32
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_token_scores_do_not_depend_on_padding_nor_on_who_shares_the_batch():
    model, (source_ids, labels) = scored_model(), (ragged(x) for x in batch())
    together = labels.with_values(explain_labels(model, model.encode, source_ids, labels, tf.constant(97, tf.int64))[0])
    for row in range(B + 1):
        alone, _ = explain_labels(model, model.encode, source_ids[row : row + 1], labels[row : row + 1], SIDE_BY_SIDE)
        np.testing.assert_allclose(together[row], alone, atol=1e-5)


def test_logits_are_made_of_few_tokens_at_a_time_and_of_no_padding(monkeypatch):
    model, (source_ids, labels) = scored_model(), (ragged(x) for x in batch())
    at_once = tf.constant(97, tf.int64)
    expected, _ = explain_labels(model, model.encode, source_ids, labels, at_once)
    made, logits = [], Transformer.logits
    monkeypatch.setattr(Transformer, "logits", lambda self, x: made.append(x.shape[0]) or logits(self, x))
    monkeypatch.setattr(scoring_module, "LOGITS_AT_A_TIME", 5)
    np.testing.assert_allclose(explain_labels(model, model.encode, source_ids, labels, at_once)[0], expected, rtol=1e-5)
    assert made == [5, 5, 5, 5, 4] and sum(made) == labels.values.shape[0]


@pytest.mark.parametrize("rows", [0, 1, 3])
def test_rows_without_labels_have_neither_scores_nor_alignments(rows):
    model, none = scored_model(), ragged(np.zeros((rows, 0), "int32"))
    assert [x.shape for x in explain_labels(model, model.encode, none, none, SIDE_BY_SIDE)] == [(0,), (0,)]
