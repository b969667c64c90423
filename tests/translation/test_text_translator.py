import functools

import numpy as np
import pytest
from keras_transformer.text_translator import NOT_GIVEN
from keras_transformer.translator import Translator

from tests import tiny

TEXTS = ["one two", "seven", "ten nine eight four zero", "Größe 😀", "one one one one one one one"]
ALPHA = 0.7


@functools.cache
def translator(beam_size):
    return Translator(tiny.trained_transformer(), tiny.tokenizer(), beam_size, ALPHA, 31, batch_size=3)


def test_no_option_given_is_what_was_exported():
    texts = [*TEXTS, ""]
    plain = translator(3).translate_scored(texts)
    for options in ({"no_repeat_ngram": 0}, NOT_GIVEN, {"beam_size": 3, "length_penalty": ALPHA}):
        found = translator(3).translate_scored(texts, **options)
        assert [text for text, _ in found] == [text for text, _ in plain]
        np.testing.assert_allclose([score for _, score in found], [score for _, score in plain], rtol=1e-5)


def test_an_option_may_be_of_every_text_its_own():
    beam_sizes, alphas = [3, 1, 2, 1, 3], [0.0, 1.0, ALPHA, -1.0, 2.0]
    found = translator(3).translate_scored(TEXTS, beam_size=beam_sizes, length_penalty=alphas)
    for text, beam_size, alpha, (translation, score) in zip(TEXTS, beam_sizes, alphas, found, strict=True):
        alone = Translator(tiny.trained_transformer(), tiny.tokenizer(), beam_size, alpha, 31)
        ((expected, expected_score),) = alone.translate_scored([text])
        assert translation == expected
        assert score == pytest.approx(expected_score, rel=1e-4)


def test_alternatives_are_the_beam_best_first():
    found = translator(3).alternatives([*TEXTS, ""])
    best = translator(3).translate_scored([*TEXTS, ""])
    for alternatives, first in zip(found, best, strict=True):
        assert len(alternatives) == 3 and alternatives[0].text == first.text
        assert alternatives[0].score == pytest.approx(first.score, rel=1e-5)
        assert [score for _, score in alternatives] == sorted((score for _, score in alternatives), reverse=True)
    assert all(len({text for text, _ in alternatives}) == 3 for alternatives in found[:-1])


def test_samples_have_their_seed():
    sampled = [translator(1).sample(TEXTS, seed=seed, temperature=3.0) for seed in (1, 1, 2)]
    assert sampled[0] == sampled[1] != sampled[2]
    (alone,) = translator(1).sample(TEXTS[2:3], seed=1, temperature=3.0)
    assert alone.text == sampled[0][2].text


def test_drawing_from_the_best_token_alone_is_greedy_search():
    greedy = translator(1).translate(TEXTS)
    assert [text for text, _ in translator(1).sample(TEXTS, top_k=1, temperature=5.0, seed=7)] == greedy


@pytest.mark.parametrize(
    ("signature", "inputs", "message"),
    [
        ("summarise", {"text": []}, "no signature `summarise`, only translate"),
        ("sample", {"text": ["one"], "heat": 1.0}, "`sample` takes text, temperature.*heat"),
        ("translate", {}, "`translate` takes text.*text"),
        ("translate_with_options", {**NOT_GIVEN, "text": ["one"], "prefix": ["a", "b"]}, "`prefix`.*Received: 2, of 1"),
    ],
)
def test_wrong_inputs_are_named(signature, inputs, message):
    with pytest.raises(ValueError, match=message):
        translator(1).ask(signature, **inputs)


def test_scores_and_explanations_are_without_padding():
    translations = translator(3).translate([*TEXTS, ""])
    scored, explained = translator(3).score([*TEXTS, ""], translations), translator(3).explain([*TEXTS, ""])
    lengths = set()
    for text, score, explanation in zip([*TEXTS, ""], scored, explained, strict=True):
        assert score.pieces == explanation.pieces and all(explanation.source_pieces)
        assert "".join(explanation.source_pieces).replace("▁", " ").strip() == text or "<0x" in str(explanation)
        assert score.token_scores.shape == (len(score.pieces),)
        assert explanation.alignment.shape == (len(explanation.pieces), len(explanation.source_pieces))
        np.testing.assert_allclose(explanation.alignment.sum(axis=1), 1, atol=1e-5)
        lengths.add(explanation.alignment.shape)
    assert len(lengths) > 3 and (0, 0) in lengths


def test_texts_and_translations_that_do_not_pair_are_refused():
    with pytest.raises(ValueError, match="`translation`.*Received: 1, of 2"):
        translator(1).score(["one", "two"], ["eins"])
