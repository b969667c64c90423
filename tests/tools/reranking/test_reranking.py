"""The choice among samples and among the hypotheses of a beam, on scripted translators; sacreBLEU is the oracle."""

import math
import random
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sacrebleu.metrics import BLEU, CHRF

from keras_transformer.cli import request
from keras_transformer.errors import UserError
from keras_transformer.tags import LanguageTags, check_direction
from keras_transformer.tools.reranking import minimum_bayes_risk, rerank
from keras_transformer.tools.reranking.agreement import SAMPLES, UTILITIES, agreed, sentence_bleu, sentence_chrf
from keras_transformer.tools.saved_models import SavedModelTranslator
from keras_transformer.tools.words import spaced_out
from keras_transformer.translation.results import Translation
from keras_transformer.translation.translator import Translator
from tests import tiny
from tests.sentences import SENTENCES

METRICS = {"chrf": CHRF(), "bleu": BLEU(effective_order=True)}
POOLS = {
    "a": ["der Hund läuft", "ein Hund läuft schnell .", "der Hund rennt", "Hund", "der Hund läuft ."],
    "b": ["x", "x y", "", "y x", "x"],
    "c": ["die Katze schläft auf dem Sofa", "eine Katze schläft auf der Couch", "die Katze schläft"],
    "": [""],
    "  ": ["  "],
}


class Drawing:
    """A translator that draws from the pool of a text by its seed alone, and remembers how it was asked."""

    drawn = ()

    def sample(self, texts, on_progress=None, *, seed, **options):
        self.options = options
        if on_progress:
            for start in range(0, len(texts), 3):
                on_progress(len(texts[start : start + 3]))
        rows = zip(texts, seed, strict=True)
        found = [random.Random(f"{text}{number}").choice(POOLS[text]) for text, number in rows]
        self.drawn = [*self.drawn, *found]
        return [Translation(text, -1.0) for text in found]


def drawn(text, number, **sampling):
    """The samples of a text: what `minimum_bayes_risk` asks a translator for."""
    translator = Drawing()
    minimum_bayes_risk(translator, [text], number, **sampling)
    return translator.drawn


@pytest.mark.parametrize("utility", METRICS)
def test_the_sample_wins_that_agrees_best_with_all_samples(utility):
    """The first of the samples with the highest mean score against all of them, one pair after the other."""
    for samples, seed in ((2, 0), (7, 1), (33, 2)):
        found = minimum_bayes_risk(Drawing(), list(POOLS), samples, utility, seed=seed)
        for text, (translation, score) in zip(POOLS, found, strict=True):
            some = drawn(text, samples, seed=seed)
            scores = [[METRICS[utility].sentence_score(each, [other]).score for other in some] for each in some]
            means = [math.fsum(row) / len(some) for row in scores]
            best = next(i for i, mean in enumerate(means) if mean > max(means) - 1e-9)
            assert translation == some[best] and score == pytest.approx(means[best], abs=1e-6)


TEXTS = st.text(st.sampled_from("ab é\u0301\u2028\t.,$-1"), max_size=11)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.one_of(TEXTS, st.sampled_from([each.text for each in SENTENCES.values()])), min_size=1, max_size=5))
def test_the_utilities_are_those_of_sacrebleu(texts):
    spaced = [text for text in texts if spaced_out(text) == text] or [""]
    for utility, metric, some in ((sentence_chrf, METRICS["chrf"], texts), (sentence_bleu, METRICS["bleu"], spaced)):
        expected = [[metric.sentence_score(each, [other]).score for other in some] for each in some]
        np.testing.assert_allclose(utility(some), expected, atol=1e-6)


