"""A sweep: trains every combination of some settings, and tells which one is best on the validation set."""

import logging
import shlex
import sys
from functools import partial
from pathlib import Path

from keras_transformer.cli import console
from keras_transformer.cli.line_files import reserved
from keras_transformer.cli.parser import Parser
from keras_transformer.cli.train import TRAINING_FLAGS, parse_config
from keras_transformer.data.corpora import open_corpora
from keras_transformer.errors import CheckpointError, ConfigError, UserError, check_positive, counted
from keras_transformer.tools.sweep.grid import CHANGED, plan, read_grid
from keras_transformer.tools.sweep.processes import Trainings
from keras_transformer.tools.sweep.results import MEASURES, Comparison, read_result

log = logging.getLogger(__name__)
DESCRIPTION = """Sweep: train every combination of some settings, and compare the runs on the validation set.

  python -m keras_transformer sweep --output runs/sweep --grid positions sinusoidal rotary \\
      --grid dropout_rate 0.2 0.3 --seeds 1 2 3 --dataset files:DIR --source_lang en --target_lang de --preset tiny
      trains 12 runs: two kinds of positions, two rates, three seeds. All flags that are not listed here are those of
      train.py, and hold for every run. runs/sweep/positions=rotary,dropout_rate=0.2,seed=1 is one of the runs
  python -m keras_transformer sweep ... --dry_run
      lists the runs, and trains nothing
  python -m keras_transformer sweep --output runs/sweep --grid config pre.yaml post.yaml --dataset files:DIR ...
      compares two files of settings, each as train.py reads it with --config: for settings that change together
  tensorboard --logdir runs/sweep
      compares the curves, and shows all settings with their validation BLEU in the tab HParams

The best run has the best validation BLEU of greedy search after any epoch (or the least loss, with --best_by loss of
train.py). No test set decides. After an interruption, the same command goes on: finished runs are skipped. A run that
fails does not end the sweep, and the same command tries it again. New values and new seeds add runs to a sweep."""


def make_parser():
    """The `Parser` of the program, without the flags of train.py."""
    parser = Parser(DESCRIPTION, usage="%(prog)s --output DIR [--grid SETTING VALUE ...] [--SETTING VALUE ...]")
    parser.add_argument(
        "--output", required=True, type=Path, help="directory for the run directories, and for results.tsv"
    )
    parser.add_argument(
        "--grid",
        nargs="+",
        action="append",
        default=[],
        metavar=("SETTING", "VALUE"),
        help="a setting of train.py, and the values to try. Give the flag once for each setting",
    )
    parser.add_argument(
        "--seeds",
        nargs="+",
        type=int,
        default=[],
        metavar="SEED",
        help="train each combination with each of these seeds, and show means and standard deviations",
    )
    parser.add_argument(
        "--processes",
        type=int,
        default=1,
        metavar="N",
        help="train N runs at a time. They share out the cores, and the GPUs that CUDA_VISIBLE_DEVICES names (default: "
        "1)",
    )
    parser.add_argument("--dry_run", action="store_true", help="list the runs, and train nothing")
    return parser


def plan_sweep(arguments, training_flags):
    """The runs that a user asks for, all of them checked: a list of `PlannedRun`.

    Raises:
        UserError: for a combination that is not possible, and for a corpus of files that cannot be opened.
    """
    check_positive(processes=arguments.processes)
    parse = partial(parse_config, description=DESCRIPTION)
    runs = plan(read_grid(arguments.grid), arguments.seeds, training_flags, arguments.output, parse)
    if len({run.config.best_by for run in runs}) > 1:
        raise UserError("all runs are compared by one measure: give `best_by` once, outside of the files of settings")
    if any(run.config.strategy == "multi_worker" for run in runs):
        raise UserError("a sweep trains on one machine. Received: strategy=multi_worker")
    check_corpora([run.config for run in runs])
    return runs


def check_corpora(configs):
    """Raises CorpusError for a corpus that cannot be opened.

    It opens those of files: `cldr:` takes seconds, and `tfds:` may load from a network.
    """
    names = ("corpora", "source_lang", "target_lang", "seed", "skip_bad_lines")
    for corpora, *how in {tuple(getattr(config, name) for name in names) for config in configs}:
        if opened := [corpus for corpus in corpora if corpus.partition(":")[0] not in ("cldr", "tfds")]:
            open_corpora(opened, *how)


