"""Models of other programs find here what they find there. make_fixtures.py and its two sisters made them."""

import importlib
import json
import pickle
import re
import shutil
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest
from sentencepiece import SentencePieceProcessor

from keras_transformer.errors import UserError
from keras_transformer.export.manifest import read_manifest
from keras_transformer.runs import Run
from keras_transformer.tools.importing import import_model, marian
from keras_transformer.tools.importing.marian_mt import before_source
from keras_transformer.tools.importing.run import longest_translation
from keras_transformer.tools.importing.tensors import open_tensors, read_safetensors, read_torch
from keras_transformer.training.run_directory import RunDirectory
from tests import tiny
from tests.tools.importing.toy_corpus import SENTENCES, train_pieces

HERE = Path(__file__).parent
FIXTURES = sorted(path.name.removesuffix(".tar.xz") for path in HERE.glob("*.tar.xz"))


def unpacked(name):
    """The directory of a fixture, for reading."""

    def unpack(path):
        with tarfile.open(HERE / f"{name}.tar.xz") as archive:
            archive.extractall(path, filter="data")

    return tiny.once(f"imported_{name}", unpack) / name


def expectations(name):
    """What the engine finds: a list of {"source_lang", "target_lang", "rows"}."""
    with tarfile.open(HERE / f"{name}.tar.xz") as archive:
        return json.load(archive.extractfile(f"{name}/expected.json"))


def copied(name, tmp_path):
    """A copy of a fixture, which a test may damage."""
    return Path(shutil.copytree(unpacked(name), tmp_path / "copies" / name, dirs_exist_ok=True))


@pytest.fixture
def model(tmp_path):
    """A copy of a MarianMTModel."""
    return copied("hf_marian", tmp_path)


def cases():
    """All fixtures, of which one runs by default. test_many_languages.py has more directions."""
    for name in FIXTURES:
        yield pytest.param(name, marks=[pytest.mark.slow] * (name != "hf_marian"))


@pytest.mark.parametrize("name", cases())
def test_beam_search_finds_the_tokens_and_log_probabilities_of_the_engine(name, tmp_path):
    expected = expectations(name)[0]
    run = import_model(unpacked(name), tmp_path / "run", expected["source_lang"], expected["target_lang"])
    translator = run.translator(beam_size=4, length_penalty=0.0, split_sentences=False)
    found = translator.translate_scored([row["source"] for row in expected["rows"]])
    assert [each.text for each in found] == [row["beam"]["text"] for row in expected["rows"]]
    log_probs = [row["beam"]["log_prob"] for row in expected["rows"]]
    # Float32 sums of numbers near 0.
    np.testing.assert_allclose([each.score for each in found], log_probs, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_a_run_of_another_program_is_exported_as_any_run(tmp_path):
    """It has two tokenizers, which Python's loader must not mix up."""
    path = import_model(unpacked("hf_marian"), tmp_path / "run").export(tmp_path / "export")  # compares, or raises
    assert read_manifest(path)["parity"]["equal"] > 0


def refusal(path, tmp_path, **languages):
    """The message for a model that cannot be imported. Nothing is written."""
    with pytest.raises(UserError) as caught:
        import_model(path, tmp_path / "run", **languages)
    assert not (tmp_path / "run").exists() and "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    "change, words",
    [
        ({"architectures": ["NllbMoeForConditionalGeneration"]}, "architectures=['NllbMoeForConditionalGeneration']"),
        ({"vocab_size": None}, "lack 'vocab_size'"),
        ({"activation_function": "gelu_fast"}, "activation_function=gelu_fast"),
        ({"encoder_attention_heads": 8}, "encoder_attention_heads=8, decoder_attention_heads=4"),
        ({"normalize_before": True}, "normalize_before"),
        ({"vocab_size": 10**9}, "a matrix has 75 rows for 1000000000 pieces"),
        ({"decoder_layers": 10**9}, "no weight model.decoder.layers.999999999"),
        ({"d_model": 10**9}, "no weight is as large as d_model. Received: 1000000000"),
        ({"encoder_attention_heads": "4"}, "encoder_attention_heads must be a whole number. Received: '4'"),
        ({"dropout": "0.1"}, "dropout must be at least 0 and less than 1. Received: '0.1'"),
    ],
)
def test_a_setting_that_has_no_equal_is_named(model, tmp_path, change, words):
    change_json(model / "config.json", change)
    assert words in refusal(model, tmp_path)


