"""A model that another program has trained goes on learning here: nothing is lost when it is handed over."""

import pytest
from sentencepiece import SentencePieceProcessor

import keras_transformer as kt
from keras_transformer.tools.importing import import_model
from tests.tools.importing.test_importing import expectations, unpacked
from tests.tools.importing.toy_corpus import pairs
from tests.training.curves import read_events

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
