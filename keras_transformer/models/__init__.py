"""Sequence-to-sequence models: the contract that the house knows, and the models that keep it."""

from keras_transformer.models.recurrent import RecurrentNetwork
from keras_transformer.models.transformer import Transformer

MODELS = (Transformer, RecurrentNetwork)
"""The models that the setting `architecture` may name, each by its `architectures`."""
