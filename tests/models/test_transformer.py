import functools
import random

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_transformer.errors import ConfigError
from keras_transformer.models.transformer import Transformer, extended_history
from tests import reference, tiny
from tests.models.contract import PAD, B, ModelContract, S, T, W, random_parents, step_by_step

H, K, F, V, OTHER_V, N = 2, 13, 17, 19, 23, 2
D = H * K
POST, PRE = reference.post_norm, reference.pre_norm
RESIDUALS = pytest.mark.parametrize("residual", [POST, PRE])
POLICIES = pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
SMALL = {"vocabulary_size": V, "d_model": D, "num_heads": H, "d_ff": F, "num_layers": N}
SHALLOW = {**SMALL, "num_layers": 1}
OTHER_THAN_DEFAULT = {
    **SHALLOW,
    "target_vocabulary_size": OTHER_V,
    "tie_embeddings": False,
    "dropout_rate": 0.3,
    "attention_dropout_rate": 0.2,
    "feed_forward_dropout_rate": 0.15,
    "pre_norm": True,
    "num_decoder_layers": 3,
    "d_key": 7,
    "num_key_value_heads": 1,
    "d_value": 11,
    "positions": "relative",
    "relative_clip": 5,
    "num_positions": 29,
    "heads": "1/1,2,1/0,1,2",
    "attention_bias": True,
    "activation": "gelu",
    "layer_norm_epsilon": 1e-3,
    "logits_bias": True,
    "scale_embeddings": False,
    "embedding_norm": True,
    "first_position": 2,
    "tie_positions": False,
    "frame": "5,7/3/11",
}
# As they are in the models of other programs.
MARIAN = {**tiny.OPUS, "frame": None, "layer_norm_epsilon": 1e-9}
M2M_100 = {**MARIAN, "activation": "relu", "first_position": 2, "layer_norm_epsilon": 1e-5, "logits_bias": False}
MBART = {
    "positions": "learned",
    "num_positions": 5,
    "tie_positions": False,
    "embedding_norm": True,
    "activation": "gelu",
}
MBART |= {"scale_embeddings": False, "attention_bias": True, "logits_bias": True, "layer_norm_epsilon": 1e-5}
VOCABULARIES = pytest.mark.parametrize(
    "vocabularies",
    [
        {},
        {"tie_embeddings": False},
        {"target_vocabulary_size": OTHER_V},
        {"target_vocabulary_size": OTHER_V, "tie_embeddings": False},
    ],
    ids=["one matrix", "untied", "two vocabularies", "two vocabularies, untied"],
)


class TestPostNormContract(ModelContract):
    arguments = SHALLOW

    def make(self, **kwargs):
        return Transformer(**self.arguments, **kwargs)


# Together, the other classes have every kind of positions and every other way in which a Transformer may differ.


@pytest.mark.slow
class TestRelativePositionsAndTwoVocabulariesContract(TestPostNormContract):
    arguments = {**SHALLOW, "positions": "relative", "relative_clip": 3, "num_key_value_heads": 1}
    arguments |= {"target_vocabulary_size": OTHER_V, "num_decoder_layers": 2}
    target_size = OTHER_V


@pytest.mark.slow
class TestRotaryPositionsAndUntiedPreNormContract(TestPostNormContract):
    arguments = {**SHALLOW, "positions": "rotary", "d_key": 2 * 5, "d_value": 3}
    arguments |= {"pre_norm": True, "tie_embeddings": False}


@pytest.mark.slow
class TestLearnedPositionsAndPrunedContract(TestPostNormContract):
    arguments = {**SHALLOW, "positions": "learned", "num_positions": 5}
    arguments |= {"num_decoder_layers": 2, "heads": "0/0,1/0,3", "d_key": K}


@pytest.mark.slow
class TestMBartContract(TestPostNormContract):
    arguments = {**SHALLOW, **MBART, "pre_norm": True}


