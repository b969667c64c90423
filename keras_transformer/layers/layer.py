"""A layer whose arguments are written down once: in the signature of its `__init__`."""

import inspect
import itertools

import keras


def arguments_of(layer_class):
    """Lists the arguments of a layer or model.

    Args:
        layer_class: a class. Its `__init__` names its arguments, or passes them on to that of its parent.

    Returns:
        list of str, without `self`, `**kwargs` and keyword-only arguments; the arguments of a parent come first.
    """
    ours = itertools.takewhile(lambda parent: not parent.__module__.startswith("keras."), layer_class.__mro__)
    names = []
    for parent in reversed(list(ours)):
        parameters = inspect.signature(vars(parent).get("__init__", object.__init__)).parameters.values()
        named = (p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD and p.name != "self")
        names += [name for name in named if name not in names]
    return names


def check_choice(name, value, choices):
    """Refuses an argument that is none of the choices.

    Raises:
        ValueError: that names the argument, the choices and the value.
    """
    if value not in choices:
        raise ValueError(f"`{name}` must be one of {', '.join(choices)}. Received: {name}={value!r}")


class Layer(keras.layers.Layer):
    """A Keras layer that has one public attribute for each argument; `get_config` returns exactly these."""

    def get_config(self):
        return {**super().get_config(), **{name: getattr(self, name) for name in arguments_of(type(self))}}
