import argparse
from typing import Literal

import pytest

from keras_transformer.cli.parser import Parser, reader, with_dashes


@pytest.fixture
def parser():
    parser = Parser("does it")
    parser.add_argument("--beam_size", type=int, help="100%% of the beam, unless `pre_norm` or `other` is given")
    parser.add_argument("--pre_norm", type=bool, nargs="?", const=True)
    parser.add_argument("--seed", type=float)
    return parser


@pytest.fixture
def refused(parser, capsys):
    """Function from words to the line of the mistake that they are."""

    def refuse(*words):
        with pytest.raises(SystemExit) as caught:
            parser.parse_args(words)
        assert caught.value.code == 2
        out, err = capsys.readouterr()
        assert out == "" and err.count("\n") == 1
        return err.removesuffix("\n")

    return refuse


def test_a_flag_is_spelled_with_underscores_or_dashes_and_never_shortened(parser, refused):
    assert parser.parse_args(["--beam-size=3", "--pre-norm", "--seed", "-5"]).__dict__ == {
        "beam_size": 3,
        "pre_norm": True,
        "seed": -5.0,
    }
    assert refused("--beam", "3") == "error: unrecognized arguments: --beam 3; did you mean --beam_size?"
    assert parser.flags == {"help", "beam_size", "pre_norm", "seed"}


def test_words_of_another_program_stay_as_they_are(parser):
    arguments, others = parser.parse_known_args(["--some-flag=a-b", "--beam-size", "3", "--other-one"])
    assert (arguments.beam_size, others) == (3, ["--some-flag=a-b", "--other-one"])


def test_a_mistake_names_the_flag_the_rule_and_the_word(refused):
    assert refused("--beam_size", "1.5") == "error: --beam_size must be a whole number. Received: 1.5"
    assert refused("--pre_norm=maybe") == "error: --pre_norm must be true or false. Received: maybe"
    assert refused("--seed", "1,5") == "error: --seed must be a number. Received: 1,5"
    assert "--seed: expected one argument" in refused("--seed")
    assert refused("--bean_size", "3") == "error: unrecognized arguments: --bean_size 3; did you mean --beam_size?"
    assert refused("beam_size") == "error: unrecognized arguments: beam_size; --help lists all flags"


def test_help_names_flags_with_dashes(parser):
    assert "100% of the beam, unless --pre_norm or `other` is given" in " ".join(parser.format_help().split())


def test_only_a_whole_name_in_backquotes_is_a_flag():
    text = "`seed`, `seeds`, seed, `a seed`, `seed=3` and `seed` 3"
    assert with_dashes(text, {"seed"}) == "--seed, `seeds`, seed, `a seed`, `seed=3` and --seed 3"


@pytest.mark.parametrize(
    ("kind", "right", "wrong"),
    [
        (int, {"3": 3, "-3": -3}, ["3.0", "None", ""]),
        (float, {"3": 3.0, "1e-3": 0.001}, ["1,5", "true"]),
        (bool, {"true": True, "True": True, "false": False, "False": False}, ["1", "TRUE", ""]),
        (str, {"None": "None", "3": "3", "": ""}, []),
        (int | None, {"3": 3, "None": None}, ["none", "3.5"]),
        (str | None, {"None": None, "true": "true"}, []),
        (Literal["a", "3"], {"a": "a", "3": "3"}, ["b", "None"]),
    ],
    ids=str,
)
def test_a_word_becomes_a_value_of_the_type(kind, right, wrong):
    found = {word: reader(kind)(word) for word in right}
    assert found == right and [type(value) for value in found.values()] == [type(value) for value in right.values()]
    for word in wrong:
        with pytest.raises(argparse.ArgumentTypeError, match=f"must be .*Received: {word}$"):
            reader(kind)(word)