class TestFrameContract(TestPostNormContract):
    """All methods count positions as if there were no tokens around the texts."""

    arguments = {**SHALLOW, "frame": "5,7/3/11,13"}


@functools.cache  # no test changes its weights
def transformer(residual=POST, **kwargs):
    return reference.randomise(Transformer(**{**SMALL, **kwargs}, pre_norm=residual is PRE))


def shallow(vocabularies):
    return transformer(PRE, num_layers=1, **vocabularies)


def batch():
    return ModelContract().batch()


# The paper


@RESIDUALS
def test_transformer_of_the_paper(residual):
    model, inputs = transformer(residual), batch()
    expected = reference.transformer(reference.weights_of(model), **inputs, num_heads=H, residual=residual)
    np.testing.assert_allclose(model(inputs), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("residual", "variant"),
    [
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
        (POST, {"positions": "learned", "num_positions": 5, "scale_embeddings": False, "tie_positions": False}),
        (PRE, {"num_key_value_heads": 1, "d_value": 11, "attention_bias": True, "layer_norm_epsilon": 0.1}),
    ],
    ids=lambda value: value.__name__ if callable(value) else str(value),
)
def test_variants_of_the_transformer_are_those_of_their_papers(variant, residual):
    model, inputs = transformer(residual, **variant), batch()
    names = {"positions": "positions", "scale_embeddings": "scale", "first_position": "first"}
    names |= {"activation": "activation", "layer_norm_epsilon": "epsilon"}
    arguments = {names[name]: value for name, value in variant.items() if name in names}
    arguments |= {"num_heads": H, "residual": residual}
    expected = reference.transformer(reference.weights_of(model), **inputs, **arguments)
    np.testing.assert_allclose(model(inputs), expected, rtol=1e-5, atol=1e-5)


@VOCABULARIES
def test_source_target_and_logits_use_their_own_matrix(vocabularies):
    model, inputs = shallow(vocabularies), batch()
    expected = reference.transformer(reference.weights_of(model), **inputs, num_heads=H, residual=PRE)
    np.testing.assert_allclose(model(inputs), expected, rtol=1e-5, atol=1e-5)


@RESIDUALS
def test_alignment_is_that_of_the_paper_s_transformer(residual):
    model, inputs = transformer(residual), batch()
    _, alignment = model.align(inputs["target_ids"], model.encode(inputs["source_ids"]))
    expected = reference.alignment(reference.weights_of(model), **inputs, num_heads=H, residual=residual)
    np.testing.assert_allclose(alignment, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "millions"),
    [({}, 65), ({"d_model": 1024, "num_heads": 16, "d_ff": 4096}, 213)],
    ids=["base", "big"],
)
def test_table_3_parameters(monkeypatch, arguments, millions):
    for drawn in (keras.initializers.RandomNormal, keras.initializers.VarianceScaling):  # takes seconds for nothing
        monkeypatch.setattr(drawn, "__call__", lambda self, shape, dtype=None: keras.ops.zeros(shape, dtype))
    assert Transformer(vocabulary_size=37_000, **arguments).count_params() == pytest.approx(millions * 1e6, rel=0.04)


# Tokens around the texts


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


@pytest.mark.parametrize("frame", ["", "3", "0//", f"{V}//", f"//{V}", "//3,"])
def test_a_frame_that_is_none_is_refused(frame):
    with pytest.raises(ValueError, match=f"`frame` must be ids of the vocabulary.* Received: frame='{frame}'$"):
        Transformer(**SHALLOW, frame=frame)


# Vocabularies and weights


def matrices(model):
    """Number of rows of every matrix that belongs to a vocabulary, by the path of the weight."""
    return {w.path: w.shape[0] for w in model.weights if w.path.endswith("matrix")}


def test_one_matrix_serves_source_target_and_logits():
    model = shallow({})
    assert matrices(model) == {"embedding/matrix": V}
    assert model.source_embedding is model.target_embedding
    assert model.output_matrix is model.target_embedding.matrix


