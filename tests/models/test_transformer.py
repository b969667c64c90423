import functools

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras_transformer.model import Transformer

from tests import reference
from tests.layers.contract import B, D, F, H, K, S, T, V, W

N = 2
POST, PRE = reference.post_norm, reference.pre_norm
RESIDUALS = pytest.mark.parametrize("residual", [POST, PRE])
POLICIES = pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16", "mixed_float16"])
SMALL = {"vocabulary_size": V, "d_model": D, "num_heads": H, "d_ff": F, "num_layers": N}
SHALLOW = {**SMALL, "num_layers": 1}
OTHER_THAN_DEFAULT = {
    **SHALLOW,
    "dropout_rate": 0.3,
    "attention_dropout_rate": 0.2,
    "feed_forward_dropout_rate": 0.15,
    "pre_norm": True,
}


@functools.cache  # no test changes its weights
def transformer(residual=POST, **kwargs):
    return reference.randomise(Transformer(**SMALL, pre_norm=residual is PRE, **kwargs))


def batch():
    """Rows of different lengths, padded with 0; every row starts with the same bos, as in training."""
    rng = np.random.default_rng(5)
    source_ids, target_ids = rng.integers(3, V, (B, S)), rng.integers(3, V, (B, T))
    target_ids[:, 0] = 2
    for row in range(B):
        source_ids[row, S - row :] = 0
        target_ids[row, T - row :] = 0
    return {"source_ids": source_ids.astype("int32"), "target_ids": target_ids.astype("int32")}


def hypotheses():
    """Ids (B, W, T): no two hypotheses of a row go on alike."""
    ids = np.random.default_rng(7).integers(3, V, (B, W, T)).astype("int32")
    ids[:, :, 0] = 2
    ids[:, :, 1] = 3 + np.arange(W)
    return ids


def own(positions):
    """History bool (B, W, positions * W) of hypotheses that each read the same slot at every position."""
    return np.broadcast_to(np.tile(np.eye(W, dtype=bool), positions), (B, W, positions * W))


def step_by_step(model, memory, source_mask, ids):
    """Logits (B, W, T, V) of hypotheses (B, W, T), fed to `decode_step` one position at a time.

    Every other step is given the matrix of the logits, which is to make no difference.
    """
    cache, steps, matrix = model.start_cache(memory, source_mask), [], model.tied_logits.matrix()
    for t in range(ids.shape[2]):
        logits, cache = model.decode_step(ids[:, :, t], t, own(t + 1), cache, *([matrix] if t % 2 else []))
        steps.append(logits)
    return np.stack(steps, axis=2)


@RESIDUALS
def test_transformer_of_the_paper(residual):
    model, inputs = transformer(residual), batch()
    expected = reference.transformer(reference.weights_of(model), **inputs, num_heads=H, residual=residual)
    np.testing.assert_allclose(model(inputs), expected, rtol=1e-5, atol=1e-5)


def test_graph_of_unknown_batch_and_length_is_eager():
    model, inputs = transformer(), batch()
    spec = {name: tf.TensorSpec((None, None), "int32") for name in inputs}
    graph = tf.function(lambda inputs: model(inputs), input_signature=[spec])
    np.testing.assert_allclose(graph(inputs), model(inputs), rtol=1e-5, atol=1e-5)
    assert model.output.shape == (None, None, V)


@POLICIES
def test_logits_are_float32_whatever_the_policy(policy):
    model, inputs = transformer(dtype=policy), batch()
    assert model.dtype_policy.name == policy
    logits = model(inputs)
    assert logits.dtype == model.output.dtype == "float32"
    assert {weight.dtype for weight in model.weights} == {"float32"}
    layers = [layer for layer in model._flatten_layers() if not isinstance(layer, keras.layers.InputLayer)]
    assert {layer.compute_dtype for layer in layers} == {policy.removeprefix("mixed_")}
    np.testing.assert_allclose(logits, transformer()(inputs), atol=0.2)


