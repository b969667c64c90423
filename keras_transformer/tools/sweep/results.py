"""What the runs of a sweep have reached on the validation set: read from their directories, and compared."""

import csv
import math
import re
import statistics
import struct
from collections import defaultdict
from dataclasses import asdict, dataclass, fields
from datetime import datetime
from functools import partial

from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.util.tensor_util import make_ndarray

from keras_transformer.errors import CheckpointError
from keras_transformer.files import reading, write_whole

MEASURES = {"bleu": "BLEU {:.1f}", "loss": "loss {:.3f}", "perplexity": "perplexity {:.2f}"}  # curves of validation
TITLES = [text.partition(" ")[0] for text in MEASURES.values()]
BETTER = {"bleu": 1, "loss": -1}  # the sign of a measure that is larger when a model is better
_HEADER, _CHECKSUM = struct.calcsize("<QI"), 4  # of a record: its length and the checksum of it; its own checksum
_LINE = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) (\S*) *(.*)")  # of run.log: time, kind, text


@dataclass(frozen=True)
class Result:
    """What a finished run has reached.

    Attributes:
        bleu, loss, perplexity: float, of the validation set after the best epoch. BLEU is that of greedy search.
        epoch: int, the best epoch, counted from 1.
        parameters: int, of the model.
        minutes: float, the time of training, all starts together.
    """

    bleu: float
    loss: float
    perplexity: float
    epoch: int
    parameters: int
    minutes: float


def read_result(path, best_by):
    """The `Result` of a finished run, from its directory: without TensorFlow.

    Args:
        path: pathlib.Path of the run directory.
        best_by: "bleu" or "loss", the measure that tells the best epoch.

    Raises:
        CheckpointError: if the directory has no curves of validation.
        FileError: if a file cannot be read.
    """
    with reading(path):
        curves = read_curves(path / "logs" / "validation")
        parameters, seconds = read_log((path / "run.log").read_text(encoding="utf-8"))
    if not curves["bleu"]:
        raise CheckpointError(f"{path} has no curves of validation in logs: remove it, and the run is trained again")
    updates = sorted(curves["bleu"])
    values = {update: BETTER[best_by] * curves[best_by][update] for update in updates}
    best = max(values, key=lambda update: -math.inf if math.isnan(values[update]) else values[update])
    if values[best] == 0:  # a run keeps the last of such epochs, see `KeepWeights`, and the first of other equals
        best = max(update for update in updates if values[update] == 0)
    measures = {name: curves[name][best] for name in MEASURES}
    return Result(**measures, epoch=updates.index(best) + 1, parameters=parameters, minutes=seconds / 60)


def read_curves(directory):
    """The validation curves of a run, from TensorBoard's event files: {measure: {update: value}}."""
    curves = defaultdict(dict)
    for path in sorted(directory.glob("events.out.tfevents.*")):
        for record in records(path.read_bytes()):
            event = Event.FromString(record)
            for value in event.summary.value:
                if value.tag in MEASURES:
                    curves[value.tag][event.step] = float(make_ndarray(value.tensor))
    return curves


def records(data):
    """Yields the whole records of an event file. A process that was killed leaves a part of one at the end."""
    start = 0
    while start + _HEADER <= len(data):
        length = struct.unpack_from("<Q", data, start)[0]
        end = start + _HEADER + length
        if end > len(data):
            return
        yield data[start + _HEADER : end]
        start = end + _CHECKSUM


def read_log(text):
    """The parameters of the model, and the seconds of training without interruptions, from the text of run.log."""
    parameters, seconds, before = 0, 0.0, None
    for line in filter(None, map(_LINE.match, text.split("\n"))):
        now = datetime.fromisoformat(line[1])
        if before and line[2] != "devices":  # with which every start begins
            seconds += (now - before).total_seconds()
        if line[2] == "model":
            parameters = int(line[3].partition(" ")[0].replace(",", ""))
        before = now
    return parameters, seconds


def shown(name, *values):
    """The values of a measure as text, without its name: "31.2", "31.2 ± 0.3"."""
    return " ± ".join(MEASURES[name].partition(" ")[2].format(value) for value in values)


