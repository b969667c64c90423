import functools

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_transformer.models.transformer import Transformer
from tests import reference, tiny
from tests.models.contract import PAD, B, ModelContract, S, VariantContract, W, random_parents, step_by_step

H, K, F, V, OTHER_V, N = 2, 13, 17, 19, 23, 2
D = H * K
POST, PRE = reference.post_norm, reference.pre_norm
SMALL = {"vocabulary_size": V, "d_model": D, "num_heads": H, "d_ff": F, "num_layers": N}
SHALLOW = {**SMALL, "num_layers": 1}
# As they are in the models of other programs.
MARIAN = {**tiny.OPUS, "frame": None, "layer_norm_epsilon": 1e-9}
M2M_100 = {**MARIAN, "activation": "relu", "first_position": 2, "layer_norm_epsilon": 1e-5, "logits_bias": False}
MBART = {"positions": "learned", "num_positions": 5, "tie_positions": False, "embedding_norm": True}
MBART |= {"scale_embeddings": False, "attention_bias": True, "logits_bias": True, "layer_norm_epsilon": 1e-5}
MBART |= {"activation": "gelu"}


class TransformerContract(VariantContract):
    arguments = SHALLOW

    def make(self, **kwargs):
        return Transformer(**self.arguments, **kwargs)


class TestPostNormContract(TransformerContract, ModelContract):
    pass


# Together, the other classes have every kind of positions and every other way in which a Transformer may differ.


@pytest.mark.slow
class TestRelativePositionsAndTwoVocabulariesContract(TransformerContract):
    arguments = {**SHALLOW, "positions": "relative", "relative_clip": 3, "num_key_value_heads": 1}
    arguments |= {"target_vocabulary_size": OTHER_V, "num_decoder_layers": 2}
    target_size = OTHER_V


@pytest.mark.slow
class TestRotaryPositionsAndUntiedPreNormContract(TransformerContract):
    arguments = {**SHALLOW, "positions": "rotary", "d_key": 2 * 5, "d_value": 3}
    arguments |= {"pre_norm": True, "tie_embeddings": False}


@pytest.mark.slow
class TestMBartInAFrameAndPrunedContract(TransformerContract):
    """All methods count positions as if there were no tokens around the texts."""

    arguments = {**SHALLOW, **MBART, "num_decoder_layers": 2, "heads": "0/0,1/0,3", "d_key": K}
    arguments |= {"frame": "5,7/3/11,13"}


@pytest.mark.slow
class TestRecurrentDecoderInAFrameContract(TransformerContract):
    arguments = {**SHALLOW, "autoregression": "ssru", "num_decoder_layers": 2, "frame": "5,7/3/11,13", "pre_norm": True}


@functools.cache  # no test changes its weights
def transformer(residual=POST, **kwargs):
    return reference.randomise(Transformer(**{**SMALL, **kwargs}, pre_norm=residual is PRE))


def batch():
    return VariantContract().batch()


def test_guided_alignment_looks_from_the_position_that_has_read_the_token():
    model, inputs = transformer(PRE, guided_alignment=0.1), batch()
    memory, target_ids = model.encode(inputs["source_ids"]), inputs["target_ids"]
    _, alignment = model.align(target_ids, memory)
    _, raw = model.decoder.align(model.embed_target(target_ids), memory["states"], memory["mask"])
    for row, ids in enumerate(target_ids):
        length = np.count_nonzero(ids)
        np.testing.assert_allclose(alignment[row, : length - 1], raw[row, 1:length], rtol=1e-6)
        np.testing.assert_allclose(alignment[row, length - 1], raw[row, length - 1], rtol=1e-6)
    _, padded = model.align(np.pad(target_ids, ((0, 0), (0, 3))), memory)
    np.testing.assert_allclose(padded[:, : target_ids.shape[1]], alignment, rtol=1e-5)


