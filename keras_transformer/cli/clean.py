"""Prepares a corpus: mends its text, and drops the pairs that would teach a model nothing or something wrong."""

import dataclasses
import itertools
import logging
from pathlib import Path

from keras_transformer.cli import console
from keras_transformer.cli.line_files import check_files
from keras_transformer.cli.parser import Parser
from keras_transformer.data.corpora import kind_of, open_corpus
from keras_transformer.errors import UserError, counted
from keras_transformer.process import available_cores, find_tool
from keras_transformer.tools import check_new_directory
from keras_transformer.tools.lines import refuse_pipe

log = logging.getLogger(__name__)
DESCRIPTION = """Prepare a corpus: mend its text, and drop pairs that are useless or harmful for training.

  python -m keras_transformer clean --input files:data/raw --output data/clean
      writes data/clean/train.LANG; `train.py --dataset files:data/clean@en-de` trains on it. dropped.jsonl has the
      dropped pairs, each with its step. report.html and clean.json have the counts. val and test are copied unchanged
  python -m keras_transformer clean --input files:data/raw --output data/clean --without test.en test.de
      also drops training sentences that are equal or similar to a line of these files
  python -m keras_transformer clean --input files:data/raw --output data/clean --max_ratio 3 --language_odds 0
      changes the limit of a step, and turns another step off
  python -m keras_transformer clean --input files:data/raw --output data/clean --engine beam --runner DirectRunner
      gives the same result with Apache Beam. All flags that are not listed here go to Beam

The result does not depend on the order of the input, the number of workers or the engine. The pairs of the output are
in the order of their hashes. The steps run in the order of the flags below, and a pair counts for the first step that
drops it. The program needs `pip install py3langid`."""


def make_parser():
    """The `Parser` of the program."""
    parser = Parser(DESCRIPTION)
    parser.add_argument("--input", required=True, help="corpus: files:DIR, tfds:NAME or cldr:A-B, as for train.py")
    parser.add_argument("--output", type=Path, required=True, help="new directory for the corpus")
    parser.add_argument(
        "--source_lang", help="code of the source language (default: the first in the alphabet, if there are only two)"
    )
    parser.add_argument("--target_lang", help="code of the target language")
    parser.add_argument(
        "--skip_bad_lines",
        action="store_true",
        help="leave out the lines of a corpus files:DIR that are no pair, and list them in bad_lines.jsonl",
    )
    parser.add_argument(
        "--hold_out",
        action="store_true",
        help="if the corpus has no validation set, take one from its training text, as train.py does, and write it to "
        "val.LANG (default: the next program holds out pairs)",
    )
    parser.add_argument(
        "--without",
        type=Path,
        nargs="+",
        default=[],
        metavar="FILE",
        help="files of sentences that must not be in the training text",
    )
    parser.add_argument(
        "--engine",
        choices=("local", "beam"),
        default="local",
        help="local: processes of this machine do the work. beam: Apache Beam does, which must be installed (default: "
        "local)",
    )
    parser.add_argument("--workers", type=int, help="only with --engine local: processes (default: one for each core)")
    _add_settings(parser)
    return parser


def parse_arguments(parser, words=None):
    """The flags, checked: (arguments, flags for the runner of Beam). Raises UserError."""
    arguments, rest = parser.parse_known_args(words)
    if rest and arguments.engine != "beam":
        parser.refuse(rest)
    if arguments.workers is not None and arguments.engine == "beam":
        raise UserError("--workers needs --engine local: the runners of Beam have their own flags")
    if arguments.workers is not None and arguments.workers < 1:
        raise UserError(f"--workers must be at least 1. Received: {arguments.workers}")
    if arguments.without and not arguments.near_held_out:
        raise UserError("--without has no effect with --near_held_out 0: leave one out")
    kind = kind_of(arguments.input)
    if arguments.skip_bad_lines and not (kind and kind.has_lines):
        raise UserError("--skip_bad_lines needs a corpus files:DIR: leave it out")
    for path in arguments.without:
        check_files(path, None)
        refuse_pipe(path)
    check_new_directory(arguments.output)
    return arguments, rest


def _add_settings(parser):
    from keras_transformer.tools.cleaning.settings import HELP, CleaningSettings

    steps = parser.add_argument_group("steps", "0 or false turns a step off.")
    for field in dataclasses.fields(CleaningSettings):
        described = f"{HELP[field.name]} (default: {str(field.default).lower()})"
        if field.type is bool:
            steps.add_argument(
                f"--{field.name}", type=bool, metavar="{true,false}", default=field.default, help=described
            )
        else:
            steps.add_argument(f"--{field.name}", type=field.type, default=field.default, help=described)


def settings_of(arguments):
    """The `CleaningSettings` of parsed flags. Raises UserError for a number out of its range."""
    from keras_transformer.tools.cleaning.settings import CleaningSettings

    return CleaningSettings(
        **{field.name: getattr(arguments, field.name) for field in dataclasses.fields(CleaningSettings)}
    )


def open_input(arguments):
    """The corpus to prepare. Two languages in a directory need no flags: the first of the alphabet is the source."""
    from keras_transformer.data.corpora import split_pair
    from keras_transformer.data.text_files import languages_in

    if (kind := kind_of(arguments.input)) and kind.starts_tensorflow:
        console.import_tensorflow()
    languages = (arguments.source_lang, arguments.target_lang)
    if arguments.input.startswith("files:") and languages == (None, None) and not split_pair(arguments.input)[1]:
        found = languages_in(arguments.input.removeprefix("files:"))
        languages = tuple(found) if len(found) == 2 else languages
    corpus = open_corpus(arguments.input, *languages, skip_bad_lines=arguments.skip_bad_lines)
    return dataclasses.replace(corpus, held_out=False) if arguments.hold_out else corpus


def main(arguments, runner_flags):
    """Prepares."""
    from keras_transformer.data.text_files import lines_of
    from keras_transformer.tools.cleaning.examination import Examiner
    from keras_transformer.tools.cleaning.output import write_clean_corpus
    from keras_transformer.tools.cleaning.rules import usual_ratio

    settings, corpus = settings_of(arguments), open_input(arguments)
    for note in corpus.notes:
        if not corpus.held_out or not note.startswith("no validation split"):  # without --hold_out, all are prepared
            log.info(note)
    held_out = itertools.chain.from_iterable(map(lines_of, arguments.without))
    pairs = corpus.train.pairs if corpus.held_out else corpus.train
    usual = usual_ratio(pairs) if settings.max_ratio else 1.0
    examiner = Examiner(settings, corpus.source_lang, corpus.target_lang, held_out, usual)
    names = [str(path) for path in arguments.without]
    about = write_clean_corpus(
        arguments.output, corpus, settings, names, engine(arguments, runner_flags, pairs, examiner)
    )
    print("\n".join(summarise(arguments, about)))


def engine(arguments, runner_flags, pairs, examiner):
    """The function that decides about all pairs, in a directory for its work."""
    if arguments.engine == "beam":
        logging.getLogger().addHandler(logging.NullHandler())  # Beam says a lot, and workers that fail raise anyway
        clean_on_beam = find_tool("beam.cleaning", "--engine beam").clean_on_beam
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
    parser = make_parser()
    with console.program(parser.flags):
        main(*parse_arguments(parser))
