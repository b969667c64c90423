"""Choices among several translations of a text: by the agreement of samples, and by a model of the reverse direction.

Both are plain Python on top of a `TextTranslator`: a run, an ensemble or an export.
"""

from keras_transformer.tools.reranking.agreement import check_choice, minimum_bayes_risk
from keras_transformer.tools.reranking.reverse import check_reverse, rerank

__all__ = ["check_choice", "check_reverse", "minimum_bayes_risk", "rerank"]
