"""What every model promises, whatever it computes: one harness, inherited by one test class per model or variant.

Every size is another prime, so that no transposed axis passes by accident.
"""

import dataclasses
import functools
import json

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_transformer.decoding.beam import beam_search
from keras_transformer.models.sequence_to_sequence import load_model
from tests.reference import randomise

W, B, T, S = 3, 5, 7, 11
PAD, BOS = 0, 2
LIMITS = [7, 0, 5, 2, 7]
HALF = "mixed_bfloat16"


@functools.cache  # no test changes its weights
def made(test_class, **kwargs):
    return randomise(test_class().make(name="some", **kwargs))


def select(nest, rows):
    return tf.nest.map_structure(lambda tensor: tf.gather(tensor, rows), nest)


def assert_close(found, expected, tolerance=1e-5):
    tf.nest.map_structure(
        lambda x, y: np.testing.assert_allclose(
            tf.cast(x, "float32"), tf.cast(y, "float32"), rtol=tolerance, atol=tolerance
        ),
        found,
        expected,
    )


def random_parents(width):
    """int (B, width, T): at every position each hypothesis continues any hypothesis, so some are dropped."""
    return np.random.default_rng(11).integers(0, width, (B, width, T)).astype("int32")


def histories(ids, parents):
    """For every position, the ids that each hypothesis has read by then: T times int (B, W, t+1)."""
    read = [[[] for _ in row] for row in ids]
    found = []
    for t in range(ids.shape[2]):
        read = [[[*read[b][parents[b, w, t]], ids[b, w, t]] for w in range(ids.shape[1])] for b in range(ids.shape[0])]
        found.append(np.array(read, "int32"))
    return found


def step_by_step(model, ids, parents, state):
    """The states (B, W, T, D) of `step` over all positions of ids (B, W, T), and the last decoding state."""
    steps = []
    for t in range(ids.shape[2]):
        states, state = model.step(tf.constant(ids[:, :, t]), tf.constant(parents[:, :, t]), tf.constant(t), state)
        steps.append(states)
    return tf.stack(steps, axis=2), state


def decode_histories(model, memory, ids, parents):
    """What `step_by_step` should give: `decode` of each hypothesis' own history, newest position only."""
    positions, width = [], ids.shape[1]
    memory = select(memory, np.repeat(np.arange(B), width))  # a row for each hypothesis
    for read in histories(ids, parents):
        newest = model.decode(tf.constant(np.concatenate(read)), memory)[:, -1]
        positions.append(tf.reshape(newest, (B, width, -1)))
    return tf.stack(positions, axis=2)


def step_of(model):
    """The step function that a search asks for."""

    def step(ids, parents, position, state):
        states, state = model.step(ids, parents, position, state)
        return model.logits(states), state

    return step


def score_by_decode(model, memory, hypotheses, slot):
    """The log-probability (B,) of the hypothesis in one slot of every row, by teacher forcing."""
    ids, lengths = hypotheses.ids[:, slot].numpy(), hypotheses.lengths[:, slot].numpy()
    shifted = np.pad(ids, ((0, 0), (1, 0)), constant_values=BOS)[:, :-1]
    log_probs = tf.nn.log_softmax(model.logits(model.decode(shifted, memory))).numpy()
    chosen = np.take_along_axis(log_probs, ids[..., None], axis=2)[..., 0]
    return np.where(np.arange(ids.shape[1]) < lengths[:, None], chosen, 0.0).sum(axis=1)


