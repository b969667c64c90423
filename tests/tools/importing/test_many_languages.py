"""A run of several languages of a model finds in each direction what the engine, and a run of this pair, find."""

import base64
import importlib
import json

import numpy as np
import pytest
from sentencepiece import SentencePieceProcessor
from sentencepiece.sentencepiece_model_pb2 import ModelProto

from keras_transformer.export.versions import export_version
from keras_transformer.presets import split_frame_setting
from keras_transformer.runs import Run
from keras_transformer.tags import load_tags, piece_of
from keras_transformer.tokenizer import load_tokenizers
from keras_transformer.tools.engines.litert import LiteRTExport
from keras_transformer.tools.engines.translate_litert import LiteRTTranslator
from keras_transformer.tools.importing import fairseq, import_model
from keras_transformer.tools.importing.languages import language_tags
from keras_transformer.tools.importing.marian_mt import tag_of
from keras_transformer.tools.importing.tensors import ImportedModelError
from keras_transformer.translation.directions import UNKNOWN_LANGUAGE
from tests.tools.importing.test_importing import change_json, copied, expectations, refusal, unpacked

KNOWN = {"eng_Latn": 4, "deu_Latn": 5, "fra_Latn": 6}
GREEDY = {"beam_size": 1, "length_penalty": 0.0, "split_sentences": False}


@pytest.mark.slow
def test_every_direction_has_the_tokens_and_log_probabilities_of_the_engine(tmp_path):
    forth, back = expectations("hf_nllb")
    default = forth["source_lang"], forth["target_lang"]
    run = import_model(unpacked("hf_nllb"), tmp_path / "run", *default, languages="all")
    config, tags = run.config, load_tags(run.path)
    assert (config.tags, config.frame, config.source_lang, config.target_lang) == ("both", "/3/3", *default)
    assert tags.find("en", "fr") and len(tags.sources) > 99 and tags.sources == tags.targets
    rows = forth["rows"] + back["rows"]  # a batch mixes directions
    given = {"source_lang": "de", "target_lang": "en"}
    how = {side: [None] * len(forth["rows"]) + [code] * len(back["rows"]) for side, code in given.items()}
    found = run.translator(**GREEDY).translate_scored([row["source"] for row in rows], **how)
    assert [each.text for each in found] == [row["greedy"]["text"] for row in rows]
    log_probs = [row["greedy"]["log_prob"] for row in rows]
    np.testing.assert_allclose([each.score for each in found], log_probs, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["opus-mt", "mbart-50"])
def test_another_direction_is_that_of_a_run_of_it_alone(kind, tagged, tmp_path, monkeypatch):
    path, languages, words, place = tagged, "en,deu,fra", [], "source"
    if kind == "mbart-50":
        path, languages, words, place = copied("hf_mbart", tmp_path), "de,en,fr", ["--target_lang", "en"], "both"
        change_json(path / "tokenizer_config.json", {"tokenizer_class": "MBart50Tokenizer"})
        change_json(path / "config.json", {"decoder_start_token_id": 2})
    argv = f"import {path} --languages {languages} --model_dir {tmp_path}/many".split()
    monkeypatch.setattr("sys.argv", argv + words)
    importlib.import_module("keras_transformer.cli.import").program()
    run, tags = Run(tmp_path / "many"), load_tags(tmp_path / "many")
    assert run.config.tags == place
    texts, translator = [row["source"] for row in expectations("hf_m2m100")[1]["rows"]], run.translator(**GREEDY)
    found = translator.translate_scored(texts, target_lang="fr")
    direction = tags.default[0], tags.find(target_lang="fr")[1]
    alone = import_model(path, tmp_path / "alone", *direction).translator(**GREEDY).translate_scored(texts)
    assert [each.text for each in found] == [each.text for each in alone] != translator.translate(texts)
    np.testing.assert_allclose(*([each.score for each in some] for some in (found, alone)), rtol=1e-4, atol=1e-5)


