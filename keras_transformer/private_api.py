"""The private names of other packages that the package uses, because these packages have no public ones for the work.

Each function names the versions that it is known to work with. A test of each fails when a new version differs.
"""

import contextlib
import sys

import keras
from keras.src.backend.common import global_state
from keras.src.trainers.data_adapters import TFDatasetAdapter


class AlwaysBuilt(keras.Model):
    """A model of which everything is built before `fit`, which then looks at no batch to build it.

    Keras would reduce a batch over the replicas, and fail: their shares may differ in the number of rows. Known to work
    with Keras 3.12 to 3.15, on TensorFlow.
    """

    def _maybe_symbolic_build(self, iterator=None, data_batch=None):
        """Skips this step of Keras."""


class WholeDataset(TFDatasetAdapter):
    """Batches of a tf.data.Dataset that `fit` and `evaluate` read as they are, if it is a `DistributedDataset`, too.

    Known to work with Keras 3.12 to 3.15, on TensorFlow.
    """

    def get_tf_dataset(self):
        """What Keras reads."""
        return self

    @property
    def element_spec(self):
        """The nested `tf.TensorSpec` of a batch."""
        return self._dataset.element_spec

    def __iter__(self):
        return iter(self._dataset)


def made_from(make, check, values):
    """A model whose weights start from given values: Keras does not draw random ones first.

    Known to work with Keras 3.12 to 3.15.

    Args:
        make: function without arguments that makes the model, with all weights built.
        check: function of a weight, a Keras variable without values; it raises an error if there are none of its shape.
            It is called for all weights before any values are read.
        values: function from the path of a weight to its values, an array.

    Returns:
        The model.

    Raises:
        The errors of `check` and of `values`. No weight gets values then, and Keras forgets the model.
    """
    # At the end of the scope, Keras makes the values of the weights, one after the other. Both can fail: block and end.
    with forgotten(), keras.StatelessScope(), forgotten():
        model = make()
        for weight in model.weights:
            check(weight)
        for weight in model.weights:
            weight._initializer = lambda shape, dtype, path=weight.path: values(path)
    return model


@contextlib.contextmanager
def forgotten():
    """A context after whose errors Keras has no weights that wait for values: it would draw them, of any size."""
    try:
        yield
    except BaseException:
        global_state.set_global_attribute("uninitialized_variables", [])
        raise


def adam_moments(optimizer, variable):
    """The two moments of a variable.

    Known to work with Keras 3.12 to 3.15.

    Args:
        optimizer: built `keras.optimizers.Adam`.
        variable: one of its variables, or the tf.Variable of it on one replica.

    Returns:
        (m, v), Keras variables.
    """
    index = optimizer._get_variable_index(variable)
    return optimizer._momentums[index], optimizer._velocities[index]


def decays(optimizer, variable):
    """Whether the weight decay of an optimizer is for a variable: `exclude_from_weight_decay` may name it.

    Known to work with Keras 3.12 to 3.15.
    """
    return bool(optimizer.weight_decay) and optimizer._use_weight_decay(variable)


def own_update(optimizer_class):
    """The name of a method with which an optimizer does more than update one variable after the other; else None.

    Known to work with Keras 3.12 to 3.15.
    """
    names = ("apply", "_apply_weight_decay", "_backend_update_step", "_muon_update_step")  # the last: Keras 3.12
    base, own = keras.optimizers.Optimizer, optimizer_class
    return next((name for name in names if getattr(own, name, None) is not getattr(base, name, None)), None)


def layers_in(layer, kind):
    """The layers of a class inside of a layer or a model, each once, a list.

    Known to work with Keras 3.12 to 3.15.
    """
    return [each for each in layer._flatten_layers() if isinstance(each, kind)]


def loop_body(operation):
    """The graph of one step of a loop, of an operation `While` of TensorFlow that is built in Python.

    Known to work with TensorFlow 2.21.
    """
    return operation._body_graph


@contextlib.contextmanager
def without_lasting_gradients():
    """A context after which TensorFlow forgets the gradients of `tf.custom_gradient` that were traced in it.

    It would keep each of them as long as the process lives, and with it the graph, the weights and the moments of a
    training. These graphs cannot be differentiated after the context. Known to work with TensorFlow 2.21.
    """
    registry = sys.modules["tensorflow.python.framework.ops"].gradient_registry
    known = {*registry.list()}
    try:
        yield
    finally:
        for name in {*registry.list()} - known:
            if name.startswith("CustomGradient-"):
                del registry._registry[name]


def lasting(tokenizer):
    """A `SentencepieceTokenizer` of TensorFlow Text that works as long as the process does.

    Its resource dies with TensorFlow's cache of kernels, which `keras.utils.clear_session`, `set_random_seed` and
    `tf.random.set_seed` empty. It gets one that is shared by its name. Known to work with TensorFlow Text 2.21.

    Args:
        tokenizer: `tensorflow_text.SentencepieceTokenizer`, with another name for each model.

    Returns:
        The same.
    """
    own = tokenizer._model_resource
    create = sys.modules[type(own).__module__].gen_sentencepiece_tokenizer.sentencepiece_op

    class Shared(type(own)):
        def _create_resource(self):
            return create(model=self._model, shared_name=self._name)

    tokenizer._model_resource = Shared(own._model, own._name)
    return tokenizer


def unit_patterns(locale, unit):
    """The patterns of a unit of measure, as CLDR has them.

    Known to work with Babel 2.17 and 2.18.

    Args:
        locale: `babel.Locale`.
        unit: str, such as "length-meter".

    Returns:
        dict from "long", "short" and others to a dict from plural to pattern, such as {"one": "{0} meter"}.
    """
    return locale._data["unit_patterns"][unit]
