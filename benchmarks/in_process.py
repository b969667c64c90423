"""The speed of a SavedModel in process, with batches of 32: in the usual way, and in the fastest way that we know."""

import itertools
import multiprocessing
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from benchmarks.session import Session
from keras_transformer.cli.console import import_tensorflow

BATCH_SIZE = 32


def usual(directory):
    """Loads with `tf.saved_model.load`, with TensorFlow's default threads: (function, number of callers: one)."""
    import tensorflow as tf
    import tensorflow_text  # noqa: F401  its ops

    loaded = tf.saved_model.load(str(directory))
    return lambda texts: loaded.signatures["serving_default"](text=tf.constant(texts)), 1


def fastest(directory):
    """Loads a Session whose ops run in the calling thread: (function, number of callers: one for each of two cores)."""
    return Session(directory).signature("serving_default"), 2


def rate(way, directory, sentences, seconds):
    """Measures sentences/s of `usual` or `fastest` in a separate process, which shows its own errors."""
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_measure, args=(way, directory, sentences, seconds, sender))
    process.start()
    sender.close()  # The other process holds the sender too. When that process ends, `recv` must not wait.
    try:
        return receiver.recv()
    except EOFError:
        raise ValueError(f"{directory} could not be run in process: see above") from None
    finally:
        process.join()


def _measure(way, directory, sentences, seconds, sender):
    import_tensorflow()
    import numpy as np

    texts = itertools.cycle([sentence.encode() for sentence in sentences])
    take, ends = threading.Lock(), []

    def next_batch():
        with take:
            return np.array(list(itertools.islice(texts, BATCH_SIZE)), dtype=object)

    def work():
        while time.perf_counter() < started + seconds:
            call(next_batch())
            ends.append(time.perf_counter())

    call, threads = way(directory)
    call(next_batch())  # The first batch prepares TensorFlow.
    started = time.perf_counter()
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(lambda _: work(), range(threads)))
    sender.send(len(ends) * BATCH_SIZE / (max(ends) - started))
