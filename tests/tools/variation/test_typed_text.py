import unicodedata

import numpy as np
import pytest
import regex
import sentencepiece

from keras_transformer.config import EOS_ID
from keras_transformer.data.encoded import EncodedPairs, Sentences
from keras_transformer.normalization import mend
from keras_transformer.protection import PLACEHOLDERS
from keras_transformer.tools.variation.typed_text import (
    MOST_GROWTH,
    Noise,
    TitleCase,
    TypedPairs,
    Typos,
    UpperCase,
    visible_characters,
    with_cases,
)
from tests import tiny

PAIRS = tiny.pairs(97)


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
    assert draws(UpperCase(1.0), *pair) == {upper}
    assert draws(TitleCase(1.0), *pair) == {title}


@pytest.mark.parametrize(
    "source", ["the yellow house", "желтый дом стоит", "हिन्दी भाषा अच्छी", "e\u0301te\u0301 dernier"]
)
def test_a_typo_is_of_one_word_or_few_and_never_parts_a_letter_from_its_marks(source):
    found = draws(Typos(1.0), source)
    assert len(found) > 29 and {target for _, target in found} == {"target"}
    letters = set(regex.findall(r"\X", source))
    for typed, _ in found:
        assert typed.count(" ") == source.count(" ")
        assert set(regex.findall(r"\X", typed)) <= letters
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
        symbol = source
        for word in ("one", "two", "three", "four"):
            symbol = symbol.replace(word, "", 1)
        symbol = symbol.strip()
        assert symbol and target.count(symbol) == 1 and target.replace(symbol, "").split() == ["eins", "zwei"]
        starts += source.startswith(symbol) and target.startswith(symbol)
    assert 50 < starts < 120
    signs, others = visible_characters()
    assert {"😀", "★", "€", "→"} <= set(signs) and {"ж", "水", "ก", "ب", "§"} <= set(others)
    assert {unicodedata.category(sign)[0] for sign in signs} == {"S"}
    assert all(mend(character) == character for character in signs + others)
    assert not set("⟦⟧\u2581") & set(signs + others)


@pytest.fixture(scope="module")
def model():
    return tiny.tokenizer_model()


@pytest.fixture(scope="module")
def processor(model):
    return sentencepiece.SentencePieceProcessor(model_proto=model)


@pytest.fixture(scope="module")
def encoded(processor):
    return encode(processor, PAIRS)


def encode(processor, pairs):
    source, target = (processor.encode(list(side)) for side in zip(*pairs, strict=True))
    return EncodedPairs(Sentences.of_lists(source), Sentences.of_lists([[*ids, EOS_ID] for ids in target]), {})


def typed(model, encoded, changes, seed=5, max_length=99):
    return TypedPairs(model, model, changes, max_length)(encoded, np.random.default_rng(seed))


def texts(pairs, processor):
    sides = [map(processor.decode, side.lists()) for side in (pairs.source, pairs.target)]
    return list(zip(*sides, strict=True))


def test_slips_are_drawn_for_each_pair_and_the_seed_decides(model, encoded, processor):
    rounds = [texts(typed(model, encoded, [Typos(0.4)], seed), processor) for seed in (5, 5, 7)]
    assert rounds[0] == rounds[1] != rounds[2]
    changed = [new for old, new in zip(PAIRS, rounds[0], strict=True) if new != old]
    assert 0.2 < len(changed) / len(PAIRS) < 0.6
    assert [target for _, target in rounds[0]] == [target for _, target in PAIRS]


@pytest.mark.parametrize("change", [UpperCase, TitleCase, Noise])
def test_long_changes_are_drawn_for_whole_batches_as_often_as_the_rate_says(model, encoded, processor, change):
    some = EncodedPairs(encoded.source.of(np.arange(3)), encoded.target.of(np.arange(3)), {})
    results = [texts(typed(model, some, [change(0.3)], seed), processor) for seed in range(199)]
    unchanged = results.count(PAIRS[:3])
    assert 0.55 < unchanged / len(results) < 0.85
    whole = [result for result in results if result != PAIRS[:3]]
    assert all(old != new for result in whole for old, new in zip(PAIRS, result, strict=False)) or change is Noise


def test_changes_follow_one_another_and_targets_end_as_before(model, encoded, processor):
    pairs = typed(model, encoded, [TitleCase(0.999), UpperCase(0.999)], max_length=999)
    short = [i for i, (source, target) in enumerate(texts(pairs, processor)) if (source, target) != PAIRS[i]]
    assert short and all(texts(pairs, processor)[i] == tuple(text.upper() for text in PAIRS[i]) for i in short)
    assert all(ids[-1] == EOS_ID and EOS_ID not in ids[:-1] for ids in pairs.target.lists())


def test_no_pair_becomes_much_longer_than_its_batch(model, encoded, processor):
    longest = max(*encoded.source.lengths, *encoded.target.lengths)
    for most in (longest, 999):
        pairs = typed(model, encoded, [UpperCase(0.999)], max_length=most)
        assert max(pairs.source.lengths.max(), pairs.target.lengths.max() - 1) <= min(most, MOST_GROWTH * longest)
    assert texts(typed(model, encoded, [UpperCase(0.999)], max_length=1), processor) == PAIRS
    assert typed(model, encoded, [Noise(0.0)]) is encoded


def test_placeholders_stay_whole():
    model = tiny.keeping_tokenizer().model
    keeping = sentencepiece.SentencePieceProcessor(model_proto=model)
    pairs = [(f"seven{name} eight nine", f"{name} acht neun") for name in PLACEHOLDERS]
    changes = [TitleCase(0.9), UpperCase(0.9), Typos(0.9), Noise(0.9)]
    for seed in range(5):
        changed = texts(typed(model, encode(keeping, pairs), changes, seed), keeping)
        for before, after in zip(sum(pairs, ()), sum(changed, ()), strict=True):
            assert [p for p in PLACEHOLDERS if p in after] == [p for p in PLACEHOLDERS if p in before]


def test_a_tokenizer_learns_from_a_share_of_capitals():
    text = ["seven eight", "sieben acht"] * 2000
    assert list(with_cases(text, 0.0, 0.0)) == text
    cased = list(with_cases(iter(text), 0.05, 0.1))
    assert len(cased) == 4000 and cased == list(with_cases(iter(text), 0.05, 0.1))
    for sentence in text[:2]:
        assert 70 < cased.count(sentence.upper()) < 130 and 160 < cased.count(sentence.title()) < 240
