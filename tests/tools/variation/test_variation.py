import functools
import unicodedata

import numpy as np
import pytest
import regex
import sentencepiece

from keras_transformer.config import EOS_ID
from keras_transformer.data.encoded import EncodedPairs, Sentences
from keras_transformer.normalization import mend
from keras_transformer.protection import PLACEHOLDERS
from keras_transformer.tokenizer import train_tokenizer
from keras_transformer.tools.variation import protected_pairs, typed_text
from keras_transformer.tools.variation.protected_pairs import PairProtection, find_shared, hide_pair, learn_terms
from keras_transformer.tools.variation.typed_text import Noise, TitleCase, TypedPairs, Typos, UpperCase
from tests import tiny


class Coded:
    """Pairs and their ids, by a SentencePiece model for each side."""

    def __init__(self, pairs, *models):
        self.pairs, self.models = pairs, models
        self._processors = [sentencepiece.SentencePieceProcessor(model_proto=model) for model in models]
        sides = zip(self._processors, zip(*pairs, strict=True), strict=True)
        source, target = (processor.encode(list(side)) for processor, side in sides)
        target = [[*ids, EOS_ID] for ids in target]
        self.ids = EncodedPairs(Sentences.of_lists(source), Sentences.of_lists(target), {})

    def changed(self, change, seed=5):
        """The pairs after a change of their ids."""
        ids = change(self.ids, np.random.default_rng(seed))
        assert all(row[-1] == EOS_ID and EOS_ID not in row[:-1] for row in ids.target.lists())
        sides = zip(self._processors, (ids.source, ids.target), strict=True)
        return list(zip(*(map(p.decode, side.lists()) for p, side in sides), strict=True))


ENGLISH, GERMAN = tiny.ENGLISH, tiny.GERMAN
WORDS = {a + b: c + d for a, c in zip(ENGLISH, GERMAN, strict=True) for b, d in zip(ENGLISH, GERMAN, strict=True)}


@functools.cache
def hiding():
    """Pairs of the word "the", two of 121 words in another order, and a year."""
    rng = np.random.default_rng(3)
    chosen = [rng.permutation(list(WORDS))[:2].tolist() for _ in range(397)]
    pairs = [(f"the {a} {b} 20{n}", f"20{n} {WORDS[b]} die {WORDS[a]}") for n, (a, b) in enumerate(chosen)]
    sides = zip(*pairs, strict=True)
    return Coded(pairs, *(train_tokenizer(side, tiny.VOCABULARY, placeholders=PLACEHOLDERS) for side in sides))


def hidden_in(text):
    return sorted(x for x in PLACEHOLDERS for _ in range(text.count(x)))


def test_some_pairs_have_the_same_placeholders_on_both_sides_and_the_others_stay_and_none_becomes_too_long():
    coded = hiding()
    protect = PairProtection(coded.ids, *coded.models, rate=0.4, max_length=99)
    rounds = [coded.changed(protect, seed) for seed in (5, 5, 7)]
    assert rounds[0] == rounds[1] != rounds[2]
    changed = [new for pair, new in zip(coded.pairs, rounds[0], strict=True) if pair != new]
    assert 0.25 < len(changed) / len(coded.pairs) < 0.55
    for source, target in changed:
        assert hidden_in(source) == hidden_in(target) and 1 <= len(hidden_in(source)) <= 4
        assert len(set(hidden_in(source))) == len(hidden_in(source))
    assert {x for source, _ in changed for x in hidden_in(source)} == set(PLACEHOLDERS)
    longest = max(coded.ids.source.lengths.max(), coded.ids.target.lengths.max() - 1)
    protect.rate, protect.max_length = 0.9, longest
    hidden = protect(coded.ids, np.random.default_rng(3))
    assert max(hidden.source.lengths.max(), hidden.target.lengths.max() - 1) <= longest
    protect.max_length = 1
    assert coded.changed(protect) == coded.pairs


