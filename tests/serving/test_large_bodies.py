import json
import threading
import time

import numpy as np
import tensorflow as tf

from serving.json_tensors import MOST_HOLDERS, parse, read_large, read_request
from tests.serving.live import refusal

FLOAT, INT64, STRING = (dtype.as_datatype_enum for dtype in (tf.float32, tf.int64, tf.string))
SIGNATURES = {"serving_default": {"x": FLOAT}, "two": {"n": INT64, "text": STRING}}


def read_here(body, signatures):
    return read_request(parse(body), signatures)


def test_another_process_reads_a_body_as_the_server_does():
    texts = ["a", {"b64": "/w=="}, "ö"] * 50_000
    for document in (
        {"instances": [[1, 2.5], [3, 4]]},
        {"inputs": []},
        {"signature_name": "two", "inputs": {"n": list(range(150_000)), "text": texts}},
    ):
        body = json.dumps(document).encode()
        (name, inputs, is_rows), expected = read_large(body, SIGNATURES), read_here(body, SIGNATURES)
        assert (name, is_rows, inputs.keys()) == (expected[0], expected[2], expected[1].keys())
        for key, array in inputs.items():
            np.testing.assert_array_equal(array, expected[1][key], strict=True)
    for body in (b'{"instances": [true]}', b'{"inputs": ["\\ud800"]}', b"[]", 10**6 * b"["):
        assert refusal(read_large, body, SIGNATURES) == refusal(read_here, body, SIGNATURES)
    assert refusal(read_large, b'{"signature_name": "other"}', SIGNATURES)[0] == "INVALID_ARGUMENT"


def test_reading_holds_up_no_thread_stops_at_the_deadline_and_does_not_begin_with_too_many_lists():
    gaps, is_over = [], threading.Event()

    def tick():
        while not is_over.is_set():
            before = time.monotonic()
            time.sleep(0.001)
            gaps.append(time.monotonic() - before)

    other = threading.Thread(target=tick)
    other.start()
    _, inputs, _ = read_large(b'{"inputs": [' + 3 * 10**6 * b"1," + b"2]}", SIGNATURES)
    is_over.set()
    other.join()
    assert inputs["x"].shape == (3 * 10**6 + 1,) and max(gaps) < 0.25
    assert refusal(read_large, 10**6 * b"[", SIGNATURES, 0.01)[0] == "DEADLINE_EXCEEDED"
    assert refusal(read_large, b"[]," * MOST_HOLDERS + b"[", SIGNATURES)[0] == "RESOURCE_EXHAUSTED"