class VariantContract:
    """What a variant of a model may break. Inherit as `class TestContract(VariantContract)`, and say which model.

    make: gives a new model for the two vocabularies. It passes its arguments on, such as `name` and `dtype`.
    source_size: number of source tokens.
    target_size: number of target tokens.
    """

    source_size, target_size = 19, 19

    def make(self, **kwargs):
        raise NotImplementedError

    def model(self, **kwargs):
        """A model with random weights, none of them 0 or 1."""
        return made(type(self), **kwargs)

    def batch(self):
        """Rows of different lengths, padded with 0. Every target starts with bos, as in training."""
        rng = np.random.default_rng(5)
        source_ids, target_ids = rng.integers(4, self.source_size, (B, S)), rng.integers(4, self.target_size, (B, T))
        source_ids[0, 0], target_ids[0, 1] = self.source_size - 1, self.target_size - 1
        target_ids[:, 0] = BOS
        for row in range(B):
            source_ids[row, S - row :] = PAD
            target_ids[row, T - row :] = PAD
        return {"source_ids": source_ids.astype("int32"), "target_ids": target_ids.astype("int32")}

    def random_ids(self, width):
        """int (B, width, T), the tokens of hypotheses that all start with bos."""
        ids = np.random.default_rng(7).integers(3, self.target_size, (B, width, T)).astype("int32")
        ids[:, :, 0] = BOS
        return ids

    def test_saved_model_is_the_same_model_when_it_is_loaded(self, tmp_path):
        model, inputs = self.model(), self.batch()
        model.save(tmp_path / "model.keras")
        loaded = load_model(tmp_path / "model.keras")
        assert type(loaded) is type(model) and loaded.get_config() == model.get_config()
        paths = [weight.path for weight in model.weights]  # the keys of a checkpoint, of which an ensemble has none
        assert [weight.path for weight in loaded.weights] == paths
        assert model.shape_class is None or len(set(paths)) == len(paths)
        np.testing.assert_array_equal(loaded(inputs), model(inputs))
        ids, parents = self.random_ids(W)[:, :, :2], random_parents(W)[:, :, :2]
        steps = [step_by_step(m, ids, parents, m.start(m.encode(inputs["source_ids"]), W))[0] for m in (model, loaded)]
        np.testing.assert_array_equal(*steps)

    def test_every_weight_learns(self):
        model = self.model()
        with tf.GradientTape() as tape:
            loss = -tf.reduce_mean(tf.nn.log_softmax(model(self.batch(), training=True))[..., 3])
        gradients = tape.gradient(loss, [weight.value for weight in model.trainable_weights])
        for weight, gradient in zip(model.trainable_weights, gradients, strict=True):
            assert gradient is not None and np.any(tf.convert_to_tensor(gradient)), weight.path

    def test_call_is_the_logits_of_decode_of_encode_and_a_graph_of_unknown_batch_and_length_is_eager(self):
        model, inputs = self.model(), self.batch()

        def everything(source_ids, target_ids):
            memory = model.encode(source_ids)
            return model.logits(model.decode(target_ids, memory)), model.align(target_ids, memory)

        expected = everything(**inputs)
        assert model.output.shape == (None, None, self.target_size) and model.output.dtype == "float32"
        assert expected[0].shape == (B, T, self.target_size) and expected[0].dtype == "float32"
        assert_close(model(inputs), expected[0], 1e-6)
        spec = tf.TensorSpec((None, None), "int32")
        graph = tf.function(everything, input_signature=[spec, spec], autograph=False)
        assert_close(graph(**inputs), expected)
        shorter = {"source_ids": inputs["source_ids"][:2, : S - 2], "target_ids": inputs["target_ids"][:2, : T - 2]}
        assert_close(graph(**shorter), everything(**shorter))

    def test_neither_future_tokens_nor_the_length_of_a_target_change_past_outputs(self):
        model, inputs = self.model(), self.batch()
        memory, target_ids = model.encode(inputs["source_ids"]), inputs["target_ids"]
        before = model.align(target_ids, memory)
        for changed_from in (1, 4, T - 1):
            changed = target_ids.copy()
            changed[:, changed_from:] = 4 + (changed[:, changed_from:] + 1) % (self.target_size - 4)
            after = model.align(changed, memory)
            for one, other in zip(before, after, strict=True):
                assert_close(other[:, :changed_from], one[:, :changed_from])
            assert np.abs(after[0] - before[0])[:, changed_from].max(axis=-1).min() > 1e-3
        for length in (1, T - 1):
            for one, other in zip(model.align(target_ids[:, :length], memory), before, strict=True):
                assert_close(one, other[:, :length])

    def test_appended_source_padding_changes_nothing(self):
        model, inputs = self.model(), self.batch()
        padded_ids = np.pad(inputs["source_ids"], ((0, 0), (0, S + 2)))
        memory, padded = model.encode(inputs["source_ids"]), model.encode(padded_ids)
        (states, alignment), (padded_states, padded_alignment) = (
            model.align(inputs["target_ids"], each) for each in (memory, padded)
        )
        assert_close(padded_states, states)
        assert_close(padded_alignment[..., :S], alignment)
        assert_close(model.decode(inputs["target_ids"], padded), states)
        ids, parents = self.random_ids(W)[:, :, :3], random_parents(W)[:, :, :3]
        steps, padded_steps = (step_by_step(model, ids, parents, model.start(m, W))[0] for m in (memory, padded))
        assert_close(padded_steps, steps)

    @pytest.mark.parametrize("policy", ["float32", HALF])
    def test_alignment_is_shared_out_among_the_tokens_of_the_source(self, policy):
        model, inputs = self.model(dtype=policy), self.batch()
        memory = model.encode(inputs["source_ids"])
        states, alignment = model.align(inputs["target_ids"], memory)
        assert_close(states, model.decode(inputs["target_ids"], memory), 1e-6)
        assert alignment.shape == (B, T, S) and alignment.dtype == "float32"
        np.testing.assert_allclose(np.sum(alignment, axis=-1), 1, atol=1e-5 if policy == "float32" else 0.01)
        is_padding = np.broadcast_to(inputs["source_ids"][:, None] == PAD, alignment.shape)
        assert np.all(np.asarray(alignment)[is_padding] == 0) and np.all(np.asarray(alignment) >= 0)

    @pytest.mark.parametrize(
        ("width", "policy", "tolerance"), [(1, "float32", 1e-5), (W, "float32", 1e-5), (W, HALF, 0.1)]
    )
    def test_steps_are_decode_of_the_history_of_each_hypothesis(self, width, policy, tolerance):
        model, ids, parents = self.model(dtype=policy), self.random_ids(width), random_parents(width)
        memory = model.encode(self.batch()["source_ids"])
        states, _ = step_by_step(model, ids, parents, model.start(memory, width))
        assert_close(states, decode_histories(model, memory, ids, parents), tolerance)

    def test_beam_search_in_a_graph_of_unknown_batch_and_length_gives_the_scores_of_decode(self):
        """The limits differ, so the search leaves out rows of the decoding state when they are done."""
        model, source_ids, limits = self.model(), self.batch()["source_ids"], np.array(LIMITS)
        how = {"bos_id": BOS, "eos_id": self.target_size, "pad_id": PAD, "length_penalty": 0.0}  # no token is eos

        @tf.function(input_signature=[tf.TensorSpec((None, None), "int32"), tf.TensorSpec((None,), "int32")])
        def search(source_ids, limits):
            return beam_search(step_of(model), model.start(model.encode(source_ids), W), limits, width=W, **how)

        found, memory = search(source_ids, limits), model.encode(source_ids)
        rows = limits > 0  # a row without room for a token has one empty hypothesis only
        np.testing.assert_array_equal(found.lengths[rows], np.repeat(limits[rows, None], W, axis=1))
        for w in range(W):
            expected = score_by_decode(model, memory, found, w)
            np.testing.assert_allclose(found.scores.numpy()[rows, w], expected[rows], rtol=1e-5, atol=1e-4)

    @pytest.mark.parametrize(("width", "is_compiled"), [(1, False), (W, True)])
    def test_a_room_changes_nothing_and_its_state_goes_on_without_it(self, width, is_compiled):
        """A compiled search takes steps of fixed shapes, and goes on without a compiler when the room is full."""
        model, memory = self.model(), self.model().encode(self.batch()["source_ids"])
        ids, parents, room = self.random_ids(width), random_parents(width), 3
        in_room = functools.partial(model.step, has_room=True)
        in_room = tf.function(in_room, jit_compile=True, autograph=False) if is_compiled else in_room
        state, steps = model.start(memory, width, room), []
        shapes = [tensor.shape for tensor in tf.nest.flatten(state)]
        for t in range(ids.shape[2]):
            step = in_room if t < room else model.step
            states, state = step(tf.constant(ids[:, :, t]), tf.constant(parents[:, :, t]), tf.constant(t), state)
            assert t >= room or [tensor.shape for tensor in tf.nest.flatten(state)] == shapes
            steps.append(states)
        assert_close(tf.stack(steps, axis=2), decode_histories(model, memory, ids, parents))


