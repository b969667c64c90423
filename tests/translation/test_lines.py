import threading
import time

import pytest

from keras_transformer.errors import UserError
from keras_transformer.translation.lines import run_sorted

TEXTS = ["one two", "seven", "ten nine eight four zero", "Größe 😀"]


def test_batches_are_of_similar_length_longest_first_and_order_is_restored():
    batches, progress = [], []

    def shout(texts):
        batches.append(texts)
        return [text.upper() for text in texts]

    texts = ["ccc", "a", "eeeee", "bb", "dddd", "a2", "fffffff"]
    assert run_sorted(shout, texts, 3, progress.append) == [text.upper() for text in texts]
    assert sorted(batches) == [["a"], ["ccc", "bb", "a2"], ["fffffff", "eeeee", "dddd"]] and progress == [3, 3, 1]
    batches.clear()
    assert run_sorted(shout, texts, 3, most=8) == [text.upper() for text in texts]
    assert sorted(batches) == [["bb", "a2", "a"], ["dddd", "ccc"], ["eeeee"], ["fffffff"]]
    assert run_sorted(shout, ["", "one"], 3, most=2) == ["", "ONE"]
    for batch_size in (0, -1):
        with pytest.raises(UserError, match=rf"batch_size.*{batch_size}"):
            run_sorted(list, ["one"], batch_size)


def test_two_batches_are_under_way_at_a_time():
    both = threading.Barrier(2, timeout=30)

    def repeat(texts):
        both.wait()  # alone, the first would wait for ever
        return texts

    assert run_sorted(repeat, TEXTS, 1) == TEXTS


def test_a_failure_is_raised_and_ends_the_work():
    begun = []

    def fail_once(texts):
        begun.append(texts)
        if len(begun) == 1:
            raise RuntimeError("out of memory")
        time.sleep(0.05)
        return texts

    with pytest.raises(RuntimeError, match="out of memory"):
        run_sorted(fail_once, 100 * TEXTS, 1)
    assert len(begun) < 20
