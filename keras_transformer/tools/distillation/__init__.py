"""Distillation: the translations of a large model, or of several, are the text that a small model learns from."""
