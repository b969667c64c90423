"""A trained run as a model for LiteRT: for phones and small computers, and wherever TensorFlow is too large."""

import contextlib
import functools
import itertools
import json
import logging
import re
import shutil
import tempfile
import unicodedata
from pathlib import Path

import numpy as np
import regex
import tensorflow as tf

from keras_transformer.config import BOS_ID, EOS_ID, PAD_ID, UNK_ID
from keras_transformer.errors import ExportError
from keras_transformer.export.parity import PROBES
from keras_transformer.languages import spellings_of
from keras_transformer.tokenizer import save_tokenizers
from keras_transformer.translation import segments, sentences
from keras_transformer.translation.directions import CODE, WRITTEN_TAG, default_tags

try:
    from keras_transformer.tools.engines import translate_litert as reader
except ImportError as error:
    raise ExportError("LiteRT is not installed: pip install ai-edge-litert") from error

MISSING = re.compile(r"'(tf\.\w+)' op is neither a custom op nor a flex op")
LAST_CODE_POINT, UNASSIGNED = 0x10FFFF, "Cn"  # RE2 knows no unassigned characters
# The parts of a pattern of RE2, the engine of TensorFlow, that Python writes in another way.
BRACKETS = re.compile(r"\[(?:\\.|[^\]\\])*\]")
PROPERTY = re.compile(r"\\p(?:\{(\w+)\}|(\w))")


class LiteRTExport:
    """An export for LiteRT: encoder and search in one file, beside it the tokenizers and a reader in Python.

    Of a model of many languages, it has one direction: the default of the translator.

    Args:
        translator: `Translator` of the run.
        quantization: "float32", or "int8" for the matrices; activations are then quantised while they are computed.
        shortlist: dict for the manifest: the changes by the translator's shortlist. None if it has no shortlist.
    """

    libraries = ("ai-edge-litert",)

    def __init__(self, translator, quantization="float32", shortlist=None):
        self.reference = translator
        self.quantization = quantization
        self.shortlist = shortlist
        # Of 1,014 captions with a beam of 4, int8 changed a tenth, at the same BLEU. Long sentences change more often.
        self.least_equal, self.score_tolerance = (0.995, 1e-2) if quantization == "float32" else (0.5, np.inf)
        self.advice = "export a SavedModel" if quantization == "float32" else "choose `quantization` float32"

    def write(self, directory):
        """Writes the model, its tokenizers, its settings and its reader into an empty directory."""
        directory, run = Path(directory), self.reference
        (directory / reader.MODEL).write_bytes(convert(run.signatures, self.quantization, run.tags))
        save_tokenizers(directory, run.source_tokenizer, run.target_tokenizer)
        settings = json.dumps(reader_settings(run), indent=1)
        (directory / reader.SETTINGS).write_text(settings + "\n", encoding="utf-8")
        shutil.copyfile(reader.__file__, directory / reader.READER)

    @property
    def probes(self):
        """Texts for the proof that every other export does not need: one that begins with the tag of its direction."""
        return [f">>{code}<< {PROBES[0]}" for code in codes_of_tag(self.reference)[:1]]

    @contextlib.contextmanager
    def opened(self, directory):
        """A context with the `translate_batch` of the export."""
        yield reader.LiteRTTranslator(directory).translate_batch

    def expected(self, sentences):
        """The translations and the scores of the run."""
        return self.reference.translate_batch(sentences)

    def describe(self, directory):
        """The entries of the manifest for this format, a dict."""
        facts = {"format": "litert", "weights": self.quantization, "search": self.reference.settings}
        return {**facts, **({"shortlist": self.shortlist} if self.shortlist else {})}


class SearchModule(tf.Module):
    """The weights of a model, its shortlist, and the function `search` that becomes the signature of the LiteRT model.

    Args:
        signatures: `Signatures` of the run.
        tags: `LanguageTags` of a model of many languages, which searches in their default direction; or None.
    """

    def __init__(self, signatures, tags=None):
        super().__init__(name="search")
        self._signatures, self._tags = signatures, tags
        self.variables_ = [variable.value for variable in signatures.model.weights]
        self.shortlist = signatures.shortlist

    @tf.function(autograph=False, input_signature=[tf.TensorSpec([1, None], tf.int32, "ids")])
    def search(self, ids):
        """Finds the best translation of one part.

        Args:
            ids: int32 (1, S), the pieces of the part.

        Returns:
            {"ids": int32 (T,), the pieces of the translation, with eos where it was reached, "score": float32 ()}.
        """
        tags = default_tags(self._tags, 1)
        limits = tf.shape(ids)[1:] + self._signatures.extra_length
        found = self._signatures.find(ids, limits, 1, tags)
        return {"ids": found.ids[0, 0, : found.lengths[0, 0]], "score": found.scores[0, 0]}


