import argparse
import re
import subprocess
import sys
from pathlib import Path

import pytest

from keras_transformer.cli.flags import add_translator_arguments, default_text
from keras_transformer.cli.request import add_request_arguments
from keras_transformer.errors import UserError
from keras_transformer.translation.options import OPTIONS, check_options, options_of

ROOT = Path(__file__).parents[2]


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


def test_the_table_is_read_without_tensorflow():
    """So that `--help` is quick."""
    code = "import sys, keras_transformer.translation.options; print('tensorflow' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert (run.returncode, run.stdout, run.stderr) == (0, "False\n", "")


def table_of(signature):
    """The options of a signature as a Markdown table, with their dtypes, ranges and defaults."""
    rows = ["| input | dtype | range | not given | default | meaning |", "|---|---|---|---|---|---|"]
    for option in options_of(signature):
        not_given = {"": '`""`', "nan": "NaN"}.get(str(option.not_given), "0")
        cells = (f"`{option.name}`", option.dtype, option.range or "text", not_given, default_text(option), option.help)
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


@pytest.mark.parametrize("page", ["docs/translate.md", "serving/README.md"])
def test_pages_show_all_options_with_all_that_a_caller_needs(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    shown = re.findall(r"<!-- options -->\n(.*?)\n<!-- /options -->", text, re.DOTALL)
    assert len(shown) == 1, f"{page} must have one block of options"
    for table in map(table_of, ("translate_with_options", "sample")):
        assert table in shown[0], f"{page}: insert this table anew\n{table}"