# Of vocabularies: the matrices of each model, and their numbers of rows.
ONE, TWO = {"embedding": V}, {"source_embedding": V, "target_embedding": OTHER_V}
UNTIED = {"source_embedding": V, "target_embedding": V, "logits/output_matrix": V}
TWO_UNTIED = {**TWO, "logits/output_matrix": OTHER_V}
VOCABULARIES = [
    ({}, ONE),
    ({"tie_embeddings": False}, UNTIED),
    ({"target_vocabulary_size": OTHER_V}, TWO),
    ({"target_vocabulary_size": OTHER_V, "tie_embeddings": False}, TWO_UNTIED),
]


@pytest.mark.parametrize(
    ("residual", "variant"),
    [
        (POST, {}),
        *((PRE, {"num_layers": 1, **vocabularies}) for vocabularies, _ in VOCABULARIES),
        (POST, {"positions": "learned", "num_positions": 5, "num_decoder_layers": 1}),
        (PRE, {"positions": "relative", "relative_clip": 3}),
        (POST, {"positions": "rotary", "d_key": 2 * 5}),
        (PRE, {"positions": "none", "d_key": 7, "d_value": 11}),
        (PRE, {"num_layers": 1, "num_decoder_layers": 3, "positions": "rotary", "d_key": 2, "num_key_value_heads": 1}),
        (POST, {"num_key_value_heads": 1, "positions": "relative", "relative_clip": 1}),
        (POST, MARIAN),
        (PRE, M2M_100),
        (PRE, MBART),
        (POST, {"positions": "sinusoidal_halves", "activation": "gelu_sigmoid", "layer_norm_epsilon": 0.1}),
        (PRE, {"positions": "sinusoidal_halves", "first_position": 1, "activation": "gelu_tanh"}),
        (PRE, {"embedding_norm": True, "positions": "rotary", "d_key": 10, "attention_bias": True}),
        (PRE, {"num_key_value_heads": 1, "d_value": 11, "attention_bias": True, "layer_norm_epsilon": 0.1}),
        (POST, {"autoregression": "ssru"}),
        (PRE, {"autoregression": "ssru", "num_decoder_layers": 3, "positions": "rotary", "d_key": 10}),
    ],
    ids=lambda value: value.__name__ if callable(value) else str(value),
)
def test_the_transformer_and_its_variants_are_those_of_their_papers(variant, residual):
    model, inputs = transformer(residual, **variant), batch()
    names = {"positions": "positions", "scale_embeddings": "scale", "first_position": "first"}
    names |= {"activation": "activation", "layer_norm_epsilon": "epsilon"}
    arguments = {names[name]: value for name, value in variant.items() if name in names}
    arguments |= {"num_heads": H, "residual": residual}
    expected = reference.transformer(reference.weights_of(model), **inputs, **arguments)
    np.testing.assert_allclose(model(inputs), expected, rtol=1e-5, atol=1e-5)


def test_a_frame_is_the_same_tokens_in_the_text():
    """The oracle is the model without a frame, one row at a time, whose texts have the tokens in them."""
    plain, framed, inputs = transformer(), transformer(frame="5,7/3/11,13"), batch()
    memory = framed.encode(inputs["source_ids"])
    states, alignment = framed.align(inputs["target_ids"], memory)
    np.testing.assert_allclose(framed.logits(states), framed(inputs), rtol=1e-5, atol=1e-5)
    for row, (source, target) in enumerate(zip(inputs["source_ids"], inputs["target_ids"], strict=True)):
        text = source[source != PAD]
        own = np.array([[5, 7, *text, 3]], "int32"), np.array([[11, 13, *target]], "int32")
        expected, weights = plain.align(own[1], plain.encode(own[0]))
        np.testing.assert_allclose(states[row], expected[0, 2:], rtol=1e-4, atol=1e-5)
        on_text = np.asarray(weights)[0, 2:, 2:-1]
        expected = on_text / on_text.sum(axis=1, keepdims=True)
        np.testing.assert_allclose(alignment[row, :, : len(text)], expected, rtol=1e-4, atol=1e-5)
        assert not np.any(alignment[row, :, len(text) :])


