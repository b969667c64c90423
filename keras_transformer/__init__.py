"""A Keras 3 / TensorFlow translation toolkit: "Attention Is All You Need", from sentence pairs to a served model.

    import keras_transformer as kt

    run = kt.train(pairs, preset="tiny", model_dir="runs/mine")
    run.translator().translate("one two")

Each name is imported when it is first used: TensorFlow takes seconds.
"""

import importlib

__version__ = "0.2.0"

_HOMES = {
    "Config": "config",
    "Ensemble": "tools.ensemble",
    "RecurrentNetwork": "models.recurrent",
    "Run": "runs",
    "SavedModelTranslator": "tools.saved_models",
    "SequenceToSequence": "models.sequence_to_sequence",
    "Tokenizer": "tokenizer",
    "Transformer": "models.transformer",
    "Translator": "translation.translator",
    "UserError": "errors",
    "analysis": "tools.analysis",
    "compare": "tools.comparison.significance",
    "evaluate": "evaluation",
    "import_model": "tools.importing",
    "layers": "layers",
    "load": "runs",
    "measure": "evaluation",
    "minimum_bayes_risk": "tools.reranking",
    "open_corpus": "data.corpora",
    "perplexity": "tools.comparison.prediction",
    "preset": "config",
    "process": "process",
    "rerank": "tools.reranking",
    "train": "runs",
    "training": "training",
    "translate_document": "tools.documents.files",
}

__all__ = sorted(_HOMES)


def __getattr__(name):
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = importlib.import_module(f"{__name__}.{_HOMES[name]}")
    return home if name == _HOMES[name].rpartition(".")[2] else getattr(home, name)


def __dir__():
    return [*globals(), *__all__]