def test_two_vocabularies_have_a_matrix_each_and_the_logits_share_that_of_the_target():
    model = shallow({"target_vocabulary_size": OTHER_V})
    assert matrices(model) == {"source_embedding/matrix": V, "target_embedding/matrix": OTHER_V}
    assert model.output_matrix is model.target_embedding.matrix


@pytest.mark.parametrize(("vocabularies", "rows"), [({}, V), ({"target_vocabulary_size": OTHER_V}, OTHER_V)])
def test_untied_source_target_and_logits_have_a_matrix_each(vocabularies, rows):
    model = shallow({**vocabularies, "tie_embeddings": False})
    expected = {"source_embedding/matrix": V, "target_embedding/matrix": rows, "logits/output_matrix/matrix": rows}
    assert matrices(model) == expected
    assert any(model.output_matrix is weight for weight in model.weights)


@VOCABULARIES
def test_weight_paths_are_the_keys_of_checkpoints(vocabularies):
    attention = [f"{part}/kernel" for part in ("query", "key", "value", "output")]
    feed_forward = [f"{part}/{name}" for part in ("inner", "outer") for name in ("kernel", "bias")]
    sublayers = {"self_attention": attention, "cross_attention": attention, "feed_forward": feed_forward}
    expected = set(matrices(shallow(vocabularies)))
    for stack, sublayer in [(stack, sublayer) for stack in ("encoder", "decoder") for sublayer in sublayers]:
        if (stack, sublayer) != ("encoder", "cross_attention"):
            expected |= {f"{stack}/layer_0/{sublayer}/{name}" for name in sublayers[sublayer]}
            expected |= {f"{stack}/layer_0/{sublayer}_residual/norm/{name}" for name in ("gamma", "beta")}
        expected |= {f"{stack}/norm/{name}" for name in ("gamma", "beta")}
    assert set(reference.weights_of(shallow(vocabularies))) == expected


def test_positions_add_weights_where_they_act_and_nowhere_else():
    plain = set(reference.weights_of(transformer(num_layers=1)))
    attentions = [f"{stack}/layer_0/self_attention" for stack in ("encoder", "decoder")]
    tables = {f"{attention}/distance_{what}" for attention in attentions for what in ("keys", "values")}
    expected = {"learned": {"positions/table"}, "relative": tables, "none": set(), "rotary": set()}
    for positions, added in expected.items():
        model = transformer(num_layers=1, positions=positions, d_key=2)
        assert set(reference.weights_of(model)) == plain | added


def test_every_argument_can_be_other_than_its_default():
    config = Transformer(**OTHER_THAN_DEFAULT, dtype="mixed_bfloat16", name="some").get_config()
    assert {name: config[name] for name in OTHER_THAN_DEFAULT} == OTHER_THAN_DEFAULT
    assert set(config) == {*OTHER_THAN_DEFAULT, "dtype", "name"}


# Training and precision


def test_dropout_is_for_training_only():
    model, inputs = transformer(num_layers=1, dropout_rate=0.5), batch()
    np.testing.assert_array_equal(model(inputs), model(inputs, training=False))
    assert np.abs(np.asarray(model(inputs, training=True)) - np.asarray(model(inputs))).max() > 0.1


@POLICIES
def test_every_layer_computes_in_the_precision_of_the_model(policy):
    model = transformer(num_layers=1, dtype=policy)
    layers = [layer for layer in model._flatten_layers() if not isinstance(layer, keras.layers.InputLayer)]
    assert {layer.compute_dtype for layer in layers} == {policy.removeprefix("mixed_")}


@POLICIES
def test_a_loaded_model_computes_in_the_precision_of_the_saved_one(tmp_path, policy):
    model = transformer(num_layers=1, dtype=policy)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert {layer.compute_dtype for layer in loaded.decoder._flatten_layers()} == {policy.removeprefix("mixed_")}
    np.testing.assert_array_equal(loaded(batch()), model(batch()))


