import json
import math
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.errors import ServingError
from serving.json_reader import MOST_HOLDERS, SHORT, first_of_each, parse, read_stepwise

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=30,
)


def stepwise(text):
    return read_stepwise(text.lstrip(), 0)


def error_of(body, read=parse):
    with pytest.raises(ServingError) as caught:
        read(body)
    return caught.value.message.removeprefix("JSON Parse error: ")


@given(JSON, st.sampled_from([None, 2]), st.booleans())
def test_the_reader_that_goes_step_by_step_reads_what_pythons_parser_reads(value, indent, ascii):
    text = json.dumps(value, indent=indent, ensure_ascii=ascii)
    assert json.dumps(stepwise(text)) == json.dumps(parse(text.encode("utf-8", "surrogatepass"))) == json.dumps(value)


def finite(digits):
    if math.isinf(float(digits)):
        raise ValueError("too big")
    return float(digits)


def whole(digits):
    return int(digits) if -(2**63) <= int(digits) < 2**64 else finite(digits)


def members(pairs):
    json.dumps(pairs, ensure_ascii=False).encode()  # Half of a surrogate pair is a ValueError.
    return first_of_each(pairs)


PYTHON = json.JSONDecoder(object_pairs_hook=members, parse_float=finite, parse_int=whole)


@given(
    JSON, st.integers(0, 99), st.sampled_from(["", "x", '"', ",", "[", "]", "{", "}", ":", "1", "-", "\\", "\0", " "])
)
def test_damaged_text_is_refused_by_both_or_by_none(value, place, change):
    text = json.dumps([value])
    place %= len(text)
    text = text[:place] + change + text[place + 1 :]

    def outcome(read, text):
        try:
            return json.dumps(read(text), ensure_ascii=False).encode()
        except (ServingError, ValueError):
            return None

    assert outcome(stepwise, text) == outcome(lambda text: PYTHON.raw_decode(text.lstrip())[0], text)


@pytest.mark.parametrize(
    "text, message",
    [
        ("", "The document is empty"),
        (" \n", "The document is empty. at offset: 2"),
        ("]", "The document is empty. at offset: 0"),
        ("{", "Missing a name for object member. at offset: 1"),
        ('{"a": 1,}', "Missing a name for object member. at offset: 8"),
        ('{"ä" 1}', "Missing a colon after a name of object member. at offset: 6"),
        ('{"a": 1 2}', "Missing a comma or } after an object member. at offset: 8"),
        ("[1 2]", "Missing a comma or ] after an array element. at offset: 3"),
        ("[1,]", "Invalid value. at offset: 3"),
        ("[nul]", "Invalid value. at offset: 4"),
        ("[-]", "Invalid value. at offset: 2"),
        ("[Infi]", "Invalid value. at offset: 5"),
        ("[Nan]", "Invalid value. at offset: 3"),
        ("[-Ind]", "Invalid value. at offset: 4"),
        ("[1.]", "Miss fraction part in number. at offset: 3"),
        ("[1e+]", "Miss exponent in number. at offset: 4"),
        ("[1e400]", "Number too big to be stored in double. at offset: 1"),
        ("[0e400]", "Number too big to be stored in double. at offset: 1"),
        (f"[0e{5000 * '9'}]", "Number too big to be stored in double. at offset: 1"),
        (400 * "9", "Number too big to be stored in double. at offset: 0"),
        ('{"a": "1}', "Missing a closing quotation mark in string. at offset: 9"),
        ('["\n"]', "Invalid encoding in string. at offset: 2"),
        ('["\\x"]', "Invalid escape character in string. at offset: 2"),
        ('["\\u00g0"]', "Incorrect hex digit after \\u escape in string. at offset: 2"),
        ('["a\\u', "Incorrect hex digit after \\u escape in string. at offset: 3"),
        ('["a\0b"]', "Missing a closing quotation mark in string. at offset: 3"),
        ('["ab\\ud800"]', "The surrogate pair in string is invalid. at offset: 4"),
        ('["\\ude00"]', "The surrogate pair in string is invalid. at offset: 2"),
        ('{"\\ud83d\\u0041": 1}', "The surrogate pair in string is invalid. at offset: 2"),
    ],
)
def test_errors_are_those_of_rapidjson_with_the_offset_in_bytes(text, message):
    assert error_of(text.encode()) == message


@pytest.mark.parametrize(
    "text, value",
    [
        ("18446744073709551615", 2**64 - 1),
        ('{"a": 1, "b": 2, "a": 3}', {"a": 1, "b": 2}),
        ("[Inf, -Inf, Infinity, 1e300]", [math.inf, -math.inf, math.inf, 1e300]),
        ('["\\ud83d\\ude00", "\\\\ud83d"]', ["😀", "\\ud83d"]),
    ],
)
def test_numbers_beyond_64_bits_are_floats_and_the_first_of_equal_names_counts(text, value):
    for found in (parse(text.encode()), stepwise(text)):
        assert (type(found), found) == (type(value), value)
    assert isinstance(stepwise("18446744073709551616"), float)
    assert parse(f"[1e-{5000 * '9'}]".encode()) == [0.0]


@pytest.mark.parametrize("item", [b"[],", b"1,", b'{"a":[[1]]},', b"1e99 ,"])
def test_a_long_document_lets_other_threads_run(item):
    body, gaps, is_over = b"[" + item * (SHORT // len(item) + 1) + b"0]", [], threading.Event()

    def tick():
        while not is_over.is_set():
            before = time.monotonic()
            time.sleep(0.001)
            gaps.append(time.monotonic() - before)

    other = threading.Thread(target=tick)
    other.start()
    found = parse(body)
    is_over.set()
    other.join()
    assert len(found) == SHORT // len(item) + 2
    assert len(gaps) > 10


def test_reading_stops_at_the_deadline_and_too_many_lists_are_not_begun():
    for body, deadline, code in (
        (b"[" * 2 * SHORT, time.monotonic(), "DEADLINE_EXCEEDED"),
        (b'{"z":[' + b"[]," * MOST_HOLDERS, time.monotonic() + 60, "RESOURCE_EXHAUSTED"),
    ):
        with pytest.raises(ServingError) as caught:
            parse(body, deadline)
        assert caught.value.code.name == code
