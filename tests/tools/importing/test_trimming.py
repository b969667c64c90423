"""A trimmed vocabulary: the corpus is divided as before, no piece that is gone comes back, all text can be written."""

import gzip
import logging
import re

import numpy as np
import pytest
from sentencepiece import SentencePieceProcessor
from sentencepiece.sentencepiece_model_pb2 import ModelProto

import keras_transformer as kt
from keras_transformer.errors import UserError
from keras_transformer.models.sequence_to_sequence import load_model
from keras_transformer.tokenizer import SHARED, SOURCE, TARGET
from keras_transformer.tools.importing import import_model
from keras_transformer.tools.importing.trimming import Kept, corpus_files, needed_ids, texts_of
from tests.tools.importing.test_importing import expectations, unpacked
from tests.tools.importing.toy_corpus import pairs, train_pieces
from tests.training.curves import read_events

LETTERS = "abcdefghijklmnopqrstuvwxyz"
TEXTS = [text for pair in pairs(400, seed=2) for text in pair]  # more than the texts to keep
NAMELESS = re.compile(r"<\d+>|<pad>|<unk>|<s>|</s>")
UNSEEN = ["Der zwölfte Baum wiegt 3 kg", "★ İstanbul 東京 한국어", "zzz", "  a\tb  "]


def processor(model):
    return SentencePieceProcessor(model_proto=model)


def trained(path, texts, **settings):
    """A SentencePiece model with our ids, bytes."""
    train_pieces(path, texts, pad_id=0, unk_id=1, bos_id=2, eos_id=3, **settings)
    return path.read_bytes()


@pytest.mark.parametrize(
    "settings",
    [
        {"model_type": "unigram", "size": 300},
        {"model_type": "unigram", "size": 500, "byte_fallback": True},
        {"model_type": "bpe", "size": 300},
        {"model_type": "bpe", "size": 500, "byte_fallback": True, "user_defined_symbols": ["<x>", "Baum"]},
    ],
    ids=lambda settings: f"{settings['model_type']}-{settings['size']}",
)
def test_the_corpus_is_divided_as_before_and_other_text_into_pieces_that_stay(tmp_path, settings):
    model = trained(tmp_path / "pieces", TEXTS + UNSEEN[:2], character_coverage=1.0, **settings)
    corpus = [*TEXTS[:7], "ab <x>☂Baumhaus ☂☂"]
    kept = Kept(np.array(sorted(needed_ids(ModelProto.FromString(model), iter(corpus)))))
    before, after = processor(model), processor(kept.tokenizer(ModelProto.FromString(model)))
    assert after.vocab_size() == len(kept.ids) < before.vocab_size() - 10
    for text in corpus:
        assert after.encode(text, out_type=str) == before.encode(text, out_type=str)
        assert kept.new(before.encode(text)) == after.encode(text)
    pieces = {after.id_to_piece(id) for id in range(after.vocab_size())}
    characters = {before.id_to_piece(id) for id in range(before.vocab_size()) if len(before.id_to_piece(id)) == 1}
    assert characters <= pieces
    for text in TEXTS + UNSEEN:
        assert after.decode(after.encode(text)) == before.decode(before.encode(text))  # nothing becomes unknown


def test_random_words_are_divided_as_before(tmp_path):
    draw = np.random.default_rng(3)
    words = ["".join(draw.choice([*LETTERS[:5]], size=draw.integers(1, 12))) for _ in range(4000)]
    texts = [" ".join(words[place : place + 8]) for place in range(0, len(words), 8)]
    for kind in ("bpe", "unigram"):
        model = trained(tmp_path / kind, texts, model_type=kind, size=400)
        kept = Kept(np.array(sorted(needed_ids(ModelProto.FromString(model), iter(texts[:25])))))
        before, after = processor(model), processor(kept.tokenizer(ModelProto.FromString(model)))
        assert len(kept.ids) < before.vocab_size()
        assert [after.encode(text, out_type=str) for text in texts[:25]] == before.encode(texts[:25], out_type=str)


def test_a_corpus_is_files_or_directories_of_training_text(tmp_path):
    (tmp_path / "train.en").write_text("one\ntwo\n")
    (tmp_path / "val.en").write_text("three\n")
    with gzip.open(tmp_path / "train.tsv.gz", "wt", encoding="utf-8") as file:
        file.write("four\tvier\n")
    assert [*texts_of(corpus_files([tmp_path]))] == ["one", "two", "four", "vier"]
    assert [*texts_of(corpus_files([tmp_path / "val.en", tmp_path / "train.en"]))] == ["three", "one", "two"]
    (tmp_path / "empty").mkdir()
    nothing = "must name files or directories"
    refused = ([tmp_path / "empty"], "has no files train"), ([tmp_path / "no.en"], "cannot read")
    for paths, words in (*refused, ([], nothing), ([""], nothing)):
        with pytest.raises(UserError, match=words):
            [*texts_of(corpus_files(paths))]


