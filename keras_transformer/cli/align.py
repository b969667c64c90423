"""Word links of a corpus, as a trained model sees them, in Pharaoh's format."""

import sys
from pathlib import Path

from tqdm import tqdm

from keras_transformer.cli import console
from keras_transformer.cli.flags import add_checkpoint_argument, add_language_arguments, check_ranges, languages
from keras_transformer.cli.line_files import check_files, write_lines
from keras_transformer.cli.parser import Parser
from keras_transformer.process import find_tool
from keras_transformer.tools.lines import refuse_pipe

DESCRIPTION = """Align: links between the words of sentences and of their translations, as fast_align writes them.

  python -m keras_transformer align --model_dir runs/mine --source test.en --target test.de
      writes a line for each pair, such as 0-0 1-2 2-1: word 1 of the source is word 2 of the translation
  python -m keras_transformer align ... --output test.links
      writes them into a file

White space divides words, and they count from 0. A word of the translation has at most one link: to the word at which
the model looks most. A model that was trained with --guided_alignment looks where a word comes from; another one
often looks beside it. For a language without spaces, put spaces between the words first."""


def make_parser():
    """The `Parser` of the program."""
    parser = Parser(DESCRIPTION)
    parser.add_argument("--model_dir", required=True, help="run directory that train.py wrote")
    add_checkpoint_argument(parser)
    add_language_arguments(parser)
    parser.add_argument("--source", required=True, type=Path, help="UTF-8 text with a sentence on every line")
    parser.add_argument("--target", required=True, type=Path, help="its translation, line by line")
    parser.add_argument("--output", type=Path, help="file for the links (default: the screen)")
    parser.add_argument("--batch_size", type=int, default=32, help="sentences to read at a time (default: 32)")
    return parser


def main(arguments):
    """Writes the links of all pairs."""
    from keras_transformer.data.text_files import open_aligned_files
    from keras_transformer.runs import Run

    forced = find_tool("analysis.forced", "`align`")
    texts, translations = map(list, zip(*open_aligned_files(arguments.source, arguments.target), strict=True))
    model_dir = Path(arguments.model_dir).absolute()
    translator = Run(model_dir).translator(arguments.checkpoint, batch_size=arguments.batch_size, beam_size=1)
    translator = translator.between(**languages(arguments))
    with tqdm(total=len(texts), desc="aligning", unit=" pairs", delay=3, leave=False, disable=None) as bar:
        found = forced.explain_pairs(translator, texts, translations, bar.update)
    lines = [
        " ".join(f"{source}-{target}" for source, target in forced.link_words(*pair))
        for pair in zip(found, texts, translations, strict=True)
    ]
    if arguments.output:
        write_lines(arguments.output, lines)
    else:
        sys.stdout.writelines(f"{line}\n" for line in lines)


def program():
    """The program, from its command line to its exit status."""
    parser = make_parser()
    with console.program(parser.flags):
        arguments = parser.parse_args()
        check_ranges(arguments)
        for path in (arguments.source, arguments.target):
            check_files(path, arguments.output)
            refuse_pipe(path)
        console.import_tensorflow()
        main(arguments)
