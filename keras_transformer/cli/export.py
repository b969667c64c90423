"""Exports a trained run: a SavedModel for TensorFlow Serving, or a model for another engine."""

from keras_transformer.cli import console
from keras_transformer.cli.flags import (
    add_checkpoint_argument,
    add_language_arguments,
    add_model_dir_argument,
    add_search_arguments,
    add_shortlist_argument,
    check_ranges,
    languages,
)
from keras_transformer.cli.parser import Parser
from keras_transformer.errors import UserError, counted
from keras_transformer.presets import PROGRAM_LENGTHS, PROGRAM_ROWS
from keras_transformer.process import find_tool
from keras_transformer.tools import check_ascending

DESCRIPTION = """Export a run to EXPORT_DIR/VERSION. It appears after a proof: the export translates as the run does.

  python export.py --model_dir runs/mine --export_dir exports/mine
      a SavedModel for TensorFlow Serving. The tokenizer and beam search are inside: text in, text out
  python export.py --model_dir runs/mine --export_dir exports/mine_small --precision bfloat16
      the same in half the size. A few translations differ
  python export.py --model_dir runs/mine --export_dir exports/mine_fast --compile true
      a SavedModel that TensorFlow Serving compiles with XLA: a sentence takes less time
  python export.py --model_dir runs/mine --export_dir exports/mine_ct2 --format ctranslate2 --quantization int8
      weights and tokenizer.model for the C++ engine CTranslate2, in a third of the size
  python export.py --model_dir runs/mine --export_dir exports/mine_argos --format argos --quantization int8
      a package that Argos Translate and LibreTranslate install, with the same weights for CTranslate2
  python export.py --model_dir runs/mine --export_dir exports/mine_litert --format litert --quantization int8
      for phones and small computers: model.tflite with encoder and search, tokenizer.model and translate_litert.py
  python export.py --model_dir runs/mine --export_dir exports/mine_hf --format hugging_face
      a directory for transformers, and for all that reads its files: a MarianMTModel, M2M100 or MBart model
  python export.py --model_dir runs/many --export_dir exports/de-fr --format litert --source_lang de --target_lang fr
      one direction of a model of many languages. A SavedModel has them all, and this one as the default

EXPORT_DIR/VERSION/export.json names the run, its score, the versions of libraries, and the comparison with the run.
README.md beside it is a model card, in the form that hubs of models read."""


def make_parser():
    """The `Parser` of the program."""
    parser = Parser(DESCRIPTION)
    add_model_dir_argument(parser, required=True)
    parser.add_argument("--export_dir", required=True, help="directory of all versions of this model")
    parser.add_argument("--version", type=int, metavar="N", help="positive integer (default: the next free one)")
    parser.add_argument(
        "--format",
        choices=("saved_model", "ctranslate2", "litert", "argos", "hugging_face"),
        default="saved_model",
        help="engine of the export. ctranslate2 and argos need `pip install ctranslate2`, litert needs `pip install "
        "ai-edge-litert`, hugging_face needs `pip install torch transformers` (default: saved_model)",
    )
    parser.add_argument(
        "--precision",
        choices=("float32", "bfloat16"),
        help="only with --format saved_model: dtype of weights and computation. bfloat16 has half the size. It is fast "
        "only on hardware that multiplies bfloat16 (default: float32)",
    )
    parser.add_argument(
        "--quantization",
        choices=("float32", "bfloat16", "int16", "int8"),
        help="only with --format ctranslate2, argos or litert: dtype of the matrices. litert knows float32 and int8 "
        "(default: float32)",
    )
    parser.add_argument("--license", metavar="NAME", help="licence of the model for its card, such as cc-by-4.0")
    add_program_arguments(parser)
    add_checkpoint_argument(parser)
    add_language_arguments(parser)
    add_search_arguments(parser)
    parser.add_argument(
        "--split_sentences",
        type=bool,
        metavar="{true,false}",
        help="only with --format saved_model or litert: translate the sentences of a text one by one. false translates "
        "each line at once (default: as the run does)",
    )
    add_shortlist_argument(parser, prefix="only with --format saved_model or litert: ")
    return parser


def add_program_arguments(parser):
    """Adds the flags of compiled programs."""
    parser.add_argument(
        "--compile",
        type=bool,
        metavar="{true,false}",
        help="only with --format saved_model: run `translate` and `alternatives` as XLA programs of fixed sizes, so "
        "that a sentence takes less time. TensorFlow Serving needs --xla_cpu_compilation_enabled=true. It compiles in "
        "its warm-up, some seconds for each program (default: false)",
    )
    parser.add_argument(
        "--compile_rows",
        type=int,
        nargs="+",
        metavar="N",
        help="only with --compile: numbers of sentences, each of which has programs. A batch takes the smallest that "
        "holds it; a larger one is translated without a program "
        f"(default: {' '.join(map(str, PROGRAM_ROWS))})",
    )
    parser.add_argument(
        "--compile_lengths",
        type=int,
        nargs="+",
        metavar="N",
        help="only with --compile: most pieces of a source, each of which has programs. A longer source is "
        f"translated without a program (default: {' '.join(map(str, PROGRAM_LENGTHS))})",
    )


