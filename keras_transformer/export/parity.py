"""The proof of an export: read back as its engine reads it, it translates real sentences as the run does."""

import time
from dataclasses import dataclass

import numpy as np
import psutil

from keras_transformer.errors import ExportError

PROBES = (
    "A man is riding a bike.",
    "Zwei Hunde spielen im Schnee.",
    "3 March 2026, 14:05",
    "</s> <pad> 100 % \U0001f600",
    "",
    " \t\n",
)


@dataclass(frozen=True)
class Parity:
    """How an export and its run compare.

    Attributes:
        beam_size: int, of both.
        sentences: int, how many both have translated.
        equal: int, how many of them to the same text.
        largest_score_difference: float, among the equal ones.
    """

    beam_size: int
    sentences: int
    equal: int
    largest_score_difference: float


@dataclass(frozen=True)
class Loading:
    """What it takes to serve an export, by one process that has its engine already.

    Attributes:
        seconds: float, until it could translate; a SavedModel has replayed its warm-up by then.
        memory_bytes: int, by how much the process has grown, the first translations included.
    """

    seconds: float
    memory_bytes: int


def prove(export, directory, sentences):
    """Reads an export back, and compares its translations of sentences and probes with those of its run.

    Args:
        export: see `export_version`.
        directory: where it was written to.
        sentences: list of str.

    Returns:
        `Parity`, `Loading`.

    Raises:
        ExportError: if more of the translations differ than the export allows, or a score does.
    """
    sentences = [*PROBES, *sentences]
    resident = psutil.Process().memory_info
    before, started = resident().rss, time.perf_counter()
    with export.opened(directory) as translate:
        seconds = time.perf_counter() - started
        found = translate(sentences)
        loading = Loading(seconds, max(0, resident().rss - before))
    expected = export.reference.translate_batch(sentences)
    return check_parity(export, sentences, expected, found), loading


def check_parity(export, sentences, expected, found):
    """Compares two times what `Translator.translate_batch` returns: by the run, and by the export.

    Returns:
        `Parity`.

    Raises:
        ExportError: as `prove`.
    """
    rows = list(zip(sentences, *expected, *found, strict=True))
    differing = [(sentence, text, other) for sentence, text, _, other, _ in rows if text != other]
    equal = len(rows) - len(differing)
    if equal < export.least_equal * len(rows):
        sentence, text, other = differing[0]
        raise ExportError(
            f"the export translates {sentence!r} to {other!r}, the run directory to {text!r}; they agree on {equal} of "
            f"{len(rows)} sentences, {export.least_equal:.1%} would do"
        )
    differences = [abs(score - other) for _, text, score, other_text, other in rows if text == other_text]
    largest = float(np.max(differences, initial=0))  # of a NaN it is NaN
    if not largest <= export.score_tolerance:
        raise ExportError(
            f"the export scores a translation otherwise than the run directory, by {largest:.2g}; "
            f"{export.score_tolerance:.2g} would do"
        )
    return Parity(export.reference.settings["beam_size"], len(rows), equal, largest)
