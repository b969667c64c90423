"""The boxes of Figure 1 of "Attention Is All You Need" (Vaswani et al. 2017).

One module a section: `stacks` (3.1, 3.3), `attention` (3.2), `embedding` (3.4, 3.5).
`kernels` holds everything that is shaped for the kernels of one CPU. The layers use `keras.ops` only, so that the same
weights run on every Keras backend.
"""