@pytest.mark.parametrize(("vocabularies", "matrices"), VOCABULARIES)
def test_vocabularies_share_matrices(vocabularies, matrices):
    model = transformer(PRE, num_layers=1, **vocabularies)
    found = {weight.path: weight.shape[0] for weight in model.weights if weight.path.endswith("matrix")}
    assert found == {f"{name}/matrix": rows for name, rows in matrices.items()}
    assert (model.output_matrix is model.target_embedding.matrix) == ("tie_embeddings" not in vocabularies)


def test_global_policy_is_the_default():
    before = keras.config.dtype_policy()
    try:
        keras.config.set_dtype_policy("mixed_bfloat16")
        model = Transformer(**SHALLOW)
    finally:
        keras.config.set_dtype_policy(before)
    assert model.compute_dtype == model.encoder.layers[0].feed_forward.inner.compute_dtype == "bfloat16"
    assert Transformer(**SHALLOW).compute_dtype == "float32"


def shapes(nest):
    return tf.nest.map_structure(lambda tensor: tuple(tensor.shape), nest)


def test_memory_is_not_copied_for_each_hypothesis_and_the_cache_grows_by_one_position_of_each():
    groups, width, parents = 2, 5, random_parents(W)
    model = transformer(num_heads=6, d_key=width, num_key_value_heads=groups)
    memory = model.encode(batch()["source_ids"])
    for positions in (0, 3):
        start, ids = model.start(memory, W), np.ones((B, W, positions), "int32")
        state = shapes(step_by_step(model, ids, parents, start)[1] if positions else start)
        assert state["memory"] == (((B, groups, S, width),) * 2,) * N
        assert state["target"] == (((B, groups, positions * W, width),) * 2,) * N
        assert state["history"] == (B, W, positions * W) and state["mask"] == (B, 1, 1, S)
    assert model.start(memory, 1)["history"] == ()  # a single hypothesis needs none
    recurrent = transformer(autoregression="ssru", dtype="mixed_bfloat16")
    start = recurrent.start(recurrent.encode(batch()["source_ids"]), W)
    state = step_by_step(recurrent, parents + 3, parents, start)[1]
    assert shapes(state["target"]) == shapes(start["target"]) == ((B, W, D),) * N and state["history"] == ()
    assert {cells.dtype.name for cells in state["target"]} == {"float32"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_heads": 3}, rf"`num_heads` must divide `d_model`\. Received: num_heads=3, d_model={D}$"),
        ({"d_model": 13, "num_heads": 13}, r"`d_model` must be even.* Received: d_model=13$"),
        ({"positions": "sinusoidal_tensor2tensor", "d_model": 2}, r"`d_model` must be at least 4 .* Received: 2$"),
        ({"positions": "alibi"}, r"must be one of sinusoidal, sinusoidal_h.*none\. Received: positions='alibi'$"),
        ({"activation": "elu"}, "`activation` must be one of relu, gelu, .*silu. Received: activation='elu'$"),
        ({"positions": "rotary"}, r"`d_key` must be even: .* Received: d_key=13$"),
        ({"num_key_value_heads": 3}, r"`num_key_value_heads` must divide `num_heads`\. Received: .*=3, num_heads=2$"),
        ({"dropout_rate": 1.0}, r"must be in \[0, 1\)\. Received: rate=1\.0$"),
        ({"attention_dropout_rate": -0.1}, r"must be in \[0, 1\)\. Received: rate=-0\.1$"),
        ({"feed_forward_dropout_rate": 2}, r"must be in \[0, 1\)\. Received: rate=2$"),
        *(
            ({"heads": heads}, rf"`heads` must have {N}/{N}/{N} numbers. Received: heads='{heads}'")
            for heads in ("1/1,1/1,1", "1,1/1,1/1,-1", "nonsense")
        ),
        *(
            ({"frame": frame}, f"`frame` must be ids of the vocabulary.* Received: frame='{frame}'$")
            for frame in ("", "3", "0//", f"{V}//", f"//{V}", "//3,")
        ),
    ],
)
def test_impossible_arguments_are_refused_by_name(arguments, message):
    with pytest.raises(ValueError, match=message):
        Transformer(**{**SMALL, **arguments})
