"""The translation speed of a trained run: as a SavedModel, in LiteRT, in Python, and in CTranslate2, same weights.

    python -m benchmarks.decode_speed --model_dir runs/mine --source test.en --reference test.de

Exports the run to a temporary directory. Every system translates the source on CPU, with beams of 4 and of 1:

- sentences/s: batches sorted by length, two batches at a time with one thread each;
- latency: every 10th sentence of the source alone, one after the other.

`--shortlist N` adds a SavedModel with a lexical shortlist, in float32. `--beside RUN` adds the SavedModel of another
run.

All systems take text and return text. Each system has its own process, and only one system works at a time. A first
pass without timing warms up the systems and gives the translations for BLEU. Each timed round includes all systems in
turn, so a busy minute affects all of them. The script prints the median over the rounds, and each figure's ratio to
CTranslate2 float32 with the same beam.

For every SavedModel, the script compares the size on disk with the size of the weights and the tokenizer. It also
prints the time to load, the time to a first translation, and the memory of both.

CTranslate2 translates every line as a whole, and divides scores by a length penalty of its own, n, so its BLEU may
differ. The script therefore also compares the two engines under equal conditions: text by text with a beam of 1, and in
BLEU with a beam of 4 without length penalty.
"""

import argparse
import dataclasses
import functools
import multiprocessing
import os
import platform
import statistics
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np

from benchmarks.session import Session
from keras_transformer.cli.console import import_tensorflow, program
from keras_transformer.config import Config
from keras_transformer.errors import check_positive
from keras_transformer.translation.lines import BATCHES_AT_ONCE, run_sorted

BEAM_SIZES = [4, 1]
ROUNDS = 3
SINGLES = 10  # Every 10th sentence is translated alone.
LONGEST = 256  # Tokens of a translation by CTranslate2.
BASELINE = "CTranslate2 float32"
PACKAGES = ("ctranslate2", "ai-edge-litert")  # Their versions are shown, too.
ENGINES = (BASELINE, "SavedModel float32")  # The two engines to compare.
UNPENALISED = {  # Options of `translate_with_options`. All but the first mean "not given".
    "length_penalty": np.float32(0),
    "prefix": b"",
    "beam_size": np.int32(0),
    "max_length": np.int32(0),
    "repetition_penalty": np.float32(0),
    "no_repeat_ngram": np.int32(0),
}
COLUMNS = {
    "system": "{:<24}",
    "beam": "{:>4}",
    "threads": "{:<24}",
    "sentences/s": "{:>11}",
    "speed ratio": "{:>11}",
    "median": "{:>8}",
    "time ratio": "{:>10}",
    "95th percentile": "{:>15}",
    "BLEU": "{:>5}",
}


@dataclasses.dataclass
class System:
    """One way to translate, with its measurements.

    Args:
        name: str.
        beam_size: int.
        threads: str, the setting of its threads.
        process: `ProcessPoolExecutor` of the system's process.
        rates: list of float, the sentences/s of every round.
        latencies: list of float, the seconds of every single sentence of all rounds.
        translations: list of str, from the first pass.
        bleu: float, of the first pass.
    """

    name: str
    beam_size: int
    threads: str
    process: ProcessPoolExecutor
    rates: list = dataclasses.field(default_factory=list)
    latencies: list = dataclasses.field(default_factory=list)
    translations: list = dataclasses.field(default_factory=list)
    bleu: float = 0.0

    @classmethod
    def start(cls, name, beam_size, threads, load, *arguments):
        """Starts a process in which `load(*arguments)` returns a function from texts to their translations."""
        spawn = multiprocessing.get_context("spawn")
        return cls(name, beam_size, threads, ProcessPoolExecutor(1, spawn, begin, (load, *arguments)))

    def ask(self, function, *arguments, **options):
        """Runs a function in the process of the system, and returns the result."""
        return self.process.submit(function, *arguments, **options).result()


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model_dir", required=True, help="run directory that train.py wrote")
    parser.add_argument("--source", type=Path, required=True, help="file of sentences to translate, one a line")
    parser.add_argument("--reference", type=Path, required=True, help="file of their translations, line by line")
    parser.add_argument("--tokenize", default="auto", help="sacreBLEU's word splitting (default: auto)")
    parser.add_argument("--shortlist", type=int, help="also measure a SavedModel with a shortlist of this size")
    parser.add_argument("--beside", action="append", default=[], metavar="RUN", help="another run, repeatable")
    parser.add_argument("--batch_size", type=int, default=32, help="sentences translated at a time (default: 32)")
    parser.add_argument("--beams", type=int, nargs="+", default=BEAM_SIZES, help="sizes of the beam (default: 4 1)")
    return parser.parse_args()


