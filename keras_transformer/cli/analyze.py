"""Shows what the heads of a Transformer attend to and do, and which of them are needed."""

import functools
import os
from pathlib import Path

from keras_transformer.cli import console
from keras_transformer.cli.flags import (
    add_checkpoint_argument,
    add_language_arguments,
    add_search_arguments,
    check_ranges,
    languages,
)
from keras_transformer.cli.line_files import check_files
from keras_transformer.cli.parser import Parser
from keras_transformer.errors import FileError, UserError, counted
from keras_transformer.tools import check_new_directory
from keras_transformer.tools.lines import refuse_pipe

DESCRIPTION = """Analyse the heads of a run: what they attend to, which roles they have, and which ones the model needs.

  python analyze.py --model_dir runs/mine --source val.en --reference val.de --output report
      writes report/report.html, a page for a browser, and report/heads.tsv, a table
  python analyze.py --model_dir runs/mine --source val.en --reference val.de --output report --silence true
      also measures the BLEU that is lost without each head, and without more and more of the least important heads
  python analyze.py --model_dir runs/mine --source val.en --reference val.de --output report --conllu val.conllu
      also finds heads that follow the dependency relations of val.en
  python analyze.py --model_dir runs/mine --source val.en --reference val.de --output report --prune 0.3 \\
    --pruned_dir runs/small
      also removes 30 % of the heads, writes the run runs/small, and prints BLEU and speed step by step.
      `train.py --config runs/small/config.yaml` goes on training it

The page needs no network and no server. Open it with a browser."""

KEPT = 50  # pairs whose attention is in the page
STEPS, PRUNED_STEPS = 10, 4  # of the curves of silent and of pruned heads


def make_parser():
    """The `Parser` of the program."""
    parser = Parser(DESCRIPTION)
    parser.add_argument("--model_dir", required=True, help="run directory of a Transformer that train.py wrote")
    add_checkpoint_argument(parser)
    add_language_arguments(parser)
    parser.add_argument("--source", type=Path, required=True, help="file of source sentences, one on every line")
    parser.add_argument("--reference", type=Path, required=True, help="file of their translations, line by line")
    parser.add_argument("--output", type=Path, required=True, help="directory for report.html and heads.tsv")
    parser.add_argument(
        "--alignments",
        type=Path,
        help="file of word alignments in Pharaoh's format, one line for each pair. In 0-0 1-2, source word 1 belongs "
        "to target word 2. The first word is 0, and white space divides words",
    )
    parser.add_argument("--conllu", type=Path, help="CoNLL-U file of dependency parses of the lines of --source")
    parser.add_argument(
        "--silence",
        type=bool,
        nargs="?",
        const=True,
        default=False,
        metavar="{true,false}",
        help="measure the BLEU that is lost without each head. For every head, --sentences are translated once "
        "(default: false)",
    )
    parser.add_argument("--prune", type=float, help="remove this share of the heads, the least important ones first")
    parser.add_argument("--pruned_dir", type=Path, help="new run directory for the model after --prune")
    parser.add_argument(
        "--sentences", type=int, default=200, help="sentences to translate for every BLEU (default: 200)"
    )
    parser.add_argument("--batch_size", type=int, default=32, help="sentences to read at a time (default: 32)")
    add_search_arguments(parser)
    return parser


def parse_arguments(parser):
    """The flags, checked. Raises UserError."""
    arguments = parser.parse_args()
    check_ranges(arguments)
    if arguments.sentences < 1:
        raise UserError(f"--sentences must be at least 1. Received: {arguments.sentences}")
    if (arguments.prune is None) != (arguments.pruned_dir is None):
        raise UserError("--prune and --pruned_dir need each other: give both or none")
    if arguments.prune is not None and not 0 < arguments.prune < 1:
        raise UserError(f"--prune must be between 0 and 1. Received: {arguments.prune}")
    given = [name for name in ("beam_size", "length_penalty") if getattr(arguments, name) is not None]
    if given and not (arguments.silence or arguments.prune):
        raise UserError(f"--{given[0]} has no effect without --silence or --prune: leave it out")
    for path in (arguments.source, arguments.reference, arguments.alignments, arguments.conllu):
        check_files(path, None)
        refuse_pipe(path)
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
    from keras_transformer.data.text_files import open_aligned_files
    from keras_transformer.tools.analysis.annotations import read_alignments, read_conllu

    texts, references = map(list, zip(*open_aligned_files(arguments.source, arguments.reference), strict=True))
    alignments = arguments.alignments and read_alignments(arguments.alignments, texts, references)
    return texts, references, alignments, arguments.conllu and read_conllu(arguments.conllu, texts)


def measuring(arguments):
    """The function (translations, references) -> `Evaluation` that divides words as the run does for its own BLEU."""
    from keras_transformer.evaluation import measure
    from keras_transformer.training.run_directory import RunDirectory

    run = RunDirectory(arguments.model_dir)
    target_lang = arguments.target_lang or run.languages()[1]
    return functools.partial(measure, tokenize=run.tokenization(target_lang), target_lang=target_lang)


