import functools
import re

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from keras_transformer.config import BOS_ID, EOS_ID, PAD_ID
from keras_transformer.decoding import search as search_module
from keras_transformer.models.transformer import Transformer
from keras_transformer.normalization import mend
from keras_transformer.tokenizer import Tokenizer, train_tokenizer
from keras_transformer.translation.options import INPUTS, OUTPUTS, options_of
from keras_transformer.translation.segments import EXTRA_LENGTH
from keras_transformer.translation.signatures import Signatures
from tests import reference, tiny

ALPHA = 0.7
TEXTS = ["one two", "seven. Ten nine", "", "ten nine eight four zero", "Größe 😀", "one one one\n\none one one"]
LEARNED = ["one two", "", "ten nine eight four zero", "one two three\n\none two", "seven"]


class Numbers(Tokenizer):
    """Spells ids out: random ones make no text that could be tokenised again."""

    def decode(self, ids):
        tokens = tf.ragged.boolean_mask(tf.strings.as_string(ids), ids > EOS_ID)
        return tf.strings.reduce_join(tokens, axis=1, separator=" ")


@functools.cache
def functions(width=3, model=tiny.trained_transformer):
    tokenizer = Numbers(tiny.tokenizer_model()) if model is tiny.endless else tiny.tokenizer()
    return Signatures(model(), tokenizer, tokenizer, width, ALPHA, 31).functions()


def call(signature, texts, width=3, model=tiny.trained_transformer, **options):
    """Output name -> list; an option is one value for all texts, or a list; it is not given where it is left out."""
    not_given = {option.name: option.not_given for option in options_of(signature)}
    columns = {**not_given, **({"translation": ""} if signature == "score" else {}), **options, "text": texts}
    return ask(functions(width, model)[signature], INPUTS[signature], columns, len(texts))


def ask(function, inputs, columns, count):
    tensors = {
        name: tf.constant(value if isinstance(value, list) else [value] * count, dtype, shape=[count])
        for (name, dtype), value in ((item, columns[item[0]]) for item in inputs.items())
    }
    return {name: output.numpy().tolist() for name, output in function(tensors).items()}


