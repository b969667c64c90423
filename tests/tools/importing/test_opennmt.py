"""What the importer of OpenNMT-tf reads in a run directory, and what it refuses. make_opennmt_fixtures.py made them."""

import os

import numpy as np
import pytest
import tensorflow as tf
import yaml

from keras_transformer.errors import UserError
from keras_transformer.tools.importing.model_description import CATALOGUE, DEFAULTS, read_description
from keras_transformer.tools.importing.opennmt import activation_of, read_directory
from tests.tools.importing.test_importing import copied, refusal, unpacked

HEAD = "import opennmt\nimport tensorflow as tf\nfrom opennmt.layers import PositionEmbedder, gelu\n"


@pytest.fixture
def model(tmp_path):
    """A copy of the fixture with two vocabularies, which a test may change."""
    return copied("opennmt", tmp_path)


def described(tmp_path, text):
    """What `read_description` reads in a file with this text."""
    (path := tmp_path / "model_description.py").write_text(HEAD + text)
    return read_description(path)


def test_a_description_is_read_without_being_run(tmp_path):
    catalogue, transformer = "opennmt.models.get_model_from_catalog", "opennmt.models.Transformer"
    for text, expected in (
        (f'model = lambda: {catalogue}("TransformerTiny")', {"num_heads": 2, "num_units": 64}),
        (f'N = "TransformerBig"\nmodel = lambda: {catalogue}(name=N)', {"num_heads": 16}),
        ("model = opennmt.models.TransformerBase", {"num_heads": 8, "pre_norm": True}),
        (f"model = lambda: {transformer}(None, None, (3, 1), 48, 3, ffn_inner_dim=-1)", {"num_heads": 3}),
        (f"H = 2\ndef model():\n    h = H\n    return {transformer}(num_heads=h)", {"num_heads": 2}),
        ("from opennmt.models import Transformer as T\nmodel = lambda: T(num_heads=2)", {"num_heads": 2}),
        (f'OPTIONS = {{"num_heads": 2}}\nmodel = lambda: {transformer}(**OPTIONS)', {"num_heads": 2}),
        (
            f"class A({transformer}):\n    def __init__(self, num_heads=4, **others):\n"
            "        super(A, self).__init__(num_heads=num_heads, dropout=0.2, **others)\n"
            "class B(A):\n    def __init__(self):\n        super().__init__(mha_bias=False)\nmodel = B",
            {"num_heads": 4, "dropout": 0.2, "mha_bias": False},
        ),
        (
            "@opennmt.models.register_model_in_catalog\nclass A(opennmt.models.TransformerBig):\n    pass\nmodel = A",
            {"num_heads": 16, "ffn_inner_dim": 4096},
        ),
        (
            f"model = lambda: {transformer}(position_encoder_class=lambda x: PositionEmbedder(maximum_position=9))",
            {"position_encoder_class": "lambda x: PositionEmbedder(maximum_position=9)"},
        ),
    ):
        found = described(tmp_path, f"{text}\nraise SystemExit\n")
        assert {name: found[name] for name in expected} == expected
        own = {"source_sequence_controls"}
        assert found.keys() >= DEFAULTS.keys() >= {name for changes in CATALOGUE.values() for name in changes} - own


def test_a_description_of_another_model_is_refused_in_one_line(tmp_path):
    for text, words in (
        ('model = lambda: opennmt.models.get_model_from_catalog("LuongAttention")', "Received: LuongAttention"),
        ("model = lambda: [opennmt.models.Transformer(**read()) for _ in x][0]", "Received: [opennmt"),
        ("model = lambda: opennmt.models.Transformer(**read())", "Received: read()"),
        ("class A:\n    pass\nmodel = A", "Received: class A"),
        ("def model():\n    pass", "Received: None"),
        ("def model():\n    return model()", "damaged"),
        ("models = 3", "no `model`"),
        ("model = (", "not Python"),
        ("model = " + "(" * 400 + ")" * 400, "not Python"),
    ):
        with pytest.raises(UserError) as caught:
            described(tmp_path, text)
        assert words in str(caught.value) and "\n" not in str(caught.value)
    # An activation is known by its module.
    texts = {"gelu": "gelu_tanh", "opennmt.layers.gelu": "gelu_tanh", "tf.nn.gelu": "gelu", "'gelu'": "gelu"}
    texts |= {"tf.keras.activations.gelu": "gelu", "tf.nn.swish": "silu", "'swish'": "silu", "tf.nn.relu": "relu"}
    for text, expected in texts.items():
        told = described(tmp_path, f"model = lambda: opennmt.models.Transformer(ffn_activation={text})")
        assert activation_of(told["ffn_activation"]) == expected


