"""What a run directory and an exported SavedModel share: lists of strings in, lists of results out."""

import math
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from keras_transformer.batches import check_positive, run_sorted
from keras_transformer.signatures import INPUTS

# What an option is where it is not given; see `Signatures.translate_with_options`.
NOT_GIVEN = {
    "prefix": "",
    "length_penalty": math.nan,
    "beam_size": 0,
    "max_length": 0,
    "repetition_penalty": 1.0,
    "no_repeat_ngram": 0,
}


class Translation(NamedTuple):
    """Of one text.

    Args:
        text: str.
        score: float, its log-probability over its length penalty; 0 for blank text.
    """

    text: str
    score: float


class Score(NamedTuple):
    """How likely the translation of one text is.

    Args:
        score: float, as in `Translation`.
        pieces: list of T str, its pieces, "</s>" at the end of each part.
        token_scores: float32 (T,), the log-probability of each.
    """

    score: float
    pieces: list
    token_scores: np.ndarray


class Explanation(NamedTuple):
    """Where the translation of one text comes from.

    Args:
        source_pieces: list of S str.
        pieces: list of T str, as in `Score`.
        token_scores: float32 (T,), as in `Score`.
        alignment: float32 (T, S), see `Signatures.explain`.
    """

    source_pieces: list
    pieces: list
    token_scores: np.ndarray
    alignment: np.ndarray


class TextTranslator:
    """What `Translator` and `SavedModelTranslator` share: all but where the signatures are.

    Texts are sorted by length on the way, so that little is padded. `on_progress` is called with the number of texts
    done since the last call. An option is one value for all texts, or a list with one for each.

    Args:
        batch_size: texts translated at a time.
    """

    def __init__(self, batch_size):
        check_positive(batch_size=batch_size)
        self.batch_size = batch_size

    def translate(self, texts, on_progress=None, **options):
        """Translates any number of texts.

        Args:
            texts: list of str.
            on_progress: see above.
            options: `prefix`, `length_penalty`, `beam_size`, `max_length`, `repetition_penalty`, `no_repeat_ngram`; see
                `Signatures.translate_with_options`.

        Returns:
            list of str, in the order of `texts`.
        """
        return [translation.text for translation in self.translate_scored(texts, on_progress, **options)]

    def translate_scored(self, texts, on_progress=None, **options):
        """As `translate`, with scores: list of `Translation`."""
        if options:
            rows = self.ask("translate_with_options", on_progress, text=texts, **{**NOT_GIVEN, **options})
        else:
            rows = self.ask("translate", on_progress, text=texts)
        return [_translation(row) for row in rows]

    def alternatives(self, texts, on_progress=None):
        """The best translations of every text, as many as the beam is wide: list of list of `Translation`."""
        rows = self.ask("alternatives", on_progress, text=texts)
        return [
            [_translation({"translation": text, "score": score}) for text, score in zip(*row.values(), strict=True)]
            for row in ({name: row[name] for name in ("translations", "scores")} for row in rows)
        ]

    def sample(self, texts, on_progress=None, temperature=1.0, top_k=0, top_p=1.0, seed=0):
        """Translations drawn at random, list of `Translation`; see `Signatures.sample`."""
        options = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "seed": seed}
        return [_translation(row) for row in self.ask("sample", on_progress, text=texts, **options)]

    def score(self, texts, translations, on_progress=None):
        """How likely given translations are: list of `Score`; see `Signatures.score`.

        Args:
            texts: list of str.
            translations: list of str, one for each text.
            on_progress: see above.

        Raises:
            ValueError: if there are more of the ones than of the others.
        """
        rows = self.ask("score", on_progress, text=texts, translation=list(translations))
        return [
            Score(float(row["score"]), pieces, row["token_scores"][: len(pieces)])
            for row, pieces in ((row, _unpadded(row["pieces"])) for row in rows)
        ]

    def explain(self, texts, on_progress=None):
        """The best translations, and where they come from: list of `Explanation`; see `Signatures.explain`."""
        explanations = []
        for row in self.ask("explain", on_progress, text=texts):
            source_pieces, pieces = _unpadded(row["source_pieces"]), _unpadded(row["pieces"])
            alignment = row["alignment"][: len(pieces), : len(source_pieces)]
            explanations.append(Explanation(source_pieces, pieces, row["token_scores"][: len(pieces)], alignment))
        return explanations

    def translate_batch(self, texts):
        """Translates one batch, a list of str: (list of str, list of float scores)."""
        rows = self._ask_batch("translate", {"text": texts})
        return [row["translation"].decode("utf-8") for row in rows], [float(row["score"]) for row in rows]

    def ask(self, signature, on_progress=None, **inputs):
        """Puts any number of texts through a signature.

        Args:
            signature: its name, of `INPUTS`.
            on_progress: see above.
            inputs: name -> list with a value for every text, or one value for all.

        Returns:
            list of dict: output name -> the text's part of it, a NumPy value.

        Raises:
            ValueError: if there is no such signature or input, or not a value for every text.
        """
        check_inputs(signature, inputs)
        number = len(inputs["text"])
        columns = [x if isinstance(x, (list, tuple)) else [x] * number for x in inputs.values()]
        rows = list(zip(*columns, strict=True))

        def ask_batch(rows):
            return self._ask_batch(signature, dict(zip(inputs, zip(*rows, strict=True), strict=True)))

        return run_sorted(ask_batch, rows, self.batch_size, on_progress, size=_size)

    def _ask_batch(self, signature, inputs):
        tensors = {
            name: tf.constant(list(inputs[name]), dtype, shape=[len(inputs[name])])
            for name, dtype in INPUTS[signature].items()
        }
        outputs = {name: output.numpy() for name, output in self._call(signature, tensors).items()}
        return [dict(zip(outputs, row, strict=True)) for row in zip(*outputs.values(), strict=True)]


def check_inputs(signature, inputs):
    """Raises ValueError if there is no such signature, or it has other inputs, or not one value for every text."""
    if signature not in INPUTS:
        raise ValueError(f"there is no signature `{signature}`, only {', '.join(INPUTS)}")
    if unknown := inputs.keys() ^ INPUTS[signature].keys():
        raise ValueError(f"`{signature}` takes {', '.join(INPUTS[signature])}. Not so: {', '.join(sorted(unknown))}")
    number = len(inputs["text"])
    for name, values in inputs.items():
        if isinstance(values, (list, tuple)) and len(values) != number:
            raise ValueError(f"`{name}` must have one value for every text. Received: {len(values)}, of {number} texts")


def _translation(row):
    return Translation(row["translation"].decode("utf-8"), float(row["score"]))


def _unpadded(pieces):
    return [piece.decode("utf-8") for piece in pieces if piece]


def _size(row):
    return sum(len(value) for value in row if isinstance(value, str))
