import functools

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from keras_transformer.signatures import EXTRA_LENGTH, INPUTS, Signatures

from keras_transformer.tokenizer import EOS_ID, Tokenizer
from tests import tiny

ALPHA = 0.7
TEXTS = ["one two", "seven. Ten nine", "", "ten nine eight four zero", "Größe 😀", "one one one\n\none one one"]


class Numbers(Tokenizer):
    """Spells ids out: random ones make no text that could be tokenised again."""

    def decode(self, ids):
        tokens = tf.ragged.boolean_mask(tf.strings.as_string(ids), ids > EOS_ID)
        return tf.strings.reduce_join(tokens, axis=1, separator=" ")


@functools.cache
def functions(width=3, model=tiny.trained_transformer):
    tokenizer = Numbers(tiny.tokenizer_model()) if model is tiny.endless else tiny.tokenizer()
    return Signatures(model(), tokenizer, width, ALPHA, 31).functions()


def call(signature, texts, width=3, model=tiny.trained_transformer, **options):
    """Output name -> list; an option is one value for all texts, or a list."""
    given = {
        "translate_with_options": {"prefix": "", "length_penalty": ALPHA, "repetition_penalty": 1.0},
        "sample": {"temperature": 1.0, "top_p": 1.0},
        "score": {"translation": ""},
    }
    columns = {
        **dict.fromkeys(INPUTS[signature], 0),
        **given.get(signature, {}),
        **options,
        "text": texts,
    }
    tensors = [
        tf.constant(value if isinstance(value, list) else [value] * len(texts), dtype, shape=[len(texts)])
        for (name, dtype), value in ((item, columns[item[0]]) for item in INPUTS[signature].items())
    ]
    return {name: output.numpy().tolist() for name, output in functions(width, model)[signature](*tensors).items()}


def test_the_names_and_dtypes_of_the_signatures_are_these():
    specs = {
        name: {spec.name: (spec.dtype, spec.shape.rank) for spec in function.input_signature}
        for name, function in functions().items()
    }
    strings, floats, ints, longs = ((dtype, 1) for dtype in (tf.string, tf.float32, tf.int32, tf.int64))
    assert specs == {
        "translate": {"text": strings},
        "alternatives": {"text": strings},
        "translate_with_options": {
            "text": strings,
            "prefix": strings,
            "length_penalty": floats,
            "beam_size": ints,
            "max_length": ints,
            "repetition_penalty": floats,
            "no_repeat_ngram": ints,
        },
        "sample": {"text": strings, "temperature": floats, "top_k": ints, "top_p": floats, "seed": longs},
        "score": {"text": strings, "translation": strings},
        "explain": {"text": strings},
    }
    outputs = {name: function.get_concrete_function().structured_outputs for name, function in functions().items()}
    one = {"translation": (tf.string, [None]), "score": (tf.float32, [None])}
    several = {"translations": (tf.string, [None, 3]), "scores": (tf.float32, [None, 3])}
    pieces, numbers = (tf.string, [None, None]), (tf.float32, [None, None])
    of_score = {"score": one["score"], "token_scores": numbers, "pieces": pieces}
    of_pieces = {
        "source_pieces": pieces,
        "pieces": pieces,
        "token_scores": numbers,
        "alignment": (tf.float32, [None] * 3),
    }
    for name, expected in {
        "score": of_score,
        "explain": of_pieces,
        "translate": one,
        "alternatives": several,
        "translate_with_options": one,
        "sample": one,
    }.items():
        assert {key: (x.dtype, x.shape.as_list()) for key, x in outputs[name].items()} == expected


@pytest.mark.parametrize("signature", INPUTS)
def test_no_texts_give_no_rows(signature):
    assert all(output == [] for output in call(signature, []).values())