@pytest.mark.parametrize(
    "old, new, words",
    [
        ("num_heads=4", "num_heads=five()", "num_heads as a number. Received: five()"),
        ("num_heads=4", "num_heads=5", "`num_heads` must divide `d_model`"),
        ("UNITS = 32", "UNITS = 64", "num_units=64 and 32"),
        ("(2, 1)", "2", "num_layers=(2, 2) and (2, 1)"),
        ("dropout=0.0", "pre_norm=False", "pre_norm=False and True"),
        ("dropout=0.0", "maximum_relative_position=8", "maximum_relative_position=8 and None"),
        ("layers.gelu", "tf.nn.selu", "ffn_activation=tf.nn.selu"),
        ("dropout=0.0", "position_encoder_class=layers.PositionEmbedder", "position_encoder_class=opennmt.layers"),
        ("WordEmbedder(embedding_size=UNITS)", "ParallelInputter([a, b])", "source_inputter=opennmt"),
    ],
)
def test_a_setting_that_has_no_equal_or_does_not_fit_is_named(model, tmp_path, old, new, words):
    path = model / "model_description.py"
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    assert words in refusal(model, tmp_path)


def change_data(model, **settings):
    """Changes the section `data` of a configuration; None takes a setting away."""
    config = yaml.safe_load((model / "data.yml").read_text())
    config["data"] = {name: value for name, value in {**config["data"], **settings}.items() if value is not None}
    (model / "data.yml").write_text(yaml.safe_dump(config))


@pytest.mark.parametrize(
    "name, value, words",
    [
        ("source_tokenization", {"type": "CharacterTokenizer"}, "type: CharacterTokenizer"),
        ("source_tokenization", {"mode": "aggressive", "bpe_model_path": "b"}, "mode: aggressive, bpe_model_path: b"),
        ("source_tokenization", {"sp_model_path": "source.model"}, "mode: conservative"),
        ("target_tokenization", {"mode": "none", "sp_model_path": "target.model", "case_markup": True}, "case_markup"),
        ("target_tokenization", "../target.yml", "no target.yml"),
        ("target_tokenization", {"type": "SentencePieceTokenizer", "params": {"model": "../x"}}, "has no x"),
        ("target_tokenization", ["x"], "must be a tokenizer"),
        ("source_1_vocabulary", "a.vocab", "one source. Received: data: source_1_vocabulary"),
        ("source_vocabulary", "/etc/passwd", "has no passwd"),
        ("source_vocabulary", "data.yml", "must start with the lines <blank>, <s>, </s>"),
        ("source_vocabulary", "target.vocab", "copy the vocabularies that the model was trained with"),
        ("source_vocabulary", 7, "source_vocabulary must be the name of a file"),
        ("target_sequence_controls", {"end": True}, "target_sequence_controls must have start and end"),
        ("source_sequence_controls", True, "sequence_controls must be start and end"),
    ],
)
def test_a_configuration_that_has_no_equal_is_named(model, tmp_path, name, value, words):
    change_data(model, **{name: value})
    assert words in refusal(model, tmp_path)


def test_paths_of_a_configuration_mean_files_of_the_directory_and_names_tell_files_without_one(model, tmp_path):
    change_data(model, source_vocabulary="/home/me/data/source.vocab", target_vocabulary="../target.vocab")
    (model / "tokens.yml").write_text("type: SentencePieceTokenizer\nparams:\n  model: models/target.model\n")
    change_data(model, target_tokenization="config/tokens.yml", source_tokenization=None)  # divided beforehand
    foreign = read_directory(model, "en", "de")
    assert len(foreign.tokenizers) == 2 and not foreign.settings["share_vocabulary"]
    assert (foreign.settings["source_lang"], foreign.settings["target_lang"]) == ("en", "de")
    assert foreign.settings["frame"] is None and foreign.settings["activation"] == "gelu_tanh"
    (model / "data.yml").unlink()
    assert len(read_directory(model).tokenizers) == 2
    (model / "source.vocab").rename(model / "a.txt")
    assert "vocabularies" in refusal(model, tmp_path) and "a.txt, target.vocab" in refusal(model, tmp_path)
    (model / "a.txt").rename(model / "src-vocab.txt")
    (model / "source.model").unlink()
    (model / "extra.model").write_bytes(b"")
    assert "SentencePiece model of the source" in refusal(model, tmp_path)


