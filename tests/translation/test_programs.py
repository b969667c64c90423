"""Compiled searches beside the same searches op by op."""

import pytest
import tensorflow as tf

from keras_transformer.decoding.programs import Programs
from keras_transformer.errors import UserError
from keras_transformer.models.recurrent import RecurrentNetwork
from keras_transformer.presets import PROGRAM_ROWS
from keras_transformer.tools.ensemble import Ensemble
from keras_transformer.tools.shortlist import Shortlist
from keras_transformer.translation.signatures import checked_programs
from keras_transformer.translation.translator import Translator
from tests import tiny

PROGRAMS = Programs((1, 2, 4), (3, 6))
TEXTS = ["one", "one two", "two five nine one", "ten nine eight four zero", "five", "one two three four five six seven"]
CODES = {"source_lang": ["en", "de", "fr"], "target_lang": ["de", "fr", "en"]}


def several(**arguments):
    return Ensemble([tiny.transformer(seed, **arguments) for seed in (0, 1)])


def recurrent():
    return RecurrentNetwork(tiny.VOCABULARY, d_model=8, num_layers=1, name="recurrent")


def translator(model, **how):
    return Translator(model, how.pop("tokenizer", tiny.tokenizer)(), **{"length_penalty": 0.7, "max_length": 9, **how})


def assert_equal(found, expected):
    assert [row.text for row in found] == [row.text for row in expected]
    assert [row.score for row in found] == pytest.approx([row.score for row in expected], abs=1e-4)


@pytest.mark.parametrize(
    ("model", "how"),
    [
        (lambda: tiny.transformer(positions="rotary", d_key=6), {}),
        pytest.param(lambda: tiny.transformer(autoregression="ssru"), {}, marks=pytest.mark.slow),
        pytest.param(tiny.trained_transformer, {}, marks=pytest.mark.slow),
        pytest.param(lambda: tiny.transformer(frame="3/4/5"), {"beam_size": 1}, marks=pytest.mark.slow),
        pytest.param(several, {"tokenizer": tiny.keeping_tokenizer, "protect": True}, marks=pytest.mark.slow),
        pytest.param(recurrent, {}, marks=pytest.mark.slow),
    ],
    ids=["rotary", "ssru", "trained", "greedy", "ensemble", "recurrent"],
)
def test_programs_translate_as_ops_do_in_every_size_and_past_it(model, how):
    how = {"beam_size": 3, "batch_size": 4, "extra_length": 9, **how}
    plain = translator(model(), **how)
    fast = plain.with_model(plain.model, programs=PROGRAMS)
    for number in range(1, len(TEXTS) + 1):
        assert_equal(fast.translate_scored(TEXTS[-number:]), plain.translate_scored(TEXTS[-number:]))
    for found, expected in zip(fast.alternatives(TEXTS), plain.alternatives(TEXTS), strict=True):
        assert_equal(found, expected)
    given = {"beam_size": 1, "prefix": "zwei"}
    assert_equal(fast.translate_scored(TEXTS, **given), plain.translate_scored(TEXTS, **given))


@pytest.mark.slow
@pytest.mark.parametrize("place", ["source", "decoder"])
def test_programs_know_the_direction_of_every_row(place):
    plain = tiny.many_languages(place, beam_size=3)
    fast = plain.with_model(plain.model, programs=PROGRAMS)
    assert_equal(fast.translate_scored(TEXTS[:3], **CODES), plain.translate_scored(TEXTS[:3], **CODES))


def test_a_row_depends_neither_on_its_batch_nor_on_its_program():
    plain = translator(tiny.transformer(positions="rotary", d_key=6), beam_size=3, batch_size=4, extra_length=9)
    fast = plain.with_model(plain.model, programs=PROGRAMS)
    alone = [fast.translate_scored(text) for text in TEXTS[:4]]
    assert_equal(fast.translate_scored(TEXTS[:4]), alone)
    wide = plain.with_model(plain.model, programs=Programs((4,), (6, 12)))
    assert_equal(wide.translate_scored(TEXTS[:4]), alone)
    assert fast.translate(["", " ", "one"])[:2] == ["", ""]


def test_sizes_that_no_program_can_have_are_refused():
    for rows, lengths in (((), (3, 6)), ((0, 1), (3, 6)), ((4, 2), (3, 6)), ((1, 1), (3, 6)), ((1,), ())):
        with pytest.raises(UserError, match="ascending numbers"):
            checked_programs(Programs(rows, lengths), tiny.transformer())
    assert checked_programs(PROGRAMS, tiny.transformer()) is PROGRAMS
    assert checked_programs(True, tiny.transformer()).rows == PROGRAM_ROWS
    size = tiny.VOCABULARY
    with pytest.raises(UserError, match="shortlist"):
        checked_programs(
            PROGRAMS, tiny.transformer(), Shortlist(tf.zeros((size, 1)).numpy(), tf.range(4).numpy(), size)
        )

    class Own(type(tiny.transformer())):
        def start(self, memory, width):
            return super().start(memory, width)

    with pytest.raises(UserError, match="Own need the argument `room`"):
        checked_programs(PROGRAMS, Own(tiny.VOCABULARY, **tiny.SIZES))
