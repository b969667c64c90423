import numpy as np
import pytest
import tensorflow as tf

from serving.private_api import run_unchecked, unchecked


def test_a_session_takes_a_shape_that_is_not_that_of_the_placeholder():
    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float32, [None, 1])
        half_plus_two = x / 2 + 2
    given = np.array([1, 2], np.float32)
    with tf.compat.v1.Session(graph=graph) as session:
        with pytest.raises(ValueError, match="shape"):
            session.run(half_plus_two, {x: given})
        options = tf.compat.v1.RunOptions(timeout_in_ms=10_000)
        (found,) = run_unchecked(session, options, {unchecked(x): given}, [unchecked(half_plus_two)])
    np.testing.assert_array_equal(found, [2.5, 3.0])
