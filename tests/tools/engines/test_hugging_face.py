"""The files for transformers, without transformers: tests/on_transformers.py has the proof by the engine itself."""

import importlib.util
import io
import json
import unicodedata

import numpy as np
import pytest
import sentencepiece
from safetensors.numpy import load_file
from sentencepiece.sentencepiece_model_pb2 import ModelProto
from tokenizers import Tokenizer as FastTokenizer

from keras_transformer.config import UNK_ID
from keras_transformer.errors import ExportError
from keras_transformer.models.recurrent import RecurrentNetwork
from keras_transformer.tools.engines import hugging_face
from keras_transformer.tools.engines.hugging_face import HuggingFaceExport
from keras_transformer.tools.engines.hugging_face_tokenizers import IdTable, fast_tokenizer, save_fast, save_marian
from keras_transformer.tools.importing import import_model
from keras_transformer.tools.importing.tensors import ImportedModelError
from keras_transformer.tools.importing.tokenizer_json import around_text
from keras_transformer.translation.translator import Translator
from tests import reference, tiny
from tests.tools.importing.test_importing import unpacked

ODD = [*tiny.ODD_SPELLINGS, "", " ", "  one  ", "one\ttwo\nthree", "▁ ▁one", "</s> one <unk> <s>", "<0x41> A"]
ODD += ["one,two...three!? (four)", "Füße ﬁnd ①②③ ｆｕｌｌ", "e\u0301 o\u0323\u0302 n\u0303", "数 日本語 東京"]
ODD += ["\u1112\u1161\u11ab\u1100\u116e\u11a8 한국", "\U0001f600\U0001f468\u200d\U0001f469 x", "aaaaaaaaaaaaaaaaaa"]
ODD += ["zzz qqq ☃☃", "a\u0300\u0301\u0302\u0303\u0304 b"]


@pytest.fixture(autouse=True)
def no_engine(monkeypatch):
    """The files need no PyTorch."""
    find, engine = importlib.util.find_spec, HuggingFaceExport.libraries
    monkeypatch.setattr(hugging_face.importlib.util, "find_spec", lambda name: name in engine or find(name))


def translator(tokenizer=None, **arguments):
    return Translator(tiny.transformer(**arguments), tokenizer or tiny.tokenizer(), max_length=31)


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
@pytest.mark.parametrize("has_bytes, rule", [(True, "nmt_nfkc"), (False, "identity")])
def test_the_fast_tokenizer_divides_and_joins_text_as_sentencepiece(kind, has_bytes, rule):
    lines = [text for pair in tiny.pairs(211) for text in pair] + ["Füße find full 한국 日本語 ộ"] * 3
    made = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        **{"sentence_iterator": iter(lines), "model_writer": made, "model_type": kind, "minloglevel": 2},
        **{"vocab_size": 340, "byte_fallback": has_bytes, "normalization_rule_name": rule},
        **{"pad_id": 0, "unk_id": 1, "bos_id": 2, "eos_id": 3, "hard_vocab_limit": False},
    )
    oracle = sentencepiece.SentencePieceProcessor(model_proto=made.getvalue())
    every = np.arange(oracle.vocab_size())
    table = IdTable(every, oracle.id_to_piece(every.tolist()), np.zeros(len(every)), 0)
    fast = fast_tokenizer(ModelProto.FromString(made.getvalue()), table)
    random, characters = np.random.default_rng(7), [*"".join(ODD).replace("▁", "")]
    mixed = [unicodedata.normalize("NFKC", "".join(random.choice(characters, 23))) for _ in range(101)]
    for text in [*lines[:50], *ODD, *mixed]:
        assert fused(fast.encode(text).ids) == fused(oracle.encode(text)), text
    for text in [*lines[:50], *(["Füße find", "日本語 ộ 한국"] if has_bytes else [])]:
        assert fast.decode(oracle.encode(text)) == oracle.decode(oracle.encode(text))


def fused(ids):
    """Unknown characters side by side may be one or several: the model knows none of them."""
    return [id for id, before in zip(ids, [None, *ids], strict=False) if id != UNK_ID or before != UNK_ID]


def test_tokenizer_json_puts_the_tokens_around_a_text_and_reads_none_from_it(tmp_path):
    run = translator(first_position=1, positions="sinusoidal_tensor2tensor", pre_norm=True, frame="4/3/")
    export = HuggingFaceExport(run)
    table, _ = export.tables()
    save_fast(tmp_path, run.source_tokenizer, table, export.tokens, 31)
    fast = FastTokenizer.from_file(str(tmp_path / "tokenizer.json"))
    fast.encode_special_tokens = json.loads((tmp_path / "tokenizer_config.json").read_text())["split_special_tokens"]
    oracle = sentencepiece.SentencePieceProcessor(model_proto=run.source_tokenizer.model)
    tag, text = oracle.id_to_piece(4), "one </s> two"
    assert fast.encode(text).tokens == [tag, *oracle.encode(text, out_type=str), "</s>"]
    assert around_text(tmp_path) == ([tag], ["</s>"])
    for damaged in ([1], {"single": [{"SpecialToken": {"id": "</s>"}}]}):
        (tmp_path / "tokenizer.json").write_text(json.dumps({"post_processor": damaged}), "utf-8")
        with pytest.raises(ImportedModelError, match="no text in the template"):
            around_text(tmp_path)