@POLICIES
def test_half_precision_stays_close_to_float32_at_once_and_step_by_step(policy):
    half, full, inputs, parents = (
        transformer(num_layers=1, dtype=policy),
        transformer(num_layers=1),
        batch(),
        random_parents(W),
    )
    logits, steps, alignments = [], [], []
    for model in (half, full):
        memory = model.encode(inputs["source_ids"])
        states, alignment = model.align(inputs["target_ids"], memory)
        logits.append(model.logits(states))
        steps.append(model.logits(step_by_step(model, parents + 3, parents, model.start(memory, W))[0]))
        alignments.append(alignment)
    for one, other in (logits, steps, alignments):
        assert one.dtype == "float32"
        np.testing.assert_allclose(one, other, atol=0.2)
    np.testing.assert_allclose(np.sum(alignments[0], axis=-1), 1, atol=0.01)


def test_global_policy_is_the_default():
    before = keras.config.dtype_policy()
    try:
        keras.config.set_dtype_policy("mixed_bfloat16")
        model = Transformer(**SHALLOW)
    finally:
        keras.config.set_dtype_policy(before)
    assert model.compute_dtype == model.encoder.layers[0].feed_forward.inner.compute_dtype == "bfloat16"
    assert Transformer(**SHALLOW).compute_dtype == "float32"


@POLICIES
def test_an_empty_source_gives_finite_logits_in_half_precision(policy):
    inputs = batch()
    inputs["source_ids"][0] = PAD
    assert np.isfinite(transformer(num_layers=1, dtype=policy)(inputs)).all()


# The decoding state


def shapes(nest):
    return tf.nest.map_structure(lambda tensor: tuple(tensor.shape), nest)


def state_after(positions, width):
    model = transformer()
    start = model.start(model.encode(batch()["source_ids"]), width)
    ids = np.ones((B, width, positions), "int32")
    return shapes(step_by_step(model, ids, random_parents(width), start)[1]) if positions else shapes(start)


@pytest.mark.parametrize("positions", [0, 1, 3])
def test_memory_is_not_copied_for_each_hypothesis_and_the_cache_grows_by_one_position_of_each(positions):
    state = state_after(positions, W)
    assert state["memory"] == (((B, H, S, K),) * 2,) * N
    assert state["target"] == (((B, H, positions * W, K),) * 2,) * N
    assert state["history"] == (B, W, positions * W)
    assert state["mask"] == (B, 1, 1, S)


def test_fewer_heads_of_keys_and_values_make_cache_and_memory_smaller():
    model = transformer(num_heads=6, d_key=5, num_key_value_heads=2)
    ids, start = np.ones((B, W, 3), "int32"), model.start(model.encode(batch()["source_ids"]), W)
    state = shapes(step_by_step(model, ids, random_parents(W), start)[1])
    assert state["memory"] == (((B, 2, S, 5),) * 2,) * N and state["target"] == (((B, 2, 3 * W, 5),) * 2,) * N


@pytest.mark.parametrize("positions", [0, 1, 3])
def test_a_single_hypothesis_needs_no_history(positions):
    assert state_after(positions, 1)["history"] == ()


def test_what_has_been_read_stays_where_it_is():
    model, ids, parents = transformer(), np.full((B, W, T), 5, "int32"), random_parents(W)
    _, early = step_by_step(model, ids[:, :, :2], parents, model.start(model.encode(batch()["source_ids"]), W))
    _, late = model.step(ids[:, :, 2], parents[:, :, 2], 2, early)
    tf.nest.map_structure(
        lambda old, new: np.testing.assert_array_equal(new[:, :, : 2 * W], old), early["target"], late["target"]
    )


