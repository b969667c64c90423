"""Searches for a target sequence: pure functions of a step function, which is all that they know of a model."""
