import subprocess
import sys

import pytest


def run(program):
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_clients_do_not_start_tensorflow():
    program = (
        "import sys, serving.client, serving.smoke_test; print(sorted({'tensorflow', 'jax', 'keras'} & {*sys.modules}))"
    )
    assert run(program) == "[]\n"


@pytest.mark.slow
def test_tensorflow_can_be_imported_afterwards_and_takes_the_same_messages():
    program = """
from serving.messages import PredictRequest, TensorProto
import tensorflow as tf
from tensorflow.core.framework import tensor_pb2
assert tensor_pb2.TensorProto is TensorProto
request = PredictRequest(inputs={"x": tf.make_tensor_proto([3.0, 5.0])})
print(tf.make_ndarray(request.inputs["x"]) + tf.constant(1.0))
"""
    assert "[4. 6.]" in run(program)
