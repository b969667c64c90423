"""How a model is trained (section 5): loss, schedule, updates, checkpoints, callbacks, and the run."""
