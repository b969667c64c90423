from typing import Literal

import pytest

from keras_transformer.value_types import describe_type, is_a


@pytest.mark.parametrize(
    ("kind", "right", "wrong"),
    [
        (int, [3], [True, 3.0, "3", None]),
        (float, [3.5, 3], [True, "3"]),
        (bool, [True], [1, "true"]),
        (int | None, [3, None], [3.5, "None"]),
        (Literal["a", "b"], ["a"], ["c", 1, None]),
        (tuple[str, ...], [("a",), ("a", "b")], [(), ("a", 3), ["a"], "a"]),
        (str | tuple[str, ...], ["a", ("a", "b")], [(), None, ("a", None)]),
    ],
    ids=str,
)
def test_a_value_is_of_a_type_or_not(kind, right, wrong):
    assert [value for value in right if not is_a(value, kind)] == []
    assert [value for value in wrong if is_a(value, kind)] == []


def test_types_have_words():
    assert describe_type(int | None) == "a whole number or not given"
    assert describe_type(str | tuple[str, ...]) == "text or several texts"
    assert describe_type(Literal["a", "b"]) == "one of a, b"