def test_one_file_serves_both_sides_of_a_shared_model(tmp_path):
    model = copied("opennmt_shared", tmp_path)
    whole = read_directory(model)
    assert (len(whole.tokenizers), whole.settings["frame"]) == (1, "/3/")
    (model / "data.yml").unlink()
    alone = read_directory(model)
    assert alone.tokenizers == whole.tokenizers and alone.source is alone.target
    assert alone.settings == {**whole.settings, "frame": None}
    lines = (model / "both.vocab").read_text().splitlines()
    (model / "target.vocab").write_text("\n".join([*lines[:-2], lines[-1], lines[-2]]))
    (model / "both.vocab").rename(model / "source.vocab")
    assert "equal vocabularies. Received: source.vocab, target.vocab" in refusal(model, tmp_path)


def test_the_last_checkpoint_is_read_and_an_average_beside_the_files_of_its_run(model, tmp_path):
    (model / "ckpt-99.index").write_bytes(b"")
    assert read_directory(model).settings["num_layers"] == 2
    (model / "ckpt-99.index").unlink()
    (model / "avg").mkdir()
    for path in model.glob("ckpt-900.*"):
        path.rename(model / "avg" / path.name)
    assert read_directory(model).settings == read_directory(model / "avg").settings
    (model / "avg").rename(model / "other")
    assert "no ckpt-N.index" in refusal(model, tmp_path)
    assert "has no model_description.py, which tells num_heads" in refusal(model / "other", tmp_path)
    (model / "model.ckpt-5.index").write_bytes(b"")
    assert "OpenNMT-tf 1 wrote" in refusal(model, tmp_path)


FEED_FORWARD = "encoder/layers/0/ffn/layer"


@pytest.mark.parametrize(
    "name, array, words",
    [
        ("encoder/cells/0/kernel", np.zeros((2, 2), "float32"), "no model here has, such as encoder/cells/0/kernel"),
        (f"{FEED_FORWARD}/inner/kernel", None, f"no weight {FEED_FORWARD}/inner/kernel"),
        (f"{FEED_FORWARD}/inner/kernel", np.zeros((32, 9), "float32"), "has the shape (32, 9)"),
        ("decoder/output_layer/bias", np.zeros(7, "float32"), "decoder/output_layer/bias is for 7"),
        ("examples_inputter/features_inputter/embedding", np.zeros(9, "float32"), "has the shape (9,)"),
        ("encoder/layer_norm/beta", np.zeros(1 << 22, "float32"), "no room for all arrays"),
    ],
)
def test_weights_that_do_not_fit_or_take_more_memory_than_there_is_data_are_named(model, tmp_path, name, array, words):
    """Writes the checkpoint again, with another array of this name, or without it."""
    prefix, end = str(model / "ckpt-900"), "/.ATTRIBUTES/VARIABLE_VALUE"
    reader = tf.train.load_checkpoint(prefix)
    arrays = {each: reader.get_tensor(each) for each in reader.get_variable_to_shape_map() if "SLOT" not in each}
    arrays = {each: kept for each, kept in (arrays | {f"model/{name}{end}": array}).items() if kept is not None}
    whole = [""] * len(arrays)
    tf.raw_ops.SaveV2(prefix=prefix, tensor_names=[*arrays], shape_and_slices=whole, tensors=[*arrays.values()])
    if "room" in words:
        os.truncate(f"{prefix}.data-00000-of-00001", 1 << 20)
    assert words in refusal(model, tmp_path)


def test_settings_are_those_of_the_variables_and_positions_behind_a_learned_table_take_its_last_row():
    foreign = read_directory(unpacked("opennmt_relative"))
    relative = {"positions": "relative", "relative_clip": 3, "tie_embeddings": True}
    assert foreign.settings.items() >= relative.items()
    foreign = read_directory(unpacked("opennmt_learned"))
    learned = {"positions": "learned", "max_length": 256, "tie_positions": False, "frame": "2/3/"}
    learned |= {"attention_bias": False, "tie_embeddings": False, "share_vocabulary": True}
    assert foreign.settings.items() >= learned.items()
    table = foreign.weight("target_positions/table")
    assert table.shape == (257, 24) and len(np.unique(table[:10], axis=0)) == 9  # theirs are 1 ... 9
    np.testing.assert_array_equal(table[9:], np.repeat(table[8:9], 248, axis=0))
