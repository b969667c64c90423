"""translate.py with a translation memory: its flags, its translator, and the line that tells what it has changed."""

import logging

from keras_transformer.cli.line_files import file_state
from keras_transformer.cli.request import MODES
from keras_transformer.errors import UserError, counted
from keras_transformer.process import find_tool
from keras_transformer.tags import direction_of

log = logging.getLogger(__name__)


def add_memory_arguments(parser):
    """Adds to an argparse parser the flags of a translation memory."""
    parser.add_argument(
        "--tmx",
        action="append",
        metavar="FILE",
        help="translation memory in TMX. A text that is in it, but for spaces, takes its translation from there, and "
        "so does a sentence of a longer text. The last line on the screen counts them. Several files, each with a "
        "--tmx, are one memory: of equal texts, that in the last file counts",
    )
    parser.add_argument(
        "--tmx_threshold",
        type=int,
        metavar="PERCENT",
        help="only with --tmx: look for similar entries, too, down to this similarity. They are counted, and --json "
        "shows three of them; they are never the translation. It needs rapidfuzz (default: 100, equal texts only)",
    )


def check_memory(arguments):
    """Checks the flags of a translation memory, and the start of its files, before the model is loaded.

    Raises:
        UserError: for flags that do not go together, for a file that is no TMX, and without a package that is needed.
    """
    if not arguments.tmx:
        if arguments.tmx_threshold is not None:
            raise UserError("--tmx_threshold needs --tmx: give both, or leave --tmx_threshold out")
        return
    others = [f"--{name}" for name in (*MODES, "prefix") if name != "n_best" and getattr(arguments, name)]
    others += ["--engine beam"] if arguments.engine == "beam" else []
    if others:
        raise UserError(f"--tmx does not go with {others[0]}: leave one out")
    find_tool("memory.matches", "--tmx").check(arguments.tmx, _threshold(arguments))


def with_memory(translator, arguments):
    """A translator with the translation memory of the flags; the translator itself without the flags.

    Raises:
        UserError: for languages that are not known or that the memory does not have, and for a damaged file.
    """
    if not arguments.tmx:
        return translator
    tool = find_tool("memory", "--tmx")
    memory = tool.Memory.open(arguments.tmx, *_languages(translator, arguments), _threshold(arguments))
    return tool.MemoryTranslator(translator, memory)


def _threshold(arguments):
    return 100 if arguments.tmx_threshold is None else arguments.tmx_threshold


def _languages(translator, arguments):
    """(source, target): what the flags say, or else the model."""
    known = direction_of(translator)
    languages = arguments.source_lang or known[0], arguments.target_lang or known[1]
    if None in languages:
        name = ("source_lang", "target_lang")[languages.index(None)]
        raise UserError(f"--tmx needs a language that the model does not tell: give --{name}")
    return languages


def memory_asked(arguments):
    """What a translation depends on with a translation memory, as a list for `all_asked`; [] without one."""
    if not arguments.tmx:
        return []
    return [[file_state(path) for path in arguments.tmx], _threshold(arguments)]


def report_memory(translator, arguments):
    """Tells in a line how many texts the translation memory has translated."""
    if not arguments.tmx:
        return
    counts, threshold = translator.counts, _threshold(arguments)
    told = f"{counts['exact']:,} of {counted(counts['texts'], 'text')} took a translation from it"
    if counts["in_part"]:
        told += f"; {counts['in_part']:,} of the others took {counted(counts['sentences'], 'sentence')}"
    if threshold < 100:
        have = "has" if counts["similar"] == 1 else "have"
        told += f"; {counts['similar']:,} of the others {have} similar entries ({threshold} % or more)"
    log.info("memory: %s", told)
