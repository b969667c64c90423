"""Translates text with a trained run or an export: a file, a filter between pipes, or a dialogue."""

import contextlib
import dataclasses
import os
import sys

from keras_transformer.cli import console
from keras_transformer.cli.bulk import add_engine_argument, check_engine, translate_in_bulk
from keras_transformer.cli.documents import add_format_argument, check_document, translate_whole
from keras_transformer.cli.flags import add_translator_arguments, languages, load_translator, protected
from keras_transformer.cli.line_files import (
    LateFile,
    are_regular,
    check_files,
    checked,
    chunks_in,
    chunks_of_stream,
    file_state,
    open_input,
    translate_file,
)
from keras_transformer.cli.memory import add_memory_arguments, check_memory, memory_asked, report_memory, with_memory
from keras_transformer.cli.parser import Parser
from keras_transformer.cli.request import Request, add_request_arguments
from keras_transformer.errors import UserError
from keras_transformer.process import find_tool
from keras_transformer.tools.lines import translate_lines

DESCRIPTION = """Translate line by line: every line of input gives one line of output, in the same order.

  python translate.py --model_dir runs/mine
      at a terminal: type a line, read its translation
  python translate.py --saved_model exports/mine < new.en > new.de
      a filter between pipes, here with an exported model
  python translate.py --litert exports/mine_litert < new.en > new.de
      the same with an export for LiteRT, which starts without TensorFlow
  python translate.py --model_dir runs/mine --input new.en --output new.de
      a file, plain or .gz, with a progress bar. After an interruption, the same command goes on: new.de.*.partial
      keeps the lines
  python translate.py --model_dir runs/mine --input new.en --json --n_best 3
      a JSON object for every line: text, translation and score, and the same of 3 alternatives
  python translate.py --model_dir runs/mine --input new.en --json --explain
      a JSON object with the pieces of the translation, and the pieces of the source that each comes from
  python translate.py --model_dir runs/mine --prefix "Sehr geehrte" --no_repeat_ngram 3
      every translation begins with this text, and no three tokens come twice in it
  python translate.py --model_dir runs/mine --glossary terms.tsv --protect
      terms are translated as terms.tsv says. URLs, numbers with units and {variables} stay as they are
  python translate.py --model_dir runs/mine --tmx memory.tmx --input new.en --output new.de
      a translation memory: a line that is in it takes its translation from there
  python translate.py --model_dir runs/mine --tmx memory.tmx --tmx_threshold 75 --json < new.en
      the same, and the entries of the memory that are similar to a line, beside its translation
  python translate.py --model_dir runs/mine --sample --temperature 0.8 --top_p 0.9 --seed 7
      random translations. The same seed gives the same translations
  python translate.py --model_dir runs/mine --mbr chrf --samples 16 --seed 7 < new.en
      draws 16 translations of a line, and writes the translation that is most like all of them (minimum Bayes risk)
  python translate.py --model_dir runs/en-de --reverse runs/de-en < new.en
      the translations of the beam, ranked again: a model of the reverse direction must find the line likely, too
  paste new.en new.de | python translate.py --model_dir runs/mine --score
      a score for every given translation: how likely it is
  python translate.py --model_dir runs/many --target_lang fr < new.en
      a model of many languages. A line that begins with >>fra<< or <2fr> is translated into French in any case
  python translate.py --model_dir runs/mine --input page.html --output seite.html
      a document: .html .md .xliff .po .srt .vtt .ass .docx. Tags stay around their words. In a pipe, add --format html
  python translate.py --engine beam --saved_model exports/mine --input 'in/*.txt' --output out --runner DirectRunner
      many files with Apache Beam, in a process for each core, or in two with --direct_num_workers 2. Beam has other
      runners, too. After an interruption, the same command translates the files that are missing"""


def make_parser():
    """The `Parser` of the program."""
    parser = Parser(DESCRIPTION)
    add_translator_arguments(parser)
    add_request_arguments(parser)
    parser.add_argument(
        "--input", help="document, or UTF-8 text with a sentence on every line (default: standard input)"
    )
    parser.add_argument("--output", help="file for the translations (default: standard output)")
    add_format_argument(parser)
    add_memory_arguments(parser)
    add_engine_argument(parser)
    return parser