def change_json(path, change):
    """Changes values of an object in a file; None removes one."""
    changed = {**json.loads(path.read_text()), **change}
    path.write_text(json.dumps({name: value for name, value in changed.items() if value is not None}))


def test_a_directory_that_holds_something_else_is_named(model, tmp_path):
    pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:aa\nsize 9\n"
    for name in ("model.safetensors", "source.spm"):
        whole = (model / name).read_bytes()
        (model / name).write_bytes(pointer)
        assert f"{name} is a pointer of git-lfs" in refusal(model, tmp_path)
        (model / name).write_bytes(whole)
    (model / "tokenizer.json").write_text("{}")
    (model / "source.spm").rename(model / "x.spm")
    assert "has tokenizer.json in place of source.spm" in refusal(model, tmp_path)
    (model / "tokenization_own.py").write_text("raise SystemExit")
    assert "not run" in refusal(model, tmp_path) and "tokenization_own.py" in refusal(model, tmp_path)
    (model / "model.safetensors").rename(model / "tf_model.h5")
    (model / "tokenization_own.py").unlink()
    assert "has no weights" in refusal(model, tmp_path) and "tf_model.h5" in refusal(model, tmp_path)
    (model / "adapter_config.json").write_text('{"base_model_name_or_path": "opus-mt-en-de"}')
    (model / "config.json").unlink()
    assert "(LoRA) for opus-mt-en-de" in refusal(model, tmp_path)
    (model / "adapter_config.json").unlink()
    assert "It has expected.json, " in refusal(model, tmp_path)


def test_a_language_that_the_files_contradict_is_refused(model, tmp_path):
    assert "its `target_lang` is de" in refusal(model, tmp_path, target_lang="fr")
    assert "its `source_lang` is en" in refusal(model, tmp_path, source_lang="nl")
    for name, change, words, source_lang, target_lang in (
        ("hf_mbart", {"decoder_start_token_id": 123}, "translates into de_DE", "de", "en"),
        ("hf_nllb", {"forced_bos_token_id": 163}, "translates into deu_Latn", "deu", "eng"),
    ):
        path = copied(name, tmp_path)
        change_json(path / "config.json", change)
        assert words in refusal(path, tmp_path, source_lang=source_lang, target_lang=target_lang)


def test_a_setting_of_marian_that_has_no_equal_is_named(tmp_path):
    for name, old, new, words in (
        ("marian", "autoreg: self-attention", "autoreg: rnn", "dec-cell ssru. Received: dec-cell: gru"),
        ("marian", "autoreg: self-attention", "autoreg: average-attention", "decoder-autoreg: average-attention"),
        ("marian", "activation: swish", "activation: selu", "transformer-ffn-activation must be one of relu, swish"),
        ("marian", "postprocess: dan", "postprocess: da", "transformer-postprocess: 'a'"),
        ("marian", 'preprocess: ""', "preprocess: n", "transformer-preprocess: 'n'"),
        ("marian", 'top: ""', "top: n", "transformer-postprocess-top: 'n'"),
        ("marian_pre_norm", "top: n", 'top: ""', "postprocess-top n"),
        ("marian_pre_norm", "v1.12.42 b7be0e964 2025-05-24 22:34:42 -0700", "v1.10.28", "of Marian 1.11 or newer"),
    ):
        model = copied(name, tmp_path)
        change_settings(model / "model.npz", old, new)
        assert words in refusal(model, tmp_path)


def change_settings(path, old, new):
    """Changes a line of the settings in a model.npz."""
    with np.load(path) as arrays:
        arrays = dict(arrays)
    before = arrays["special:model.yml"].tobytes()
    after = re.sub(rf"{re.escape(old)} *(?=[\n\0])".encode(), new.encode(), before)
    assert after != before
    np.savez(path, **{**arrays, "special:model.yml": np.frombuffer(after, "int8")})