def describe_score(arguments, references):
    """How BLEU is measured: str with the number of sentences and sacreBLEU's signature."""
    signature = measuring(arguments)(references, references).bleu_signature
    return f"BLEU of the first {counted(len(references), 'sentence')} ({signature})"


def silence(arguments, translator, found, texts, references):
    """What is lost without each head, and the curves of the report."""
    from tqdm import tqdm

    from keras_transformer.tools.analysis.silencing import curve, losses

    corpus, evaluate = (texts[: arguments.sentences], references[: arguments.sentences]), measuring(arguments)

    def bleu(translations, references):
        return evaluate(translations, references).bleu

    counts = sorted({round(len(found) * step / STEPS) for step in range(STEPS + 1)})
    with tqdm(total=1 + len(found) + len(counts), unit=" translations", disable=None) as progress:
        _, lost = losses(translator, *corpus, bleu, progress.update)
        scores = curve(translator, *corpus, bleu, found.importance, counts, progress.update)
    points = [(count / len(found), score) for count, score in zip(counts, scores, strict=True)]
    return lost, [("BLEU against the share of silent heads", points)]


def prune(arguments, translator, found, texts, references):
    """Prunes in steps and keeps the last model. Returns the curves of the report, and lines about them."""
    from tqdm import tqdm

    from keras_transformer.runs import Run
    from keras_transformer.tools.analysis.pruning import keep_pruned, pruned_curve

    corpus, evaluate = (texts[: arguments.sentences], references[: arguments.sentences]), measuring(arguments)
    most = round(len(found) * arguments.prune)
    counts = sorted({round(most * step / PRUNED_STEPS) for step in range(PRUNED_STEPS + 1)})
    with tqdm(total=len(counts), unit=" models", disable=None) as progress:
        rows = pruned_curve(
            translator, *corpus, lambda *sides: evaluate(*sides).bleu, found.importance, counts, progress.update
        )
    keep_pruned(Run(arguments.model_dir), rows[-1][3], arguments.pruned_dir)
    lines = [
        f"{counted(count, 'head')} less: BLEU {bleu:.1f}, {speed:.1f} sentences/s, {model.count_params():,} parameters"
        for count, bleu, speed, model in rows
    ]
    lines.append(f"pruned         {arguments.pruned_dir}")
    lines.append(f"train it on    {console.command('train', '--config', Path(arguments.pruned_dir, 'config.yaml'))}")
    bleus = [(count / len(found), bleu) for count, bleu, *_ in rows]
    speeds = [(count / len(found), speed) for count, _, speed, _ in rows]
    return [("BLEU against the share of pruned heads", bleus), ("Sentences per second", speeds)], lines


def summarise(found):
    """The heads with a role, a line for each, and the most and least important heads: str."""
    lines = [f"{name:14} {', '.join(roles)}" for name, roles in zip(found.names, found.roles, strict=True) if roles]
    order = [found.names[head] for head in found.importance.argsort(kind="stable")]
    return "\n".join([*lines, f"most needed    {', '.join(order[:-4:-1])}", f"least needed   {', '.join(order[:3])}"])


def main(arguments):
    """Analyses."""
    from tqdm import tqdm

    from keras_transformer.runs import Run
    from keras_transformer.tools.analysis.gates import count_heads
    from keras_transformer.tools.analysis.report import write_report
    from keras_transformer.tools.analysis.survey import heads

    texts, references, alignments, trees = read(arguments)
    search = {name: getattr(arguments, name) for name in ("beam_size", "length_penalty", "batch_size")}
    translator = Run(arguments.model_dir).translator(arguments.checkpoint, **search).between(**languages(arguments))
    number = count_heads(translator.model)  # another model than a Transformer is found early
    if arguments.prune and not round(number * arguments.prune):
        raise UserError(f"--prune must be at least half of one of {number} heads. Received: {arguments.prune}")
    if arguments.pruned_dir:
        check_new_directory(arguments.pruned_dir)
    make_directory(arguments.output)
    with tqdm(total=len(texts), unit=" sentences", disable=None) as progress:
        found = heads(translator, texts, references, alignments, trees, KEPT, progress.update)
    report = {"title": f"The heads of {arguments.model_dir}", "texts": texts, "references": references}
    report["score"] = describe_score(arguments, references[: arguments.sentences])
    path = write_report(arguments.output, translator, found, **report)  # it stays if the rest is interrupted
    lines = [summarise(found)]
    if arguments.silence:
        report["lost"], report["curves"] = silence(arguments, translator, found, texts, references)
        write_report(arguments.output, translator, found, **report)
    if arguments.prune:
        curves, of_models = prune(arguments, translator, found, texts, references)
        report["curves"] = [*report.get("curves", []), *curves]
        lines += of_models
        write_report(arguments.output, translator, found, **report)
    print("\n".join([*lines, f"report         {path}"]))


def program():
    """The program, from its command line to its exit status."""
    parser = make_parser()
    with console.program(parser.flags):
        arguments = parse_arguments(parser)
        console.import_tensorflow()
        main(arguments)
