"""Measures the heads of a Transformer: their roles, and how much a translation needs each. A page shows both."""

from keras_transformer.tools.analysis.annotations import read_alignments, read_conllu
from keras_transformer.tools.analysis.gates import attentions_of, silenced
from keras_transformer.tools.analysis.pruning import prune, pruned_curve, to_prune
from keras_transformer.tools.analysis.report import write_report
from keras_transformer.tools.analysis.silencing import curve, least_important, losses
from keras_transformer.tools.analysis.survey import Heads, heads

__all__ = [
    "Heads",
    "attentions_of",
    "curve",
    "heads",
    "least_important",
    "losses",
    "prune",
    "pruned_curve",
    "read_alignments",
    "read_conllu",
    "silenced",
    "to_prune",
    "write_report",
]
