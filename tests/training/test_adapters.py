import keras
import numpy as np

from keras_transformer.training.adapters import add_adapters, merged_weights, own_weights
from keras_transformer.training.checkpoints import average_variables, save_variables
from tests import tiny

INPUTS = {"source_ids": np.array([[5, 6, 7]]), "target_ids": np.array([[2, 8]])}
RANK = 2


def adapted():
    """A model with adapters that change its results."""
    network = tiny.transformer(attention_bias=True, num_layers=2)
    add_adapters(network, RANK)
    for seed, weight in enumerate(network.trainable_weights):
        weight.assign(keras.random.normal(weight.shape, seed=seed))
    return network


def test_adapters_stand_beside_each_projection_and_change_nothing_at_first():
    network = tiny.transformer(attention_bias=True, num_layers=2)
    before, names = np.array(network(INPUTS)), [weight.path for weight in network.weights]
    add_adapters(network, RANK)
    np.testing.assert_array_equal(network(INPUTS), before)
    assert [weight.path for weight in own_weights(network)] == names
    matrices = [name for name in names if name.endswith("kernel")]
    assert len(matrices) == 2 * (4 + 2) + 2 * (4 + 4 + 2)
    trained = [weight.path for weight in network.trainable_weights]
    assert trained == [f"{name.removesuffix('kernel')}lora_kernel_{part}" for name in matrices for part in "ab"]


def test_merged_they_are_a_model_without_adapters():
    network, plain = adapted(), tiny.transformer(attention_bias=True, num_layers=2)
    values = {weight.path: np.array(weight) for weight in network.weights}
    for weight, merged in zip(plain.weights, merged_weights(network), strict=True):
        expected = values[weight.path]
        if weight.path.endswith("kernel"):
            a, b = (values[weight.path.replace("kernel", f"lora_kernel_{part}")] for part in "ab")
            expected = expected + a @ b
        np.testing.assert_allclose(merged, expected, rtol=1e-5, atol=1e-6)
        weight.assign(merged)
    np.testing.assert_allclose(plain(INPUTS), network(INPUTS), rtol=1e-5, atol=1e-5)


def test_the_average_of_epochs_is_that_of_the_merged_matrices(tmp_path):
    network, plain = adapted(), tiny.transformer(attention_bias=True, num_layers=2)
    each = []
    for epoch in (1, 2, 3):
        for weight in network.trainable_weights:
            weight.assign(np.array(weight) * epoch)
        each.append(merged_weights(network))
        save_variables(tmp_path / f"{epoch}.npz", network.trainable_weights)
    paths = [tmp_path / f"{epoch}.npz" for epoch in (1, 2, 3)]
    assert average_variables(paths, network.trainable_weights, plain.weights, lambda: merged_weights(network)) == paths
    for weight, *values in zip(plain.weights, *each, strict=True):
        np.testing.assert_allclose(weight, np.mean(values, axis=0), rtol=1e-5, atol=1e-6)