class ModelContract(VariantContract):
    """All that a model promises: see `VariantContract`."""

    def test_config_holds_exactly_the_arguments_and_makes_a_model_into_which_saved_weights_load(self, tmp_path):
        model = self.model(dtype=HALF)
        config = model.get_config()
        assert set(config) == {*(field.name for field in dataclasses.fields(model.shape_class)), "dtype", "name"}
        assert config["name"] == "some" and keras.dtype_policies.get(config["dtype"]).name == HALF
        twin = type(model).from_config(json.loads(json.dumps(config)))
        assert twin.get_config() == config
        model.save_weights(tmp_path / "model.weights.h5")
        for fresh in (twin, self.make(name="other", dtype=HALF)):
            fresh.load_weights(tmp_path / "model.weights.h5")
            np.testing.assert_array_equal(fresh(self.batch()), model(self.batch()))

    @pytest.mark.parametrize("leading", [(B,), (B, W, T)])
    def test_logits_are_products_with_the_output_matrix(self, leading):
        model = self.model()
        matrix = np.asarray(model.output_matrix, "float64")  # (V, D)
        assert matrix.shape[0] == self.target_size and any(weight is model.output_matrix for weight in model.weights)
        states = np.random.default_rng(3).normal(size=(*leading, matrix.shape[1]))
        logits = model.logits(tf.constant(states, "float32"))
        assert logits.dtype == "float32"
        bias = 0 if model.output_bias is None else np.asarray(model.output_bias)
        np.testing.assert_allclose(logits, states @ matrix.T + bias, rtol=1e-5, atol=1e-5)

    def test_every_source_token_counts(self):
        model, inputs = self.model(), self.batch()
        before = model.decode(inputs["target_ids"], model.encode(inputs["source_ids"]))
        changed = np.tile(inputs["source_ids"], (S, 1, 1))  # (S, B, S): each position changed in a copy of its own
        for position in range(S):
            ids = changed[position, :, position]
            changed[position, :, position] = 4 + (ids + 1) % (self.source_size - 4)
        memory = model.encode(changed.reshape(S * B, S))
        after = np.reshape(model.decode(np.tile(inputs["target_ids"], (S, 1)), memory), (S, *before.shape))
        assert np.abs(after - before).max(axis=(2, 3)).min() > 1e-4

    @pytest.mark.parametrize("policy", [HALF, "mixed_float16"])
    def test_half_precision_keeps_weights_and_logits_in_float32_and_an_empty_source_gives_finite_numbers(self, policy):
        model, full, inputs = self.model(dtype=policy), self.model(), self.batch()
        logits, half = model(inputs), policy.removeprefix("mixed_")
        assert model.dtype_policy.name == policy and logits.dtype == model.output.dtype == "float32"
        assert {weight.dtype for weight in model.weights} == {"float32"}
        layers = [layer for layer in model._flatten_layers() if not isinstance(layer, keras.layers.InputLayer)]
        assert {layer.compute_dtype for layer in layers} == {half}
        assert_close(logits, full(inputs), 0.2)
        state = model.start(model.encode(inputs["source_ids"]), W)
        assert {t.dtype.name for t in tf.nest.flatten(state) if t.dtype.is_floating} == {half}
        inputs["source_ids"][0] = PAD
        for each in (model, full):
            assert np.isfinite(each(inputs)).all()
            assert np.isfinite(each.align(inputs["target_ids"], each.encode(inputs["source_ids"]))[1]).all()
