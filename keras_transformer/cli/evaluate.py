"""Scores a run, an export or a file of translations on a test set with sacreBLEU, alone or against a baseline."""

import argparse
import time
from pathlib import Path

from keras_transformer.cli import console
from keras_transformer.cli.flags import (
    add_translator_arguments,
    check_litert,
    check_ranges,
    check_width,
    load_translator,
    search_options,
)
from keras_transformer.cli.line_files import check_files, write_lines
from keras_transformer.cli.parser import Parser
from keras_transformer.errors import FileError, UserError, counted
from keras_transformer.process import find_tool
from keras_transformer.tools.lines import refuse_pipe
from keras_transformer.translation.options import options_of

DESCRIPTION = """Translate a test set and score the translations with sacreBLEU.

  python evaluate.py --model_dir runs/mine --source test.en --reference test.de
      BLEU and chrF with their signatures, the share of exact translations, and the speed
  python evaluate.py --saved_model exports/mine --source test.en --reference test.de --output mine.de
      the same for an exported model. mine.de keeps the translations
  python evaluate.py --model_dir runs/new --baseline runs/old --source test.en --reference test.de
      whether the new run is better: BLEU, chrF and TER of both, with 95 % confidence intervals and p-values
  python evaluate.py --model_dir runs/mine --source test.en --reference a.de b.de --perplexity
      scores against two references, and how well the model predicts them (loss and perplexity)
  python evaluate.py --model_dir runs/many --source_lang de --target_lang fr --source test.de --reference test.fr
      a direction of a model of many languages, which may be one without a corpus of its own
  python evaluate.py --hypotheses new.de --reference test.de
      the score of the translations of any system, one on every line. No model is loaded
  python evaluate.py --hypotheses new.de --baseline old.de --reference test.de
      a comparison of two files. Each side of a comparison can be a file or a model
  python evaluate.py --model_dir runs/new --baseline runs/old --source test.en --reference test.de --report report.html
      also writes a page for a browser: scores by length and by frequency of words, and the sentences that differ most
  python evaluate.py --model_dir runs/mine --source test.en --reference test.de --corpora test.names
      also BLEU of each corpus: line by line, test.names names the corpus, or the subject, of the sentence
  python evaluate.py --hypotheses new.de --source test.en --reference test.de --comet models/wmt22-comet-da
      also scores with a COMET model on the disk. It needs the package unbabel-comet

The p-value says how often chance alone gives a difference of this size. A difference is called significant if its
p-value is below 0.05."""

MODEL_OR_FILE = ("model_dir", "saved_model", "litert", "hypotheses")


def make_parser():
    """The `Parser` of the program."""
    parser = Parser(DESCRIPTION)
    add_translator_arguments(parser, hypotheses="file of translations to score. No model is needed")
    parser.add_argument(
        "--baseline",
        type=Path,
        help="run directory, EXPORT_DIR, EXPORT_DIR/VERSION or file of translations to compare with. Both models "
        "translate with the same search options",
    )
    parser.add_argument(
        "--source", type=Path, help="file of sentences to translate, one on every line. Every model needs it"
    )
    parser.add_argument(
        "--reference", type=Path, required=True, nargs="+", help="one or more files of right translations, line by line"
    )
    parser.add_argument(
        "--perplexity",
        action="store_true",
        help="also print how well the model predicts the references: loss (cross-entropy) and perplexity of a piece",
    )
    parser.add_argument(
        "--tokenize",
        default="auto",
        help="how sacreBLEU splits words: 13a for raw text, none for tokenised text, zh, ja-mecab, char, ... auto: "
        "sacreBLEU's choice for --target_lang, else for the language of the model, else for the ending of --reference, "
        "and characters for a text without spaces (default: auto)",
    )
    parser.add_argument("--output", help="file for the translations of the model")
    parser.add_argument(
        "--report",
        help="HTML file for a report of the system, or of the system and its baseline. It needs no network",
    )
    parser.add_argument(
        "--corpora",
        type=Path,
        help="file that names the corpus of every sentence, on a line each. Their scores are printed, too, and are in "
        "the report",
    )
    parser.add_argument(
        "--comet",
        metavar="MODEL_DIR",
        help="directory of a COMET model (hparams.yaml and checkpoints/model.ckpt). It needs --source and the package "
        "unbabel-comet. Nothing is downloaded",
    )
    return parser


def parse_arguments(parser):
    """The flags, checked. Raises UserError."""
    arguments = parser.parse_args()
    check_ranges(arguments)
    check_together(arguments)
    return arguments


