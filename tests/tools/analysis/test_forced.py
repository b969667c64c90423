"""How a run reads translations that are given."""

import numpy as np
import pytest

from keras_transformer.errors import UserError
from keras_transformer.tools.analysis.forced import explain_pairs, link_words
from keras_transformer.translation.results import Explanation
from tests import tiny


@pytest.mark.parametrize("make", [tiny.beam_translator, tiny.many_languages, lambda: tiny.many_languages("both")])
def test_the_own_translation_of_a_model_is_explained_as_explain_does(make):
    translator = make()
    texts = ["one two three", "ten", "five five zero nine"]
    expected = translator.explain(texts)
    translations = ["".join(each.pieces).removesuffix("</s>").replace("▁", " ").strip() for each in expected]
    compared = 0
    for found, own in zip(explain_pairs(translator, texts, translations), expected, strict=True):
        assert found.source_pieces == own.source_pieces
        if found.pieces == own.pieces:  # random weights choose pieces that no tokenizer would
            np.testing.assert_allclose(found.alignment, own.alignment, rtol=1e-4, atol=1e-5)
            np.testing.assert_allclose(found.token_scores, own.token_scores, rtol=1e-3, atol=1e-4)
            compared += 1
    assert compared == 3 or make is not tiny.beam_translator
    rows = explain_pairs(translator, ["one two", "three"], ["eins", "zwei drei vier"])
    for row in rows:
        assert row.alignment.shape == (len(row.pieces), len(row.source_pieces))
        np.testing.assert_allclose(row.alignment.sum(axis=1), 1, rtol=1e-3)


def test_an_export_explains_no_given_translation():
    with pytest.raises(UserError, match="only a run explains given translations. Received: a object"):
        explain_pairs(object(), ["one"], ["eins"])


def test_a_word_is_linked_with_the_word_at_which_its_pieces_look_most():
    weights = [[0.5, 0.4, 0.1], [0.1, 0.2, 0.7], [0.0, 0.9, 0.1], [0.04, 0.04, 0.04], [0.1, 0.1, 0.8]]
    pieces = ["▁Haus", "▁al", "te", "▁so", "</s>"]  # "alte" looks at "o", "ld" together with 0.1 + 0.9 + 0.0 + 0.1
    explanation = Explanation(["▁o", "ld", "▁house"], pieces, np.zeros(5), np.array(weights))
    assert link_words(explanation, "old house", "Haus alte so") == [(0, 0), (0, 1)]
    explanation.alignment[0] = [0.1, 0.2, 0.7]
    assert link_words(explanation, "old house", "Haus alte so") == [(1, 0), (0, 1)]
