"""The boxes of Figure 1 of "Attention Is All You Need" (Vaswani et al. 2017), one module each.

Only `keras.ops`, so that the same weights run on every Keras backend.
"""
