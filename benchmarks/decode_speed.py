"""How fast a trained run translates: as a SavedModel, in Python, and through CTranslate2 with the same weights.

    python -m benchmarks.decode_speed --model_dir runs/mine --source test.en --reference test.de

Exports the run to a temporary directory and translates the source with every system, with a beam of 4 and of 1, on CPU:

- sentences/s: batches sorted by length, two of them side by side with one thread each, whatever the system;
- latency: single sentences, every 10th of the source, one after the other.

All systems get text and give text. A first pass, which is not timed, warms them up and gives the translations for BLEU.
The timed rounds go through all systems one after the other, so that a busy minute hits all of them; sentences/s is the
median of the rounds. Either figure has its ratio to CTranslate2 float32 with the same beam beside it.

Of every SavedModel the size on disk is compared with that of its weights and tokenizer, and a process of its own says
how long it takes to load, how long until it has translated a first sentence, and how much memory that adds.

CTranslate2 translates every line as a whole, and ranks hypotheses by its own length penalty, n: its BLEU may differ.
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
from collections.abc import Callable
from pathlib import Path

import numpy as np

from keras_transformer.batches import BATCHES_AT_ONCE, check_positive, run_sorted
from keras_transformer.console import import_tensorflow, mistakes_as_lines

BEAM_SIZES = (4, 1)
ROUNDS = 3
SINGLES = 10  # every so manieth sentence is translated alone
LONGEST = 256  # tokens of a translation by CTranslate2
BASELINE = "CTranslate2 float32"
TENSORFLOW_THREADS = f"1 intra-op, {BATCHES_AT_ONCE} inter-op"
CTRANSLATE2_THREADS = f"{BATCHES_AT_ONCE} workers of 1"
COLUMNS = {
    "system": "{:<21}",
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
    """One way to translate, and what was measured of it.

    Args:
        name: str.
        beam_size: int.
        threads: str, what they are set to.
        translate: function from a batch, list of str, to list of str.
        rates: sentences/s of every round.
        latencies: seconds of every single sentence, of all rounds.
        bleu: of the first pass.
    """

    name: str
    beam_size: int
    threads: str
    translate: Callable
    rates: list = dataclasses.field(default_factory=list)
    latencies: list = dataclasses.field(default_factory=list)
    bleu: float = 0.0


class CTranslate2Lines:
    """Whole lines through a CTranslate2 export, as many batches side by side as for the other systems.

    Args:
        directory: of the export.
    """

    def __init__(self, directory):
        import ctranslate2
        import sentencepiece

        self._pieces = sentencepiece.SentencePieceProcessor(model_file=str(directory / "tokenizer.model"))
        self._engine = ctranslate2.Translator(str(directory), inter_threads=BATCHES_AT_ONCE, intra_threads=1)

    def translate(self, texts, beam_size):
        """The best translations of a batch, list of str."""
        results = self._engine.translate_batch(
            self._pieces.encode(texts, out_type=str),
            beam_size=beam_size,
            length_penalty=1,
            max_decoding_length=LONGEST,
        )
        return [self._pieces.decode(result.hypotheses[0]) for result in results]


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model_dir", required=True, help="run directory that train.py wrote")
    parser.add_argument("--source", type=Path, required=True, help="file of sentences to translate, one a line")
    parser.add_argument("--reference", type=Path, required=True, help="file of their translations, line by line")
    parser.add_argument("--tokenize", default="13a", help="sacreBLEU's word splitting (default: 13a)")
    parser.add_argument("--batch_size", type=int, default=32, help="sentences translated at a time (default: 32)")
    return parser.parse_args()


def set_threads():
    """One thread for every batch, for TensorFlow in all of this process; before anything is computed."""
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(BATCHES_AT_ONCE)


def load_saved_model(directory):
    """The `translate` of a `System`, through the Session loader, as TensorFlow Serving has it."""
    import tensorflow as tf

    threads = tf.compat.v1.ConfigProto(intra_op_parallelism_threads=1, inter_op_parallelism_threads=BATCHES_AT_ONCE)
    session = tf.compat.v1.Session(graph=tf.Graph(), config=threads)
    with session.graph.as_default():  # not `with session`: the Translator in Python could not work meanwhile
        signatures = tf.compat.v1.saved_model.loader.load(session, ["serve"], str(directory)).signature_def
    inputs, outputs = signatures["serving_default"].inputs, signatures["serving_default"].outputs
    call = session.make_callable([outputs["translation"].name], [inputs["text"].name])

    def translate(texts):
        (translations,) = call(np.array([text.encode("utf-8") for text in texts], dtype=object))
        return [translation.decode("utf-8") for translation in translations]

    return translate


@dataclasses.dataclass
class Footprint:
    """What a SavedModel takes.

    Args:
        name: str.
        size: bytes on disk.
        necessary: bytes of weights and tokenizer.
        load_seconds: until it is loaded, TensorFlow being imported.
        first_seconds: from then until it has translated a sentence.
        memory: MiB of the process that both have added.
    """

    name: str
    size: int
    necessary: int
    load_seconds: float
    first_seconds: float
    memory: float

    def describe(self):
        """One line."""
        excess = self.size / self.necessary - 1
        return (
            f"{self.name}: {self.size / 1e6:.2f} MB on disk, {excess:.1%} more than weights and tokenizer; loads in "
            f"{self.load_seconds:.1f} s, first sentence {self.first_seconds:.1f} s later, {self.memory:.0f} MiB"
        )


def measure_loading(directory, source):
    """Loads a SavedModel and translates a sentence: (seconds, seconds, MiB); in a process that has done neither yet."""
    import psutil

    import_tensorflow()
    set_threads()
    process, started = psutil.Process(), time.perf_counter()
    before = process.memory_info().rss
    translate = load_saved_model(directory)
    loaded = time.perf_counter()
    translate([source])
    return loaded - started, time.perf_counter() - loaded, (process.memory_info().rss - before) / 2**20


def footprint(name, directory, translator, precision, source):
    """The `Footprint` of an export of a `Translator`."""
    size = sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())
    weights = sum(int(np.prod(weight.shape)) for weight in translator.model.weights)
    necessary = weights * (4 if precision == "float32" else 2) + len(translator.tokenizer.model)
    with multiprocessing.get_context("spawn").Pool(1) as alone:
        return Footprint(name, size, necessary, *alone.apply(measure_loading, (directory, source)))


def export_to(directory, name, export):
    """Writes an export to a new directory. Returns its path."""
    print(f"exporting {name}", file=sys.stderr, flush=True)
    path = Path(directory, name.replace(" ", "_"))
    path.mkdir()
    export.write(path)
    return path


def tensorflow_systems(translator, directory, source):
    """Generates the systems of TensorFlow with the beam of a `Translator`, exported to a directory; says what each
    export takes to translate a first sentence."""
    from keras_transformer.export.saved_model import SavedModelExport

    beam_size = translator.options["beam_size"]
    for precision in ("float32", "bfloat16"):
        name = f"SavedModel {precision}"
        path = export_to(directory, f"{name} beam {beam_size}", SavedModelExport(translator, precision))
        print(footprint(f"{name}, beam {beam_size}", path, translator, precision, source).describe(), flush=True)
        yield System(name, beam_size, TENSORFLOW_THREADS, load_saved_model(path))
    yield System(
        "Translator in Python", beam_size, TENSORFLOW_THREADS, lambda texts: translator.translate_batch(texts)[0]
    )


def ctranslate2_systems(translator, directory):
    """Generates the systems of CTranslate2 with the weights of a `Translator`, exported to a directory."""
    from keras_transformer.export.ctranslate2 import CTranslate2Export

    for quantization in ("float32", "int8"):
        name = f"CTranslate2 {quantization}"
        lines = CTranslate2Lines(export_to(directory, name, CTranslate2Export(translator, quantization)))
        for beam_size in BEAM_SIZES:
            translate = functools.partial(lines.translate, beam_size=beam_size)
            yield System(name, beam_size, CTRANSLATE2_THREADS, translate)


def load_systems(model_dir, source):
    """Exports a run in all formats and loads what has been exported: list of `System`, those of a beam together.

    Args:
        model_dir: path of the run.
        source: a sentence, the first to be translated.
    """
    from keras_transformer.translator import Translator

    translators = [Translator.load(model_dir, beam_size) for beam_size in BEAM_SIZES]
    with tempfile.TemporaryDirectory() as directory:
        systems = list(ctranslate2_systems(translators[0], directory))
        for translator in translators:
            systems += tensorflow_systems(translator, directory, source)
    return sorted(systems, key=lambda system: -system.beam_size)


def measure_rate(system, sources, batch_size):
    started = time.perf_counter()
    run_sorted(system.translate, sources, batch_size)
    system.rates.append(len(sources) / (time.perf_counter() - started))


def measure_latencies(system, sources):
    for source in sources[::SINGLES]:
        started = time.perf_counter()
        system.translate([source])
        system.latencies.append(time.perf_counter() - started)


def measure(systems, sources, references, tokenize, batch_size):
    """Fills in what is measured of all systems. Returns the signature of BLEU."""
    from tqdm import tqdm

    from keras_transformer.evaluation import evaluate

    with tqdm(total=len(systems) * (1 + ROUNDS), unit=" passes", disable=None) as progress:
        for system in systems:
            translations = run_sorted(system.translate, sources, batch_size)
            system.translate(sources[:1])
            evaluation = evaluate(translations, references, tokenize)
            system.bleu = evaluation.bleu
            progress.update()
        for _ in range(ROUNDS):
            for system in systems:
                measure_rate(system, sources, batch_size)
                measure_latencies(system, sources)
                progress.update()
    return evaluation.bleu_signature


def row(system, baseline):
    """The cells of a system in the table, list of str; the ratios are to another system."""
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
    """In Markdown."""
    baselines = {system.beam_size: system for system in systems if system.name == BASELINE}
    line = f"| {' | '.join(COLUMNS.values())} |"
    print(line.format(*COLUMNS))
    print(line.format(*("" for _ in COLUMNS)).replace(" ", "-"))
    for system in systems:
        print(line.format(*row(system, baselines[system.beam_size])))


def describe_machine():
    """Processor, cores and versions, str of two lines."""
    from keras_transformer.export.manifest import LIBRARIES, installed
    from keras_transformer.training.strategy import available_cores

    cpuinfo = Path("/proc/cpuinfo")  # on Linux; elsewhere Python knows the name
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    models = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    versions = {"Python": platform.python_version(), **installed(LIBRARIES)}
    return (
        f"{models[0] if models else platform.processor()}, {available_cores()} cores\n"
        f"{', '.join(f'{name} {version}' for name, version in versions.items())}"
    )


def main(arguments):
    from keras_transformer.data.parallel_text import open_aligned_files
    from keras_transformer.evaluation import evaluate

    check_positive(batch_size=arguments.batch_size)
    sources, references = map(list, zip(*open_aligned_files(arguments.source, arguments.reference), strict=True))
    evaluate(references[:1], references[:1], arguments.tokenize)  # a wrong --tokenize is found before the long work
    set_threads()
    systems = load_systems(arguments.model_dir, sources[0])
    signature = measure(systems, sources, references, arguments.tokenize, arguments.batch_size)
    print(describe_machine())
    print(
        f"{len(sources):,} sentences, {len(sources[::SINGLES]):,} of them alone; {ROUNDS} rounds; "
        f"batches of {arguments.batch_size}, {BATCHES_AT_ONCE} at a time\n"
    )
    print_table(systems)
    print(f"\nratios: to {BASELINE} with the same beam\nBLEU: {signature}")


if __name__ == "__main__":
    with mistakes_as_lines():
        arguments = parse_arguments()
        os.environ["CUDA_VISIBLE_DEVICES"] = ""  # the systems are compared on CPU
        import_tensorflow()
        main(arguments)