def parse_arguments(parser):
    """The flags, the `Request` that they make, and the flags of Beam. Raises UserError."""
    arguments, others = parser.parse_known_args()
    check_engine(arguments, others)
    if arguments.engine == "local":
        if others:
            parser.refuse(others)
        check_files(arguments.input, arguments.output)
    request = Request.of(arguments)
    check_document(arguments, request)
    check_memory(arguments)
    if arguments.format == "lines" and arguments.input and os.path.isfile(arguments.input):
        open_input(arguments.input).close()  # before the model is loaded
    return arguments, request, others


def converse(answer):
    """Translates typed text, line by line, until the end of input."""
    print("Type a sentence and press Enter; Ctrl-D ends.", file=sys.stderr)
    while True:
        try:
            line = input("> ")
        except (EOFError, KeyboardInterrupt):
            print(file=sys.stderr)
            return
        try:
            print(*answer([line])[0], sep="\n")
        except UserError as error:
            print(f"error: {error}", file=sys.stderr)


def load_reverse(arguments, translator):
    """The model of `--reverse`, for the direction that is opposite to that of the translator; None without the flag.

    Raises:
        UserError: if there is none, or if it cannot rank what the translator finds.
    """
    if not arguments.reverse:
        return None
    from keras_transformer.runs import load

    check_reverse = find_tool("reranking", "--reverse").check_reverse
    return check_reverse(translator, load(arguments.reverse, batch_size=arguments.batch_size))


def all_asked(arguments, request, *translators):
    """Everything that the translation of a file depends on besides the file, for `translate_file`."""
    search = [arguments.beam_size, arguments.length_penalty, arguments.shortlist, protected(arguments)]
    search += [given] if (given := languages(arguments)) else []
    search += memory_asked(arguments)
    files = [file_state(path) for translator in translators for path in translator.files]
    return [files, search, dataclasses.asdict(request)]


def main(arguments, request):
    """Loads a translator, translates, and tells what a translation memory has changed."""
    translator = load_translator(arguments)
    request.check_width(translator)
    reverse = load_reverse(arguments, translator)
    translator = with_memory(translator, arguments)
    translate(arguments, request, translator, reverse)
    report_memory(translator, arguments)


def translate(arguments, request, translator, reverse=None):
    """Translates what the flags name, into the place that they name.

    Args:
        arguments: parsed flags.
        request: `Request`.
        translator: `TextTranslator`.
        reverse: as for `Request.lines`.

    Raises:
        UserError: for a text that cannot be read or translated, and for a file that cannot be written.
    """
    from tqdm import tqdm

    if arguments.format != "lines":
        return translate_whole(translator, arguments.format, arguments.input, arguments.output, languages(arguments))

    def answer(texts, on_progress=None):
        return request.lines(translator, texts, on_progress, reverse)

    if not (arguments.input or arguments.output) and sys.stdin.isatty() and sys.stdout.isatty():
        sys.stdin.reconfigure(errors="replace")  # what is typed in another charset is a bad line
        return converse(answer)
    if arguments.input and arguments.output and are_regular(arguments.input, arguments.output):
        asked = all_asked(arguments, request, translator, *([reverse] if reverse else []))
        return translate_file(answer, arguments.input, arguments.output, asked, request.lines_each)
    if arguments.input:
        chunks = chunks_in(arguments.input)
    else:
        chunks = checked(chunks_of_stream(sys.stdin.buffer), "standard input")
    target = LateFile(arguments.output) if arguments.output else contextlib.nullcontext(sys.stdout.buffer)
    with tqdm(unit=" sentences", disable=None) as progress, target as file:
        translate_lines(lambda texts: answer(texts, progress.update), chunks, file)
        file.write(b"")  # no text, an empty file


def program():
    """The program, from its command line to its exit status."""
    parser = make_parser()
    with console.program(parser.flags, log_to=sys.stderr):
        arguments, request, beam_flags = parse_arguments(parser)
        if arguments.engine == "beam":
            return translate_in_bulk(arguments, request, beam_flags)
        if not arguments.litert:
            console.import_tensorflow()
        main(arguments, request)