OF_EACH_READER = ["hf_marian", "hf_m2m100", "marian_two_vocabularies", "marian_spm", "opennmt"]


@pytest.mark.parametrize("name", ["hf_nllb", *(pytest.param(name, marks=pytest.mark.slow) for name in OF_EACH_READER)])
def test_a_trimmed_model_gives_the_logits_of_the_pieces_that_stay(name, tmp_path, caplog):
    expected = expectations(name)[0]
    languages = expected["source_lang"], expected["target_lang"]
    rows = expected["rows"][:9]
    corpus = tmp_path / "corpus"
    corpus.write_text("\n".join(text for row in rows for text in (row["source"], row["beam"]["text"])))
    whole = import_model(unpacked(name), tmp_path / "whole", *languages)
    with caplog.at_level(logging.INFO, "keras_transformer"):
        small = import_model(unpacked(name), tmp_path / "small", *languages, trim_vocabulary=corpus)
    (source, other_source), (target, other_target) = zip(*map(pieces_of_run, (whole, small)), strict=True)
    assert len(other_target) < len(target) and f"{len(other_target)} of {len(target)} pieces stay" in caplog.text
    shown = [[piece for piece in each if not NAMELESS.fullmatch(piece)] for each in (other_source, other_target)]
    logits = []
    for run, of_source, of_target in ((whole, source, target), (small, other_source, other_target)):
        source_ids, target_ids = (
            [[table.index(piece) for piece in each]] for table, each in zip((of_source, of_target), shown, strict=True)
        )
        model = load_model(run.path / "model.keras")
        found = model({"source_ids": np.array(source_ids)[:, :9], "target_ids": np.array(target_ids)[:, :9]})
        logits.append(found.numpy()[..., target_ids[0]])
    np.testing.assert_allclose(logits[1], logits[0], rtol=1e-4, atol=1e-4)


def pieces_of_run(run):
    """The pieces of a run's source and target, two lists by ids."""
    shared = run.path / SHARED
    files = [shared, shared] if shared.exists() else [run.path / SOURCE, run.path / TARGET]
    models = [SentencePieceProcessor(model_file=str(file)) for file in files]
    return [[model.id_to_piece(id) for id in range(model.vocab_size())] for model in models]


HOW = {"source_lang": "en", "target_lang": "de", "dropout_rate": 0.0, "strategy": "one_device", "beam_size": 1}
HOW |= {"feed_forward_dropout_rate": 0.0, "precision": "float32", "seed": 7}


@pytest.mark.slow
def test_the_first_loss_is_that_of_the_engine(tmp_path):
    engine = expectations("hf_marian")[0]
    origin = import_model(unpacked("hf_marian"), tmp_path / "origin", engine["source_lang"], engine["target_lang"])
    tokenizer = SentencePieceProcessor(model_file=str(sorted(origin.path.glob("*tokenizer.model"))[-1]))
    found = [(row["source"], row["greedy"]) for row in engine["rows"]]
    found = [each for each in found if len(tokenizer.encode(each[1]["text"])) + 1 == len(each[1]["ids"])]
    assert len(found) > 15
    corpus = [(source, best["text"]) for source, best in found]
    how = {**HOW, "label_smoothing": 0.0, "max_steps": 1, "peak_learning_rate": 1e-9, "batch_tokens": 4000}
    kt.train(corpus, validation=corpus, init_from=origin.path, model_dir=tmp_path / "run", **how)
    expected = -sum(best["log_prob"] for _, best in found) / sum(len(best["ids"]) for _, best in found)
    for part in ("train", "validation"):
        assert read_events(tmp_path / "run/logs" / part)["loss"][0][1] == pytest.approx(expected, rel=1e-3), part


@pytest.mark.slow
def test_more_updates_translate_more_sentences_exactly(tmp_path):
    origin = import_model(unpacked("marian"), tmp_path / "origin")
    held_out = pairs(100, seed=77)

    def exact(run):
        translations = run.translator(beam_size=1, split_sentences=False).translate([source for source, _ in held_out])
        return sum(found == target for found, (_, target) in zip(translations, held_out, strict=True))

    how = {**HOW, "epochs": 2, "peak_learning_rate": 1e-3, "batch_tokens": 800, "warmup_steps": 10}
    run = kt.train(pairs(600, seed=21), init_from=origin.path, model_dir=tmp_path / "run", **how)
    assert exact(run) > exact(origin)
