"""The processor time of SavedModels beside CTranslate2 with the same weights: one sentence, and a batch of 32.

    python -m benchmarks.engines --model_dir runs/tiny --model_dir runs/tiny_6_1 --source test.en
    python -m benchmarks.engines --model_dir runs/base --source test.en --tokens 14

Every run is exported for both engines in float32, with a beam of 4. One process asks them in turn, round by round, with
one thread. Each figure is the median over the rounds of a ratio to CTranslate2 with the weights of the first run, so it
means something on a busy machine, too. A batch has a ratio of rates, so more is better.

`--tokens N` lets every search of both engines take exactly N steps. So a model of random weights, which knows no end,
shows the speed of a trained one. These flags make such a run:

    python train.py --preset base --max_steps 1 --peak_learning_rate 1e-9 --batch_tokens 512 --model_dir runs/base ...
"""

import argparse
import os
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.decode_speed import UNPENALISED
from benchmarks.session import Session
from keras_transformer.cli.console import import_tensorflow, program
from keras_transformer.errors import check_positive

ROUNDS, BEAM_SIZE, LONGEST = 5, 4, 256
SINGLES, BATCHES, BATCH_SIZE = 20, 3, 32


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model_dir", action="append", required=True, help="run directory, repeatable")
    parser.add_argument("--source", type=Path, required=True, help="file of sentences to translate, one a line")
    parser.add_argument("--tokens", type=int, help="steps of every search (default: as many as a translation has)")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"rounds of all engines (default: {ROUNDS})")
    return parser.parse_args()


def saved_model(directory, tokens):
    """Loads a SavedModel as TensorFlow Serving does: a function from list of str to the translations."""
    session, options = Session(directory), dict(UNPENALISED)
    if tokens is None:
        call, options = session.signature("serving_default", outputs=["translation"]), {}
    else:
        call = session.signature("translate_with_options", ["text", *options], ["translation"])
        options["max_length"] = np.int32(tokens)

    def translate(texts):
        rows = np.array([text.encode("utf-8") for text in texts], object)
        (found,) = call(rows, *(np.array([option] * len(rows)) for option in options.values()))
        return [text.decode("utf-8") for text in found]

    return translate


def ctranslate2_model(directory, tokens):
    """Loads a CTranslate2 export: a function from list of str to the translations."""
    import ctranslate2
    import sentencepiece

    pieces = sentencepiece.SentencePieceProcessor(model_file=str(directory / "tokenizer.model"))
    engine = ctranslate2.Translator(str(directory), inter_threads=1, intra_threads=1)
    length = {"max_decoding_length": tokens or LONGEST, "min_decoding_length": tokens or 1}

    def translate(texts):
        found = engine.translate_batch(pieces.encode(texts, out_type=str), beam_size=BEAM_SIZE, **length)
        return [pieces.decode(result.hypotheses[0]) for result in found]

    return translate


def load_engines(model_dirs, tokens):
    """Exports every run for both engines and loads the exports: dict of name -> function from texts to translations."""
    from keras_transformer.export.ctranslate2 import CTranslate2Export
    from keras_transformer.export.saved_model import SavedModelExport
    from keras_transformer.runs import Run

    engines = {}
    for model_dir in model_dirs:
        translator = Run(model_dir).translator(beam_size=BEAM_SIZE)
        kinds = {
            "CTranslate2": (CTranslate2Export, ctranslate2_model),
            "SavedModel": (SavedModelExport, saved_model),
        }
        for kind, (export, load) in kinds.items():
            with tempfile.TemporaryDirectory() as directory:
                export(translator).write(Path(directory))
                engines[f"{kind} of {Path(model_dir).name}"] = load(Path(directory), tokens)
    return engines


def requests_of(lines):
    """The requests of each kind: single sentences over the whole file, and batches of sentences of about one length."""
    ordered = sorted(lines, key=len)
    singles = [[lines[row]] for row in np.linspace(0, len(lines) - 1, SINGLES, dtype=int)]
    starts = np.linspace(0, max(len(lines) - BATCH_SIZE, 0), BATCHES, dtype=int)
    return singles, [ordered[start : start + BATCH_SIZE] for start in starts]


def seconds_of(translate, requests):
    """The processor seconds of some requests, one after the other."""
    started = time.process_time()
    for texts in requests:
        translate(texts)
    return time.process_time() - started


def main(arguments):
    check_positive(rounds=arguments.rounds, tokens=1 if arguments.tokens is None else arguments.tokens)
    lines = arguments.source.read_text(encoding="utf-8").splitlines()
    engines = load_engines(arguments.model_dir, arguments.tokens)
    measured = []  # of each kind of requests, for each engine: the median seconds of a request, and the median ratio
    for requests in requests_of(lines):
        for translate in engines.values():
            seconds_of(translate, requests)  # the warm-up
        rounds = [[seconds_of(translate, requests) for translate in engines.values()] for _ in range(arguments.rounds)]
        each = [statistics.median(of_engine) / len(requests) for of_engine in zip(*rounds, strict=True)]
        ratios = [statistics.median(row[number] / row[0] for row in rounds) for number in range(len(engines))]
        measured.append(list(zip(each, ratios, strict=True)))
    print("| engine | one sentence | ratio of time | batch of 32 | ratio of rate |\n|---|---|---|---|---|")
    for name, (single, ratio), (batch, batch_ratio) in zip(engines, *measured, strict=True):
        print(f"| {name} | {1000 * single:.1f} ms | {ratio:.2f} | {1000 * batch:.0f} ms | {1 / batch_ratio:.2f} |")


if __name__ == "__main__":
    with program():
        arguments = parse_arguments()
        os.environ["CUDA_VISIBLE_DEVICES"] = ""  # Compares the engines on CPU.
        import_tensorflow()
        main(arguments)
