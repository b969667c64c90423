"""Models that others have trained become runs: translated with, trained further, evaluated and exported as any run.

One module a format: `hugging_face` (MarianMTModel, M2M100ForConditionalGeneration). Each has a table from their names
to ours. `tensors` reads their files, `pieces` writes their vocabularies with our ids, and `run` writes the run.
"""

from keras_transformer.tools.importing.run import import_model

__all__ = ["import_model"]
