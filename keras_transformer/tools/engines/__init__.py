"""Exports for other engines than TensorFlow Serving: CTranslate2, Argos Translate, LiteRT and transformers.

Each has the members that `keras_transformer.export.versions.export_version` names, and is proven like a SavedModel.
`compiled.py` writes a SavedModel whose searches are compiled.
"""

import importlib

from keras_transformer.errors import UserError

INSTALL = "pip install ai-edge-litert"  # for the reader of LiteRT; the exports name the packages that they need
EXPORTS = {"ctranslate2": "CTranslate2Export", "litert": "LiteRTExport", "argos": "ArgosExport"}
EXPORTS |= {"hugging_face": "HuggingFaceExport"}


def export_class(format):
    """The class of the exports of a format.

    Args:
        format: "ctranslate2", "litert", "argos" or "hugging_face".

    Raises:
        UserError: for another format; `ExportError` if the package of the engine is not installed.
    """
    if format not in EXPORTS:
        raise UserError(f"`format` must be one of saved_model, {', '.join(EXPORTS)}. Received: format={format!r}")
    return getattr(importlib.import_module(f"{__name__}.{format}"), EXPORTS[format])