def test_a_hypothesis_inherits_the_history_of_its_parent_and_adds_itself():
    history = tf.constant([[[True, False, True, False], [False, True, True, False]]])  # two positions of two
    found = extended_history(history, tf.constant([[1, 1]]))
    assert found.dtype == "bool"
    expected = [[[False, True, True, False, True, False], [False, True, True, False, False, True]]]
    np.testing.assert_array_equal(found, expected)


def test_before_the_first_token_there_is_nothing_to_inherit():
    found = extended_history(tf.zeros((1, W, 0), "bool"), tf.constant([[2, 0, 0]]))
    np.testing.assert_array_equal(found, np.eye(W, dtype=bool)[None])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_heads": 3}, rf"`num_heads` must divide `d_model`\. Received: num_heads=3, d_model={D}$"),
        ({"d_model": 13, "num_heads": 13}, r"`d_model` must be even.* Received: d_model=13$"),
        (
            {"positions": "alibi"},
            r"must be one of sinusoidal, sinusoidal_halves, .*none\. Received: positions='alibi'$",
        ),
        ({"positions": "rotary"}, r"`d_key` must be even: .* Received: d_key=13$"),
        ({"num_key_value_heads": 3}, r"`num_key_value_heads` must divide `num_heads`\. Received: .*=3, num_heads=2$"),
        ({"dropout_rate": 1.0}, r"must be in \[0, 1\)\. Received: rate=1\.0$"),
        ({"attention_dropout_rate": -0.1}, r"must be in \[0, 1\)\. Received: rate=-0\.1$"),
        ({"feed_forward_dropout_rate": 2}, r"must be in \[0, 1\)\. Received: rate=2$"),
    ],
)
def test_impossible_arguments_are_refused_by_name(arguments, message):
    with pytest.raises(ValueError, match=message):
        Transformer(**{**SMALL, **arguments})


# As a plain Keras model.


def test_a_preset_gives_the_sizes_and_arguments_go_before():
    model = Transformer.from_preset("tiny", vocabulary_size=V, num_layers=1)
    found = (model.vocabulary_size, model.d_model, model.d_ff, model.num_heads, model.num_layers, model.pre_norm)
    assert found == (V, 128, 256, 4, 1, True) and model.dropout_rate == 0.3
    with pytest.raises(ConfigError, match="unknown preset 'tyni'"):
        Transformer.from_preset("tyni")


@pytest.mark.slow
def test_keras_trains_saves_and_loads_it(tmp_path):
    random.seed(1)  # Keras draws initial weights from it
    model = Transformer(**SHALLOW, pre_norm=True, dropout_rate=0.0)
    rng = np.random.default_rng(1)
    source_ids = rng.integers(4, V, (8, 3))
    target_ids = np.pad(source_ids, ((0, 0), (0, 1)), constant_values=3)  # to be copied, with eos
    x = {"source_ids": source_ids, "target_ids": np.pad(target_ids, ((0, 0), (1, 0)), constant_values=2)[:, :-1]}
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.005), loss, jit_compile=False)  # XLA would take most of the time
    losses = model.fit(x, target_ids, epochs=60, verbose=0).history["loss"]
    assert losses[-1] < 0.3 < losses[0]
    model.save(tmp_path / "model.keras")
    twin = keras.models.load_model(tmp_path / "model.keras")
    logits = twin.predict(x, verbose=0)
    np.testing.assert_array_equal(logits, model.predict(x, verbose=0))
    picked = np.take_along_axis(logits - np.log(np.exp(logits).sum(-1, keepdims=True)), target_ids[..., None], axis=-1)
    assert twin.evaluate(x, target_ids, verbose=0) == pytest.approx(-picked.mean(), rel=1e-4)


def test_numbers_of_heads_that_do_not_fit_the_layers_are_refused():
    for heads in ("1/1,1/1,1", "1,1/1,1", "1,1/1,1/1,-1", "nonsense"):
        with pytest.raises(ValueError, match=rf"`heads` must have {N}/{N}/{N} numbers. Received: heads='{heads}'"):
            Transformer(**SMALL, heads=heads, d_key=K)