def test_bleu_finds_words_in_scripts_without_spaces_and_of_equal_samples_the_first_one_wins():
    texts = ["我们今天去公园散步。", "我们今天去学校上课。", "ขอบคุณมากครับ", "ขอบคุณมากค่ะ"]
    found = sentence_bleu(texts)
    assert (np.diag(found) > 99.9).all() and 10 < found[0, 1] < 90 and 10 < found[2, 3] < 90 and found[0, 2] == 0
    plain = BLEU(effective_order=True, tokenize="zh").sentence_score(texts[0], [texts[1]]).score
    assert found[0, 1] == pytest.approx(plain, abs=1e-6)
    for texts in (["ab", "cd", "ef"], ["cd", "ab", "ef"], ["ef", "cd", "ab", "ab", "cd", "ef"]):
        for utility in METRICS:
            assert agreed(texts, utility) == (texts[0], pytest.approx(100 / 3))
    assert agreed(["", "", "x"], "chrf") == ("x", pytest.approx(100 / 3))  # blank text agrees with nothing


def test_no_text_has_an_influence_on_another():
    texts, seeds = list(POOLS), [3, 4, 3, 4, 3]
    alike = minimum_bayes_risk(Drawing(), texts[::-1], 9, seed=3)[::-1]
    each = minimum_bayes_risk(Drawing(), texts, 9, seed=seeds)
    alone = [minimum_bayes_risk(Drawing(), *row, 9, seed=n) for *row, n in zip(texts, seeds, strict=True)]
    assert each == alone and alike[::2] == each[::2]
    # A seed gives its samples, and another seed others.
    rows = {seed: drawn("a", 32, seed=seed) for seed in (-1, 0, 1, 2, 2**63 - 1, -(2**63))}
    assert rows[0] == drawn("a", 32) and len({tuple(row) for row in rows.values()}) == len(rows)
    assert drawn("a", 5, seed=1) == rows[1][:5]  # more samples leave the first ones as they are


def test_options_reach_the_sampling_progress_counts_texts_and_blank_text_stays_blank():
    translator, counts, temperatures = Drawing(), [], [0.5, 0.6, 0.7, 0.8]
    how = {"temperature": temperatures, "top_p": 0.9, "target_lang": "de"}
    minimum_bayes_risk(translator, ["a", "b", "c", ""], 5, "bleu", counts.append, **how)
    repeated = [value for value in temperatures for _ in range(5)]
    assert translator.options == {"temperature": repeated, "top_p": 0.9, "target_lang": "de"}
    assert sum(counts) == 4 and len(counts) > 1
    assert minimum_bayes_risk(Drawing(), ["", "  "], 4) == [("", 0.0), ("  ", 0.0)]
    assert minimum_bayes_risk(Drawing(), [], 4) == []
    assert (request.SAMPLES, request.UTILITIES) == (SAMPLES, tuple(UTILITIES))  # what translate.py offers


def test_a_mistake_is_named_before_any_work():
    for how, message in (
        ({"utility": "comet"}, "`utility` must be one of chrf, bleu. Received: utility='comet'"),
        ({"samples": 1}, "`samples` must be between 2 and 256. Received: samples=1"),
        ({"samples": 257}, "`samples` must be between"),
        ({"temperature": 0.001}, "`temperature` must be between"),
        ({"beam_size": 3}, "`sample` has no option `beam_size`"),
        ({"seed": [1, 2]}, "`seed` must have one value for every text. Received: 2, of 1 texts"),
    ):
        with pytest.raises(UserError, match=message):
            minimum_bayes_risk(None, ["a"], **how)
    with pytest.raises(UserError, match="every text must be a str. Received: 5"):
        minimum_bayes_risk(None, [5])


class Scripted:
    """A translator with the alternatives of a table and the scores of another; `tags` as those of a real one."""

    def __init__(self, alternatives=(), scores=(), languages=(None, None), tags=None):
        self.found, self.scores, self.languages, self.tags, self.asked = alternatives, scores, languages, tags, []
        self.width = max(map(len, dict(alternatives).values()), default=4)

    def alternatives(self, texts, on_progress=None):
        return [[Translation(*each) for each in self.found[text]] for text in texts]

    def between(self, source_lang=None, target_lang=None):
        self.asked.append((source_lang, target_lang))
        if self.tags:
            self.tags.find(source_lang, target_lang)
        else:
            check_direction(self.languages, source_lang, target_lang)
        return self

    def score(self, texts, translations, **languages):
        self.asked.append(languages)
        return [SimpleNamespace(score=self.scores[pair]) for pair in zip(texts, translations, strict=True)]


