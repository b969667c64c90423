import functools
import itertools
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
from keras_transformer.translation.segments import EXTRA_LENGTH, LONGEST_ASKED
from keras_transformer.translation.signatures import Signatures
from keras_transformer.translation.translator import Translator
from tests import reference, tiny

ALPHA = 0.7
TEXTS = ["one two", "seven. Ten nine", "", "ten nine eight four zero", "Größe 😀", "one one one\n\none one one"]


class Numbers(Tokenizer):
    """Spells ids out: random ones make no text that could be tokenised again."""

    def decode(self, ids):
        tokens = tf.ragged.boolean_mask(tf.strings.as_string(ids), ids > EOS_ID)
        return tf.strings.reduce_join(tokens, axis=1, separator=" ")


@functools.cache
def functions(width, model=tiny.trained_transformer):
    tokenizer = Numbers(tiny.tokenizer_model()) if model is tiny.endless else tiny.tokenizer()
    return Signatures(model(), tokenizer, tokenizer, width, ALPHA, 31).functions()


def function(signature, model=tiny.trained_transformer):
    """The searches of a model that is not sure, or never ends, are greedy. To trace a search takes seconds."""
    several = signature in ("alternatives", "translate_with_options") and model is not tiny.endless
    return functions(3 if several else 1, model)[signature]


def call(signature, texts, model=tiny.trained_transformer, **options):
    """Output name -> list; an option is one value for all texts, or a list; it is not given where it is left out."""
    not_given = {option.name: option.not_given for option in options_of(signature)}
    columns = {**not_given, **({"translation": ""} if signature == "score" else {}), **options, "text": texts}
    return ask(function(signature, model), INPUTS[signature], columns, len(texts))


def ask(function, inputs, columns, count):
    tensors = {
        name: tf.constant(value if isinstance(value, list) else [value] * count, dtype, shape=[count])
        for (name, dtype), value in ((item, columns[item[0]]) for item in inputs.items())
    }
    return {name: output.numpy().tolist() for name, output in function(tensors).items()}


def test_the_names_and_dtypes_of_the_signatures_are_these():
    assert functions(1).keys() == functions(3).keys()
    specs = {
        name: {spec.name: (spec.dtype, spec.shape.rank) for spec in function.input_signature[0].values()}
        for name, function in functions(3).items()
    }
    assert specs == {
        name: {key: (tf.as_dtype(dtype), 1) for key, dtype in inputs.items()} for name, inputs in INPUTS.items()
    }
    one = {"translation": ("string", [None]), "score": ("float32", [None])}
    of_pieces = {"token_scores": ("float32", [None] * 2), "pieces": ("string", [None] * 2)}
    of_source = {"source_pieces": ("string", [None] * 2), "alignment": ("float32", [None] * 3)}
    for name, expected in {
        "score": {"score": one["score"], **of_pieces},
        "explain": {**of_pieces, **of_source},
        "translate": one,
        "alternatives": {"translations": ("string", [None, 3]), "scores": ("float32", [None, 3])},
        "translate_with_options": one,
        "sample": one,
    }.items():
        outputs = function(name).get_concrete_function().structured_outputs
        assert {key: (x.dtype.name, x.shape.as_list()) for key, x in outputs.items()} == expected
        listed = OUTPUTS[name].items()
        assert {key: (dtype, [3 if d == "W" else None for d in dims]) for key, (dtype, dims) in listed} == expected


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
    assert all(output == [] for output in call(signature, []).values())
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


def test_a_forced_prefix_is_the_prefix():
    prefixes = ["two", "two  two", "Größe 😀 x", "</s>", "\n", " seven"]
    rows = list(itertools.product(["one two", "ten nine eight four zero"], prefixes, [1, 0]))
    texts, prefix, max_length = map(list, zip(*rows, strict=True))
    options = {"repetition_penalty": 3.0, "no_repeat_ngram": 1, "max_length": max_length, "prefix": prefix}
    found = call("translate_with_options", texts, **options)["translation"]
    for translation, forced in zip(found, prefix, strict=True):
        assert translation.decode().startswith(mend(forced))


