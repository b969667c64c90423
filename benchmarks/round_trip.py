"""Sends a run to other engines and back: how many of its translations are still the same.

    python -m benchmarks.round_trip --model_dir runs/base --source test.en
    python -m benchmarks.round_trip --model_dir runs/base --source test.en --engines hugging_face  # beside PyTorch

"there" counts the translations of the engine that are those of the run, as the proof of the export finds them: greedy
for LiteRT and Hugging Face, else of a beam of 4. "back" imports the export as a new run, and counts its translations
by a beam of 4. LiteRT's files are of no model that can be imported. The table is in Markdown.
"""

import argparse
import tempfile
from pathlib import Path

from keras_transformer.cli.console import import_tensorflow, program
from keras_transformer.errors import check_positive

ENGINES, LINES = ("ctranslate2", "argos", "litert", "hugging_face"), 200
HOW = {"beam_size": 4, "length_penalty": 0.0, "split_sentences": False}


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model_dir", required=True, help="run directory")
    parser.add_argument("--source", type=Path, required=True, help="file of sentences to translate, one a line")
    parser.add_argument("--lines", type=int, default=LINES, help=f"number of its first lines (default: {LINES})")
    parser.add_argument("--engines", nargs="+", choices=ENGINES, default=ENGINES[:3], help="default: all but the last")
    return parser.parse_args()


def sent_and_back(run, engine, lines, directory):
    """Exports a run and imports the export: how many translations are equal there, and back, two str."""
    from keras_transformer.export.manifest import read_manifest
    from keras_transformer.export.versions import export_version
    from keras_transformer.tools.engines import export_class
    from keras_transformer.tools.importing import import_model

    translator = run.translator(**HOW)
    path = export_version(export_class(engine)(translator), directory / engine, sentences=lines)
    proof = read_manifest(path)["parity"]
    there = f"{proof['equal']} of {proof['sentences']}"
    if engine == "litert":
        return there, "-"
    (path, *_) = [*path.glob("*.argosmodel"), path]
    again = import_model(path, directory / f"{engine}_run", *translator.languages)
    pairs = zip(again.translator(**HOW).translate(lines), translator.translate(lines), strict=True)
    return there, f"{sum(one == other for one, other in pairs)} of {len(lines)}"


def main(arguments):
    from keras_transformer.runs import Run

    check_positive(lines=arguments.lines)
    lines = arguments.source.read_text(encoding="utf-8").splitlines()[: arguments.lines]
    print("| engine | there | back |\n|---|---|---|")
    for engine in arguments.engines:
        with tempfile.TemporaryDirectory() as directory:
            there, back = sent_and_back(Run(arguments.model_dir), engine, lines, Path(directory))
        print(f"| {engine} | {there} | {back} |", flush=True)


if __name__ == "__main__":
    with program():
        arguments = parse_arguments()
        import_tensorflow()
        main(arguments)