def tokenizer_json(path):
    """What transformers saves in place of a SentencePiece model, of BPE: pairs that are joined, in their order."""
    written = ModelProto.FromString((path / "sentencepiece.bpe.model").read_bytes())
    names = ["<s>", "<pad>", "</s>", "<unk>", *(each.piece for each in written.pieces[3:])]
    halves = [[name[:i], name[i:]] for name in names[4:] for i in range(1, len(name))]
    added = json.loads((path / "tokenizer_config.json").read_text())["added_tokens_decoder"]
    charsmap = base64.b64encode(written.normalizer_spec.precompiled_charsmap).decode()
    spaces = {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}
    normalizers = [{"type": "Precompiled", "precompiled_charsmap": charsmap}, spaces]
    merges = [pair for pair in halves if {*pair} <= {*names}]
    return {
        "added_tokens": [{"id": int(id), **each} for id, each in added.items()],
        "normalizer": {"type": "Sequence", "normalizers": normalizers},
        "pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True},
        "model": {"type": "BPE", "vocab": {name: id for id, name in enumerate(names)}, "merges": merges},
    }


@pytest.mark.parametrize(
    "name, told, config",
    [
        ("hf_nllb", {"tokenizer_class": "TokenizersBackend"}, {}),
        ("hf_m2m100", {}, {}),
        ("hf_mbart", {}, {}),
        ("hf_mbart", {"model_max_length": 1024}, {"tokenizer_class": "MBart50Tokenizer"}),
    ],
)
def test_the_files_of_a_published_model_give_the_source_ids_of_the_engine(name, told, config, tmp_path):
    path = copied(name, tmp_path)
    if name == "hf_nllb":
        (path / "tokenizer.json").write_text(json.dumps(tokenizer_json(path)))
        (path / "sentencepiece.bpe.model").unlink()
    for file in ("special_tokens_map.json", "added_tokens.json"):
        (path / file).unlink(missing_ok=True)
    (path / "tokenizer_config.json").write_text(json.dumps(told))
    config = {**json.loads((path / "config.json").read_text()), "decoder_start_token_id": 2, **config}
    for each in expectations(name):
        languages = each["source_lang"], each["target_lang"]
        (tokenizer,), source, _, settings, _ = fairseq.read_vocabularies(path, config, *languages)
        before, after, _ = split_frame_setting(settings["frame"])
        pieces = SentencePieceProcessor(model_proto=tokenizer)
        for row in each["rows"]:
            *ids, tag = row["source_ids"]
            theirs = [tag, *ids] if "tokenizer_class" in config else row["source_ids"]
            assert source.rows[before + pieces.encode(row["source"]) + after].tolist() == theirs


def test_a_model_of_an_unknown_kind_gets_no_languages_of_another(tmp_path):
    path = copied("hf_nllb", tmp_path)
    (path / "tokenizer_config.json").write_text('{"added_tokens_decoder": [5]}')
    assert "in added_tokens_decoder" in refusal(path, tmp_path, source_lang="en", target_lang="de")
    for file in ("tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"):
        (path / file).unlink()
    assert "has no list of its languages" in refusal(path, tmp_path, source_lang="en", target_lang="de")


@pytest.mark.slow
def test_the_tags_of_the_languages_stay_in_a_trimmed_vocabulary(tmp_path):
    rows, corpus = [row for each in expectations("hf_nllb") for row in each["rows"]], tmp_path / "corpus"
    corpus.write_text("\n".join(text for row in rows for text in (row["source"], row["greedy"]["text"])))
    run = import_model(unpacked("hf_nllb"), tmp_path / "run", trim_vocabulary=corpus, languages=["en", "de"])
    tags, (tokenizer, _) = load_tags(run.path), load_tokenizers(run.path)
    assert tags.default == ("eng_Latn", "deu_Latn") and tags.targets == tags.sources
    assert [*tokenizer.visible_pieces([*tags.targets.values()])] == [piece_of(code) for code in tags.targets]
    back = expectations("hf_nllb")[1]["rows"]
    found = run.translator(**GREEDY).translate([row["source"] for row in back], source_lang="de", target_lang="en")
    assert found == [row["greedy"]["text"] for row in back]


@pytest.fixture
def tagged(tmp_path):
    """A MarianMTModel with the tags of two target languages in place of two pieces."""
    model = copied("hf_marian", tmp_path)
    table = json.loads((model / "vocab.json").read_text())
    names = [*table]
    for tag, place in ((">>deu<<", 20), (">>fra<<", 50)):
        table[tag] = table.pop(names[place])
    (model / "vocab.json").write_text(json.dumps(table))
    return model


