"""Searches for the best target sequence: pure functions over a step function, which is all they know of the model."""
