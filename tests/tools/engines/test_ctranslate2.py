import functools
import json
import re
import shutil

import ctranslate2
import numpy as np
import pytest
import sentencepiece

import keras_transformer as kt
from keras_transformer.config import BOS_ID
from keras_transformer.errors import ExportError
from keras_transformer.export.manifest import read_manifest
from keras_transformer.export.versions import export_version
from keras_transformer.models.recurrent import RecurrentNetwork
from keras_transformer.models.sequence_to_sequence import load_model
from keras_transformer.presets import split_frame_setting
from keras_transformer.tokenizer import Tokenizer, train_tokenizer
from keras_transformer.tools.engines import ctranslate2 as export_module
from keras_transformer.tools.engines.ctranslate2 import MOST_INPUT, CTranslate2Export
from keras_transformer.tools.engines.greedy import vocabulary
from keras_transformer.translation.segments import EXTRA_LENGTH
from keras_transformer.translation.translator import Translator
from tests import tiny

LEARNED = [source for source, _ in tiny.learned_pairs()]
TEXTS = [*LEARNED[-23:], "", " \t\n", "\ufeff", "</s> <pad>", "seven " * 50]
LEARNED_POSITIONS = {"positions": "learned", "num_positions": 7}
MBART = {**LEARNED_POSITIONS, "tie_positions": False, "embedding_norm": True, "activation": "gelu"}
MBART |= {"scale_embeddings": False, "attention_bias": True, "pre_norm": True, "layer_norm_epsilon": 1e-3}
RELATIVE = {"positions": "relative", "relative_clip": 3, "num_heads": 6, "d_key": 5, "num_key_value_heads": 2}
TIED = {**LEARNED_POSITIONS, "num_key_value_heads": 1, "num_decoder_layers": 2}  # one table of positions
OTHERS = [
    {**tiny.OPUS, "frame": "5,7/3/3", "first_position": 2, "pre_norm": True, "tie_embeddings": False},
    {"positions": "rotary", "num_layers": 2, "d_key": 6, "num_key_value_heads": 1, "pre_norm": True},
    {"positions": "none", "d_key": 7, "activation": "gelu_sigmoid", "embedding_norm": True},
    {"positions": "sinusoidal_halves", "first_position": 2, "attention_bias": True, "activation": "gelu_tanh"},
]


def translator(model):
    return Translator(model, tiny.tokenizer(), max_length=31)


@pytest.fixture(scope="module")
def trained():
    """All exports of it share one greedy search, which is traced once."""
    trained = translator(tiny.trained_transformer())
    trained.with_model = functools.cache(trained.with_model)
    return trained


@pytest.fixture(scope="module")
def exported(trained, tmp_path_factory):
    return export_version(CTranslate2Export(trained), tmp_path_factory.mktemp("export"), sentences=LEARNED)


def unpieced(pieces):
    """The text of pieces that are separated by spaces."""
    return pieces.replace(" ", "").replace("▁", " ").strip()


def weights_size(path):
    return (path / "model.bin").stat().st_size


def translated(export, path, texts=TEXTS):
    with export.opened(path) as translate_batch:
        return translate_batch(texts)


def check(export, path):
    """The directory translates and scores as the run does, and the run does not say the same of everything."""
    texts, scores = export.expected(TEXTS)
    assert len(set(texts)) > 5
    found, found_scores = translated(export, path)
    assert found == texts
    np.testing.assert_allclose(found_scores, scores, rtol=1e-4)


def imported(export, path):
    """The model of a run that is made of an export."""
    (path / "export.json").write_text(json.dumps(export.describe(path)), "utf-8")
    return load_model(kt.import_model(path, path / "run").path / "model.keras")


def differences(model, other):
    """The paths of the weights that are not equal to the bit. A table of positions becomes as long as the engine's."""
    mine, theirs = ({weight.path: np.array(weight) for weight in each.weights} for each in (model, other))
    assert mine.keys() == theirs.keys()
    return [path for path in mine if not np.array_equal(mine[path], theirs[path][: len(mine[path])])]


