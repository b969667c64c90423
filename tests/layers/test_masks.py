import numpy as np
import tensorflow as tf
from keras_transformer.layers.masks import causal_mask, padding_mask

from tests.layers.contract import T


def test_padding_is_hidden_from_every_query():
    mask = padding_mask(tf.constant([[7, 3, 0], [5, 0, 0]]))
    assert mask.dtype == tf.bool
    np.testing.assert_array_equal(mask, [[[[True, True, False]]], [[[True, False, False]]]])


def test_a_row_of_padding_only_is_hidden_altogether():
    assert not np.any(padding_mask(tf.zeros((2, 3), "int32")))


def test_position_t_sees_positions_up_to_t():
    mask = causal_mask(3)
    assert mask.dtype == tf.bool
    np.testing.assert_array_equal(mask, [[[[True, False, False], [True, True, False], [True, True, True]]]])


def test_length_may_be_a_tensor():
    graph = tf.function(lambda length: causal_mask(length), input_signature=[tf.TensorSpec((), "int32")])
    np.testing.assert_array_equal(graph(T), causal_mask(T))


def test_masks_together_hide_what_either_hides():
    ids = tf.constant([[7, 3, 0, 5, 0]])
    both = np.asarray(padding_mask(ids) & causal_mask(5))
    for t in range(5):
        for s in range(5):
            assert both[0, 0, t, s] == (s <= t and s not in (2, 4))
