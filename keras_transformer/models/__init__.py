"""Sequence-to-sequence models: the contract that the house knows, and the models that keep it."""

from keras_transformer.models.ensemble import Ensemble  # noqa: F401  registered, so that a saved one can be read
from keras_transformer.models.recurrent import RecurrentNetwork
from keras_transformer.models.transformer import Transformer

MODELS = (Transformer, RecurrentNetwork)  # each says in `architectures` which values of the setting mean it
