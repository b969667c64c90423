"""The proof of an export: its engine loads the export and translates real sentences as the run does."""

import time
from dataclasses import dataclass

import numpy as np
import psutil

from keras_transformer.errors import ExportError, counted

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
    """The comparison of an export with its run.

    Attributes:
        beam_size: int, the beam size of both.
        sentences: int, the number of sentences that both translated.
        equal: int, the number of sentences with the same translation.
        largest_score_difference: float, the largest difference of two scores of the same translation.
    """

    beam_size: int
    sentences: int
    equal: int
    largest_score_difference: float


@dataclass(frozen=True)
class Loading:
    """The time and the memory that a process with a running engine needs to load an export.

    Attributes:
        seconds: float, the time to load. For a SavedModel, the time includes the warm-up.
        memory_bytes: int, the growth of the process after loading and the first translations.
    """

    seconds: float
    memory_bytes: int


def prove(export, directory, sentences):
    """Loads an export, and compares its translations with the translations of its run.

    Args:
        export: see `export_version`.
        directory: the directory of the export.
        sentences: list of str to translate, besides `PROBES`.

    Returns:
        `Parity`, `Loading`.

    Raises:
        ExportError: if more translations differ than the export allows, or if a score differs too much.
    """
    sentences = [*PROBES, *getattr(export, "probes", ()), *sentences]
    before, started = resident(), time.perf_counter()
    with export.opened(directory) as translate:
        seconds = time.perf_counter() - started
        found = translate(sentences)
        loading = Loading(seconds, max(0, resident() - before))
    rows = list(zip(sentences, *export.expected(sentences), *found, strict=True))
    differing = [(sentence, text, other) for sentence, text, _, other, _ in rows if text != other]
    equal = len(rows) - len(differing)
    if equal < export.least_equal * len(rows):
        sentence, text, other = differing[0]
        raise ExportError(
            f"the export translates {sentence!r} to {other!r}, the run directory to {text!r}; they agree on {equal} of "
            f"{counted(len(rows), 'sentence')} ({export.least_equal:.1%} would do): {export.advice}"
        )
    differences = [abs(score - other) for _, text, score, other_text, other in rows if text == other_text]
    largest = float(np.max(differences, initial=0))  # NaN if one difference is NaN.
    if not largest <= export.score_tolerance:
        raise ExportError(
            f"the export scores a translation otherwise than the run directory: the scores differ by {largest:.2g}, "
            f"more than {export.score_tolerance:.2g}: {export.advice}"
        )
    return Parity(export.reference.settings["beam_size"], len(rows), equal, largest), loading


def resident():
    """The bytes of memory of this process and of those that it has started: an engine may have a process of its own."""
    this = psutil.Process()
    return sum(process.memory_info().rss for process in (this, *this.children(recursive=True)))
