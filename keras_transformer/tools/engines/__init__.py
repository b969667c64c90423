"""Exports for other engines than TensorFlow Serving: CTranslate2, Argos Translate, LiteRT and transformers.

Each has the members that `keras_transformer.export.versions.export_version` names, and is proven like a SavedModel.
`compiled.py` writes a SavedModel whose searches are compiled.
"""

import importlib
from typing import NamedTuple

from keras_transformer.errors import UserError

INSTALL = "pip install ai-edge-litert"  # for the reader of LiteRT; the exports name the packages that they need
WHOLE = {"split_sentences": "it translates each text at once", "shortlist": "it uses all pieces"}
SEARCH = ("beam_size", "length_penalty")


class Format(NamedTuple):
    """A format of exports.

    Args:
        export: str, the name of its class, in the module of its own name.
        precisions: tuple of str, the dtypes that its weights may have.
        lacks: dict, from each setting of a search that it cannot have to why.
    """

    export: str
    precisions: tuple
    lacks: dict


EXPORTS = {
    "ctranslate2": Format(
        "CTranslate2Export",
        ("float32", "bfloat16", "int16", "int8"),
        WHOLE | dict.fromkeys(SEARCH, "it is given with each translation"),
    ),
    "litert": Format("LiteRTExport", ("float32", "int8"), {}),
    "argos": Format(
        "ArgosExport",
        ("float32", "bfloat16", "int16", "int8"),
        WHOLE | dict.fromkeys(SEARCH, "Argos Translate has a search of its own"),
    ),
    "hugging_face": Format("HuggingFaceExport", ("float32",), WHOLE),
}


def check_format(format, precision="float32", **settings):
    """Checks what an export is asked for.

    Args:
        format: "ctranslate2", "litert", "argos" or "hugging_face".
        precision: dtype of the weights.
        settings: of the search; None for each that is not asked for.

    Raises:
        UserError: for another format, and for a precision or a setting that it does not have.
    """
    if format not in EXPORTS:
        raise UserError(f"`format` must be one of saved_model, {', '.join(EXPORTS)}. Received: format={format!r}")
    _, precisions, lacks = EXPORTS[format]
    if precision not in precisions:
        raise UserError(f"the weights of {format} must be {' or '.join(precisions)}. Received: {precision}")
    for name, value in settings.items():
        if value is not None and name in lacks:
            raise UserError(f"`{name}` has no effect with `format` {format}: {lacks[name]}")


def export_class(format, precision="float32", **settings):
    """The class of the exports of a format. Arguments are those of `check_format`.

    Raises:
        UserError: as `check_format`; `ExportError` if the package of the engine is not installed.
    """
    check_format(format, precision, **settings)
    return getattr(importlib.import_module(f"{__name__}.{format}"), EXPORTS[format].export)