def test_an_imported_marian_model_goes_out_as_it_came_in(tmp_path):
    origin, out = unpacked("hf_marian"), tmp_path / "out"
    out.mkdir()
    HuggingFaceExport(import_model(origin, tmp_path / "run").translator()).write(out)
    before, after = (load_file(path / "model.safetensors") for path in (origin, out))
    for name, tensor in after.items():
        np.testing.assert_array_equal(tensor, before.pop(name), err_msg=name)
    assert set(before) <= {"model.encoder.embed_positions.weight", "model.decoder.embed_positions.weight"}
    tables, configs = ([json.loads((x / n).read_text()) for x in (origin, out)] for n in ("vocab.json", "config.json"))
    assert tables[0] == tables[1]
    for name in ("model_type", "architectures", "d_model", "vocab_size", "decoder_start_token_id", "pad_token_id"):
        assert configs[0][name] == configs[1][name], name
    texts = ["The red house is old.", "Das rote Haus ist alt.", *tiny.ODD_SPELLINGS]
    for side in ("source.spm", "target.spm"):
        of_both = (sentencepiece.SentencePieceProcessor(model_file=str(path / side)) for path in (origin, out))
        theirs, ours = (pieces.encode(texts, out_type=str) for pieces in of_both)
        assert theirs == ours


def test_the_tokenizer_of_many_languages_names_the_exported_direction(tmp_path):
    run = tiny.many_languages("source").between("de", "fr")
    save_marian(tmp_path, run, [IdTable.marian(run.source_tokenizer, [run.model.source_embedding.matrix], None, 0)] * 2)
    told = json.loads((tmp_path / "tokenizer_config.json").read_text())
    assert (told["source_lang"], told["target_lang"]) == ("de", "fr")


def test_the_papers_sinusoids_become_theirs_by_one_order_of_the_coordinates(tmp_path):
    """The first layer's queries of a source, in NumPy from the file, are those of the model."""
    run = translator(attention_bias=True)
    HuggingFaceExport(run).write(tmp_path)
    tensors, config = load_file(tmp_path / "model.safetensors"), json.loads((tmp_path / "config.json").read_text())
    assert config["architectures"] == ["MarianMTModel"] and config["scale_embedding"]
    ids, width = run.source_tokenizer.tokenize(["one two three"])[0], config["d_model"]
    rates = np.arange(len(ids))[:, None] / 10_000.0 ** (2 * np.arange(width // 2) / width)
    inputs = tensors["model.shared.weight"][ids] * width**0.5 + np.concatenate([np.sin(rates), np.cos(rates)], 1)
    place = "model.encoder.layers.0.self_attn.q_proj"
    found = inputs @ tensors[f"{place}.weight"].T + tensors[f"{place}.bias"]
    matrix, query = run.model.source_embedding.matrix, run.model.encoder.layers[0].self_attention.query
    expected = np.array(matrix)[ids] * width**0.5 + reference.sinusoids(len(ids), width)
    np.testing.assert_allclose(found, expected @ np.array(query.kernel) + np.array(query.bias), atol=1e-5)


def test_what_has_no_home_is_refused_in_one_line_that_names_it(monkeypatch):
    m2m100 = {"positions": "sinusoidal_tensor2tensor", "pre_norm": True, "first_position": 1}
    recurrent = Translator(RecurrentNetwork(tiny.VOCABULARY, cell="gru", d_model=8), tiny.tokenizer())
    two = Translator(tiny.transformer(), tiny.tokenizer(), tiny.spelling_tokenizer(), max_length=31)
    for asked, words in (
        ((translator(positions="rotary", d_key=12),), "positions=rotary, pre_norm=False, embedding_norm=False"),
        ((translator(pre_norm=True),), "positions=sinusoidal, pre_norm=True"),
        ((translator(num_key_value_heads=1),), "num_key_value_heads=1"),
        ((translator(layer_norm_epsilon=1e-3),), "layer_norm_epsilon=0.001"),
        ((translator(**m2m100, tie_embeddings=False),), "two matrices of embeddings"),
        ((recurrent,), "a RecurrentNetwork; export a SavedModel"),
        ((translator(tiny.keeping_tokenizer()),), "train without `protect`"),
        ((two,), "Received: two tokenizers"),
    ):
        with pytest.raises(ExportError, match=words) as caught:
            HuggingFaceExport(*asked)
        assert "\n" not in str(caught.value)
    monkeypatch.setattr(hugging_face.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ExportError, match="pip install torch transformers"):
        HuggingFaceExport(translator())
