"""The options of a search, and the inputs and outputs of the signatures: the tables that other modules are made from.

The inputs of the signatures, the arguments of `Translator`, the flags of translate.py and evaluate.py with their
ranges, the requests that warm up an export, and the tables of the guide come from `OPTIONS`. A new option is one row
here, and its effect in `keras_transformer/decoding/search.py` (`next_tokens` or `drawn_tokens`).

This module imports no TensorFlow: `--help` must be quick.
"""

import math
import numbers
from typing import NamedTuple

from keras_transformer.errors import UserError
from keras_transformer.presets import LENGTH_PENALTIES, MOST_HYPOTHESES

MOST = 2**31 - 1  # of an int32
KINDS = {int: numbers.Integral, float: numbers.Real, str: (str, bytes)}  # the values of an option of a type


class Option(NamedTuple):
    """One option of a search, which every text of a batch has for itself."""

    name: str
    signature: str  # that takes it
    dtype: str  # of the signature's input
    least: float  # smallest value; signatures raise a smaller one to it
    most: float  # largest value; signatures lower a larger one to it
    not_given: object  # the value that stands for "not given"
    default: object  # the value used where none is given; None: that of the model
    example: object  # a value that changes the result, for the warm-up
    help: str
    default_note: str = ""  # the default in words, where its value does not say it

    @property
    def type(self):
        """The Python type of a value."""
        return {"string": str, "float32": float, "int32": int, "int64": int}[self.dtype]

    @property
    def range(self):
        """The range in words, for tables and messages; "" for text."""
        if self.dtype == "string":
            return ""
        most = "2^31 - 1" if self.most == MOST else "2^63 - 1" if self.most == 2**63 - 1 else f"{self.most:g}"
        least = "-2^63" if self.least == -(2**63) else f"{self.least:g}"
        return f"{least} to {most}"


_BEAM, _SAMPLE = "translate_with_options", "sample"
OPTIONS = (
    Option("prefix", _BEAM, "string", 0, 0, "", "", "A", "text that every translation begins with"),
    Option(
        *("length_penalty", _BEAM, "float32", *LENGTH_PENALTIES, math.nan, None, 0.6),
        "alpha of ((5 + n) / 6)^alpha; larger values prefer longer translations",
    ),
    Option(
        *("beam_size", _BEAM, "int32", 1, MOST_HYPOTHESES, 0, None, 2),
        "hypotheses that beam search keeps; an export has a largest number, which export.py sets",
    ),
    Option(
        *("max_length", _BEAM, "int32", 1, MOST, 0, 0, 20),
        *("most tokens of the translation of a sentence", "50 more than the sentence has, or what training showed"),
    ),
    Option(
        *("repetition_penalty", _BEAM, "float32", 0.01, 100.0, 0.0, 1.0, 1.1),
        "log-probabilities of tokens used already are multiplied by it; above 1, these tokens become less likely",
    ),
    Option(
        *("no_repeat_ngram", _BEAM, "int32", 0, MOST, 0, 0, 3),
        "no sequence of this many tokens comes twice in a sentence; 0 allows all",
    ),
    Option(
        *("temperature", _SAMPLE, "float32", 0.01, 100.0, 0.0, 1.0, 0.9), "below 1, likely tokens become even likelier"
    ),
    Option(
        *("top_k", _SAMPLE, "int32", 0, MOST, 0, 0, 10),
        "tokens are drawn from this many most likely ones; 0 allows all",
    ),
    Option(
        *("top_p", _SAMPLE, "float32", 1e-6, 1.0, 0.0, 1.0, 0.9),
        "tokens are drawn from the most likely ones that have this probability together",
    ),
    Option(
        *("seed", _SAMPLE, "int64", -(2**63), 2**63 - 1, 0, 0, 1),
        "the same seed draws the same translation, whatever other texts are in the batch",
    ),
)


def options_of(signature):
    """The options that a signature takes, a list of `Option`."""
    return [option for option in OPTIONS if option.signature == signature]


INPUTS = {
    "translate": {"text": "string"},
    "alternatives": {"text": "string"},
    **{name: {"text": "string"} | {each.name: each.dtype for each in options_of(name)} for name in (_BEAM, _SAMPLE)},
    "score": {"text": "string", "translation": "string"},
    "explain": {"text": "string"},
}
"""The inputs of every signature: name -> dtype. Each has the batch as its only dimension."""

LANGUAGE_INPUTS = {"source_lang": "string", "target_lang": "string"}
"""The inputs that every signature of a model of many languages has besides; "" is the default of the model."""

_BEST = {"translation": ("string", "B"), "score": ("float32", "B")}
_PIECES = {"pieces": ("string", "BT"), "token_scores": ("float32", "BT")}
OUTPUTS = {
    "translate": _BEST,
    "alternatives": {"translations": ("string", "BW"), "scores": ("float32", "BW")},
    _BEAM: _BEST,
    _SAMPLE: _BEST,
    "score": {"score": ("float32", "B"), **_PIECES},
    "explain": {"source_pieces": ("string", "BS"), **_PIECES, "alignment": ("float32", "BTS")},
}
"""The outputs of every signature: name -> (dtype, dimensions): B texts, W alternatives, T pieces, S source pieces."""


def inputs_of(signature, tags=None):
    """The inputs of a signature, name -> dtype; with those of a model of many languages if there are `tags`."""
    return INPUTS[signature] | (LANGUAGE_INPUTS if tags else {})


def check_options(signature, given):
    """Finds a user's mistake in options before any work.

    Args:
        signature: the signature that is to take them.
        given: name -> value, or list of a value for each text.

    Raises:
        UserError: for an option that the signature does not have, or a value of another type or out of range.
    """
    options = {option.name: option for option in options_of(signature)}
    for name, values in given.items():
        if name not in options:
            raise UserError(f"`{signature}` has no option `{name}`, only {', '.join(options)}")
        option = options[name]
        for value in values if isinstance(values, (list, tuple)) else [values]:
            if not isinstance(value, KINDS[option.type]) or isinstance(value, bool):
                kind = {int: "a whole number", float: "a number", str: "a str"}[option.type]
                raise UserError(f"`{name}` must be {kind}. Received: {value!r}")
            is_given = value != option.not_given and value == value
            if option.range and is_given and not option.least <= value <= option.most:
                raise UserError(f"`{name}` must be between {option.range.replace(' to ', ' and ')}. Received: {value}")


def complete_inputs(signature, inputs):
    """Checks the inputs of a signature, and adds every missing option as "not given", and languages as None.

    Args:
        signature: its name.
        inputs: name -> value, or list of a value for each text.

    Returns:
        dict, name -> value or list of values, all inputs of the signature, and `LANGUAGE_INPUTS`.

    Raises:
        UserError: if there is no such signature or input, a value is out of range, or there is not a value for every
            text.
    """
    if signature not in INPUTS:
        raise UserError(f"there is no signature `{signature}`, only {', '.join(INPUTS)}")
    options = {option.name: option.not_given for option in options_of(signature)}
    texts = INPUTS[signature].keys() - options.keys()
    not_options = texts | LANGUAGE_INPUTS.keys()
    check_options(signature, {name: value for name, value in inputs.items() if name not in not_options})
    if missing := texts - inputs.keys():
        raise UserError(f"`{signature}` needs {', '.join(sorted(missing))}")
    number = len(inputs["text"])
    for name, values in inputs.items():
        if isinstance(values, (list, tuple)) and len(values) != number:
            raise UserError(f"`{name}` must have one value for every text. Received: {len(values)}, of {number} texts")
    return {**options, **dict.fromkeys(LANGUAGE_INPUTS), **inputs}