BEAM = {
    "dog": [("Katze", -1.0), ("Hund", -1.5), ("Hund", -1.75), ("", -2.0)],
    "cat": [("Katze", -1.0), ("Kater", -2.0), ("Kater", -2.0), ("Kater", -2.0)],
    "": [("", 0.0)] * 4,
    "?": [("", -1.0), (" ", -2.0), (" ", -2.0), (" ", -2.0)],
}
REVERSE = {("Katze", "dog"): -3.0, ("Hund", "dog"): -0.25, ("Katze", "cat"): -0.5, ("Kater", "cat"): -0.25}
REVERSE |= {("", ""): 0.0, ("", "?"): 0.0}


def test_the_two_scores_are_added_and_no_blank_translation_wins_by_its_score_of_0():
    found = rerank(Scripted(BEAM), list(BEAM), Scripted(scores=REVERSE))
    assert found == [
        [("Hund", -1.75), *[("Katze", -4.0)] * 3],
        [("Katze", -1.5), *[("Kater", -2.25)] * 3],
        [("", 0.0)] * 4,
        [("", -1.0)] * 4,
    ]
    assert rerank(Scripted(BEAM), "dog", Scripted(scores=REVERSE)) == found[0]
    assert rerank(Scripted(BEAM), [], Scripted(scores=REVERSE)) == []


def test_a_model_of_many_languages_takes_the_opposite_direction_and_the_tag_of_a_text():
    tags = LanguageTags("source", {"eng_Latn": 5, "fra": 6, "de": 7}, {"eng_Latn": 5, "fra": 6, "de": 7}, ("de", "fra"))
    beam = {"Hund": BEAM["dog"], ">>eng<< Hund": [("dog", -1.0), ("cat", -2.0)]}
    scores = {("Katze", "Hund"): -1.0, ("Hund", "Hund"): -1.0, ("dog", "Hund"): -2.0, ("cat", "Hund"): -0.5}
    forward, reverse = Scripted(beam, tags=tags), Scripted(scores=scores, tags=tags)
    found = rerank(forward, list(beam), reverse)
    assert [row[0] for row in found] == [("Katze", -2.0), ("cat", -2.5)]
    assert reverse.asked == [("fr", "de"), {"source_lang": [None, None, "en", "en"]}]


@pytest.mark.slow
def test_runs_and_exports_are_asked_alike():
    translator = Translator(tiny.trained_transformer(), tiny.tokenizer(), beam_size=3, max_length=31)
    texts = ["one two three", "", "ten nine seven"]
    how = {"samples": 5, "temperature": 1.5, "seed": 7}
    found = minimum_bayes_risk(translator, texts, **how)
    assert found == [minimum_bayes_risk(translator, text, **how) for text in texts]
    assert found[0].text == "eins zwei drei" and found[1] == ("", 0.0)
    exported = SavedModelTranslator(tiny.saved_model() / "exports")
    assert [each.text for each in minimum_bayes_risk(exported, texts, **how)] == [each.text for each in found]
    ranked = rerank(translator, texts, translator)
    for text, row in zip(texts, ranked, strict=True):
        first = {each.text: each.score for each in reversed(translator.alternatives(text))}
        expected = {each: score + translator.score(each, text).score for each, score in first.items() if each.strip()}
        assert row[0].score == pytest.approx(max(expected.values(), default=0.0), abs=1e-4)
    assert [row[0].text for row in rerank(exported, texts, exported)] == [row[0].text for row in ranked]