def test_global_policy_is_the_default():
    before = keras.config.dtype_policy()
    try:
        keras.config.set_dtype_policy("mixed_bfloat16")
        model = Transformer(**SHALLOW)
    finally:
        keras.config.set_dtype_policy(before)
    assert model.compute_dtype == model.encoder.layers[0].feed_forward.inner.compute_dtype == "bfloat16"
    assert Transformer(**SHALLOW).compute_dtype == "float32"


def test_dropout_is_for_training_only():
    model, inputs = transformer(dropout_rate=0.5), batch()
    np.testing.assert_array_equal(model(inputs), model(inputs, training=False))
    assert np.abs(np.asarray(model(inputs, training=True)) - np.asarray(model(inputs))).max() > 0.1


def test_every_weight_learns():
    model, inputs = transformer(), batch()
    with tf.GradientTape() as tape:
        log_probs = tf.nn.log_softmax(model(inputs, training=True))
        loss = -tf.reduce_mean(log_probs[..., 3])
    gradients = tape.gradient(loss, [weight.value for weight in model.weights])
    for weight, gradient in zip(model.weights, gradients, strict=True):
        assert gradient is not None and np.any(tf.convert_to_tensor(gradient)), weight.path


def test_appended_padding_changes_nothing():
    model, inputs = transformer(), batch()
    padded = {name: np.pad(ids, ((0, 0), (0, ids.shape[1] + 2))) for name, ids in inputs.items()}
    np.testing.assert_allclose(np.asarray(model(padded))[:, :T], model(inputs), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("changed_from", range(1, T))
def test_future_tokens_do_not_change_past_logits(changed_from):
    model, inputs = transformer(), batch()
    changed = {name: ids.copy() for name, ids in inputs.items()}
    changed["target_ids"][:, changed_from:] = 3 + (changed["target_ids"][:, changed_from:] + 1) % (V - 3)
    before, after = np.asarray(model(inputs)), np.asarray(model(changed))
    np.testing.assert_allclose(after[:, :changed_from], before[:, :changed_from], rtol=1e-5, atol=1e-5)
    assert np.abs(after[:, changed_from:] - before[:, changed_from:]).max(axis=-1).min() > 0.01


@POLICIES
def test_an_empty_source_gives_finite_logits(policy):
    model, inputs = transformer(dtype=policy), batch()
    inputs["source_ids"][0] = 0
    assert np.isfinite(model(inputs)).all()


@RESIDUALS
def test_encode_then_decode_is_the_call(residual):
    model, inputs = transformer(residual), batch()
    memory, source_mask = model.encode(inputs["source_ids"])
    assert memory.shape == (B, S, D) and source_mask.shape == (B, 1, 1, S) and source_mask.dtype == "bool"
    logits = model.decode(inputs["target_ids"], memory, source_mask)
    np.testing.assert_allclose(logits, model(inputs), rtol=1e-6, atol=1e-6)


@RESIDUALS
def test_alignment_is_that_of_the_paper_s_transformer(residual):
    model, inputs = transformer(residual), batch()
    _, alignment = model.align(inputs["target_ids"], *model.encode(inputs["source_ids"]))
    expected = reference.alignment(reference.weights_of(model), **inputs, num_heads=H, residual=residual)
    np.testing.assert_allclose(alignment, expected, rtol=1e-5, atol=1e-5)


@POLICIES
def test_alignment_is_shared_out_among_the_tokens_of_the_source(policy):
    model, inputs = transformer(dtype=policy), batch()
    _, alignment = model.align(inputs["target_ids"], *model.encode(inputs["source_ids"]))
    assert alignment.shape == (B, T, S) and alignment.dtype == "float32"
    np.testing.assert_allclose(np.sum(alignment, axis=-1), 1, atol=1e-5 if policy == "float32" else 0.01)
    is_padding = np.broadcast_to(inputs["source_ids"][:, None] == 0, alignment.shape)
    assert is_padding.any() and np.all(np.asarray(alignment)[is_padding] == 0)


def test_memory_is_not_copied_for_each_hypothesis():
    model, ids = transformer(), hypotheses()
    cache = model.start_cache(*model.encode(batch()["source_ids"]))
    _, cache = model.decode_step(ids[:, :, 0], 0, own(1), cache)
    assert [[tuple(t.shape) for t in pair] for pair in cache["memory"]] == [[(B, H, S, K)] * 2] * N
    assert [[tuple(t.shape) for t in pair] for pair in cache["target"]] == [[(B, H, W, K)] * 2] * N


@RESIDUALS
def test_steps_are_the_full_pass_of_every_hypothesis(residual):
    model, ids = transformer(residual), hypotheses()
    memory, source_mask = model.encode(batch()["source_ids"])
    logits = step_by_step(model, memory, source_mask, ids)
    assert logits.dtype == "float32"
    for w in range(W):
        np.testing.assert_allclose(logits[:, w], model.decode(ids[:, w], memory, source_mask), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_steps_are_the_full_pass_in_half_precision(policy):
    model, ids = transformer(dtype=policy), hypotheses()
    memory, source_mask = model.encode(batch()["source_ids"])
    logits = step_by_step(model, memory, source_mask, ids)
    assert logits.dtype == "float32"
    np.testing.assert_allclose(logits[:, 1], model.decode(ids[:, 1], memory, source_mask), atol=0.1)


def test_steps_in_a_graph_of_unknown_sizes_are_the_full_pass():
    model, source_ids, ids = transformer(), batch()["source_ids"], hypotheses()

    @tf.function(input_signature=[tf.TensorSpec((None, None), "int32"), tf.TensorSpec((None, W, None), "int32")])
    def decode_all(source_ids, ids):
        memory, source_mask = model.encode(source_ids)
        length = tf.shape(ids)[2]
        cache = model.start_cache(memory, source_mask)

        def step(t, cache, written):
            itself = tf.eye(W, batch_shape=[tf.shape(ids)[0]], dtype=tf.bool)
            logits, cache = model.decode_step(ids[:, :, t], t, tf.tile(itself, [1, 1, t + 1]), cache)
            return t + 1, cache, written.write(t, logits)

        unknown = tf.TensorShape((None, H, None, K))
        _, _, written = tf.while_loop(
            lambda t, *_: t < length,
            step,
            (0, cache, tf.TensorArray("float32", size=length)),
            shape_invariants=(
                tf.TensorShape(()),
                {**tf.nest.map_structure(lambda _: unknown, cache), "source_mask": source_mask.shape},
                tf.TensorShape(None),
            ),
        )
        return tf.transpose(written.stack(), (1, 2, 0, 3))  # (B, W, T, V)

    logits = decode_all(source_ids, ids)
    assert logits.shape == (B, W, T, V)
    memory, source_mask = model.encode(source_ids)
    for w in range(W):
        np.testing.assert_allclose(logits[:, w], model.decode(ids[:, w], memory, source_mask), rtol=1e-5, atol=1e-5)


def test_the_history_says_what_a_hypothesis_has_read():
    """A beam goes on with some hypotheses, and drops others: nothing in the cache moves."""
    model, ids, early = transformer(), hypotheses(), T // 2
    cache = model.start_cache(*model.encode(batch()["source_ids"]))
    for t in range(early):
        _, cache = model.decode_step(ids[:, :, t], t, own(t + 1), cache)
    parents = np.random.default_rng(11).integers(0, W, (B, W))
    assert (parents != np.arange(W)).any()
    history = np.concatenate([np.take_along_axis(own(early), parents[:, :, None], axis=1), own(1)], axis=2)
    regrouped = np.take_along_axis(ids, parents[:, :, None], axis=1)
    logits, _ = model.decode_step(regrouped[:, :, early], early, history, cache)
    for w in range(W):
        full = model.decode(regrouped[:, w, : early + 1], *model.encode(batch()["source_ids"]))
        np.testing.assert_allclose(logits[:, w], full[:, -1], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("arguments", "millions"),
    [({}, 65), ({"d_model": 1024, "num_heads": 16, "d_ff": 4096}, 213)],
    ids=["base", "big"],
)
def test_table_3_parameters(monkeypatch, arguments, millions):
    for drawn in (keras.initializers.RandomNormal, keras.initializers.VarianceScaling):  # takes seconds for nothing
        monkeypatch.setattr(drawn, "__call__", lambda self, shape, dtype=None: keras.ops.zeros(shape, dtype))
    assert Transformer(vocabulary_size=37_000, **arguments).count_params() == pytest.approx(millions * 1e6, rel=0.04)


def test_one_matrix_serves_source_target_and_logits():
    model = Transformer(**SHALLOW)
    assert [w.path for w in model.weights if V in w.shape] == ["embedding/matrix"]
    assert model.tied_logits.embedding is model.embedding


def test_weight_paths_are_the_keys_of_checkpoints():
    attention = [f"{part}/kernel" for part in ("query", "key", "value", "output")]
    feed_forward = [f"{part}/{name}" for part in ("inner", "outer") for name in ("kernel", "bias")]
    sublayers = {"self_attention": attention, "cross_attention": attention, "feed_forward": feed_forward}
    expected = {"embedding/matrix"}
    for stack, sublayer in [(stack, sublayer) for stack in ("encoder", "decoder") for sublayer in sublayers]:
        if (stack, sublayer) != ("encoder", "cross_attention"):
            expected |= {f"{stack}/layer_0/{sublayer}/{name}" for name in sublayers[sublayer]}
            expected |= {f"{stack}/layer_0/{sublayer}_residual/norm/{name}" for name in ("gamma", "beta")}
        expected |= {f"{stack}/norm/{name}" for name in ("gamma", "beta")}
    assert set(reference.weights_of(Transformer(**OTHER_THAN_DEFAULT))) == expected


def test_config_makes_the_same_model_again():
    model = Transformer(**OTHER_THAN_DEFAULT, dtype="mixed_bfloat16", name="some")
    config = model.get_config()
    assert {name: config[name] for name in OTHER_THAN_DEFAULT} == OTHER_THAN_DEFAULT
    assert set(config) == {*OTHER_THAN_DEFAULT, "dtype", "name"}
    twin = Transformer.from_config(config)
    assert twin.get_config() == config and twin.name == "some"
    twin.set_weights(model.get_weights())
    np.testing.assert_array_equal(twin(batch()), model(batch()))


@pytest.mark.parametrize(
    ("policy", "residual"),
    [("float32", POST), ("mixed_bfloat16", PRE), ("mixed_float16", POST)],
)
def test_saved_model_loads_without_custom_objects(tmp_path, policy, residual):
    model, inputs = transformer(residual, dtype=policy), batch()
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert type(loaded) is Transformer and loaded.get_config() == model.get_config()
    assert {layer.compute_dtype for layer in loaded.decoder._flatten_layers()} == {policy.removeprefix("mixed_")}
    np.testing.assert_array_equal(loaded(inputs), model(inputs))
    memory, source_mask = loaded.encode(inputs["source_ids"])
    ids = hypotheses()[:, :, :2]
    steps = step_by_step(loaded, memory, source_mask, ids)
    np.testing.assert_array_equal(steps, step_by_step(model, memory, source_mask, ids))


@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16"])
def test_saved_weights_load_into_a_model_that_was_never_called(tmp_path, policy):
    model, inputs = transformer(dtype=policy, name="saved"), batch()
    model.save_weights(tmp_path / "model.weights.h5")
    fresh = Transformer(**SMALL, dtype=policy, name="loaded")
    fresh.load_weights(tmp_path / "model.weights.h5")
    np.testing.assert_array_equal(fresh(inputs), model(inputs))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_heads": 3}, rf"`num_heads` must divide `d_model`\. Received: num_heads=3, d_model={D}$"),
        ({"d_model": 13, "num_heads": 13}, r"`d_model` must be even.* Received: d_model=13$"),
        ({"dropout_rate": 1.0}, r"must be in \[0, 1\)\. Received: rate=1\.0$"),
        ({"attention_dropout_rate": -0.1}, r"must be in \[0, 1\)\. Received: rate=-0\.1$"),
        ({"feed_forward_dropout_rate": 2}, r"must be in \[0, 1\)\. Received: rate=2$"),
    ],
)
def test_impossible_arguments_are_refused_by_name(arguments, message):
    with pytest.raises(ValueError, match=message):
        Transformer(**{**SMALL, **arguments})