@pytest.mark.parametrize(
    "variant",
    [{**MBART, "frame": "/3,5/"}, *(pytest.param(each, marks=pytest.mark.slow) for each in (TIED, RELATIVE, *OTHERS))],
    ids=str,
)
def test_every_variant_is_translated_and_scored_by_the_engine_and_comes_back_equal_to_the_bit(tmp_path, variant):
    """Random weights, so that nothing is left at 0 or 1. The test after this one has the Transformer of the paper."""
    model, tokenizers = tiny.transformer(**variant), (tiny.spelling_tokenizer(), tiny.tokenizer())  # one vocabulary
    export = CTranslate2Export(Translator(model, *tokenizers, max_length=31))
    export.write(tmp_path)
    check(export, tmp_path)
    before, after, start = split_frame_setting(variant.get("frame", "//"))
    tags = {"source_tag": before, "source_end": after, "target_prefix": [BOS_ID] if start else []}
    given = {name: " ".join(tokenizers[0].visible_pieces(ids)) for name, ids in tags.items() if ids not in ([], [3])}
    assert given.items() <= export.describe(tmp_path).items() and len(export.describe(tmp_path)) == 2 + len(given)
    if variant is TIED:
        return  # the engine has a table of positions for each side
    again = imported(export, tmp_path)
    assert differences(model, again) == []
    assert split_frame_setting(again.get_config()["frame"] or "//") == [before, after, start]
    ids = {"source_ids": np.arange(4, 18).reshape(2, 7), "target_ids": np.arange(7, 17).reshape(2, 5)}
    np.testing.assert_allclose(again(ids), model(ids), rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_a_model_with_two_vocabularies_and_a_matrix_for_each_use_is_translated_and_comes_back_as_well(tmp_path):
    german = Tokenizer(train_tokenizer([target for _, target in tiny.pairs(211)], 311))
    model = tiny.transformer(target_vocabulary_size=german.vocabulary_size, tie_embeddings=False, num_layers=2)
    export = CTranslate2Export(Translator(model, tiny.tokenizer(), german, max_length=31))
    export.write(tmp_path)
    check(export, tmp_path)
    for name, tokenizer in (("source", tiny.tokenizer()), ("target", german)):
        assert json.loads((tmp_path / f"{name}_vocabulary.json").read_text()) == vocabulary(tokenizer)
        assert (tmp_path / f"{name}_tokenizer.model").read_bytes() == tokenizer.model
    assert not (tmp_path / "tokenizer.model").exists() and differences(model, imported(export, tmp_path)) == []


def test_pieces_are_those_of_a_greedy_translation_whatever_the_beam_of_the_run(exported, trained):
    export = CTranslate2Export(trained)
    found, scores = export.expected(LEARNED)
    assert [unpieced(pieces) for pieces in found] == [target for _, target in tiny.learned_pairs()]
    assert len(scores) == len(LEARNED) and max(scores) < 0 and trained.settings["beam_size"] == 4
    assert export.reference.settings == {**trained.settings, "beam_size": 1, "length_penalty": 0}
    plain, *odd = translated(export, exported, ["one two three", *tiny.ODD_SPELLINGS])[0]
    assert odd == [plain] * len(tiny.ODD_SPELLINGS)


def test_pieces_that_two_detokenizers_write_differently_are_the_same(trained, tmp_path, monkeypatch, capsys):
    """Both engines find the same pieces. The detokenizer of the export is another one."""

    class Shouting(sentencepiece.SentencePieceProcessor):
        def decode(self, ids):
            return super().decode(ids).upper()

    monkeypatch.setattr(export_module.sentencepiece, "SentencePieceProcessor", Shouting)
    path = export_version(CTranslate2Export(trained), tmp_path, sentences=LEARNED)
    assert read_manifest(path)["parity"]["equal"] == read_manifest(path)["parity"]["sentences"]
    (said,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith("detokenizer "))
    assert re.search("translations differently, such as '(.+)' for '(.+)': the pieces are the same$", said)
    shouted, written = re.findall("'(.+?)'", said)
    assert shouted == written.upper() != written


def test_a_model_that_the_engine_cannot_run_is_refused_and_its_reason_named():
    for model, words in (
        (RecurrentNetwork(tiny.VOCABULARY, d_model=22), "Transformers only. Received: .* RecurrentNetwork"),
        (tiny.transformer(d_value=7), "one width for keys and values. Received: d_key=13, d_value=7"),
    ):
        with pytest.raises(ExportError, match=f"{words}; export a SavedModel"):
            CTranslate2Export(translator(model))


def test_the_directory_needs_nothing_but_ctranslate2_and_sentencepiece_and_has_every_weight_once(
    exported, trained, tmp_path
):
    assert (exported / "tokenizer.model").read_bytes() == tiny.tokenizer_model()
    config = json.loads((exported / "config.json").read_text())
    expected = {"bos_token": "<s>", "decoder_start_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    expected |= {"add_source_bos": False, "add_source_eos": False, "layer_norm_epsilon": 1e-6}
    assert {name: config[name] for name in expected} == expected
    positions = (MOST_INPUT + EXTRA_LENGTH) * trained.model.d_model
    numbers = sum(np.prod(variable.shape) for variable in trained.model.trainable_variables) + positions
    assert 4 * numbers < weights_size(exported) < 4 * numbers + 10_000
    shutil.copytree(exported, tmp_path, dirs_exist_ok=True)
    (tmp_path / "config.json").write_text(json.dumps({**config, "layer_norm_epsilon": 0.5}))
    export = CTranslate2Export(trained)
    assert not np.allclose(translated(export, tmp_path)[1], translated(export, exported)[1], rtol=0.01)


def test_positions_last_for_the_longest_input_and_its_translation(exported):
    engine = ctranslate2.Translator(str(exported), intra_threads=1)  # several wait for each other on busy cores
    length = MOST_INPUT + EXTRA_LENGTH
    how = {"beam_size": 1, "min_decoding_length": length, "max_decoding_length": length}
    (result,) = engine.translate_batch([["▁"] * (MOST_INPUT + 1)], **how)
    assert len(result.hypotheses[0]) == length


@pytest.mark.slow
def test_positions_last_for_a_longer_input_where_the_run_translates_such(tmp_path):
    export = CTranslate2Export(Translator(tiny.transformer(), tiny.tokenizer(), max_length=1031))
    export.write(tmp_path)
    text = ["7" * (MOST_INPUT + 3)]
    found, expected = translated(export, tmp_path, text), export.expected(text)
    assert found[0] == expected[0]
    np.testing.assert_allclose(found[1], expected[1], rtol=1e-3)


@pytest.fixture
def exact_arithmetic(monkeypatch):
    """Lets the engine compute in float32, whatever the type of the weights.

    Its int8 arithmetic saturates on processors with AVX2 alone, and takes the place of int16 where int16 is missing. A
    toy of 26 dimensions then translates a third of the sentences wrongly, however well it has learned.
    """
    in_float32 = functools.partial(ctranslate2.Translator, compute_type="float32")
    monkeypatch.setattr(export_module.ctranslate2, "Translator", in_float32)


@pytest.mark.usefixtures("exact_arithmetic")
def test_a_quantised_model_is_smaller_and_translates_what_was_learned(trained, exported, tmp_path):
    export = CTranslate2Export(trained, "int8")
    path = export_version(export, tmp_path, sentences=LEARNED)
    manifest = read_manifest(path)
    assert weights_size(path) < 0.8 * weights_size(exported) and manifest["parity"]["beam_size"] == 1
    assert (manifest["format"], manifest["weights"]) == ("ctranslate2", "int8")
    found, _ = translated(export, path, LEARNED)
    targets = [target for _, target in tiny.learned_pairs()]
    assert np.mean([unpieced(text) == target for text, target in zip(found, targets, strict=True)]) > 0.9