def test_the_names_and_dtypes_of_the_signatures_are_these():
    specs = {
        name: {spec.name: (spec.dtype, spec.shape.rank) for spec in function.input_signature[0].values()}
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
        listed = OUTPUTS[name].items()
        assert {key: (dtype, [3 if d == "W" else None for d in dims]) for key, (dtype, dims) in listed} == {
            key: (dtype.name, dims) for key, (dtype, dims) in expected.items()
        }


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
        own_options = {name: [values[row]] for name, values in options.items()}
        alone = call(signature, [text], **own_options)
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
        assert translation.decode().startswith(mend(prefix))


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


@pytest.mark.parametrize(
    ("option", "same_as"),
    [
        ({"length_penalty": float("nan")}, {}),
        ({"length_penalty": float("inf")}, {}),
        ({"length_penalty": 1e9}, {"length_penalty": 10.0}),
        ({"length_penalty": -1e9}, {"length_penalty": -10.0}),
        ({"beam_size": -2}, {}),
        ({"beam_size": 99}, {}),
        ({"max_length": -1}, {}),
        ({"repetition_penalty": -1.0}, {}),
        ({"repetition_penalty": float("nan")}, {}),
        ({"repetition_penalty": float("inf")}, {}),
        ({"repetition_penalty": 1e9}, {"repetition_penalty": 100.0}),
        ({"repetition_penalty": 1e-9}, {"repetition_penalty": 0.01}),
        ({"no_repeat_ngram": -7}, {}),
    ],
    ids=str,
)
def test_a_value_out_of_range_counts_as_the_nearest_and_one_that_is_no_number_as_not_given(option, same_as):
    found, expected = (call("translate_with_options", TEXTS, **options) for options in (option, same_as))
    assert found == expected


@pytest.mark.parametrize(
    ("option", "same_as"),
    [
        ({"temperature": float("nan")}, {"temperature": 1.0}),
        ({"temperature": float("inf")}, {"temperature": 1.0}),
        ({"temperature": -1.0}, {"temperature": 1.0}),
        ({"temperature": 1e9}, {"temperature": 100.0}),
        ({"top_k": -3}, {"top_k": 0}),
        ({"top_p": float("nan")}, {"top_p": 1.0}),
        ({"top_p": 7.0}, {"top_p": 1.0}),
        ({"top_p": -1.0}, {"top_p": 1.0}),
    ],
    ids=str,
)
def test_so_it_is_with_the_options_of_a_draw(option, same_as):
    found, expected = (call("sample", TEXTS, seed=5, **options) for options in (option, same_as))
    assert found == expected


def test_no_option_given_is_the_translation_of_the_model():
    plain, found = call("translate", LEARNED), call("translate_with_options", LEARNED)
    assert found["translation"] == plain["translation"]
    np.testing.assert_allclose(found["score"], plain["score"], rtol=1e-5, atol=1e-6)


def test_a_text_in_parts_draws_other_numbers_for_each():
    (translation,) = call("sample", ["seven\nseven"], 1, tiny.endless, temperature=9.0)["translation"]
    assert len(translation) > 20
    assert not translation.startswith(translation[len(translation) // 2 + 1 :])


@pytest.mark.parametrize("width", [pytest.param(1, marks=pytest.mark.slow), 3])
def test_the_score_of_a_translation_is_the_one_it_came_with(width):
    """If the tokenizer divides the text into the pieces that were found: that is certain for greedy search here."""
    found, explained = call("translate", LEARNED, width), call("explain", LEARNED, width)
    scored = call("score", LEARNED, width, translation=[text.decode() for text in found["translation"]])
    pieces, expected = (
        [[piece.decode() for piece in row if piece] for row in x["pieces"]] for x in (scored, explained)
    )
    alike = [row for row in range(len(LEARNED)) if pieces[row] == expected[row]]
    assert width > 1 or alike == list(range(len(LEARNED)))
    for row in alike:
        assert scored["score"][row] == pytest.approx(found["score"][row], rel=1e-4, abs=1e-6)
        lengthened = ((5 + len(pieces[row])) / 6) ** ALPHA
        assert scored["score"][row] == pytest.approx(sum(scored["token_scores"][row]) / lengthened, rel=1e-4)
        spelled = "".join(pieces[row]).replace("</s>", "").replace("▁", " ").split()
        assert spelled == found["translation"][row].decode().split()


def test_a_worse_translation_has_a_lower_score():
    found = call("score", ["one two"] * 3, translation=["eins zwei", "zehn zehn zehn", ""])["score"]
    assert found[0] > found[1] + 1 and found[0] > found[2] + 1


def test_an_explanation_is_of_the_translation_with_its_scores():
    texts = [*LEARNED[:3], "one two three\n\none two three"]
    found, explained = call("translate", texts, 1), call("explain", texts, 1)
    scored = call("score", texts, 1, translation=[text.decode() for text in found["translation"]])
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
    found, best = (call(signature, TEXTS, width=1) for signature in ("alternatives", "translate"))
    assert found["translations"] == [[text] for text in best["translation"]]


@settings(max_examples=13, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
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
        for strings in (found.get("translation", []), *found.get("pieces", [])):
            b" ".join(strings).decode("utf-8")  # raises for what is no UTF-8


# Two vocabularies: the source's ids go in, the target's come out.


@functools.cache
def german():
    """A tokenizer of the German side alone."""
    return Tokenizer(train_tokenizer([target for _, target in tiny.pairs(211)], 311))


@pytest.mark.slow
def test_with_two_tokenizers_each_side_has_its_own():
    sizes = {"target_vocabulary_size": german().vocabulary_size, "tie_embeddings": False}
    own = Signatures(tiny.transformer(seed=5, **sizes), tiny.tokenizer(), german(), 1, 0.0, 31).functions()
    assert german().vocabulary_size != tiny.tokenizer().vocabulary_size
    explained = ask(own["explain"], INPUTS["explain"], {"text": ["one two", "seven"]}, 2)
    scored = ask(own["score"], INPUTS["score"], {"text": ["one two"], "translation": ["eins zwei"]}, 1)
    sources, target = tiny.tokenizer().encode(["one two", "seven"]), german().encode(["eins zwei"])
    for found, ids in zip(explained["source_pieces"], sources, strict=True):
        assert [piece for piece in found if piece] == tiny.tokenizer().pieces(ids).numpy().tolist()
    assert scored["pieces"][0] == [*german().pieces(target[0]).numpy(), b"</s>"]
    assert {piece for row in explained["pieces"] for piece in row} - set(vocabulary(german())) == {b""}
    begun = {"text": ["one two"], "prefix": ["vier fünf"]}
    begun = {**{option.name: option.not_given for option in options_of("translate_with_options")}, **begun}
    (translation,) = ask(own["translate_with_options"], INPUTS["translate_with_options"], begun, 1)["translation"]
    assert translation.decode().startswith("vier fünf")


def vocabulary(tokenizer):
    return tokenizer.pieces(tf.range(tokenizer.vocabulary_size)).numpy().tolist()


# Scores and alignments, against the reference.

B, S, T = 3, 7, 11
POST, PRE = reference.post_norm, reference.pre_norm
RESIDUALS = pytest.mark.parametrize("residual", [POST, PRE])
SIDE_BY_SIDE = tf.constant(2, tf.int64)  # fewer than there are pairs


@functools.cache
def scoring(residual=POST):
    """`Signatures` of a model of two layers."""
    model = tiny.transformer(seed=5, num_layers=2, pre_norm=residual is PRE)
    return Signatures(model, tiny.tokenizer(), tiny.tokenizer(), 1, ALPHA, 31)


def batch():
    """source_ids (B, S) and labels (B, T): rows of different lengths, and a last one that is blank."""
    rng = np.random.default_rng(3)
    source_ids, labels = (rng.integers(4, tiny.VOCABULARY, (B + 1, n)).astype("int32") for n in (S, T))
    for row in range(B):
        source_ids[row, S - 2 * row :] = PAD_ID
        labels[row, T - 3 * row :] = PAD_ID
        labels[row, T - 3 * row - 1] = EOS_ID
    source_ids[B], labels[B] = PAD_ID, PAD_ID
    return source_ids, labels


def ragged(ids):
    """As many rows, without their padding."""
    return tf.RaggedTensor.from_row_lengths(ids[ids != PAD_ID], np.count_nonzero(ids, axis=1))


def target_ids(labels):
    return np.array([[BOS_ID, *row[:-1]] for row in labels])


def reference_log_probs(model, residual, source_ids, labels):
    """float64 (B, T), 0 on padding: the reference cannot attend to the blank row, which has nothing but padding."""
    weights, expected = reference.weights_of(model), np.zeros(labels.shape)
    logits = reference.transformer(weights, source_ids[:B], target_ids(labels)[:B], 2, residual)
    for b, t in zip(*np.nonzero(labels), strict=True):
        expected[b, t] = logits[b, t, labels[b, t]] - np.logaddexp.reduce(logits[b, t])
    return expected


@RESIDUALS
def test_token_scores_are_log_probabilities_of_the_reference(residual):
    signatures, (source_ids, labels) = scoring(residual), batch()
    found, _ = signatures.explain_labels(ragged(source_ids), ragged(labels), SIDE_BY_SIDE)
    assert found.dtype == tf.float32
    expected = reference_log_probs(signatures.model, residual, source_ids, labels)
    np.testing.assert_allclose(found, expected[labels != PAD_ID], rtol=1e-5, atol=1e-5)


@RESIDUALS
def test_alignments_are_those_of_the_reference(residual):
    signatures, (source_ids, labels) = scoring(residual), batch()
    _, found = signatures.explain_labels(ragged(source_ids), ragged(labels), SIDE_BY_SIDE)
    weights = reference.weights_of(signatures.model)
    expected = reference.alignment(weights, source_ids[:B], target_ids(labels)[:B], 2, residual)
    expected = [expected[b, t, s] for b, t in np.argwhere(labels) for s in range(S) if source_ids[b, s]]
    assert found.dtype == tf.float32
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_token_scores_do_not_depend_on_padding_nor_on_who_shares_the_batch():
    signatures, (source_ids, labels) = scoring(), (ragged(x) for x in batch())
    together = labels.with_values(signatures.explain_labels(source_ids, labels, tf.constant(97, tf.int64))[0])
    for row in range(B + 1):
        alone, _ = signatures.explain_labels(source_ids[row : row + 1], labels[row : row + 1], SIDE_BY_SIDE)
        np.testing.assert_allclose(together[row], alone, atol=1e-5)


def test_logits_are_made_of_few_tokens_at_a_time_and_of_no_padding(monkeypatch):
    signatures, (source_ids, labels) = scoring(), (ragged(x) for x in batch())
    at_once = tf.constant(97, tf.int64)
    expected, _ = signatures.explain_labels(source_ids, labels, at_once)
    made, logits = [], Transformer.logits
    monkeypatch.setattr(Transformer, "logits", lambda self, x: made.append(x.shape[0]) or logits(self, x))
    monkeypatch.setattr(search_module, "LOGITS_AT_A_TIME", 5)
    tf.config.run_functions_eagerly(True)  # a graph has the loop once
    try:
        np.testing.assert_allclose(signatures.explain_labels(source_ids, labels, at_once)[0], expected, rtol=1e-5)
    finally:
        tf.config.run_functions_eagerly(False)
    assert made == [5, 5, 5, 5, 4] and sum(made) == labels.values.shape[0]


@pytest.mark.parametrize("rows", [0, 1, 3])
def test_rows_without_labels_have_neither_scores_nor_alignments(rows):
    none = ragged(np.zeros((rows, 0), "int32"))
    assert [x.shape for x in scoring().explain_labels(none, none, SIDE_BY_SIDE)] == [(0,), (0,)]


@functools.cache
def keeping_functions():
    """Those of a random model with placeholders, which does not know that it should copy them."""
    tokenizer = tiny.keeping_tokenizer()
    return Signatures(tiny.transformer(seed=3), tokenizer, tokenizer, 2, ALPHA, 31).functions()


KEPT = ["one ⟦3⟧ two", "⟦0⟧⟦1⟧ see ⟦0⟧.\nten ⟦0⟧", "five", "", "⟦9⟧", "one\n⟦1⟧ two\n⟦2⟧"]


@pytest.mark.parametrize(
    ("signature", "options"),
    [
        ("translate", {}),
        ("sample", {"seed": [1, 2, 3, 4, 5, 6], "temperature": 2.0}),
        ("translate_with_options", {"max_length": 1}),
        ("translate_with_options", {"max_length": 2, "prefix": "ten ⟦7⟧"}),
    ],
)
def test_every_placeholder_of_a_sentence_comes_exactly_once_in_its_translation(signature, options):
    not_given = {option.name: option.not_given for option in options_of(signature)}
    found = ask(keeping_functions()[signature], INPUTS[signature], {**not_given, **options, "text": KEPT}, len(KEPT))
    for text, translation in zip(KEPT, found["translation"], strict=True):
        lines = zip(text.split("\n"), translation.decode().split("\n"), strict=True)
        for number, (source, target) in enumerate(lines):
            more = ["⟦7⟧"] if "prefix" in options and source and number == 0 else []
            kept = sorted(re.findall("⟦.⟧", source) + more)
            assert not kept or sorted(re.findall("⟦.⟧", target)) == kept