def parse_arguments(parser):
    """The flags, checked. Raises UserError."""
    arguments = parser.parse_args()
    check_ranges(arguments)
    check_format(arguments)
    return arguments


def check_format(arguments):
    """Raises UserError for a flag that the format does not have, and without the tool of the other engines."""
    for name, formats, instead in (
        ("quantization", ("ctranslate2", "litert", "argos"), "a SavedModel has --precision"),
        ("precision", ("saved_model",), "CTranslate2 and LiteRT have --quantization, and transformers has float32"),
        ("compile", ("saved_model",), "the other engines are compiled programs"),
    ):
        if getattr(arguments, name) is not None and arguments.format not in formats:
            raise UserError(f"--{name} needs --format {' or '.join(formats)}: {instead}")
    for name in ("compile_rows", "compile_lengths"):
        if (sizes := getattr(arguments, name)) is not None:
            check_ascending(**{name: sizes})
            if not arguments.compile:
                raise UserError(f"--{name} needs --compile true")
    if arguments.compile and arguments.shortlist:
        raise UserError("--compile needs fixed sizes, and a --shortlist has another for each batch: leave out one")
    if arguments.compile:
        find_tool("engines", "--compile")
    if arguments.format != "saved_model":
        names = ("beam_size", "length_penalty", "split_sentences", "shortlist")
        asked = {name: getattr(arguments, name) for name in names}
        precision = arguments.quantization or "float32"
        find_tool("engines", f"--format {arguments.format}").check_format(arguments.format, precision, **asked)


def main(arguments):
    """Exports."""
    from keras_transformer.export.manifest import read_manifest
    from keras_transformer.runs import Run

    run = Run(arguments.model_dir)
    if arguments.compile:
        number = counted(len(programs(arguments).listed()), "program")
        print(f"compiling   {number}: this takes a few minutes", flush=True)
    path = run.export(
        arguments.export_dir,
        arguments.version,
        arguments.format,
        arguments.precision or arguments.quantization or "float32",
        arguments.checkpoint,
        arguments.shortlist,
        **languages(arguments),
        compiled=arguments.compile and programs(arguments),
        license=arguments.license,
        beam_size=arguments.beam_size,
        length_penalty=arguments.length_penalty,
        split_sentences=arguments.split_sentences,
    )
    print(f"exported    {path}\n{summarise(read_manifest(path))}")


def programs(arguments):
    """The `Programs` that the flags ask for."""
    rows, lengths = arguments.compile_rows or PROGRAM_ROWS, arguments.compile_lengths or PROGRAM_LENGTHS
    return find_tool("engines.compiled", "--compile").Programs(tuple(rows), tuple(lengths))


def summarise(manifest):
    """Summarises a manifest for people: str of three lines, and one more for programs and for a shortlist."""
    parity, loading = manifest["parity"], manifest["loading"]
    memory = f"{loading['memory_bytes'] / 1e6:.0f} MB"
    beam_size, equal, sentences = parity["beam_size"], parity["equal"], parity["sentences"]
    warm_up = " with its warm-up" if "warm_up" in manifest else ""
    size = sum(file["bytes"] for file in manifest["files"].values())
    return (
        f"translates  {equal} of {counted(sentences, 'sentence')} as the run does, with a beam of {beam_size}\n"
        f"size        {size / 1e6:.1f} MB on disk\n"
        f"{_summarise_programs(manifest['programs']) if 'programs' in manifest else ''}"
        f"loads       in {loading['seconds']:.1f} s{warm_up}; {memory} of memory after translating"
        f"{_summarise_shortlist(manifest['shortlist']) if 'shortlist' in manifest else ''}"
    )


def _summarise_programs(found):
    number = counted(len(found), "program")
    return f"compiles    {number}: TensorFlow Serving needs --xla_cpu_compilation_enabled=true\n"


def _summarise_shortlist(found):
    return (
        f"\nshortlist   of {found['size']} leaves {found['equal']} of {counted(found['sentences'], 'translation')} of "
        f"the validation set as they are; BLEU {found['bleu']:.2f}, of all pieces {found['bleu_of_all_pieces']:.2f}"
    )


def program():
    """The program, from its command line to its exit status."""
    parser = make_parser()
    with console.program(parser.flags):
        arguments = parse_arguments(parser)
        console.import_tensorflow()
        main(arguments)
