"""The types that a setting may have: whether a value is of one, and how people call it."""

from typing import Literal, get_args, get_origin

WORDS = {int: "a whole number", float: "a number", bool: "true or false", str: "text", type(None): "not given"}
WORDS |= {tuple[str, ...]: "several texts"}


def is_a(value, kind):
    """Whether a value is of a type: a class, Literal, union, or tuple of one type. An int is a float, a bool no int."""
    if get_origin(kind) is Literal:
        return isinstance(value, str) and value in get_args(kind)
    if get_origin(kind) is tuple:
        return isinstance(value, tuple) and len(value) > 0 and all(is_a(each, get_args(kind)[0]) for each in value)
    if get_args(kind):
        return any(is_a(value, choice) for choice in get_args(kind))
    return type(value) is kind or (kind is float and type(value) is int)


def describe_type(kind):
    """A type in words, such as "a number or not given"."""
    if get_origin(kind) is Literal:
        return f"one of {', '.join(get_args(kind))}"
    return " or ".join(WORDS[choice] for choice in get_args(kind) or (kind,))
