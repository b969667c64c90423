"""Sequence-to-sequence models: the contract that the house knows, and the models that keep it."""