def test_a_model_that_cannot_have_several_languages_is_refused(tagged, tmp_path):
    for given in ({"languages": "fra,deu"}, {"languages": "all", "source_lang": "fra", "target_lang": "deu"}):
        words = "from en: name it first in `languages`, or by `source_lang`. Received: source language fra, languages="
        assert words + given["languages"] in refusal(tagged, tmp_path, **given)
    for name, languages in (("hf_marian", ["en", "de"]), ("marian", "all"), ("opennmt", ["en", "de"])):
        given = {"source_lang": "en", "target_lang": "de", "languages": languages}
        assert "has one direction: leave out `languages`" in refusal(unpacked(name), tmp_path, **given)
    behind = refusal(unpacked("hf_mbart"), tmp_path, languages=["en_XX", "de_DE"])
    assert "behind the source" in behind and "tokenizer_class=MBartTokenizer" in behind
    nllb = copied("hf_nllb", tmp_path)
    change_json(nllb / "tokenizer_config.json", {"legacy_behaviour": True})
    assert "behind the source" in refusal(nllb, tmp_path, languages=["eng_Latn", "deu_Latn"])


def test_the_languages_of_a_user_are_those_of_the_model():
    for place, languages, given, default, targets in (
        ("both", ["en", "fra_Latn"], {}, ("eng_Latn", "fra_Latn"), ["eng_Latn", "fra_Latn"]),
        ("both", ["en", "fr", "de"], {"target_lang": "de"}, ("eng_Latn", "deu_Latn"), [*KNOWN]),
        ("source", ["ja", "de", "fr"], {}, ("ja", "deu_Latn"), ["deu_Latn", "fra_Latn"]),
        ("source", ["all"], {"source_lang": "en", "target_lang": "de"}, ("eng_Latn", "deu_Latn"), [*KNOWN]),
    ):
        for code in ("eng", "en", "EN"):  # of one pair
            assert tag_of({"deu": [7], "eng": [8]}, code, "DIR") == [8] and tag_of({}, code, "DIR") == []
        tags = language_tags(place, KNOWN, languages, **given)
        assert tags.default == default and tags.targets == {code: KNOWN[code] for code in targets}
        assert tags.sources.keys() == ({*targets} if place == "both" else {default[0]})


def test_languages_that_cannot_be_are_named():
    for place, languages, given, words in (
        ("both", ["en", "ja"], {}, "the model has no language ja, only deu_Latn, eng_Latn, fra_Latn"),
        ("both", ["all"], {"source_lang": "en"}, "`languages` all needs `source_lang` and `target_lang`"),
        ("both", ["en", "de"], {"source_lang": "fr"}, "Received: source_lang=fra_Latn, languages=en,de"),
        ("both", ["en"], {}, "needs two languages: give two codes or more in `languages`"),
        ("both", ["en", "eng"], {}, "Received: source_lang=None, target_lang=None, languages=en,eng"),
        ("source", [], {}, "needs two languages"),
        ("both", [""], {}, "`languages` must be codes, such as en,de. Received: ''"),
    ):
        with pytest.raises(ImportedModelError) as caught:
            language_tags(place, KNOWN, languages, **given)
        assert words in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.slow
def test_a_run_of_one_direction_takes_its_own_tag_off_and_marks_another(tagged, tmp_path, caplog):
    translator = import_model(tagged, tmp_path / "run", "en", "deu").translator(**GREEDY)
    texts = ["The table has eight.", ">>deu<< The table has eight.", " >>de<<The table has eight.", ">>fra<< The dog."]
    plain, own, short, other = translator.translate_scored(texts)
    assert plain == own and short.text.strip() == plain.text and plain.score > UNKNOWN_LANGUAGE == other.score
    assert "does not have" in caplog.text
    path = export_version(LiteRTExport(translator), tmp_path / "litert")  # a probe of its proof has the tag
    assert LiteRTTranslator(path).translate(texts[:3]) == [plain.text, own.text, short.text]