def test_the_version_of_marian_tells_which_gelu_its_name_means():
    settings = {"dim-emb": 8, "transformer-dim-ffn": 8, "transformer-heads": 1, "enc-depth": 1, "dec-depth": 1}
    settings |= {"transformer-postprocess": "dan", "transformer-ffn-activation": "gelu"}
    for version, activation in (("v1.12.42", "gelu"), ("v1.12.3 f", "gelu"), ("v1.12.2", "gelu_sigmoid")):
        assert marian.settings_of({**settings, "version": version})["activation"] == activation
    assert marian.settings_of(settings)["activation"] == "gelu_sigmoid"


def test_a_tag_is_divided_as_marian_divides_it_before_the_text(tmp_path):
    path = tmp_path / "vocab.spm"
    train_pieces(path, SENTENCES, 90, eos_id=0, unk_id=1, bos_id=-1, user_defined_symbols=">>deu<<,>>fra<<")
    side = marian.read_side(tmp_path, "vocab.spm", None)
    (tokenizer,), vocabulary, _ = marian.vocabularies_of([side, side], is_shared=True)
    ours, theirs = (SentencePieceProcessor(model_proto=each) for each in (tokenizer, path.read_bytes()))
    tags = marian.tags_before(side, tokenizer, vocabulary)
    one, _ = before_source(tags, tmp_path, "en", "fra", None)
    first, many = before_source(tags, tmp_path, None, None, ["en", "de", "fra"])
    assert many.default == ("en", "deu") and [*many.targets] == ["deu", "fra"]
    for tag in (one, [*first, many.targets["fra"]]):
        found = [ours.id_to_piece(id) for id in tag + ours.encode("The dog, ★!")]
        assert found == [theirs.id_to_piece(id) for id in theirs.encode(">>fra<< The dog, ★!")]
    with pytest.raises(UserError, match="one of deu, fra"):
        before_source(tags, tmp_path, None, None, None)


def test_a_directory_in_which_marian_trained_is_read_and_a_damaged_file_named(tmp_path):
    model = copied("marian_spm", tmp_path)
    (model / "decoder.yml").rename(model / "model.npz.decoder.yml")
    (model / "target.spm").rename(model / "target.txt")
    assert "has no target.spm" in refusal(model, tmp_path)
    for content in ((model / "model.npz").read_bytes()[:999], b""):
        (model / "model.npz").write_bytes(content)
        assert "model.npz" in refusal(model, tmp_path)
    # Pieces are texts, whatever they mean in YAML.
    (tmp_path / "vocab.yml").write_text('yes: 0\n"</s>": 1\n1.0: 2\nnull: 3\n')
    assert marian.read_vocabulary(tmp_path / "vocab.yml") == ["yes", "</s>", "1.0", "null"]
    (tmp_path / "vocab.yml").write_text("a: 0\nb: 2\n")
    with pytest.raises(UserError, match="from 0 on, and no two the same"):
        marian.read_vocabulary(tmp_path / "vocab.yml")


FILES = [("hf_marian", name) for name in ("config.json", "source.spm", "vocab.json", "model.safetensors")]
OF_OPENNMT = ["ckpt-900.index", "ckpt-900.data-00000-of-00001", "source.model", "source.vocab"]
FILES += [("opennmt", name) for name in OF_OPENNMT]


