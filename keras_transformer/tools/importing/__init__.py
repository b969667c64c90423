"""Models that others have trained become runs: translated with, trained further, evaluated and exported as any run.

`hugging_face` has the table from their names of weights to ours. `marian_mt` and `fairseq` know the vocabularies and
settings of two families. `tensors` reads files of weights, `pieces` writes vocabularies with our ids, `foreign` makes
the model, and `run` writes the run.
"""

from keras_transformer.tools.importing.run import import_model

__all__ = ["import_model"]
