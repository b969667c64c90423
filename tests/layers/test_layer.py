import subprocess
import sys
from pathlib import Path

import keras
import pytest

from keras_transformer.layers.kernels import Layer
from keras_transformer.layers.stacks import Encoder, EncoderLayer, Shape

ROOT = Path(__file__).parents[2]


class Parent(Layer):
    def __init__(self, width, rate=0.5, *, seed=None, **kwargs):
        super().__init__(**kwargs)
        self.width, self.rate, self.seed = width, rate, seed


class Heir(Parent):
    def __init__(self, depth, width, rate=0.25, **kwargs):
        super().__init__(width, rate, **kwargs)
        self.depth = depth


def test_arguments_are_those_of_the_signatures_and_no_keyword_only_ones():
    class Silent(Parent):
        """It has no `__init__` of its own."""

    class PassesAllOn(Parent):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)

    for layer_class in (Parent, Silent, PassesAllOn):
        assert set(layer_class(3, seed=7).get_config()) == {"width", "rate", "name", "dtype", "trainable"}


def test_config_holds_the_attributes_of_the_arguments_and_what_every_keras_layer_has():
    layer = Heir(depth=3, width=5, rate=0.125, name="some", dtype="mixed_bfloat16", trainable=False)
    layer.width = 7
    config = layer.get_config()
    twin = Heir.from_config(config)
    assert (twin.depth, twin.width, twin.rate, twin.name) == (3, 7, 0.125, "some")
    assert {name: config.pop(name) for name in ("depth", "width", "rate")} == {"depth": 3, "width": 7, "rate": 0.125}
    assert set(config) == {"name", "dtype", "trainable"}
    assert (config["name"], config["trainable"]) == ("some", False)
    assert keras.dtype_policies.get(config["dtype"]).name == "mixed_bfloat16"


def test_an_argument_without_an_attribute_is_an_error():
    class Forgetful(Layer):
        def __init__(self, width, **kwargs):
            super().__init__(**kwargs)

    with pytest.raises(AttributeError, match="width"):
        Forgetful(5).get_config()


def test_a_shape_is_the_numbers_of_a_layer_and_goes_on_to_the_layers_of_a_stack():
    numbers = {"d_model": 6, "num_heads": 2, "d_ff": 5, "positions": "rotary", "d_key": 4}
    shape = Shape(**numbers)
    stack = Encoder(2, shape=shape, name="same")
    assert [layer.shape for layer in stack.layers] == [shape] * 2
    assert stack.get_config() == Encoder(num_layers=2, **numbers, name="same").get_config()
    assert (stack.d_key, stack.shape.d_key, stack.layers[1].d_key) == (4, 4, 4)


def test_a_number_goes_before_that_of_the_shape():
    layer = EncoderLayer(shape=Shape(6, 2, 5), num_heads=3)
    assert (layer.num_heads, layer.self_attention.num_heads, layer.d_model) == (3, 3, 6)


def test_a_number_that_no_layer_has_is_an_error():
    with pytest.raises(TypeError, match="num_head"):
        EncoderLayer(d_model=6, num_head=2, d_ff=5)


ALONE = """
import sys
for name in "yaml sentencepiece tensorflow_text matplotlib babel sacrebleu keras_transformer.config".split():
    sys.modules[name] = None  # an import of it fails
import keras_transformer as kt, keras_transformer.recurrent.stacks
print(kt.layers.MultiHeadAttention(num_heads=2, d_key=3, d_model=5).d_key)
print(*sorted(name for name in sys.modules if name.startswith("keras_transformer.") and name.count(".") == 1))
"""


def test_layers_need_nothing_but_keras():
    done = subprocess.run([sys.executable, "-c", ALONE], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.stdout.splitlines()[0] == "3", done.stderr
    assert done.stdout.splitlines()[1].split()[1:] == ["keras_transformer.layers", "keras_transformer.recurrent"]
