"""How fast TensorFlow multiplies by matrices of a width, and of 16 columns more: 10^9 operations a second, one thread.

    python -m benchmarks.matrix_products
    python -m benchmarks.matrix_products --matrix 1024 4096 --rows 4 128

Each product runs in a SavedModel that is loaded as TensorFlow Serving loads it, with `serving/config/session.config`.
Eight matrices take turns, as those of several layers do. `spread` in keras_transformer/layers/kernels.py says why.
"""

import argparse
import tempfile
import time

import numpy as np

from benchmarks.session import Session
from keras_transformer.cli.console import import_tensorflow, program
from keras_transformer.errors import check_positive
from keras_transformer.layers.kernels import SPARE

MATRICES, ROWS, IN_TURN, ROUNDS = ((512, 2048), (512, 512), (2048, 512), (256, 1024), (256, 256)), (4, 16, 128), 8, 9


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    help_text = "rows and columns of a matrix, repeatable (default: those of base and small)"
    parser.add_argument("--matrix", type=int, nargs=2, action="append", metavar=("D", "E"), help=help_text)
    parser.add_argument("--rows", type=int, nargs="+", default=ROWS, help="rows of x (default: 4 16 128)")
    return parser.parse_args()


def product(depth, width):
    """A function of x (B, depth), an array, that multiplies it by matrices (depth, width) in a Session."""
    import tensorflow as tf

    module = tf.Module()
    module.matrices = [tf.Variable(tf.random.normal((depth, width))) for _ in range(IN_TURN)]

    @tf.function(input_signature=[tf.TensorSpec([None, depth])])
    def multiply(x):
        return {"sum": tf.add_n([tf.matmul(x, matrix)[:1, :1] for matrix in module.matrices])}

    with tempfile.TemporaryDirectory() as directory:
        tf.saved_model.save(module, directory, {"multiply": multiply})
        return Session(directory).signature("multiply", inputs=["x"], outputs=["sum"])


def rate(multiply, rows, depth, width):
    """10^9 operations a second in the best of some rounds."""
    x, seconds = np.ones((rows, depth), "float32"), []
    for _ in range(ROUNDS):
        started = time.process_time()
        multiply(x)
        seconds.append(time.process_time() - started)
    return 2 * rows * depth * width * IN_TURN / min(seconds) / 1e9


def main(arguments):
    check_positive(rows=min(arguments.rows), matrix=min(map(min, arguments.matrix or MATRICES)))
    print("| matrix | " + " | ".join(f"{rows} rows" for rows in arguments.rows) + " |")
    print("|---" * (1 + len(arguments.rows)) + "|")
    for depth, width in arguments.matrix or MATRICES:
        for columns in (width, width + SPARE):
            multiply = product(depth, columns)
            rates = " | ".join(f"{rate(multiply, rows, depth, columns):.0f}" for rows in arguments.rows)
            print(f"| ({depth}, {columns}) | {rates} |", flush=True)


if __name__ == "__main__":
    with program():
        arguments = parse_arguments()
        import_tensorflow()
        main(arguments)