def check_together(arguments):
    """Raises UserError for flags that do not go together and for files that cannot be used."""
    systems = systems_of(arguments)
    for system in systems:
        check_litert(system, "perplexity")
    if not all(system.hypotheses for system in systems):
        if not arguments.source:
            raise UserError("a model needs --source, the file of sentences to translate")
    else:
        options = [option.name for option in options_of("translate_with_options")]
        for name in (*options, "shortlist", "glossary", "protect", "source_lang", "checkpoint"):
            if getattr(arguments, name) not in (None, False, "average"):
                raise UserError(f"--{name} needs a model, and there are only files: leave it out")
        if arguments.target_lang and arguments.tokenize != "auto":
            raise UserError("--target_lang has no effect without --tokenize auto: leave one out")
    for name in ("output", "perplexity"):
        if getattr(arguments, name) and arguments.hypotheses:
            raise UserError(f"--{name} needs a model, and does not go with --hypotheses: leave one out")
    if arguments.comet and not arguments.source:
        raise UserError("--comet needs --source, the file of sentences that were translated")
    if arguments.report and arguments.output and _are_one(arguments.report, arguments.output):
        raise UserError(f"--report and --output need a file each. Received: {arguments.report} for both")
    for path in (arguments.source, arguments.corpora, *arguments.reference, *(system.hypotheses for system in systems)):
        check_files(path, arguments.output)
        check_files(path, arguments.report)
        refuse_pipe(path)


def _are_one(path, other):
    return Path(path).resolve() == Path(other).resolve()


def systems_of(arguments):
    """The flags of the system and, if there is one, of its baseline: list of 1 or 2 argparse namespaces.

    Each has exactly one of MODEL_OR_FILE.
    """
    path = arguments.baseline
    if path is None:
        return [arguments]
    if not path.exists():
        raise UserError(f"--baseline {path}: there is no such file or directory")
    if not path.is_dir():
        kind = "hypotheses"
    elif (path / "config.yaml").exists():
        kind = "model_dir"
    else:
        kind = "litert" if any(path.glob("**/model.tflite")) else "saved_model"
    baseline = {**dict.fromkeys(MODEL_OR_FILE), kind: [path] if kind == "model_dir" else path}
    baseline |= {} if kind == "model_dir" else {"checkpoint": "average"}  # an export has one
    return [arguments, argparse.Namespace(**{**vars(arguments), **baseline})]


def read_lines(systems):
    """Reads the files.

    Args:
        systems: as `systems_of` gives.

    Returns:
        (for every system its translations or, of a model, the source; the references): lists of str. Several
        references of a sentence are a tuple.

    Raises:
        CorpusError: if a file cannot be read, or has not as many lines as the references.
    """
    from keras_transformer.data.text_files import open_aligned_files

    texts, references = [], []
    for system in systems:
        path = Path(system.hypotheses or system.source)
        files = [open_aligned_files(path, reference) for reference in system.reference]
        texts.append([line for line, _ in files[0]])
        references = [[reference for _, reference in pairs] for pairs in files]
    return texts, references[0] if len(references) == 1 else list(zip(*references, strict=True))


def read_sources(arguments):
    """The lines of `--source` for a report or COMET, a list of str; None without it. Raises CorpusError."""
    from keras_transformer.data.text_files import open_aligned_files

    if not arguments.source or not (arguments.report or arguments.comet):
        return None
    return [line for line, _ in open_aligned_files(arguments.source, arguments.reference[0])]


def read_corpora(arguments):
    """The sentences of each corpus of `--corpora`: name -> list of int; {} without it. Raises UserError."""
    from keras_transformer.data.text_files import open_aligned_files

    corpora = {}
    if arguments.corpora:
        for row, (name, _) in enumerate(open_aligned_files(arguments.corpora, arguments.reference[0])):
            if not name.strip():
                raise UserError(f"every line of --corpora names a corpus. Received: line {row + 1} is blank")
            corpora.setdefault(name.strip(), []).append(row)
    return corpora


def describe_corpora(arguments, corpora, translations, references):
    """One line for each corpus: the BLEU of every system, and the number of sentences. A list of str."""
    from keras_transformer.evaluation import said_once

    bleu, lines = bleu_of(arguments, references) if corpora else None, []
    for name, rows in corpora.items():
        columns = [list(column) for column in zip(*(references[row] for row in rows), strict=True)]
        with said_once():
            scores = [bleu.corpus_score([of_system[row] for row in rows], columns).score for of_system in translations]
        scores = " and ".join(f"{score:.1f}" for score in scores)
        lines.append(f"BLEU {scores} of {counted(len(rows), 'sentence')}: {name}")
    return lines


def bleu_of(arguments, references):
    """sacreBLEU's BLEU with the tokenization that suits the references, a list of lists of str."""
    from keras_transformer.evaluation import bleu_metric

    columns = [list(column) for column in zip(*references, strict=True)]
    return bleu_metric(arguments.tokenize, columns, target_language(arguments))


def target_language(arguments):
    """The language of the translations: the flag, or else the ending of the references, such as .zh or .zh.gz."""
    return arguments.target_lang or Path(arguments.reference[0].name.removesuffix(".gz")).suffix[1:]


def load(system):
    """The translator that a system is; None for a file of translations."""
    if system.hypotheses:
        return None
    if not system.litert:
        console.import_tensorflow()
    translator = load_translator(system)
    check_width(translator, beam_size=search_options(system).get("beam_size"))
    return translator


