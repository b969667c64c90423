import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving import json_tensors
from serving.json_tensors import parse, write_tensors

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=30,
)


def reply(outputs, is_rows=True):
    return json.loads(write_tensors(outputs, is_rows))


@given(JSON, st.sampled_from([None, 2]), st.booleans())
def test_what_python_writes_is_read_as_it_was(value, indent, ascii):
    text = json.dumps({"a": value}, indent=indent, ensure_ascii=ascii)
    assert json.dumps(parse(text.encode("utf-8", "surrogatepass"))) == json.dumps({"a": value})


@pytest.mark.parametrize("shape", [(2, 3), (2, 3, 5), (2, 0), (0, 3), (2, 0, 3), (0,)])
def test_outputs_of_any_rank_keep_it(monkeypatch, shape):
    monkeypatch.setattr(json_tensors, "CHUNK", 7)
    for array in (np.arange(math.prod(shape)).reshape(shape) / 2, np.full(shape, True), np.full(shape, 3, np.uint8)):
        assert reply({"x": array}) == {"predictions": array.tolist()}
        assert reply({"x": array}, is_rows=False) == {"outputs": array.tolist()}
    texts = np.full(shape, "ö".encode(), object)
    rows = np.full(shape, "ö").tolist()
    assert reply({"x": texts, "y": texts}) == {"predictions": [{"x": row, "y": row} for row in rows]}


@given(st.lists(st.floats(width=32), min_size=1), st.sampled_from([np.float32, np.float64]))
def test_floats_survive(values, dtype):
    array = np.array(values, dtype)
    found = np.array(reply({"x": array})["predictions"], dtype)
    np.testing.assert_array_equal(found, array)