@pytest.mark.parametrize("signature", INPUTS)
def test_a_row_is_the_same_alone_and_in_any_batch(signature):
    options = {
        "translate_with_options": {
            "prefix": ["", "two", "x", "seven", "", "one. Two"],
            "length_penalty": [0.0, 2.0, 1.0, -1.0, float("nan"), 0.6],
            "beam_size": [3, 2, 1, 1, 0, 99],
            "max_length": [0, 5, 1, -3, 2, 9],
            "repetition_penalty": [1.0, 1.5, 0.0, 2.0, float("inf"), 0.7],
            "no_repeat_ngram": [0, 1, 2, 3, -1, 1_000_000],
        },
        "score": {"translation": ["zwei", "sieben.", "null", "", "Größe", "eins\n\nzwei zwei"]},
        "sample": {
            "temperature": [1.0, 0.5, 0.0, 7.0, float("nan"), -1.0],
            "top_k": [0, 3, 1, -5, 10**9, 5],
            "top_p": [1.0, 0.5, 0.0, float("nan"), -1.0, 0.9],
            "seed": [0, 1, -1, 2**62, -(2**63), 7],
        },
    }.get(signature, {})
    together = call(signature, TEXTS, **options)
    for row, text in enumerate(TEXTS):
        alone = call(signature, [text], **{name: [values[row]] for name, values in options.items()})
        for name, values in together.items():
            value = np.array(values[row])
            own = np.array(alone[name][0])
            own = own.reshape(own.shape + (0,) * (value.ndim - own.ndim))  # of no pieces there is no second dimension
            inside = tuple(slice(0, size) for size in own.shape)
            padding = value.copy()
            padding[inside] = b"" if value.dtype.kind == "S" else 0
            assert not padding.any()
            if value.dtype.kind == "f":
                np.testing.assert_allclose(own, value[inside], rtol=1e-4, atol=1e-5)
                assert np.isfinite(value).all()
            else:
                assert own.tolist() == value[inside].tolist()


@pytest.mark.parametrize("text", ["one two", "ten nine eight four zero"])
@pytest.mark.parametrize("prefix", ["two", "two  two", "Größe 😀 x", "</s>", "\n", " seven"])
def test_a_forced_prefix_is_the_prefix(text, prefix):
    options = {"repetition_penalty": 3.0, "no_repeat_ngram": 1, "max_length": [1, 0]}
    for translation in call("translate_with_options", [text] * 2, prefix=prefix, **options)["translation"]:
        assert translation.decode().startswith(prefix.lstrip())


def test_the_prefix_is_that_of_the_first_part():
    both, second = call("translate_with_options", ["one\ntwo", "two"], prefix=["seven", ""])["translation"]
    first, _, rest = both.decode().partition("\n")
    assert first.startswith("seven") and rest == second.decode()


@pytest.mark.parametrize("n", [1, 2, 3])
def test_no_sequence_of_pieces_comes_twice_where_that_is_forbidden(n):
    """A model that never ends repeats itself otherwise."""
    free, found = (
        call("translate_with_options", ["seven"], 1, tiny.endless, no_repeat_ngram=size)["translation"][0].split()
        for size in (0, n)
    )
    repeated = [
        len(ids) - n + 1 - len({tuple(ids[i : i + n]) for i in range(len(ids) - n + 1)}) for ids in (free, found)
    ]
    assert repeated[0] > 0 and repeated[1] == 0


def test_max_length_is_the_most_tokens_of_a_translation():
    scores = []
    for most in (1, 2, 7):
        found = call("translate_with_options", ["seven"], 1, tiny.endless, max_length=most, length_penalty=0.0)
        assert len(found["translation"][0].split()) == most
        scores.append(found["score"][0])
    assert scores[0] > scores[1] > scores[2]  # one more token, one more log-probability


def test_a_repetition_penalty_makes_repetition_rarer():
    free, found = (
        call("translate_with_options", ["seven"], 1, tiny.endless, repetition_penalty=penalty)["translation"][0].split()
        for penalty in (1.0, 9.0)
    )
    assert len(set(found)) / len(found) > len(set(free)) / len(free)


def test_options_that_make_no_sense_are_as_if_not_given():
    plain = call("translate", TEXTS)["translation"]
    for option in (
        {"length_penalty": float("nan")},
        {"length_penalty": float("inf")},
        {"beam_size": -2},
        {"beam_size": 99},
        {"max_length": -1},
        {"repetition_penalty": -1.0},
        {"repetition_penalty": float("nan")},
        {"no_repeat_ngram": -7},
    ):
        assert call("translate_with_options", TEXTS, **option)["translation"] == plain