def check_directories(runs):
    """Raises ConfigError if the directory of a run holds one with settings that may not change, such as sizes."""
    changed = [run for run in runs if run.state() == CHANGED]
    if not changed:
        return
    console.import_tensorflow()
    from keras_transformer.training.preparation import check_resumable
    from keras_transformer.training.run_directory import RunDirectory

    for run in changed:
        try:
            check_resumable(run.config, RunDirectory(run.path))
        except (CheckpointError, ConfigError) as error:
            raise ConfigError(str(error).replace("`model_dir`", "`output`")) from error


class Sweep:
    """The runs of a sweep on their way, and what the screen says of them.

    Args:
        runs: list of `PlannedRun`.
        output: pathlib.Path of the directory for all runs.
    """

    def __init__(self, runs, output):
        self.runs, self.output = runs, output
        self.best_by = runs[0].config.best_by
        self.by_name = {run.name: run for run in runs}
        self.labels = {run.name: f"[{number}/{len(runs)}]" for number, run in enumerate(runs, start=1)}
        self.results = {run.name: self.read(run) for run in runs if run.state() == "finished"}
        self.failures = {}

    def read(self, run):
        """The `Result` of a finished run."""
        return read_result(run.path, self.best_by)

    def list_runs(self):
        """Says what each run is, and how far it has come."""
        log.info("sweep       %s in %s", counted(len(self.runs), "run"), self.output)
        width = max(map(len, self.labels.values()))
        for run in self.runs:
            log.info("%s %s: %s", self.labels[run.name].rjust(width), run.name, run.state())

    def train(self, processes):
        """Trains the runs that have not finished.

        Args:
            processes: int, runs at a time.
        """
        Trainings(processes, self.on_line, self.on_end).train(
            {run.name: run.flags for run in self.runs if run.name not in self.results}
        )

    def on_line(self, name, line):
        """Says a line that a run prints."""
        log.info("%s %s", self.labels[name], line)

    def on_end(self, name, failure):
        """Says how a run has ended, and compares all runs that have finished."""
        if failure:
            self.failures[name] = failure
            self.on_line(name, f"failed      {name}: {failure}")
            return
        self.results[name] = result = self.read(self.by_name[name])
        best = MEASURES[self.best_by].format(getattr(result, self.best_by))
        self.on_line(name, f"finished    {name}: validation {best}, after epoch {result.epoch}")
        if len(self.results) + len(self.failures) < len(self.runs):  # `end` shows all of them
            self.compare()

    def compare(self):
        """Shows the runs that have finished, writes results.tsv, and returns the `Comparison`."""
        comparison = Comparison(self.runs, self.results, self.best_by)
        comparison.write(self.output / "results.tsv")
        tables = [comparison.table_of_runs()] if self.results else []
        tables += [comparison.table_of_combinations()] if self.results and comparison.has_seeds else []
        for line in [line for table in tables for line in ("", *table)]:
            log.info("%s", line)
        return comparison

    def end(self):
        """Shows all runs, names the best combination, and returns the exit status."""
        comparison = self.compare()
        log.info("")
        for name, failure in self.failures.items():
            log.info("failed      %s: %s", name, failure)
        best = comparison.best()
        if best and len(comparison.combinations) > 1:
            title = MEASURES[self.best_by].partition(" ")[0]
            log.info("best        %s: validation %s %s", best.runs[0].combination, title, best.describe(self.best_by))
            log.info("flags       %s", shlex.join(best.runs[0].chosen))
        log.info("results     %s", self.output / "results.tsv")
        log.info("watch       tensorboard --logdir %s", shlex.quote(str(self.output)))
        return 1 if self.failures else 0


def program():
    """The program, from its command line to its exit status."""
    parser = make_parser()
    with console.program(parser.flags | TRAINING_FLAGS):
        arguments, training_flags = parser.parse_known_args()
        runs = plan_sweep(arguments, training_flags)
        check_directories(runs)
        sweep = Sweep(runs, arguments.output)
        sweep.list_runs()
        if arguments.dry_run:
            estimate = console.command("train", *runs[0].flags, "--dry_run")
            log.info("estimate    of time and memory, by the first run: %s", estimate)
            return
        with reserved(arguments.output, "sweep"):
            sweep.train(arguments.processes)
            status = sweep.end()
        sys.exit(status)
