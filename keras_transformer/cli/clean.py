"""Prepares a corpus: mends its text, and drops the pairs that would teach a model nothing or something wrong."""

import argparse
import dataclasses
import itertools
import logging
from pathlib import Path

from keras_transformer.cli import console
from keras_transformer.cli.line_files import check_files
from keras_transformer.errors import UserError, counted
from keras_transformer.files import check_new_directory
from keras_transformer.process import available_cores

log = logging.getLogger(__name__)
DESCRIPTION = """Prepare a corpus: mend its text, and drop the pairs that would teach nothing or something wrong.

  python -m keras_transformer clean --input files:data/raw --output data/clean
      data/clean has train.LANG (val and test are carried over untouched), dropped.jsonl with the step that drops each
      pair, report.html and clean.json; `train.py --dataset files:data/clean` trains on it
  python -m keras_transformer clean --input files:data/raw --output data/clean --without test.en test.de
      no training sentence repeats a line of these files, exactly or nearly
  python -m keras_transformer clean --input files:data/raw --output data/clean --max_ratio 3 --language_odds 0
      another limit, and a step that is switched off: 0 or false switches any step off
  python -m keras_transformer clean --input files:data/raw --output data/clean --engine beam --runner DirectRunner
      the same result on Apache Beam; flags that are not listed here are those of the runner

The result does not depend on the order of the input, the number of workers or the engine: the order of the output is
that of hashes of the pairs. The steps work in the order of the flags below, and a pair is counted at the first step
that drops it. It needs `pip install py3langid regex`."""


def parse_arguments(words=None):
    """The flags, checked: (arguments, flags for the runner of Beam)."""
    parser = argparse.ArgumentParser(
        description=DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--input", required=True, help="files:DIR, tfds:NAME or cldr:A-B, as --dataset of train.py")
    parser.add_argument("--output", type=Path, required=True, help="new directory")
    parser.add_argument("--source_lang", help="code of the source language (default: found, where there are only two)")
    parser.add_argument("--target_lang", help="code of the target language")
    parser.add_argument(
        "--without", type=Path, nargs="+", default=[], metavar="FILE", help="files of lines that must not be trained on"
    )
    parser.add_argument(
        "--engine",
        choices=("local", "beam"),
        default="local",
        help="local works in processes of this machine; beam needs Apache Beam (default: local)",
    )
    parser.add_argument("--workers", type=int, help="processes of the engine local (default: one for each core)")
    _add_settings(parser)
    arguments, rest = parser.parse_known_args(words)
    if rest and arguments.engine != "beam":
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    if arguments.workers is not None and arguments.engine == "beam":
        raise UserError("--workers is of the engine local: Beam's runners have flags of their own")
    if arguments.workers is not None and arguments.workers < 1:
        raise UserError(f"--workers must be at least 1. Received: {arguments.workers}")
    if arguments.without and not arguments.near_held_out:
        raise UserError("--without does nothing with --near_held_out 0: leave one out")
    for path in arguments.without:
        check_files(path, None)
    check_new_directory(arguments.output)
    return arguments, rest


def _add_settings(parser):
    from keras_transformer.tools.cleaning.settings import HELP, CleaningSettings

    steps = parser.add_argument_group("steps", "0 or false switches a step off")
    for field in dataclasses.fields(CleaningSettings):
        described = f"{HELP[field.name]} (default: {str(field.default).lower()})"
        if field.type is bool:
            steps.add_argument(
                f"--{field.name}", choices=("true", "false"), default=str(field.default).lower(), help=described
            )
        else:
            steps.add_argument(f"--{field.name}", type=field.type, default=field.default, help=described)


def settings_of(arguments):
    """The `CleaningSettings` of parsed flags. Raises UserError for a number out of its range."""
    from keras_transformer.tools.cleaning.settings import CleaningSettings

    values = {field.name: getattr(arguments, field.name) for field in dataclasses.fields(CleaningSettings)}
    switches = {"true": True, "false": False}
    return CleaningSettings(**{name: switches.get(value, value) for name, value in values.items()})


def open_input(arguments):
    """The corpus to prepare. Two languages in a directory need no flags: the first of the alphabet is the source."""
    from keras_transformer.data.corpora import open_corpus
    from keras_transformer.data.text_files import languages_in

    if arguments.input.startswith("tfds:"):
        console.import_tensorflow()
    languages = (arguments.source_lang, arguments.target_lang)
    if arguments.input.startswith("files:") and languages == (None, None):
        found = languages_in(arguments.input.removeprefix("files:"))
        languages = tuple(found) if len(found) == 2 else languages
    return open_corpus(arguments.input, *languages)


def main(arguments, runner_flags):
    """Prepares."""
    from keras_transformer.data.text_files import lines_of
    from keras_transformer.tools.cleaning.examination import Examiner
    from keras_transformer.tools.cleaning.output import write_clean_corpus

    settings, corpus = settings_of(arguments), open_input(arguments)
    for note in corpus.notes:
        if not note.startswith("no validation split"):  # held-out pairs are prepared with all others
            log.info(note)
    held_out = itertools.chain.from_iterable(map(lines_of, arguments.without))
    examiner = Examiner(settings, corpus.source_lang, corpus.target_lang, held_out)
    pairs = itertools.chain(corpus.train, corpus.validation if corpus.held_out else ())
    names = [str(path) for path in arguments.without]
    about = write_clean_corpus(
        arguments.output, corpus, settings, names, engine(arguments, runner_flags, pairs, examiner)
    )
    print("\n".join(summarise(arguments, about)))


def engine(arguments, runner_flags, pairs, examiner):
    """The function that decides about all pairs, in a directory for its work."""
    if arguments.engine == "beam":
        logging.getLogger().addHandler(logging.NullHandler())  # Beam says a lot, and workers that fail raise anyway
        clean_on_beam = console.tool("beam.cleaning", "--engine beam").clean_on_beam
        return lambda scratch: clean_on_beam(pairs, examiner, scratch, runner_flags)
    from keras_transformer.tools.cleaning.processes import clean_in_processes

    workers = arguments.workers or available_cores()
    return lambda scratch: clean_in_processes(pairs, examiner, workers, scratch)


def summarise(arguments, about):
    """The lines that the program ends with: the counts, and where the report is."""
    pairs, dropped = about["pairs"], about["dropped"]
    lines = [f"{step:16} {count:>12,}" for step, count in dropped.items() if count]
    lines.append(f"{'mended':16} {pairs['mended']:>12,}")
    lines.append(f"{'kept':16} {pairs['kept']:>12,} of {counted(pairs['read'], 'pair')}")
    return [*lines, f"report           {arguments.output / 'report.html'}"]


def program():
    """The program, from its command line to its exit status."""
    with console.program():
        main(*parse_arguments())
