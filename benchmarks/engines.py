"""The processor time of SavedModels beside CTranslate2 with the same weights: one sentence, and a batch of 32.

    python -m benchmarks.engines --model_dir runs/tiny --model_dir runs/tiny_6_1 --source test.en
    python -m benchmarks.engines --model_dir runs/base --source test.en --tokens 14

Every run is exported for both engines in float32, with a beam of 4. One process asks them in turn, round by round, with
one thread. Each figure is the median over the rounds of a ratio to CTranslate2 with the weights of the first run, so it
means something on a busy machine, too. CTranslate2 does not run `--decoder ssru`, so such a run has its SavedModel
alone, and must not be the first. A batch has a ratio of rates, so more is better.

`--compile` adds the compiled SavedModel of every run (`export.py --compile true`), with programs of `--compile_rows`.

`--tokens N` limits every search to N steps, and CTranslate2 never ends a search before. A model of random weights knows
no end, so it takes N steps in both engines, as a trained model of that size would. These flags make such a run:

    python train.py --preset base --max_steps 1 --peak_learning_rate 1e-9 --batch_tokens 512 --model_dir runs/base ...
"""

import argparse
import functools
import os
import tempfile
from pathlib import Path

from benchmarks.compare_exports import in_turn, requests_of, seconds_of
from benchmarks.decode_speed import export_to, load_ctranslate2, load_saved_model, tag_of
from keras_transformer.cli.console import import_tensorflow, program
from keras_transformer.errors import UserError, check_positive
from keras_transformer.presets import PROGRAM_LENGTHS, PROGRAM_ROWS

ROUNDS, BEAM_SIZE, BATCH_SIZE = 5, 4, 32


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model_dir", action="append", required=True, help="run directory, repeatable")
    parser.add_argument("--source", type=Path, required=True, help="file of sentences to translate, one a line")
    parser.add_argument("--tokens", type=int, help="steps of every search (default: as many as a translation has)")
    parser.add_argument("--compile", action="store_true", help="also measure compiled SavedModels")
    rows = f"with --compile: rows of the programs (default: {' '.join(map(str, PROGRAM_ROWS))})"
    parser.add_argument("--compile_rows", type=int, nargs="+", default=PROGRAM_ROWS, metavar="N", help=rows)
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"rounds of all engines (default: {ROUNDS})")
    return parser.parse_args()


def load_engines(model_dirs, tokens, compiled_rows=None):
    """Exports every run for both engines and loads the exports: dict of name -> function from texts to translations."""
    from keras_transformer.export.saved_model import SavedModelExport
    from keras_transformer.runs import Run
    from keras_transformer.tools.engines.compiled import CompiledExport, Programs, checked_programs
    from keras_transformer.tools.engines.ctranslate2 import CTranslate2Export

    engines, steps = {}, tokens or 0
    for model_dir in model_dirs:
        translator, name = Run(model_dir).translator(beam_size=BEAM_SIZE), Path(model_dir).name
        with tempfile.TemporaryDirectory() as directory:
            if translator.model.autoregression == "attention":
                export = CTranslate2Export(translator)
                path = export_to(directory, "CTranslate2", export)
                engines[f"CTranslate2 of {name}"] = load_ctranslate2(path, BEAM_SIZE, tag_of(export), 1, steps)
            path = export_to(directory, "SavedModel", SavedModelExport(translator))
            engines[f"SavedModel of {name}"] = load_saved_model(path, steps)
            if compiled_rows:
                programs = checked_programs(Programs(tuple(compiled_rows), PROGRAM_LENGTHS), translator.model)
                path = export_to(directory, "compiled", CompiledExport(translator, programs=programs))
                engines[f"compiled SavedModel of {name}"] = load_saved_model(path)
    return {name: functools.partial(translate, is_penalised=not tokens) for name, translate in engines.items()}


def main(arguments):
    if arguments.compile and arguments.tokens:
        raise UserError("--tokens needs options, which compiled searches do not have: leave out one of the flags")
    check_positive(rounds=arguments.rounds, tokens=1 if arguments.tokens is None else arguments.tokens)
    lines = arguments.source.read_text(encoding="utf-8").splitlines()
    engines = load_engines(arguments.model_dir, arguments.tokens, arguments.compile_rows if arguments.compile else None)
    measured = []
    for requests in requests_of(lines, [BATCH_SIZE]).values():
        for translate in engines.values():
            seconds_of(translate, requests)  # the warm-up
        measured.append(in_turn(engines.values(), requests, arguments.rounds))
    print("| engine | one sentence | ratio of time | batch of 32 | ratio of rate |\n|---|---|---|---|---|")
    for name, (single, ratio), (batch, batch_ratio) in zip(engines, *measured, strict=True):
        print(f"| {name} | {1000 * single:.1f} ms | {ratio:.2f} | {1000 * batch:.0f} ms | {1 / batch_ratio:.2f} |")


if __name__ == "__main__":
    with program():
        arguments = parse_arguments()
        os.environ["CUDA_VISIBLE_DEVICES"] = ""  # Compares the engines on CPU.
        import_tensorflow()
        main(arguments)