def test_terms_are_words_of_letters_that_translate_each_other():
    terms = learn_terms(*zip(*hiding().pairs, strict=True))
    assert terms.items() <= {**WORDS, "the": "die"}.items() and len(terms) > 0.8 * len(WORDS)
    assert learn_terms([""], ["5"]) == {}
    assert protected_pairs.compounds_of("Ann's T-Shirt, 5 km, https://a.b {x}") == ["Ann's", "T-Shirt", "km"]


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


def draws(change, source, target="target"):
    """The different results of many draws, a set of pairs."""
    return {change(source, target, np.random.default_rng(seed)) for seed in range(199)}


@pytest.mark.parametrize(
    ("pair", "upper", "title"),
    [
        (("a straße, über 5 km", "une rue"), ("A STRASSE, ÜBER 5 KM", "UNE RUE"), ("A Straße, Über 5 Km", "Une Rue")),
        (("ёжик don’t пьёт", "x"), ("ЁЖИК DON’T ПЬЁТ", "X"), ("Ёжик Don’t Пьёт", "X")),
        (("a\u0301 la ǆep", "x"), ("A\u0301 LA ǄEP", "X"), ("A\u0301 La ǅep", "X")),
        (("word⟦3⟧ it", "⟦3⟧ es"), ("WORD⟦3⟧ IT", "⟦3⟧ ES"), ("Word⟦3⟧ It", "⟦3⟧ Es")),
        (("he came", "彼は来た。"), ("HE CAME", "彼は来た。"), ("He Came", "彼は来た。")),
        *[((text, "he came"),) * 3 for text in ("彼は来た。", "वह आया।", "הוא בא", "เขามา", "그가 왔다")],
    ],
)
def test_both_sides_get_capitals_where_the_source_has_case(pair, upper, title):
    assert draws(UpperCase(1.0), *pair) == {upper} and draws(TitleCase(1.0), *pair) == {title}


@pytest.mark.parametrize("source", ["желтый дом стоит", "हिन्दी भाषा अच्छी", "e\u0301te\u0301 dernier"])
def test_a_typo_is_of_one_word_or_few_and_never_parts_a_letter_from_its_marks(source):
    found = draws(Typos(1.0), source)
    assert len(found) > 29 and {target for _, target in found} == {"target"}
    letters = set(regex.findall(r"\X", source))
    for typed, _ in found:
        assert typed.count(" ") == source.count(" ") and set(regex.findall(r"\X", typed)) <= letters
        assert abs(len(regex.findall(r"\X", typed)) - len(regex.findall(r"\X", source))) <= len(source.split())


def test_typos_swap_leave_out_double_and_replace_letters_and_stops_now_and_then_but_no_numbers_or_placeholders():
    found = {typed for typed, _ in draws(Typos(1.0), "abcd")}
    assert {"bacd", "acbd", "abdc", "bcd", "acd", "abd", "aabcd", "abbcd", "abccd", "bbcd", "adcd"} <= found
    for text in ("it rains.", "वह आया।", "彼は来た。", "هل أتى؟"):
        assert (text[:-1], "target") in draws(Typos(1.0), text)
    for text in (".", "⟦3⟧ 1234 of 5 km", "स्त्री न्त्र्य 5"):  # a source never becomes blank; one cluster has no typo
        assert draws(Typos(1.0), text) == {(text, "target")}
    assert {source[:6] for source, _ in draws(Typos(1.0), "स्त्री यहाँ नहीं है।")} == {"स्त्री"}


