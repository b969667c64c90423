import numpy as np
import pytest
import sentencepiece

from keras_transformer.config import EOS_ID
from keras_transformer.data.encoded import EncodedPairs, Sentences
from keras_transformer.protection import PLACEHOLDERS
from keras_transformer.tokenizer import train_tokenizer
from keras_transformer.tools.variation.protected_pairs import (
    PairProtection,
    compounds_of,
    find_shared,
    hide_pair,
    learn_terms,
)
from keras_transformer.tools.variation.subword_dropout import SubwordDropout
from tests.tiny import ENGLISH, GERMAN, VOCABULARY

WORDS = {a + b: c + d for a, c in zip(ENGLISH, GERMAN, strict=True) for b, d in zip(ENGLISH, GERMAN, strict=True)}


def make_pairs():
    """Pairs of the word "the", two of 121 words in another order, and a year."""
    rng = np.random.default_rng(3)
    chosen = [rng.permutation(list(WORDS))[:2].tolist() for _ in range(397)]
    return [(f"the {a} {b} 20{n}", f"20{n} {WORDS[b]} die {WORDS[a]}") for n, (a, b) in enumerate(chosen)]


PAIRS = make_pairs()


@pytest.fixture(scope="module")
def models():
    """A tokenizer for each side."""
    return [train_tokenizer(side, VOCABULARY, placeholders=PLACEHOLDERS) for side in zip(*PAIRS, strict=True)]


@pytest.fixture(scope="module")
def processors(models):
    return [sentencepiece.SentencePieceProcessor(model_proto=model) for model in models]


@pytest.fixture(scope="module")
def encoded(processors):
    source, target = (p.encode(list(side)) for p, side in zip(processors, zip(*PAIRS, strict=True), strict=True))
    return EncodedPairs(Sentences.of_lists(source), Sentences.of_lists([[*ids, EOS_ID] for ids in target]), {})


def texts(pairs, processors):
    sides = zip(processors, (pairs.source, pairs.target), strict=True)
    return list(zip(*(map(p.decode, side.lists()) for p, side in sides), strict=True))


def hidden_in(text):
    return sorted(x for x in PLACEHOLDERS for _ in range(text.count(x)))


def test_some_pairs_have_the_same_placeholders_on_both_sides_and_the_others_stay(encoded, models, processors):
    protect = PairProtection(encoded, *models, rate=0.4, max_length=99)
    rounds = [texts(protect(encoded, np.random.default_rng(seed)), processors) for seed in (5, 5, 7)]
    assert rounds[0] == rounds[1] != rounds[2]
    changed = [(pair, new) for pair, new in zip(PAIRS, rounds[0], strict=True) if pair != new]
    assert 0.25 < len(changed) / len(PAIRS) < 0.55
    for _, (source, target) in changed:
        assert hidden_in(source) == hidden_in(target) and 1 <= len(hidden_in(source)) <= 4
        assert len(set(hidden_in(source))) == len(hidden_in(source))
    assert {x for _, (source, _) in changed for x in hidden_in(source)} == set(PLACEHOLDERS)
    again = protect(encoded, np.random.default_rng(5))
    assert (again.target.ids[again.target.starts[1:] - 1] == EOS_ID).all()


def test_no_pair_becomes_longer_than_the_longest(encoded, models, processors):
    longest = max(encoded.source.lengths.max(), encoded.target.lengths.max() - 1)
    for most in (longest, 1):
        hidden = PairProtection(encoded, *models, rate=0.9, max_length=most)(encoded, np.random.default_rng(3))
        assert max(hidden.source.lengths.max(), hidden.target.lengths.max() - 1) <= longest
        assert (texts(hidden, processors) == PAIRS) == (most == 1)


def test_subword_dropout_leaves_placeholders_whole(models):
    ids = list(range(4, 4 + len(PLACEHOLDERS)))
    varied = SubwordDropout(models[0], 0.99)(Sentences.of_lists([ids]), np.random.default_rng(3))
    assert varied.lists() == [ids]


def test_terms_are_words_of_letters_that_translate_each_other():
    terms = learn_terms(*zip(*PAIRS, strict=True))
    assert terms.items() <= {**WORDS, "the": "die"}.items() and len(terms) > 0.8 * len(WORDS)
    assert learn_terms([""], ["5"]) == {}
    assert compounds_of("Ann's T-Shirt, 5 km, https://a.b {x}") == ["Ann's", "T-Shirt", "km"]


def test_what_stands_on_both_sides_gets_the_same_placeholders():
    pair = ("In 2012 Ann saw the dog and a hat at www.a.org, 5 or 5.", "2012 sah Ann auf www.a.org den Hund, hat 5.")
    shared = find_shared(*pair, {"dog": "Hund", "saw": "sägte"})
    texts = [[side[slice(*spans[number])] for spans in shared] for number, side in enumerate(pair)]
    assert texts == [["2012", "Ann", "dog", "www.a.org"], ["2012", "Ann", "Hund", "www.a.org"]]
    assert hide_pair(*pair, shared, first=8) == (
        "In ⟦8⟧ ⟦9⟧ saw the ⟦0⟧ and a hat at ⟦1⟧, 5 or 5.",
        "⟦8⟧ sah ⟦9⟧ auf ⟦1⟧ den ⟦0⟧, hat 5.",
    )
    assert hide_pair(*pair, shared, keep_words=True) == (
        "In ⟦0⟧ Ann⟦1⟧ saw the dog⟦2⟧ and a hat at ⟦3⟧, 5 or 5.",
        "⟦0⟧ sah ⟦1⟧ auf ⟦3⟧ den ⟦2⟧, hat 5.",
    )