def convert(signatures, quantization, tags=None):
    """The LiteRT model of a search, bytes. It has operations of LiteRT alone, none of TensorFlow.

    Args:
        signatures: `Signatures` of the run.
        quantization: see `LiteRTExport`.
        tags: see `SearchModule`.

    Raises:
        ExportError: if the model needs an operation that LiteRT does not have.
    """
    module = SearchModule(signatures, tags)
    with tempfile.TemporaryDirectory() as directory:
        options = tf.saved_model.SaveOptions(experimental_custom_gradients=False)
        tf.saved_model.save(module, directory, module.search.get_concrete_function(), options)
        logging.getLogger("absl").setLevel(logging.ERROR)  # `save` resets it; the converter warns of missing gradients
        converter = tf.lite.TFLiteConverter.from_saved_model(directory)
        converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS]
        converter.optimizations = [tf.lite.Optimize.DEFAULT] if quantization == "int8" else []
        try:
            return converter.convert()
        except Exception as error:
            missing = sorted(set(MISSING.findall(str(error))))
            if not missing:
                raise
            name = type(signatures.model).__name__
            raise ExportError(
                f"LiteRT has no {', '.join(missing)}, which this {name} needs: export a SavedModel"
            ) from error


def reader_settings(translator):
    """The arguments of `translate_litert.Rules`, a dict."""
    settings = translator.settings
    division = translator.signatures.division
    codes = "|".join(re.escape(code).replace(r"\-", "[_-]") for code in codes_of_tag(translator))
    tag = [(WRITTEN_TAG.replace(CODE, f"(?i:{codes})"), r"\1")] if codes else []
    divide = (*tag, sentences.RESERVED, *division.breaks)
    rules = {"divide": divide, "unread": division.respelled, "join": segments.JOINTS}
    return {
        "beam_size": settings["beam_size"],
        "length_penalty": settings["length_penalty"],
        "max_length": settings["max_length"],
        "last_control_id": max(PAD_ID, UNK_ID, BOS_ID, EOS_ID),
        "blank": as_python(sentences.BLANK),
        "copied": as_python(division.copied),
        "no_space": sentences.NO_SPACE,
        "border": sentences.BORDER,
        **{name: [(as_python(pattern), new) for pattern, new in pairs] for name, pairs in rules.items()},
    }


def codes_of_tag(translator):
    """The spellings of the target language in a tag that a text may begin with, as `Directions` and `OwnTag` read it.

    Args:
        translator: `Translator`.

    Returns:
        list of str in small letters; [] for a model without tags.
    """
    tags = translator.tags
    targets = tags.targets if tags else getattr(translator.signatures.reader, "targets", {})
    own = tags.default[1] if tags else next(iter(targets), None)
    return [form for form, code in spellings_of(targets).items() if code == own]


def as_python(pattern):
    """A pattern of RE2 as Python's `re` reads it, which knows no properties of Unicode."""
    pattern = re.sub(r"\\x\{(\w+)\}", lambda match: _escaped(int(match[1], 16)), pattern).replace(r"\z", r"\Z")
    pattern = BRACKETS.sub(lambda match: PROPERTY.sub(lambda name: ranges_of(name[1] or name[2]), match[0]), pattern)
    return PROPERTY.sub(lambda match: f"[{ranges_of(match[1] or match[2])}]", pattern)


def _escaped(point):
    return rf"\u{point:04x}" if point < 1 << 16 else rf"\U{point:08x}"


@functools.cache
def ranges_of(name):
    """The ranges of all characters of a category ("Lu", "P") or a script ("Thai"), for a class of characters."""
    if len(name) > 2:
        runs = [run.span() for run in regex.finditer(rf"\p{{Script={name}}}+", _characters())]
    else:
        known = (run for run in runs_of_categories() if run[0] != UNASSIGNED)
        runs = [span for category, *span in known if category.startswith(name)]
    return "".join(f"{_escaped(start)}-{_escaped(stop - 1)}" for start, stop in runs)


@functools.cache
def runs_of_categories():
    """All code points as runs of one category: a list of (category, start, stop).

    The categories are those of Python, whose version of Unicode is about as old as that of RE2.
    """
    runs = [(category, len(list(run))) for category, run in itertools.groupby(map(unicodedata.category, _characters()))]
    starts = itertools.accumulate((length for _, length in runs), initial=0)
    return [(category, start, start + length) for (category, length), start in zip(runs, starts, strict=False)]


@functools.cache
def _characters():
    return "".join(map(chr, range(LAST_CODE_POINT + 1)))