def test_noise_is_the_same_on_both_sides_and_all_that_is_new_and_of_visible_symbols_of_all_scripts():
    found = draws(Noise(1.0), "one two three four", "eins zwei")
    assert len(found) > 190
    starts = 0
    for source, target in found:
        symbol = regex.sub("one|two|three|four", "", source).strip()
        assert symbol and target.count(symbol) == 1 and target.replace(symbol, "").split() == ["eins", "zwei"]
        starts += source.startswith(symbol) and target.startswith(symbol)
    assert 50 < starts < 120
    signs, others = typed_text.visible_characters()
    assert {"😀", "★", "€", "→"} <= set(signs) and {"ж", "水", "ก", "ب", "§"} <= set(others)
    assert {unicodedata.category(sign)[0] for sign in signs} == {"S"}
    assert all(mend(character) == character for character in signs + others)
    assert not set("⟦⟧\u2581") & set(signs + others)


@functools.cache
def coded():
    return Coded(tiny.pairs(97), tiny.tokenizer_model(), tiny.tokenizer_model())


def typed(coded, changes, seed=5, max_length=99):
    return coded.changed(TypedPairs(*coded.models, changes, max_length), seed)


def test_slips_are_drawn_for_each_pair_and_the_seed_decides():
    rounds = [typed(coded(), [Typos(0.4)], seed) for seed in (5, 5, 7)]
    assert rounds[0] == rounds[1] != rounds[2]
    changed = [new for old, new in zip(coded().pairs, rounds[0], strict=True) if new != old]
    assert 0.2 < len(changed) / len(rounds[0]) < 0.6
    assert [target for _, target in rounds[0]] == [target for _, target in coded().pairs]


@pytest.mark.parametrize("change", [TitleCase, Noise])
def test_long_changes_are_drawn_for_whole_batches_as_often_as_the_rate_says(change):
    some = Coded(coded().pairs[:3], *coded().models)
    results = [typed(some, [change(0.3)], seed) for seed in range(199)]
    assert 0.55 < results.count(some.pairs) / len(results) < 0.85
    whole = [result for result in results if result != some.pairs]
    assert all(old != new for result in whole for old, new in zip(some.pairs, result, strict=True)) or change is Noise


def test_changes_follow_one_another_and_no_pair_becomes_much_longer_than_its_batch(monkeypatch):
    pairs = coded().pairs
    found = typed(coded(), [TitleCase(0.999), UpperCase(0.999)], max_length=999)
    changed = [(old, new) for old, new in zip(pairs, found, strict=True) if new != old]
    assert changed and all(new == tuple(text.upper() for text in old) for old, new in changed)
    longest = max(*coded().ids.source.lengths, *coded().ids.target.lengths)
    for most, growth in ((longest, 4), (999, 1)):
        monkeypatch.setattr(typed_text, "MOST_GROWTH", growth)
        change = TypedPairs(*coded().models, [UpperCase(0.999)], most)
        ids = change(coded().ids, np.random.default_rng(5))
        assert max(ids.source.lengths.max(), ids.target.lengths.max() - 1) <= longest
    assert typed(coded(), [UpperCase(0.999)], max_length=1) == typed(coded(), [Noise(0.0)]) == pairs


def test_placeholders_stay_whole():
    model = tiny.keeping_tokenizer().model
    pairs = [(f"seven{name} eight nine", f"{name} acht neun") for name in PLACEHOLDERS]
    changes = [TitleCase(0.9), UpperCase(0.9), Typos(0.9), Noise(0.9)]
    for seed in range(5):
        changed = typed(Coded(pairs, model, model), changes, seed)
        for before, after in zip(sum(pairs, ()), sum(changed, ()), strict=True):
            assert [p for p in PLACEHOLDERS if p in after] == [p for p in PLACEHOLDERS if p in before]


def test_a_tokenizer_learns_from_a_share_of_capitals():
    text = ["seven eight", "sieben acht"] * 2000
    assert list(typed_text.with_cases(text, 0.0, 0.0)) == text
    cased = list(typed_text.with_cases(iter(text), 0.05, 0.1))
    assert len(cased) == 4000 and cased == list(typed_text.with_cases(iter(text), 0.05, 0.1))
    for sentence in text[:2]:
        assert 70 < cased.count(sentence.upper()) < 130 and 160 < cased.count(sentence.title()) < 240