@pytest.mark.parametrize("name, file", FILES)
def test_a_file_that_is_missing_or_damaged_is_named(name, file, tmp_path):
    model, shown = copied(name, tmp_path), file.removesuffix(".data-00000-of-00001")
    whole = (model / file).read_bytes()
    for damaged in (whole[: len(whole) // 2], b"", b"\x00" * 64, b"\xff" * len(whole)):
        (model / file).write_bytes(damaged)
        assert shown in refusal(model, tmp_path)
    (model / file).unlink()
    assert shown.partition("-")[0] in refusal(model, tmp_path)


def write_safetensors(path, header, data):
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


def test_a_weight_that_is_wrong_is_named_and_a_header_that_lies_takes_no_memory(model, tmp_path):
    name, path = "model.encoder.layers.0.ffn.experts.fc1.weight", model / "model.safetensors"
    content = path.read_bytes()
    end = 8 + int.from_bytes(content[:8], "little")
    empty = {"dtype": "F16", "shape": [0], "data_offsets": [0, 0]}
    write_safetensors(path, {**json.loads(content[8:end]), name: empty}, content[end:])
    assert name in refusal(model, tmp_path)
    path.write_bytes(content[:-2] + np.float16("nan").tobytes())
    assert "NaN" in refusal(model, tmp_path)
    for entry in (
        {"dtype": "F32", "shape": [1 << 40], "data_offsets": [0, 1 << 42]},
        {"dtype": "code", "shape": [1], "data_offsets": [0, 4]},
        [],
    ):
        write_safetensors(path, {"x": entry}, b"\0" * 8)
        with pytest.raises(UserError, match="model.safetensors is not a safetensors file, or is damaged"):
            read_safetensors(path)


def test_a_model_of_many_parts_is_read_and_no_file_outside_of_its_directory(model, tmp_path):
    (model / "model.safetensors").rename(model / "1-of-1.safetensors")
    index, torch = model / "model.safetensors.index.json", tmp_path / "torch"
    index.write_text(json.dumps({"weight_map": {"model.shared.weight": "1-of-1.safetensors"}}))
    assert open_tensors(model)["model.shared.weight"].shape == (75, 32)
    torch.mkdir()
    shutil.copy(HERE / "torch_file.bin", torch / "1-of-1.bin")
    (torch / "pytorch_model.bin.index.json").write_text('{"weight_map": {"x": "1-of-1.bin"}}')
    assert open_tensors(torch).keys() == {"x", "turned", "half", "parameter", "part"}
    for places in ("{}", "[]"):
        (torch / "pytorch_model.bin.index.json").write_text(f'{{"weight_map": {places}}}')
        with pytest.raises(UserError, match="must name the part of each weight.*safe_serialization"):
            open_tensors(torch)
    (model / "1-of-1.safetensors").rename(tmp_path / "1-of-1.safetensors")
    index.write_text(json.dumps({"weight_map": {"model.shared.weight": "../1-of-1.safetensors"}}))
    assert "outside" in refusal(model, tmp_path)


def test_the_arrays_of_a_torch_file_are_read_without_torch_and_its_pickle_runs_nothing(tmp_path):
    x, path = np.arange(6, dtype="float32").reshape(2, 3), tmp_path / "pytorch_model.bin"
    found = read_torch(HERE / "torch_file.bin")
    expected = {"x": x, "turned": x.T, "half": x.astype("float16"), "parameter": x, "part": x[1:, 1:]}
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        assert found[name].dtype == array.dtype
        np.testing.assert_array_equal(found[name], array)

    class Evil:
        def __reduce__(self):
            return (shutil.rmtree, ("/nowhere",))

    with zipfile.ZipFile(path, "w") as archive:  # as torch.save writes it
        archive.writestr("archive/data.pkl", pickle.dumps({"x": Evil()}))
        archive.writestr("archive/data/0", b"")
    with pytest.raises(UserError, match="asks for shutil.rmtree, which is no weight.*safe_serialization"):
        read_torch(path)
    path.write_bytes(pickle.dumps({"x": Evil()}))  # PyTorch before 1.6 wrote no archive
    with pytest.raises(UserError, match="before 1.6"):
        read_torch(path)


def test_a_translation_is_as_long_as_in_the_configuration_of_the_model(tmp_path):
    assert longest_translation(tmp_path) == 0
    for name, told, longest in (
        ("config.json", {"max_length": 77}, 77),
        ("generation_config.json", {"max_length": None}, 77),
        ("generation_config.json", {"max_length": 10**9}, 1024),
        ("generation_config.json", {"max_length": 200, "max_new_tokens": 256}, 256),
    ):
        (tmp_path / name).write_text(json.dumps(told))
        assert longest_translation(tmp_path) == longest


def test_a_program_imports_and_says_how_to_go_on(model, tmp_path, monkeypatch, capsys):
    program = importlib.import_module("keras_transformer.cli.import")
    (model / "generation_config.json").write_text('{"max_length": 512}')
    monkeypatch.setattr("sys.argv", ["import", str(model), "--model_dir", str(tmp_path / "run")])
    program.program()
    assert f"translate --model_dir {tmp_path}/run" in capsys.readouterr().out
    assert RunDirectory(tmp_path / "run").read_decided() == {"extra_length": 512}
    config = Run(tmp_path / "run").config
    assert (config.frame, config.model_dir, config.target_lang) == ("/3/", str(tmp_path / "run"), "de")
    pytest.raises(SystemExit, program.program)
    assert "exists already" in capsys.readouterr().err
