"""Back-translation: a model of the reverse direction writes the source side of text that has none."""

import functools
import logging
from pathlib import Path

from keras_transformer.cli import console
from keras_transformer.cli.bulk import add_engine_argument, beam_options, load_between, translate_one
from keras_transformer.cli.flags import (
    add_batch_size_argument,
    add_checkpoint_argument,
    add_language_arguments,
    add_option_arguments,
    add_search_arguments,
    check_ranges,
    languages,
)
from keras_transformer.cli.line_files import (
    check_files,
    check_has_text,
    chunks_in,
    file_state,
    keep_record,
    write_lines,
)
from keras_transformer.cli.parser import Parser
from keras_transformer.errors import UserError
from keras_transformer.tags import direction_of
from keras_transformer.tools.back_translation.pairs import METHODS, RECORD, Writing

log = logging.getLogger(__name__)
TAG = "<BT>"
DESCRIPTION = """Back-translate: a model of the other direction makes sentence pairs of text in one language.

  python -m keras_transformer back_translate --model_dir runs/de-en --monolingual news.de --output data/bt --tag
      writes data/bt/train.de (the lines of news.de) and data/bt/train.en (their translations by the model)
  python train.py --dataset files:data/mine --dataset files:data/bt:0.5 --source_lang en --target_lang de ...
      trains the model from en to de on real pairs and on these pairs
  python -m keras_transformer back_translate --model_dir runs/many --source_lang de --target_lang en ...
      takes the reverse direction of a model of many languages
  python -m keras_transformer back_translate ... --engine beam --direct_num_workers 8
      makes the same pairs with Apache Beam, here in 8 processes. Beam has other runners, too

After an interruption, the same command goes on."""


def make_parser():
    """The `Parser` of the program."""
    parser = Parser(DESCRIPTION)
    parser.add_argument("--model_dir", required=True, help="run directory of the model of the reverse direction")
    add_checkpoint_argument(parser)
    add_language_arguments(parser)
    parser.add_argument("--monolingual", required=True, help="UTF-8 text with a sentence on every line, plain or .gz")
    parser.add_argument(
        "--output", required=True, help="directory for the pairs: train.py reads it as --dataset files:DIR"
    )
    methods = "; ".join(f"{name}: {described}" for name, described in METHODS.items())
    methods = methods.replace("%", "%%")
    parser.add_argument("--method", choices=METHODS, default="beam", help=f"{methods} (default: beam)")
    parser.add_argument(
        "--tag",
        nargs="?",
        const=TAG,
        help="put this word before every line of the model. So the trained model tells these lines from real ones. "
        f"--tag without a word puts {TAG} (default: no word)",
    )
    add_batch_size_argument(parser)
    add_search_arguments(parser)
    add_option_arguments(parser, "sample", ("temperature", "top_k", "top_p"), prefix="only with --method sample: ")
    parser.add_argument(
        "--seed",
        type=int,
        default=1,
        help="only with --method sample or noised: seed of the random numbers (default: 1)",
    )
    add_engine_argument(parser, "the text in parts")
    return parser


def parse_arguments(parser):
    """The flags, and the flags of Beam.

    Raises:
        UserError: for flags that do not go together, or a value out of range.
    """
    arguments, others = parser.parse_known_args()
    if others and arguments.engine == "local":
        parser.refuse(others)
    check_ranges(arguments)
    for name in ("temperature", "top_k", "top_p"):
        if getattr(arguments, name) is not None and arguments.method != "sample":
            raise UserError(f"--{name} needs --method sample: give both, or leave --{name} out")
    for name in ("beam_size", "length_penalty"):
        if getattr(arguments, name) is not None and arguments.method == "sample":
            raise UserError(f"--{name} does not go with --method sample, which has no beam: leave it out")
    if arguments.tag is not None and (arguments.tag != "".join(arguments.tag.split()) or not arguments.tag):
        raise UserError(f"--tag must be one word without spaces. Received: {arguments.tag!r}")
    check_files(arguments.monolingual, None)
    check_has_text(arguments.monolingual)
    return arguments, others


def main(arguments, options):
    """Translates the text, and leaves a corpus. `options` are those of Beam; None for the engine of this process."""
    search = {name: getattr(arguments, name) for name in ("beam_size", "length_penalty")}
    model_dir = Path(arguments.model_dir).absolute()  # Beam's processes may work elsewhere
    how, given = {"batch_size": arguments.batch_size, **search}, languages(arguments)
    load_run = functools.partial(load_between, given, model_dir, arguments.checkpoint, **how)
    translator = load_run()
    real, synthetic = direction_of(translator)
    if None in (real, synthetic):
        raise UserError(f"{arguments.model_dir}/corpus.json does not tell the languages of the run: put it back")
    drawn = {name: getattr(arguments, name) for name in ("temperature", "top_k", "top_p")}
    sampling = {name: value for name, value in drawn.items() if value is not None}
    writing = Writing(arguments.method, arguments.tag, arguments.seed, sampling)
    record = {
        "text": file_state(arguments.monolingual),
        "model": [file_state(path) for path in translator.files],
        **{name: getattr(arguments, name) for name in ("method", "tag", "seed", *search, *drawn)},
        **given,
    }
    directory = Path(arguments.output)
    written = directory / f"train.{synthetic}"
    keep_record(directory / RECORD, record, [directory / f"train.{name}" for name in (real, synthetic, "tsv")])
    if written.exists():
        log.info("%s is complete", directory)
    else:
        lines = (line for chunk in chunks_in(arguments.monolingual) for line in chunk)
        texts = (line.removesuffix(b"\r").decode("utf-8", "replace") for line in lines)
        write_lines(directory / f"train.{real}", texts)
        translate_one(arguments.monolingual, written, record, translator, load_run, writing, options)
    log.info("train with --dataset files:%s --source_lang %s --target_lang %s", directory, synthetic, real)


def program():
    """The program, from its command line to its exit status."""
    parser = make_parser()
    with console.program(parser.flags):
        arguments, beam_flags = parse_arguments(parser)
        options = beam_options(beam_flags) if arguments.engine == "beam" else None
        console.import_tensorflow()
        main(arguments, options)
