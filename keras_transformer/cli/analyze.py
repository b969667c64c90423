"""Shows what the heads of a Transformer attend to and do, and which of them are needed."""

import argparse
import os
from pathlib import Path

from keras_transformer.cli import console
from keras_transformer.cli.flags import add_checkpoint_argument, add_search_arguments, check_ranges
from keras_transformer.cli.line_files import check_files
from keras_transformer.errors import FileError, UserError
from keras_transformer.wording import counted

DESCRIPTION = """Analyse the heads of a run: what they attend to, which roles they have, and which of them are needed.

  python analyze.py --model_dir runs/mine --source val.en --reference val.de --output report
      report/report.html, a page for a browser, and report/heads.tsv, a table
  python analyze.py --model_dir runs/mine --source val.en --reference val.de --output report --silence true
      also the BLEU that is lost without each head, and without more and more of the least important ones
  python analyze.py --model_dir runs/mine --source val.en --reference val.de --output report --conllu val.conllu
      also which heads follow the relations of dependency parses of val.en

The page needs no network and no server: open it with a browser."""

KEPT = 50  # pairs whose attention is in the page
STEPS = 10  # of the curve of silent heads


def parse_arguments():
    """The flags, checked."""
    parser = argparse.ArgumentParser(description=DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model_dir", required=True, help="run directory that train.py wrote, of a Transformer")
    add_checkpoint_argument(parser)
    parser.add_argument("--source", type=Path, required=True, help="file of sentences, one a line")
    parser.add_argument("--reference", type=Path, required=True, help="file of their translations, line by line")
    parser.add_argument("--output", type=Path, required=True, help="directory for report.html and heads.tsv")
    parser.add_argument(
        "--alignments",
        type=Path,
        help="file of word alignments in Pharaoh's format, a line such as 0-0 1-2 for each pair: source word - target "
        "word, divided by white space, counted from 0",
    )
    parser.add_argument("--conllu", type=Path, help="CoNLL-U file of dependency parses of the lines of --source")
    parser.add_argument(
        "--silence",
        choices=("true", "false"),
        default="false",
        help="measure the BLEU lost without each head alone: as many translations of --sentences as there are heads "
        "(default: false)",
    )
    parser.add_argument(
        "--sentences", type=int, default=200, help="how many sentences are translated for every BLEU (default: 200)"
    )
    parser.add_argument("--batch_size", type=int, default=32, help="sentences read at a time (default: 32)")
    add_search_arguments(parser)
    arguments = parser.parse_args()
    check_ranges(arguments)
    if arguments.sentences < 1:
        raise UserError(f"--sentences must be at least 1. Received: {arguments.sentences}")
    for path in (arguments.source, arguments.reference, arguments.alignments, arguments.conllu):
        check_files(path, None)
    return arguments


def make_directory(path):
    """Makes a directory that can be written. Raises FileError if that is not possible."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError.of("write", path, error) from error
    if not os.access(path, os.W_OK):
        raise FileError(f"cannot write {path}: you may not write to it")


def read(arguments):
    """Reads the files: texts, references, and alignments and trees or None. Raises UserError if they do not fit."""
    from keras_transformer.analysis.annotations import read_alignments, read_conllu
    from keras_transformer.data.text_files import open_aligned_files

    texts, references = map(list, zip(*open_aligned_files(arguments.source, arguments.reference), strict=True))
    alignments = arguments.alignments and read_alignments(arguments.alignments, texts, references)
    return texts, references, alignments, arguments.conllu and read_conllu(arguments.conllu, texts)


def silence(arguments, translator, found, texts, references):
    """What is lost without each head, the curves of the report, and what is said about them."""
    from tqdm import tqdm

    from keras_transformer.analysis.silencing import curve, losses
    from keras_transformer.evaluation import measure

    corpus = texts[: arguments.sentences], references[: arguments.sentences]

    def bleu(translations, references):
        return measure(translations, references).bleu

    counts = sorted({round(len(found) * step / STEPS) for step in range(STEPS + 1)})
    with tqdm(total=1 + len(found) + len(counts), unit=" translations", disable=None) as progress:
        full, lost = losses(translator, *corpus, bleu, progress.update)
        scores = curve(translator, *corpus, bleu, found.importance, counts, progress.update)
    points = [(count / len(found), score) for count, score in zip(counts, scores, strict=True)]
    signature = measure(corpus[1], corpus[1]).bleu_signature
    said = f"BLEU {full:.1f} with all heads, on the first {counted(len(corpus[0]), 'sentence')} ({signature})"
    return lost, [("BLEU against the share of silent heads", points)], said


def summarise(found):
    """The heads with a role, a line for each, and the most and least important heads: str."""
    lines = [f"{name:14} {', '.join(roles)}" for name, roles in zip(found.names, found.roles, strict=True) if roles]
    order = [found.names[head] for head in found.importance.argsort(kind="stable")]
    return "\n".join([*lines, f"most needed    {', '.join(order[:-4:-1])}", f"least needed   {', '.join(order[:3])}"])


def main(arguments):
    """Analyses."""
    from tqdm import tqdm

    from keras_transformer.analysis.gates import attentions_of
    from keras_transformer.analysis.report import write_report
    from keras_transformer.analysis.survey import heads
    from keras_transformer.runs import Run

    texts, references, alignments, trees = read(arguments)
    search = {name: getattr(arguments, name) for name in ("beam_size", "length_penalty", "batch_size")}
    translator = Run(arguments.model_dir).translator(arguments.checkpoint, **search)
    attentions_of(translator.model)  # another model than a Transformer is found early
    make_directory(arguments.output)
    with tqdm(total=len(texts), unit=" sentences", disable=None) as progress:
        found = heads(translator, texts, references, alignments, trees, KEPT, progress.update)
    report = {"title": f"The heads of {arguments.model_dir}", "texts": texts, "references": references}
    if arguments.silence == "true":
        write_report(arguments.output, translator, found, **report)  # something is there if the rest is interrupted
        lost, curves, said = silence(arguments, translator, found, texts, references)
        report |= {"lost": lost, "curves": curves, "score": said}
    path = write_report(arguments.output, translator, found, **report)
    print(f"{summarise(found)}\nreport         {path}")


def program():
    """The program, from its command line to its exit status."""
    with console.program():
        arguments = parse_arguments()
        console.import_tensorflow()
        main(arguments)