def test_the_prefix_is_that_of_the_first_part():
    both, second = call("translate_with_options", ["one\ntwo", "two"], prefix=["seven", ""])["translation"]
    first, _, rest = both.decode().partition("\n")
    assert first.startswith("seven") and rest == second.decode()


def test_no_sequence_of_pieces_comes_twice_where_that_is_forbidden():
    """A model that never ends repeats itself otherwise."""
    found = call("translate_with_options", ["seven"] * 4, tiny.endless, no_repeat_ngram=[0, 1, 2, 3])
    free, *others = (translation.split() for translation in found["translation"])
    for n, own in enumerate(others, start=1):
        sequences = [[tuple(ids[i : i + n]) for i in range(len(ids) - n + 1)] for ids in (free, own)]
        repeated = [len(each) - len(set(each)) for each in sequences]
        assert repeated[0] > 0 and repeated[1] == 0


def test_max_length_is_the_most_tokens_of_a_translation():
    found = call("translate_with_options", ["seven"] * 3, tiny.endless, max_length=[1, 2, 7], length_penalty=0.0)
    assert [len(translation.split()) for translation in found["translation"]] == [1, 2, 7]
    assert found["score"][0] > found["score"][1] > found["score"][2]  # one more token, one more log-probability
    found = call("translate_with_options", ["seven"] * 2, tiny.endless, max_length=[97, 2**31 - 1])
    assert [len(translation.split()) for translation in found["translation"]] == [97, LONGEST_ASKED]
    longer = Translator(tiny.endless(), tiny.tokenizer(), beam_size=1, extra_length=97)
    found = longer.explain("seven")
    assert len(found.pieces) == 97 + len(found.source_pieces)


def test_a_repetition_penalty_makes_repetition_rarer():
    found = call("translate_with_options", ["seven"] * 2, tiny.endless, repetition_penalty=[1.0, 9.0])
    free, penalised = (translation.split() for translation in found["translation"])
    assert len(set(penalised)) / len(penalised) > len(set(free)) / len(free)


NAN, INF = float("nan"), float("inf")
OUT_OF_RANGE = {  # (option, value, the value that it counts as; None: as not given)
    "translate_with_options": [
        *(("length_penalty", NAN, None), ("length_penalty", INF, None)),
        *(("length_penalty", 1e9, 10.0), ("length_penalty", -1e9, -10.0)),
        *(("beam_size", -2, None), ("beam_size", 99, None), ("max_length", -1, None), ("no_repeat_ngram", -7, None)),
        *(("repetition_penalty", value, None) for value in (-1.0, NAN, INF)),
        *(("repetition_penalty", 1e9, 100.0), ("repetition_penalty", 1e-9, 0.01)),
    ],
    "sample": [
        *(("temperature", value, 1.0) for value in (NAN, INF, -1.0)),
        *(("temperature", 1e9, 100.0), ("top_k", -3, 0)),
        *(("top_p", value, 1.0) for value in (NAN, 7.0, -1.0)),
    ],
}


@pytest.mark.parametrize("signature", OUT_OF_RANGE)
def test_a_value_out_of_range_counts_as_the_nearest_and_one_that_is_no_number_as_not_given(signature):
    """Every value is that of two rows."""
    rows, not_given = OUT_OF_RANGE[signature], {option.name: option.not_given for option in options_of(signature)}
    seed = {"seed": 5} if signature == "sample" else {}

    def asked(place):
        given = [{row[0]: not_given[row[0]] if row[place] is None else row[place]} for row in rows]
        columns = {name: [{**not_given, **seed, **row}[name] for row in given] * 2 for name in not_given}
        return call(signature, [TEXTS[3]] * len(rows) + [TEXTS[1]] * len(rows), **columns)

    assert asked(1) == asked(2)