# Functions in the process of a system.

TRANSLATE = None  # Function from list of str to list of str. The engines' functions have an argument is_penalised.
LOAD_SECONDS, RESIDENT = 0.0, 0  # Seconds to load, and bytes of the process before loading.


def begin(load, *arguments):
    """Loads the system."""
    global TRANSLATE, LOAD_SECONDS, RESIDENT
    import psutil

    import_tensorflow()
    RESIDENT, started = psutil.Process().memory_info().rss, time.perf_counter()
    TRANSLATE = load(*arguments)
    LOAD_SECONDS = time.perf_counter() - started


def first_sentence(source):
    """Translates a first sentence: (seconds to load, seconds for the sentence, MiB of both)."""
    import psutil

    started = time.perf_counter()
    TRANSLATE([source])
    return LOAD_SECONDS, time.perf_counter() - started, (psutil.Process().memory_info().rss - RESIDENT) / 2**20


def translate_all(sources, batch_size, **how):
    """Translates all sources: (translations, seconds)."""
    started = time.perf_counter()
    translations = run_sorted(functools.partial(TRANSLATE, **how), sources, batch_size)
    return translations, time.perf_counter() - started


def translate_singly(sources):
    """Translates each source alone: list of seconds."""
    latencies = []
    for source in sources:
        started = time.perf_counter()
        TRANSLATE([source])
        latencies.append(time.perf_counter() - started)
    return latencies


def load_saved_model(directory, steps=0):
    """Loads a SavedModel with the Session loader, as TensorFlow Serving does.

    Args:
        directory: path.
        steps: int, most steps of a search without penalty; 0: as usual.
    """
    session = Session(directory)
    call = session.signature("serving_default", outputs=["translation"])
    call_with_options = session.signature("translate_with_options", ["text", *UNPENALISED], ["translation"])

    def translate(texts, is_penalised=True):
        rows = np.array([text.encode("utf-8") for text in texts], dtype=object)
        options = {**UNPENALISED, "max_length": np.int32(steps)}
        options = [np.array([option] * len(rows)) for option in options.values()]
        (translations,) = call(rows) if is_penalised else call_with_options(rows, *options)
        return [translation.decode("utf-8") for translation in translations]

    return translate


def load_translator(model_dir, beam_size):
    """Loads the run in Python."""
    import tensorflow as tf

    from keras_transformer.runs import Run

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(BATCHES_AT_ONCE)
    translator = Run(model_dir).translator(beam_size=beam_size)
    return lambda texts: translator.translate_batch(texts)[0]


def load_ctranslate2(directory, beam_size, tag, workers=BATCHES_AT_ONCE, steps=0):
    """Loads a CTranslate2 export, which translates whole lines.

    Args:
        directory: path.
        beam_size: int.
        tag: list of str, the piece before every text of a model of many languages; [] for a model of one direction.
        workers: batches at a time, by default as many as the other systems have.
        steps: int, steps of every search; 0: as many as a translation needs.
    """
    import ctranslate2
    import sentencepiece

    pieces = sentencepiece.SentencePieceProcessor(model_file=str(directory / "tokenizer.model"))
    engine = ctranslate2.Translator(str(directory), inter_threads=workers, intra_threads=1)

    def translate(texts, is_penalised=True):
        results = engine.translate_batch(
            [tag + row for row in pieces.encode(texts, out_type=str)],
            beam_size=beam_size,
            length_penalty=int(is_penalised),
            # The default is 1. Without a penalty, empty text can be best.
            min_decoding_length=steps or int(is_penalised),
            max_decoding_length=steps or LONGEST,
        )
        return [pieces.decode(result.hypotheses[0]) for result in results]

    return translate


def load_litert(directory):
    """Loads a LiteRT export, which translates as many sentences at a time as the other systems translate batches."""
    from keras_transformer.tools.engines.translate_litert import LiteRTTranslator

    return LiteRTTranslator(directory, BATCHES_AT_ONCE).translate


# Functions in the main process.