def translate(system, translator, texts):
    """(translations, texts per second) of a model. A file's texts are its translations, and it has no speed."""
    if translator is None:
        return texts, None
    from tqdm import tqdm

    options = search_options(system)
    translator.translate(texts[:1], **options)  # the graph is built at the first call
    started = time.perf_counter()
    with tqdm(total=len(texts), unit=" sentences", disable=None) as progress:
        translations = translator.translate(texts, progress.update, **options)
    return translations, len(texts) / (time.perf_counter() - started)


def keep(translations, path):
    """Writes a line for every translation. Returns the FileError of a failure, because the scores come first."""
    try:
        write_lines(path, translations)
    except FileError as error:
        return error


def open_comet(arguments, references, sources):
    """The COMET of a list of translations: a function to float; None without `--comet`. Raises UserError."""
    if not arguments.comet:
        return None
    comet = find_tool("comparison.comet", "--comet")
    model = comet.load_comet(arguments.comet)
    return lambda texts: comet.comet_score(model, texts, references, sources, arguments.batch_size)


def name_of(system):
    """How the report calls a system: by its path."""
    path = next(value for name in MODEL_OR_FILE if (value := getattr(system, name)))
    return " + ".join(map(str, path)) if isinstance(path, list) else str(path)


def score(translations, references, arguments):
    """Scores one system, or two.

    Args:
        translations: one or two lists of str.
        references: as `read_lines` gives.
        arguments: parsed flags.

    Returns:
        (list of `Interval` or `Comparison` for a report; None without one, str for the user).
    """
    from keras_transformer.evaluation import measure

    how = {"tokenize": arguments.tokenize, "target_lang": target_language(arguments)}
    if len(translations) > 1:
        significance = find_tool("comparison.significance", "--baseline")
        found = significance.compare(*translations, references, **how)
        return found, significance.describe_comparison(found)
    text = console.describe_scores(measure(*translations, references, **how))
    if not arguments.report:
        return None, text
    significance = find_tool("comparison.significance", "--report")
    found = significance.intervals(*translations, references, **how)
    return found, f"{text}\n{significance.describe_intervals(found)}"


def write_report(report, arguments, translations, comets, task, found, printed):
    """Writes the report.

    Args:
        report: the module of the tool.
        arguments: parsed flags.
        translations: one or two lists of str.
        comets: list of float, the COMET of each system; [] if it is not known.
        task: (references, a list of lists of str; sources, a list of str or None; corpora as `read_corpora` gives).
        found: list of `Interval` or `Comparison`, as `score` gives.
        printed: list of str, the lines that the program has printed.
    """
    systems = systems_of(arguments)
    run = next((system.model_dir[0] for system in systems if system.model_dir), None)
    task = report.Task(*task[:2], bleu_of(arguments, task[0]), task[2])
    shown = map(report.System, map(name_of, systems), translations, comets or [None] * len(systems))
    printed = "\n".join(printed)
    report.write_report(arguments.report, [*shown], task, found, printed, run, arguments.comet)


def translate_all(arguments, systems, translators, texts):
    """The translations of each system, its speed or None, and the FileError of a failure to keep the first ones."""
    first = translate(systems[0], translators[0], texts[0])
    failure = keep(first[0], arguments.output) if arguments.output else None
    found = [first, *map(translate, systems[1:], translators[1:], texts[1:])]
    return *map(list, zip(*found, strict=True)), failure


def main(arguments):
    """Translates and scores."""
    from keras_transformer.evaluation import check_tokenization, written_by

    systems, printed = systems_of(arguments), []
    texts, references = read_lines(systems)
    rows = [[row] if isinstance(row, str) else list(row) for row in references]
    sources, corpora = read_sources(arguments), read_corpora(arguments)
    check_tokenization(arguments.tokenize)
    report = find_tool("comparison.report", "--report") if arguments.report else None
    prediction = find_tool("comparison.prediction", "--perplexity") if arguments.perplexity else None
    comet = open_comet(arguments, rows, sources)
    translators = [load(system) for system in systems]  # a model that is missing is found early
    known = map(written_by, translators)  # a file does not know its language
    arguments.target_lang = next(filter(None, [arguments.target_lang, *known]), None)

    def say(line):
        print(line)
        printed.append(line)

    translations, speeds, failure = translate_all(arguments, systems, translators, texts)
    found, scores = score(translations, references, arguments)
    say(scores)
    for line in describe_corpora(arguments, corpora, translations, rows):
        say(line)
    comets = [comet(of_system) for of_system in translations] if comet else []
    for of_whom, value in zip(("", " (baseline)"), comets, strict=False):
        say(f"COMET {value:.4f} ({arguments.comet}){of_whom}")
    for of_whom, translator, speed in zip(("", " (baseline)"), translators, speeds, strict=False):
        if translator and prediction:
            say(f"{prediction.describe_perplexity(translator, texts[0], references)}{of_whom}")
        if speed:
            say(f"{speed:.1f} sentences/s{of_whom}")
    if report:
        write_report(report, arguments, translations, comets, (rows, sources, corpora), found, printed)
        print(f"report {arguments.report}")
    if failure:
        raise failure


def program():
    """The program, from its command line to its exit status."""
    parser = make_parser()
    with console.program(parser.flags):
        main(parse_arguments(parser))
