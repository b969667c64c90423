"""How a Transformer is trained: loss, schedule, metrics, checkpoints, what is watched, and the loop (section 5)."""