def export_to(directory, name, export):
    """Writes an export to a new directory. Returns its path."""
    print(f"exporting {name}", file=sys.stderr, flush=True)
    path = Path(directory, name.replace(" ", "_"))
    path.mkdir()
    export.write(path)
    return path


def tag_of(export):
    """The piece that a `CTranslate2Export` of many languages needs before every text, as a list; else []."""
    return [export.source_tag] if export.reference.tags else []


def start_systems(model_dir, directory, source, shortlist, beside, beams):
    """Exports a run in all formats, and loads every export: list of `System`, in the order of the beams.

    Args:
        model_dir: path of the run.
        directory: path of a directory for the exports.
        source: str, the first sentence to translate.
        shortlist: int, the size of the shortlist of one more SavedModel; None for none.
        beside: list of paths of other runs, each of which has one more SavedModel.
        beams: list of int, the sizes of the beam.
    """
    from keras_transformer.export.saved_model import SavedModelExport
    from keras_transformer.runs import Run
    from keras_transformer.tools.engines.ctranslate2 import CTranslate2Export
    from keras_transformer.tools.engines.litert import LiteRTExport

    systems = []
    for beam_size in beams:
        translator = Run(model_dir).translator(beam_size=beam_size)
        for quantization in ("float32", "int8"):
            name = f"CTranslate2 {quantization}"
            export = CTranslate2Export(translator, quantization)
            path = export_to(directory, f"{name} beam {beam_size}", export)
            threads = f"{BATCHES_AT_ONCE} workers of 1"
            systems.append(System.start(name, beam_size, threads, load_ctranslate2, path, beam_size, tag_of(export)))
        for quantization in ("float32", "int8"):
            name = f"LiteRT {quantization}"
            path = export_to(directory, f"{name} beam {beam_size}", LiteRTExport(translator, quantization))
            threads = f"{BATCHES_AT_ONCE} interpreters of 1"
            systems.append(System.start(name, beam_size, threads, load_litert, path))
        exports = {f"SavedModel {x}": (translator, x) for x in ("float32", "bfloat16")}
        if shortlist is not None:
            short = Run(model_dir).translator(beam_size=beam_size, shortlist=shortlist)
            exports[f"SavedModel list {shortlist}"] = (short, "float32")
        for other in beside:
            exports[f"SavedModel {Path(other).name}"] = (Run(other).translator(beam_size=beam_size), "float32")
        for name, (exported, precision) in exports.items():
            path = export_to(directory, f"{name} beam {beam_size}", SavedModelExport(exported, precision))
            systems.append(System.start(name, beam_size, "the caller's", load_saved_model, path))
            print(footprint(systems[-1], path, exported, precision, source), flush=True)
        threads = f"1 intra-op, {BATCHES_AT_ONCE} inter-op"
        systems.append(System.start("Translator in Python", beam_size, threads, load_translator, model_dir, beam_size))
    for system in systems:
        system.ask(first_sentence, source)  # After its first answer, a system no longer needs the directory.
    return systems


def footprint(system, directory, translator, precision, source):
    """Describes the size, the time to load and the memory of a SavedModel: str of one line."""
    size = sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())
    weights = sum(int(np.prod(weight.shape)) for weight in translator.model.weights)
    necessary = weights * (4 if precision == "float32" else 2) + len(translator.source_tokenizer.model)
    load_seconds, first_seconds, memory = system.ask(first_sentence, source)
    return (
        f"{system.name}, beam {system.beam_size}: {size / 1e6:.2f} MB on disk, {size / necessary - 1:.1%} more than "
        f"weights and tokenizer; loads in {load_seconds:.1f} s, first sentence {first_seconds:.1f} s later, "
        f"{memory:.0f} MiB"
    )


def measure_systems(systems, sources, references, tokenize, batch_size):
    """Measures all systems. Returns the signature of BLEU."""
    from tqdm import tqdm

    from keras_transformer.evaluation import measure

    with tqdm(total=len(systems) * (1 + ROUNDS), unit=" passes", disable=None) as progress:
        for system in systems:
            system.translations, _ = system.ask(translate_all, sources, batch_size)
            evaluation = measure(system.translations, references, tokenize)
            system.bleu = evaluation.bleu
            progress.update()
        for _ in range(ROUNDS):
            for system in systems:
                _, seconds = system.ask(translate_all, sources, batch_size)
                system.rates.append(len(sources) / seconds)
                system.latencies += system.ask(translate_singly, sources[::SINGLES])
                progress.update()
    return evaluation.bleu_signature


