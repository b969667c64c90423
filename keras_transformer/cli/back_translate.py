"""Back-translation: a model of the reverse direction writes the source side of text that has none."""

import argparse
import functools
import json
import logging
from dataclasses import dataclass
from pathlib import Path

from keras_transformer.cli import console
from keras_transformer.cli.bulk import add_engine_argument, beam_options, translate_one_in_bulk
from keras_transformer.cli.flags import (
    add_checkpoint_argument,
    add_option_arguments,
    add_search_arguments,
    check_ranges,
)
from keras_transformer.cli.line_files import check_files, chunks_in, file_state, translate_file
from keras_transformer.data.noise import DELETED, FILLER, FURTHEST, REPLACED, add_noise, seed_of
from keras_transformer.errors import FileError, UserError

log = logging.getLogger(__name__)
TAG = "<BT>"
RECORD = "back_translation.json"  # what the pairs were made from, so that another text or model never adds to them
DESCRIPTION = """Back-translate: make sentence pairs for one direction with a model of the other.

  python -m keras_transformer.data.back_translate --model_dir runs/de-en --monolingual news.de --output data/bt --tag
      writes data/bt/train.de (the lines of news.de) and data/bt/train.en (what the model makes of them)
  python train.py --dataset files:data/mine --dataset files:data/bt:0.5 --source_lang en --target_lang de ...
      trains the model en to de on both
  python -m keras_transformer.data.back_translate ... --engine beam --direct_num_workers 8
      the same pairs, by Apache Beam in a process for each core, or on other runners

After an interruption, the same command goes on."""
METHODS = {
    "beam": "the best translation",
    "sample": "one drawn at random",
    "noised": f"the best one, {DELETED:.0%} of its words left out, {REPLACED:.0%} replaced by {FILLER}, and "
    f"words moved past up to {FURTHEST} others",
}


def parse_arguments():
    """The flags, and the flags of Beam.

    Raises:
        UserError: for flags that do not go together, or a value out of range.
    """
    parser = argparse.ArgumentParser(description=DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model_dir", required=True, help="run directory of the model of the reverse direction")
    add_checkpoint_argument(parser)
    parser.add_argument("--monolingual", required=True, help="text file, UTF-8, one sentence a line, plain or .gz")
    parser.add_argument("--output", required=True, help="directory for the pairs, which --dataset files:DIR reads")
    methods = "; ".join(f"{name}: {described}" for name, described in METHODS.items())
    methods = methods.replace("%", "%%")
    parser.add_argument("--method", choices=METHODS, default="beam", help=f"{methods} (default: beam)")
    parser.add_argument(
        "--tag",
        nargs="?",
        const=TAG,
        help=f"a word before every line that the model wrote, which tells training these lines from real ones; "
        f"--tag alone is {TAG} (default: none)",
    )
    parser.add_argument("--batch_size", type=int, default=32, help="sentences translated at a time (default: 32)")
    add_search_arguments(parser)
    add_option_arguments(parser, "sample", ("temperature", "top_k", "top_p"), prefix="of --method sample: ")
    parser.add_argument("--seed", type=int, default=1, help="of samples and noise (default: 1)")
    add_engine_argument(parser, "the text in parts")
    arguments, others = parser.parse_known_args()
    if others and arguments.engine == "local":
        parser.error(f"unrecognized arguments: {' '.join(others)}")
    check_ranges(arguments)
    for name in ("temperature", "top_k", "top_p"):
        if getattr(arguments, name) is not None and arguments.method != "sample":
            raise UserError(f"--{name} is of --method sample: leave it out, or choose that method")
    for name in ("beam_size", "length_penalty"):
        if getattr(arguments, name) is not None and arguments.method == "sample":
            raise UserError(f"--{name} does not go with --method sample, which has no beam: leave it out")
    if arguments.tag is not None and (arguments.tag != "".join(arguments.tag.split()) or not arguments.tag):
        raise UserError(f"--tag must be one word without spaces. Received: {arguments.tag!r}")
    check_files(arguments.monolingual, None)
    check_has_text(arguments.monolingual)
    return arguments, others


def check_has_text(path):
    """Raises UserError for a file of blank lines, and FileError for one that cannot be read."""
    if not any(line.strip() for chunk in chunks_in(path) for line in chunk):
        raise UserError(f"{path} has no text to translate")


def languages_of(model_dir):
    """The languages that a run translates from and to, two str.

    Raises:
        UserError: if there is no such run.
    """
    path = Path(model_dir, "corpus.json")
    try:
        source, target = json.loads(path.read_text(encoding="utf-8"))["languages"].split(" to ")
    except (OSError, ValueError, KeyError) as error:
        raise UserError(f"no run in {model_dir}: {path} does not tell its languages ({error})") from error
    return source, target


@dataclass(frozen=True)
class Writing:
    """What a model is asked to write for every text: the `request` of a bulk translation.

    Attributes:
        method: one of `METHODS`.
        tag: word before every text, or None.
        seed: int, of samples and noise.
        sampling: dict, options of `TextTranslator.sample`.
    """

    method: str
    tag: str | None
    seed: int
    sampling: dict
    lines_each = 1

    def lines(self, translator, texts, on_progress=None):
        """The sources that the model writes: list of str -> list of lists of one str."""
        if self.method == "sample":
            seeds = [seed_of(text, self.seed) for text in texts]
            written = [row.text for row in translator.sample(texts, on_progress, seed=seeds, **self.sampling)]
        else:
            written = translator.translate(texts, on_progress)
        if self.method == "noised":
            written = [add_noise(text, self.seed) for text in written]
        return [[_tagged(" ".join(text.split("\n")), self.tag)] for text in written]


def _tagged(text, tag):
    return f"{tag} {text}" if tag and text.strip() else text


def keep_record(directory, record, languages):
    """Says in a directory what its pairs are made from.

    Args:
        directory: Path; made if it does not exist.
        record: dict that JSON can hold.
        languages: of the files that will be in it.

    Raises:
        UserError: if it has pairs that were made from something else.
        FileError: if it cannot be written.
    """
    from keras_transformer.training.checkpoints import write_atomically

    path = directory / RECORD
    others = [directory / f"train.{name}" for name in (*languages, "tsv") if (directory / f"train.{name}").exists()]
    try:
        directory.mkdir(parents=True, exist_ok=True)
        before = json.loads(path.read_text(encoding="utf-8")) if path.exists() else None
        if before is None and others:
            raise UserError(f"{others[0]} is there already: choose another --output")
        if before is None:
            text = json.dumps(record, indent=1)
            write_atomically(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))
            return
    except OSError as error:
        raise FileError.of("write", directory, error) from error
    different = [name for name in record if before.get(name) != record[name]]
    if different:
        raise UserError(f"{directory} is of another {', '.join(different)}: remove it, or choose another --output")