def test_a_text_in_parts_draws_other_numbers_for_each():
    (translation,) = call("sample", ["seven\nseven"], tiny.endless, temperature=9.0)["translation"]
    assert len(translation) > 20
    assert not translation.startswith(translation[len(translation) // 2 + 1 :])


def test_the_score_of_a_translation_is_the_one_it_came_with():
    """The search is greedy, so the tokenizer divides each translation into the pieces that were found."""
    texts = ["one two", "", "ten nine eight four zero", "one two three\n\none two", "seven"]
    found, explained = call("translate", texts), call("explain", texts)
    scored = call("score", texts, translation=[text.decode() for text in found["translation"]])
    pieces, expected = (
        [[piece.decode() for piece in row if piece] for row in x["pieces"]] for x in (scored, explained)
    )
    assert pieces == expected
    for row, own in enumerate(pieces):
        assert scored["score"][row] == pytest.approx(found["score"][row], rel=1e-4, abs=1e-6)
        lengthened = ((5 + len(own)) / 6) ** ALPHA
        assert scored["score"][row] == pytest.approx(sum(scored["token_scores"][row]) / lengthened, rel=1e-4)
        spelled = "".join(own).replace("</s>", "").replace("▁", " ").split()
        assert spelled == found["translation"][row].decode().split()


def test_an_explanation_is_of_the_translation_with_its_scores():
    texts = ["one two", "", "ten nine eight four zero", "one two three\n\none two three"]
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


@pytest.mark.slow
def test_a_beam_of_one_has_one_alternative():
    found = ask(functions(1)["alternatives"], INPUTS["alternatives"], {"text": TEXTS}, len(TEXTS))
    assert found["translations"] == [[text] for text in call("translate", TEXTS)["translation"]]


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
SIDE_BY_SIDE = tf.constant(2, tf.int64)  # fewer than there are pairs


@functools.cache
def scoring():
    """`Signatures` of a model of two layers."""
    return Signatures(tiny.transformer(seed=5, num_layers=2), tiny.tokenizer(), tiny.tokenizer(), 1, ALPHA, 31)


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


def test_token_scores_are_log_probabilities_and_alignments_those_of_the_reference():
    """The reference cannot attend to the blank row, which has nothing but padding."""
    signatures, (source_ids, labels) = scoring(), batch()
    scores, alignments = signatures.explain_labels(ragged(source_ids), ragged(labels), SIDE_BY_SIDE)
    arguments = source_ids[:B], target_ids(labels)[:B], 2, reference.post_norm
    weights = reference.weights_of(signatures.model)
    logits = reference.transformer(weights, *arguments)
    places = np.argwhere(labels)
    expected = [logits[b, t, labels[b, t]] - np.logaddexp.reduce(logits[b, t]) for b, t in places]
    assert scores.dtype == alignments.dtype == tf.float32
    np.testing.assert_allclose(scores, expected, rtol=1e-5, atol=1e-5)
    aligned = reference.alignment(weights, *arguments)
    expected = [aligned[b, t, s] for b, t in places for s in range(S) if source_ids[b, s]]
    np.testing.assert_allclose(alignments, expected, rtol=1e-4, atol=1e-5)


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


@functools.cache
def keeping_functions():
    """Those of a random model with placeholders, which does not know that it should copy them."""
    tokenizer = tiny.keeping_tokenizer()
    return Signatures(tiny.transformer(seed=3), tokenizer, tokenizer, 2, ALPHA, 31).functions()


KEPT = ["one ⟦3⟧ two", "⟦0⟧⟦1⟧ see ⟦0⟧.\nten ⟦0⟧", "five", "", "⟦9⟧", "one\n⟦1⟧ two\n⟦2⟧"]


@pytest.mark.parametrize(
    ("signature", "options"),
    [
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