def agreement(systems, sources, references, arguments):
    """Describes how far the two engines agree: str of one line."""
    from keras_transformer.evaluation import measure

    pairs = {
        beam_size: [next(s for s in systems if (s.name, s.beam_size) == (name, beam_size)) for name in ENGINES]
        for beam_size in BEAM_SIZES
    }
    greedy = [system.translations for system in pairs[1]]
    same = sum(one == other for one, other in zip(*greedy, strict=True)) / len(sources)
    found = []
    for system in pairs[4]:
        translations, _ = system.ask(translate_all, sources, arguments.batch_size, is_penalised=False)
        found.append(f"{measure(translations, references, arguments.tokenize).bleu:.2f}")
    return (
        f"{' and '.join(ENGINES)}: the same text with a beam of 1 for {same:.1%} of the sentences; with a beam of 4 "
        f"and no length penalty, BLEU {' and '.join(found)}"
    )


def row(system, baseline):
    """Returns the cells of a system in the table: list of str. The ratios are relative to `baseline`."""
    rate, baseline_rate = (statistics.median(s.rates) for s in (system, baseline))
    median, baseline_median = (statistics.median(s.latencies) for s in (system, baseline))
    return [
        system.name,
        str(system.beam_size),
        system.threads,
        f"{rate:,.0f}",
        f"{rate / baseline_rate:.2f}",
        f"{1e3 * median:.1f} ms",
        f"{median / baseline_median:.2f}",
        f"{1e3 * np.percentile(system.latencies, 95):.1f} ms",
        f"{system.bleu:.1f}",
    ]


def print_table(systems):
    """Prints the table in Markdown."""
    baselines = {system.beam_size: system for system in systems if system.name == BASELINE}
    line = f"| {' | '.join(COLUMNS.values())} |"
    print(line.format(*COLUMNS))
    print(line.format(*("" for _ in COLUMNS)).replace(" ", "-"))
    for system in systems:
        print(line.format(*row(system, baselines[system.beam_size])))


def describe_machine():
    """Returns processor, cores and versions: str of two lines."""
    from keras_transformer.export.manifest import LIBRARIES, installed
    from keras_transformer.process import available_cores

    cpuinfo = Path("/proc/cpuinfo")  # Linux only; elsewhere `platform` knows the name.
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    models = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    versions = {"Python": platform.python_version(), **installed([*LIBRARIES, *PACKAGES])}
    return (
        f"{models[0] if models else platform.processor()}, {available_cores()} cores\n"
        f"{', '.join(f'{name} {version}' for name, version in versions.items())}"
    )


def main(arguments):
    from keras_transformer.data.text_files import open_aligned_files
    from keras_transformer.evaluation import measure

    check_positive(batch_size=arguments.batch_size, shortlist=1 if arguments.shortlist is None else arguments.shortlist)
    sources, references = map(list, zip(*open_aligned_files(arguments.source, arguments.reference), strict=True))
    measure(references[:1], references[:1], arguments.tokenize)  # Detects a wrong --tokenize before the long work.
    for run in (arguments.model_dir, *arguments.beside):
        Config.load(Path(run, "config.yaml"))  # Detects a wrong path, too.
    with tempfile.TemporaryDirectory() as directory:
        how = (arguments.shortlist, arguments.beside, arguments.beams)
        systems = start_systems(arguments.model_dir, directory, sources[0], *how)
    signature = measure_systems(systems, sources, references, arguments.tokenize, arguments.batch_size)
    print(describe_machine())
    print(
        f"{len(sources):,} sentences, {len(sources[::SINGLES]):,} of them alone; {ROUNDS} rounds; "
        f"batches of {arguments.batch_size}, {BATCHES_AT_ONCE} at a time\n"
    )
    print_table(systems)
    if {*BEAM_SIZES} <= {*arguments.beams}:
        print(f"\n{agreement(systems, sources, references, arguments)}")
    print(f"ratios: to {BASELINE} with the same beam\nBLEU: {signature}")


if __name__ == "__main__":
    with program():
        arguments = parse_arguments()
        os.environ["CUDA_VISIBLE_DEVICES"] = ""  # Compares the systems on CPU.
        import_tensorflow()
        main(arguments)