def copy_lines(source, target):
    """Copies the lines of a text file as they are translated: with U+FFFD for invalid UTF-8, and without "\\r" at ends.

    Raises:
        FileError: if a file cannot be read or written.
    """
    from keras_transformer.training.checkpoints import write_atomically

    def write(path):
        with open(path, "wb") as file:
            for chunk in chunks_in(source):
                texts = (line.removesuffix(b"\r").decode("utf-8", "replace") for line in chunk)
                file.write("".join(f"{text}\n" for text in texts).encode("utf-8"))

    write_atomically(target, write)


def main(arguments, options):
    """Translates the text, and leaves a corpus. `options` are those of Beam; None for the engine of this process."""
    from keras_transformer.runs import load

    real, synthetic = languages_of(arguments.model_dir)
    search = {name: getattr(arguments, name) for name in ("beam_size", "length_penalty")}
    model_dir = Path(arguments.model_dir).absolute()  # Beam's processes may work elsewhere
    load_run = functools.partial(load, model_dir, arguments.checkpoint, batch_size=arguments.batch_size, **search)
    translator = load_run()
    drawn = {name: getattr(arguments, name) for name in ("temperature", "top_k", "top_p")}
    sampling = {name: value for name, value in drawn.items() if value is not None}
    writing = Writing(arguments.method, arguments.tag, arguments.seed, sampling)
    record = {
        "text": file_state(arguments.monolingual),
        "model": [file_state(path) for path in translator.files],
        **{name: getattr(arguments, name) for name in ("method", "tag", "seed", *search, *drawn)},
    }
    directory = Path(arguments.output)
    keep_record(directory, record, (real, synthetic))
    written = directory / f"train.{synthetic}"
    if written.exists():
        log.info("%s is complete", directory)
    else:
        copy_lines(arguments.monolingual, directory / f"train.{real}")
        if options is None:
            translate_here(functools.partial(writing.lines, translator), arguments.monolingual, written, record)
        else:
            translate_one_in_bulk(arguments.monolingual, written, record, load_run, writing, options)
    log.info("train with --dataset files:%s --source_lang %s --target_lang %s", directory, synthetic, real)


def translate_here(answer, source, target, record):
    """`translate_file`, which says after an interruption how to go on."""
    try:
        translate_file(answer, source, target, record)
    except KeyboardInterrupt:
        log.info("the same command goes on from here")
        raise


def program():
    """The program, from its command line to its exit status."""
    with console.program():
        arguments, beam_flags = parse_arguments()
        options = beam_options(beam_flags) if arguments.engine == "beam" else None
        console.import_tensorflow()
        main(arguments, options)
