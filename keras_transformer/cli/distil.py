"""Distillation: one model, or several together, translate the training text that a smaller model then learns from."""

import functools
import logging
from pathlib import Path

from keras_transformer.cli import console
from keras_transformer.cli.bulk import add_engine_argument, beam_options, load_between, translate_one
from keras_transformer.cli.flags import (
    add_batch_size_argument,
    add_checkpoint_argument,
    add_search_arguments,
    check_ranges,
    check_width,
)
from keras_transformer.cli.line_files import file_state, keep_record, write_lines
from keras_transformer.cli.parser import Parser
from keras_transformer.data.corpora import open_corpus
from keras_transformer.errors import UserError
from keras_transformer.tools.distillation.pairs import RECORD, Teaching, name_of_texts, texts_of

log = logging.getLogger(__name__)
DESCRIPTION = """Distil: a teacher translates the training text of a corpus, and a smaller model learns from it.

  python -m keras_transformer distil --teacher runs/mine --dataset files:data/mine@en-de --output data/distilled
      writes a corpus. train.en has the training text, and train.de the translations of runs/mine. val and test are
      those of data/mine
  python -m keras_transformer distil --teacher runs/one --teacher runs/two --dataset files:data/mine@en-de ...
      takes the mean of the probabilities of several models
  python -m keras_transformer distil ... --n_best 4
      writes the 4 best translations of every text, as 4 pairs
  python train.py --dataset files:data/distilled --source_lang en --target_lang de --preset tiny_6_1 ...
      trains the smaller model
  python train.py --dataset files:data/mine --dataset files:data/distilled --source_lang en --target_lang de ...
      trains it on the pairs of data/mine as well
  python -m keras_transformer distil ... --engine beam --direct_num_workers 8
      makes the same pairs with Apache Beam, here in 8 processes. Beam has other runners, too

After an interruption, the same command goes on."""


def make_parser():
    """The `Parser` of the program."""
    parser = Parser(DESCRIPTION)
    parser.add_argument(
        "--teacher",
        required=True,
        action="append",
        help="run directory or export of the model that translates. Several runs with the same tokenizer, each with a "
        "--teacher, translate together: the mean of their probabilities counts",
    )
    add_checkpoint_argument(parser)
    parser.add_argument(
        "--dataset", required=True, action="append", help="corpus whose training text is translated, as for train.py"
    )
    parser.add_argument("--source_lang", help="language of the texts (default: the source of `dataset`)")
    parser.add_argument("--target_lang", help="language of the translations (default: the target of `dataset`)")
    parser.add_argument("--output", required=True, help="directory for the corpus: train.py reads it as files:DIR")
    parser.add_argument(
        "--n_best",
        type=int,
        default=1,
        metavar="N",
        help="write the N best translations of every text, as N pairs. N is at most the beam size (default: 1)",
    )
    add_batch_size_argument(parser)
    add_search_arguments(parser)
    add_engine_argument(parser, "the text in parts")
    return parser


def parse_arguments(parser):
    """The flags, and the flags of Beam. Raises UserError for a value out of range, and for several corpora."""
    arguments, others = parser.parse_known_args()
    if others and arguments.engine == "local":
        parser.refuse(others)
    check_ranges(arguments)
    if len(arguments.dataset) > 1:
        raise UserError(f"--dataset names one corpus: distil each by itself. Received: {', '.join(arguments.dataset)}")
    return arguments, others


def main(arguments, corpus, options):
    """Translates the text, and leaves a corpus. `options` are those of Beam; None for the engine of this process."""
    search = {name: getattr(arguments, name) for name in ("beam_size", "length_penalty")}
    paths = [Path(path).absolute() for path in arguments.teacher]  # Beam's processes may work elsewhere
    teacher, how = paths[0] if len(paths) == 1 else paths, {"batch_size": arguments.batch_size, **search}
    languages = {"source_lang": corpus.source_lang, "target_lang": corpus.target_lang}
    load_teacher = functools.partial(load_between, languages, teacher, arguments.checkpoint, **how)
    translator = load_teacher()
    check_width(translator, n_best=arguments.n_best)
    record = {
        "text": {"name": corpus.name, **corpus.fingerprint},
        "teacher": [file_state(path) for path in translator.files],
        "n_best": arguments.n_best,
        **search,
        **languages,
    }
    directory, texts = Path(arguments.output), texts_of(corpus, arguments.n_best)
    source, target = directory / name_of_texts(corpus), directory / f"train.{corpus.target_lang}"
    keep_record(directory / RECORD, record, [target, directory / "train.tsv", *(directory / name for name in texts)])
    if target.exists():
        log.info("%s is complete", directory)
    else:
        for name, lines in texts.items():
            if not (directory / name).exists():  # a new file of texts would be another one, which never goes on
                write_lines(directory / name, lines)
        translate_one(source, target, record, translator, load_teacher, Teaching(arguments.n_best), options)
    source.unlink(missing_ok=True)
    log.info("train with --dataset files:%s --source_lang %s --target_lang %s", directory, *languages.values())


def program():
    """The program, from its command line to its exit status."""
    parser = make_parser()
    with console.program(parser.flags):
        arguments, beam_flags = parse_arguments(parser)
        options = beam_options(beam_flags) if arguments.engine == "beam" else None
        corpus = open_corpus(*arguments.dataset, arguments.source_lang, arguments.target_lang)
        for note in corpus.notes:
            log.info(note)
        console.import_tensorflow()
        main(arguments, corpus, options)