@dataclass(frozen=True)
class Combination:
    """The runs of one combination of settings, which differ in their seeds only.

    Attributes:
        runs: list of `PlannedRun`.
        results: dict from the names of the finished runs to `Result`.
    """

    runs: list
    results: dict

    def values(self, name):
        """The values of a field of `Result`, a list, one for each finished run."""
        return [getattr(result, name) for result in self.results.values()]

    def mean(self, name):
        """The mean of a field over the finished runs; None if there is none."""
        return statistics.fmean(self.values(name)) if self.results else None

    def spread(self, name):
        """The standard deviation of a field over the finished runs; None if there are fewer than two."""
        return statistics.stdev(self.values(name)) if len(self.results) > 1 else None

    def describe(self, name):
        """A measure for people: "31.2", and of several seeds "31.2 ± 0.3"."""
        return shown(name, *(value for value in (self.mean(name), self.spread(name)) if value is not None))


class Comparison:
    """The finished runs of a sweep, the best ones first.

    Args:
        runs: list of `PlannedRun`.
        results: dict from names of runs to `Result`, of the finished ones.
        best_by: "bleu" or "loss".
    """

    def __init__(self, runs, results, best_by):
        self.runs, self.results, self.best_by = runs, results, best_by
        together = defaultdict(list)
        for run in runs:
            together[run.combination].append(run)
        found = [
            Combination(each, {run.name: results[run.name] for run in each if run.name in results})
            for each in together.values()
        ]
        self.has_seeds = len(runs) > len(found)
        self.combinations = sorted(found, key=lambda each: self._order(each.results, each.mean))

    def _order(self, is_finished, value_of):
        """A key to sort by: the best first, of equal ones that of the least loss, and the unfinished last."""
        measures = (-BETTER[name] * value_of(name) for name in (self.best_by, "loss") if is_finished)
        return (not is_finished, *measures)

    def ranked(self):
        """All runs, the best first: list of (`PlannedRun`, `Result` or None)."""
        rows = [(run, self.results.get(run.name)) for run in self.runs]
        return sorted(rows, key=lambda row: self._order(row[1], partial(getattr, row[1])))

    def best(self):
        """The best `Combination` of those whose runs have all finished; None if there is none."""
        whole = [each for each in self.combinations if len(each.results) == len(each.runs)]
        return whole[0] if whole else None

    def table_of_runs(self):
        """The finished runs, a list of lines."""
        rows = [
            [*run.values.values(), str(run.seed), *(shown(name, getattr(result, name)) for name in MEASURES)]
            + [str(result.epoch), f"{result.parameters:,}", f"{result.minutes:.1f}"]
            for run, result in self.ranked()
            if result
        ]
        return aligned([[*self.runs[0].values, "seed", *TITLES, "epoch", "parameters", "minutes"], *rows])

    def table_of_combinations(self):
        """The combinations with a finished run, their means and their spreads, a list of lines."""
        rows = [
            [*each.runs[0].values.values(), f"{len(each.results)} of {len(each.runs)}", *map(each.describe, MEASURES)]
            + [f"{each.mean('minutes'):.1f}"]
            for each in self.combinations
            if each.results
        ]
        return aligned([[*self.runs[0].values, "seeds", *TITLES, "minutes"], *rows])

    def write(self, path):
        """Writes a file of tab-separated values: a row for each run, finished or not, the best first.

        The last columns have the mean and the standard deviation of the combination.
        """
        columns = [field.name for field in fields(Result)]
        moments = [(moment, name) for name in BETTER for moment in ("mean", "spread")]
        titles = [*self.runs[0].values, "seed", *columns, *(f"{moment}_{name}" for moment, name in moments), "run"]
        rows = []
        combination_of = {run.name: each for each in self.combinations for run in each.runs}
        for run, result in self.ranked():
            numbers = asdict(result) if result else {}
            numbers |= {f"{moment}_{name}": getattr(combination_of[run.name], moment)(name) for moment, name in moments}
            written = {
                name: value if isinstance(value, int) else f"{value:.8g}"
                for name, value in numbers.items()
                if value is not None
            }
            rows.append({**run.values, "seed": run.seed, **written, "run": run.name})

        def write(temporary):
            with open(temporary, "w", encoding="utf-8", newline="") as file:
                writer = csv.DictWriter(file, titles, delimiter="\t", lineterminator="\n")
                writer.writeheader()
                writer.writerows(rows)

        write_whole(path, write)


def aligned(rows):
    """A table of str as a list of lines: the columns are as wide as they need to be."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