def test_a_text_in_parts_draws_other_numbers_for_each():
    (translation,) = call("sample", ["seven\nseven"], 1, tiny.endless, temperature=9.0)["translation"]
    assert len(translation) > 20
    assert not translation.startswith(translation[len(translation) // 2 + 1 :])


def test_the_score_of_a_translation_is_the_one_it_came_with():
    """Where its text is spelled as it was found, and falls into as many parts as the source."""
    texts = ["one two", "", "ten nine eight four zero", "one one one\n\none two"]
    for width in (1, 3):
        found = call("translate", texts, width)
        translations = [text.decode() for text in found["translation"]]
        scored = call("score", texts, width, translation=translations)
        np.testing.assert_allclose(scored["score"], found["score"], rtol=1e-4, atol=1e-6)
        for row, translation in enumerate(translations):
            pieces = [piece.decode() for piece in scored["pieces"][row] if piece]
            assert "".join(pieces).replace("</s>", "").replace("▁", " ").split() == translation.split()
            lengthened = ((5 + len(pieces)) / 6) ** ALPHA
            assert scored["score"][row] == pytest.approx(sum(scored["token_scores"][row]) / lengthened, rel=1e-4)


def test_a_worse_translation_has_a_lower_score():
    best = call("translate", ["one two"])["translation"][0].decode()
    found = call("score", ["one two"] * 3, translation=[best, "zehn zehn zehn", ""])["score"]
    assert found[0] > found[1] and found[0] > found[2]


def test_an_explanation_is_of_the_translation_with_its_scores():
    texts = ["one two", "", "ten nine eight four zero", "one one one\n\none one one"]
    found, explained = call("translate", texts), call("explain", texts)
    scored = call("score", texts, translation=[text.decode() for text in found["translation"]])
    assert explained["pieces"] == scored["pieces"]
    np.testing.assert_allclose(explained["token_scores"], scored["token_scores"], rtol=1e-4, atol=1e-5)
    alignment = np.array(explained["alignment"])
    assert alignment.shape == (len(texts), len(scored["pieces"][0]), len(explained["source_pieces"][0]))
    np.testing.assert_allclose(alignment.sum(axis=2), np.array(explained["pieces"]) != b"", atol=1e-5)
    last = [piece for piece in explained["source_pieces"][-1] if piece]  # of two equal parts
    ends = [t for t, piece in enumerate(explained["pieces"][-1]) if piece == b"</s>"]
    assert len(ends) == 2 and not alignment[-1, : ends[0] + 1, len(last) // 2 :].any()
    assert not alignment[-1, ends[0] + 1 :, : len(last) // 2].any()


def test_a_beam_of_one_has_one_alternative():
    found, best = call("alternatives", TEXTS, width=1), call("translate", TEXTS, width=1)
    assert found["translations"] == [[text] for text in best["translation"]]


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    text=st.binary(max_size=60),
    prefix=st.binary(max_size=20),
    numbers=st.lists(st.floats(width=32), min_size=4, max_size=4),
    integers=st.lists(st.integers(-(2**31), 2**31 - 1), min_size=5, max_size=5),
)
def test_no_row_makes_a_call_raise(text, prefix, numbers, integers):
    texts = [text, b"one two"]
    options = {"length_penalty": numbers[0], "repetition_penalty": numbers[1], "prefix": prefix}
    options |= {"beam_size": integers[0], "no_repeat_ngram": integers[1], "max_length": min(integers[2], EXTRA_LENGTH)}
    sampling = {"temperature": numbers[2], "top_p": numbers[3], "top_k": integers[3], "seed": integers[4]}
    chosen = {"translate_with_options": options, "sample": sampling, "score": {"translation": [prefix, text]}}
    for signature, its_options in chosen.items():
        found = call(signature, texts, **its_options)
        assert np.isfinite(found["score"]).all()
        assert all(translation.decode() is not None for translation in found.get("translation", []))
