"""Compiled searches beside the same searches op by op, and an export as TensorFlow Serving with XLA runs it."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

from keras_transformer.errors import ExportError, UserError
from keras_transformer.export.manifest import read_manifest
from keras_transformer.export.versions import export_version
from keras_transformer.export.warmup import read_warm_up, size_of
from keras_transformer.models.recurrent import RecurrentNetwork
from keras_transformer.presets import PROGRAM_ROWS
from keras_transformer.tools.engines.compiled import CompiledExport, Programs, checked_programs, texts_of_programs
from keras_transformer.tools.ensemble import Ensemble
from keras_transformer.tools.shortlist import Shortlist
from keras_transformer.translation.translator import Translator
from tests import tiny
from tests.in_cpp import run_in_cpp

PROGRAMS, EXPORTED = Programs((1, 3), (3, 6)), Programs((2,), (9,))
TEXTS = ["one", "one two", "two five nine one", "ten nine eight four zero", "five", "one two three four five six seven"]
CODES = {"source_lang": ["en", "de", "fr"], "target_lang": ["de", "fr", "en"]}


def several():
    return Ensemble([tiny.transformer(seed, positions="rotary", d_key=6) for seed in (0, 1)])


def recurrent():
    return RecurrentNetwork(tiny.VOCABULARY, d_model=8, num_layers=1, name="recurrent")


def translator(model, **how):
    return Translator(model, how.pop("tokenizer", tiny.tokenizer)(), **{"length_penalty": 0.7, "max_length": 9, **how})


def assert_equal(found, expected):
    assert [row.text for row in found] == [row.text for row in expected]
    assert [row.score for row in found] == pytest.approx([row.score for row in expected], abs=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "how"), [(several, {"tokenizer": tiny.keeping_tokenizer, "protect": True}), (recurrent, {"beam_size": 1})]
)
def test_programs_translate_as_ops_do_in_every_size_and_past_it(model, how):
    how = {"beam_size": 3, "batch_size": 4, "extra_length": 9, **how}
    plain = translator(model(), **how)
    fast = plain.with_model(plain.model, programs=PROGRAMS)
    for number in range(1, len(TEXTS) + 1):
        assert_equal(fast.translate_scored(TEXTS[-number:]), plain.translate_scored(TEXTS[-number:]))
    for found, expected in zip(fast.alternatives(TEXTS), plain.alternatives(TEXTS), strict=True):
        assert_equal(found, expected)
    assert fast.translate(["", " ", "one"])[:2] == ["", ""]
    given = {"beam_size": 1, "prefix": "zwei"}
    assert_equal(fast.translate_scored(TEXTS, **given), plain.translate_scored(TEXTS, **given))


@pytest.mark.slow
def test_programs_know_the_direction_of_every_row():
    plain = tiny.many_languages("decoder", beam_size=3)
    fast = plain.with_model(plain.model, programs=PROGRAMS)
    assert_equal(fast.translate_scored(TEXTS[:3], **CODES), plain.translate_scored(TEXTS[:3], **CODES))


def test_sizes_that_no_program_can_have_are_refused():
    for rows, lengths in (
        ((), (3, 6)),
        ((0, 1), (3, 6)),
        ((4, 2), (3, 6)),
        ((1, 1), (3, 6)),
        ((1,), ()),
        ((1,), (2000,)),
    ):
        with pytest.raises(UserError, match="ascending numbers|are at most 1,024"):
            checked_programs(Programs(rows, lengths), tiny.transformer())
    assert checked_programs(PROGRAMS, tiny.transformer()) is PROGRAMS
    assert checked_programs(True, tiny.transformer()).rows == PROGRAM_ROWS
    size = tiny.VOCABULARY
    with pytest.raises(UserError, match="shortlist"):
        checked_programs(PROGRAMS, tiny.transformer(), Shortlist(np.zeros((size, 1)), np.arange(4), size))

    class Own(type(tiny.transformer())):
        def start(self, memory, width):
            return super().start(memory, width)

    with pytest.raises(UserError, match="Own need the argument `room`"):
        checked_programs(PROGRAMS, Own(tiny.VOCABULARY, **tiny.SIZES))


def test_each_program_has_a_text_that_warms_it_up():
    programs = Programs((1, 3), (4, 9))
    sizes = [(each["rows"], each["length"], each["steps"]) for each in programs.listed()]
    assert sizes == [(1, 4, 6), (3, 4, 6), (1, 9, 13), (3, 9, 13)]
    texts, rows = zip(*texts_of_programs(programs, tiny.tokenizer()), strict=True)
    pieces = tiny.tokenizer().encode([*texts]).row_lengths().numpy()
    lengths = [min(length for length in programs.lengths if length >= number) for number in pieces]
    assert [*zip(rows, lengths, strict=True)] == [size[:2] for size in sizes]


class Checked(CompiledExport):
    """Asks for the proof of wrong programs, too."""

    def check(self, translate_batch, sentences):
        super().check(translate_batch, sentences)

        def translate_otherwise(batch):
            texts, scores = translate_batch(batch)
            return [text.upper() for text in texts], scores

        with pytest.raises(ExportError, match="a compiled program translates"):
            super().check(translate_otherwise, sentences)
        self.is_checked = True


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """A version, which a Session and Python in another process have proven."""
    export = Checked(tiny.beam_translator(), programs=EXPORTED)
    path = export_version(export, tmp_path_factory.mktemp("compiled"), sentences=TEXTS)
    assert export.is_checked
    return path


@pytest.mark.slow
def test_an_export_lists_its_programs_warms_them_up_and_compiles_nothing_else(exported):
    assert read_manifest(exported)["programs"] == EXPORTED.listed()
    requests = [each for each in read_warm_up(exported) if each.model_spec.signature_name == "translate"]
    warm = {(tf.make_ndarray(each.inputs["text"])[0].decode(), size_of(each)) for each in requests}
    assert {*texts_of_programs(EXPORTED, tiny.tokenizer())} <= warm
    functions = SavedModel.FromString((exported / "saved_model.pb").read_bytes()).meta_graphs[0].graph_def.library
    compiled = [each for each in functions.function if each.attr["_XlaMustCompile"].b]
    assert len(compiled) == 2  # of all sizes: one reads the source, the other takes the steps


@pytest.mark.slow
def test_the_c_library_runs_programs_with_xla_and_says_what_is_missing_without(exported):
    texts = TEXTS[:2]  # a program holds them
    found = run_in_cpp(exported, texts, xla="on")
    assert found.returncode == 0, found.stderr.decode()
    assert found.stdout.decode().splitlines() == tiny.beam_translator().translate(texts)
    assert b"XLA compilation disabled" in run_in_cpp(exported, texts, xla="off").stderr
