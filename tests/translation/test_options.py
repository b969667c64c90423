import argparse
import math
import re
import subprocess
import sys
from pathlib import Path

import pytest

from keras_transformer.cli.flags import add_translator_arguments, default_text
from keras_transformer.cli.request import add_request_arguments
from keras_transformer.errors import UserError
from keras_transformer.translation.options import MOST, OPTIONS, check_options, options_of

ROOT = Path(__file__).parents[2]
ALPHA = (-10.0, 10.0)
FACTOR = (0.01, 100.0)
COUNT = (0, MOST)
SIZE = (1, MOST)

# name -> signature, dtype, range, the value for "not given", the default: written down a second time, for users.
EXPECTED = {
    "prefix": ("translate_with_options", "string", None, "", ""),
    "length_penalty": ("translate_with_options", "float32", ALPHA, math.nan, None),
    "beam_size": ("translate_with_options", "int32", (1, 256), 0, None),
    "max_length": ("translate_with_options", "int32", SIZE, 0, 0),
    "repetition_penalty": ("translate_with_options", "float32", FACTOR, 0.0, 1.0),
    "no_repeat_ngram": ("translate_with_options", "int32", COUNT, 0, 0),
    "temperature": ("sample", "float32", FACTOR, 0.0, 1.0),
    "top_k": ("sample", "int32", COUNT, 0, 0),
    "top_p": ("sample", "float32", (1e-6, 1.0), 0.0, 1.0),
    "seed": ("sample", "int64", (-(2**63), 2**63 - 1), 0, 0),
}


def test_options_have_these_dtypes_ranges_and_defaults():
    found = {
        o.name: (o.signature, o.dtype, (o.least, o.most) if o.range else None, o.not_given, o.default) for o in OPTIONS
    }
    assert repr(found) == repr(EXPECTED)  # a NaN equals no NaN


# What is made from the table. That an exported signature has these inputs: tests/export/test_saved_model.py.


def test_a_program_has_a_flag_of_every_option_with_its_type_help_and_default():
    parser = argparse.ArgumentParser()
    add_translator_arguments(parser)
    add_request_arguments(parser)
    flags = {action.dest: action for action in parser._actions}
    for option in OPTIONS:
        flag = flags[option.name]
        types = {"string": str, "float32": float, "int32": int, "int64": int}
        assert flag.type is option.type is types[option.dtype] and flag.default is None
        assert option.help in flag.help and default_text(option) in flag.help
        assert ("only with --sample" in flag.help) == (option.signature == "sample")


def test_a_value_out_of_range_is_named_and_the_ends_of_a_range_and_not_given_are_no_mistakes():
    for option in (option for option in OPTIONS if option.dtype != "string"):
        for value in (option.least, option.most, option.not_given):
            check_options(option.signature, {option.name: value})
            check_options(option.signature, {option.name: [option.least, value]})
        step = max(abs(option.least), abs(option.most), 1.0)
        for value in (option.least - step, option.most + step):
            message = rf"`{option.name}` must be between .*Received: {re.escape(str(value))}"
            for given in (value, [option.least, value], (value,)):
                with pytest.raises(UserError, match=message):
                    check_options(option.signature, {option.name: given})


def test_an_option_of_another_signature_is_named_with_those_that_there_are():
    with pytest.raises(UserError, match="`sample` has no option `heat`, only temperature, top_k, top_p, seed"):
        check_options("sample", {"temperature": 1.0, "heat": 1.0})
    with pytest.raises(UserError, match="`translate` has no option `prefix`"):
        check_options("translate", {"prefix": "A"})


def test_the_table_is_read_without_tensorflow():
    """So that `--help` is quick."""
    code = "import sys, keras_transformer.translation.options; print('tensorflow' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert (run.returncode, run.stdout, run.stderr) == (0, "False\n", "")


def table_of(signature):
    """The options of a signature as a Markdown table."""
    rows = ["| input | dtype | range | not given | default | meaning |", "|---|---|---|---|---|---|"]
    for option in options_of(signature):
        not_given = {"": '`""`', "nan": "NaN"}.get(str(option.not_given), "0")
        cells = (f"`{option.name}`", option.dtype, option.range or "text", not_given, default_text(option), option.help)
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


@pytest.mark.parametrize("page", ["docs/translate.md", "serving/README.md"])
def test_pages_show_all_options_with_all_that_a_caller_needs(page):
    ranges = {option.name: option.range for option in OPTIONS}
    assert (ranges["length_penalty"], ranges["top_p"]) == ("-10 to 10", "1e-06 to 1")
    assert (ranges["max_length"], ranges["seed"]) == ("1 to 2^31 - 1", "-2^63 to 2^63 - 1")
    text = (ROOT / page).read_text(encoding="utf-8")
    shown = re.findall(r"<!-- options -->\n(.*?)\n<!-- /options -->", text, re.DOTALL)
    assert len(shown) == 1, f"{page} must have one block of options"
    for table in map(table_of, ("translate_with_options", "sample")):
        assert table in shown[0], f"{page}: insert this table anew\n{table}"
