"""Memory and start-up time of training on a corpus of millions of pairs.

    python -m benchmarks.large_corpus --pairs 5000000

Writes a synthetic corpus into a temporary directory. Zipf's law selects the words from two lists; each target word
translates its source word. Then the script trains twice: from nothing, and with the tokenizer and the tokens of the
first start. For each start it prints the seconds to the end of the first update, by the clock and of CPU, and the peak
memory of the process. Anonymous pages must stay in memory; the kernel can take back pages of files (TensorFlow's
libraries take 460 MiB). Linux only.
"""

import argparse
import itertools
import math
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from keras_transformer.cli.console import import_tensorflow
from keras_transformer.cli.train import parse_config

WORDS = 40_000  # Words of each language.
LONGEST = 60  # Words.
CHUNK = 50_000  # Pairs written at a time.
UPDATES = 20
MARK = "mark:"  # Begins the lines that the measured process writes for this process.
POLL = 0.05  # Seconds between two readings of the process's memory.
SYLLABLES = {
    "en": "th er on an re he in ed nd ha at en es of or",
    "de": "sch ei en er ch te in un ge der ie ung be st ä",
}


def word_table(language):
    """Returns `WORDS` words, frequent words first and short: all with a space, then all with a line end."""
    syllables = SYLLABLES[language].split()
    words = itertools.chain.from_iterable(itertools.product(syllables, repeat=length) for length in range(1, 5))
    words = ["".join(word) for word in itertools.islice(words, WORDS)]
    return np.array([f"{word}{end}" for end in (" ", "\n") for word in words], dtype=object)


def write_corpus(directory, pairs, rng):
    """Writes train.en, train.de and a small val.en, val.de."""
    tables = {language: word_table(language) for language in SYLLABLES}
    frequencies = 1 / (np.arange(WORDS) + 2.7)
    cumulative = np.cumsum(frequencies / frequencies.sum())
    for stem, count in (("train", pairs), ("val", 500)):
        files = {language: open(directory / f"{stem}.{language}", "w", encoding="utf-8") for language in tables}
        for start in range(0, count, CHUNK):
            lengths = np.clip(rng.lognormal(2.9, 0.6, min(CHUNK, count - start)).astype(int), 1, LONGEST)
            words = np.searchsorted(cumulative, rng.random(lengths.sum())).clip(max=WORDS - 1)
            words[np.cumsum(lengths) - 1] += WORDS  # The words with a line end.
            for language, file in files.items():
                file.write("".join(tables[language][words]))
        for file in files.values():
            file.close()


def train(flags):
    """Trains up to the first updates. Prints a mark after the preparation and after the first update."""
    config = parse_config(flags, __doc__)
    import_tensorflow()
    import keras

    from keras_transformer.data.pipeline import Undivided, training_batches
    from keras_transformer.process import keep_freed_memory
    from keras_transformer.training.decide import Begun, Machine, decide, start_devices
    from keras_transformer.training.preparation import prepare
    from keras_transformer.training.run_directory import RunDirectory
    from keras_transformer.training.train import build_trainer

    keep_freed_memory()
    run = RunDirectory(config.model_dir)
    data, machine = prepare(config, run), Machine.here(owns_process=True)
    config, data, plan, _ = decide(config, data, machine, Begun.of(run))
    print(MARK, "prepared", time.time(), time.process_time(), flush=True)
    with start_devices(config, plan, machine).scope():
        trainer = build_trainer(config, data, plan)

    class FirstUpdate(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if batch == 0:
                print(MARK, "first_update", time.time(), time.process_time(), flush=True)

    batches = Undivided(training_batches(data.train, config.batch_tokens, config.seed))
    trainer.fit(batches, steps_per_epoch=UPDATES, shuffle=False, verbose=0, callbacks=[FirstUpdate()])


def memory_of(pid):
    """Returns (anonymous, file) MiB of a process, or zeros after its end."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0, 0
    held = {line.split(":")[0]: int(line.split()[1]) / 1024 for line in lines if line.startswith("Rss")}
    return held.get("RssAnon", 0), held.get("RssFile", 0) + held.get("RssShmem", 0)


def watch(child):
    """Reads the memory of a process until its end: list of (time, anonymous MiB, file MiB)."""
    seen = []
    while child.poll() is None:
        seen.append((time.time(), *memory_of(child.pid)))
        time.sleep(POLL)
    return seen


def measure(name, flags):
    """Runs `train` in a separate process, and prints its time and memory."""
    started = time.time()
    with tempfile.TemporaryFile("w+") as output:
        child = subprocess.Popen([sys.executable, "-m", "benchmarks.large_corpus", "--train", *flags], stdout=output)
        seen = watch(child)
        output.seek(0)
        lines = output.read().splitlines()
    if child.returncode:
        sys.exit(child.returncode)
    marked = [line.split()[1:] for line in lines if line.startswith(MARK)]
    print("\n".join(line for line in lines if not line.startswith(MARK)))
    for mark, moment, cpu in marked:
        print(f"{name}: {mark.replace('_', ' ')} after {float(moment) - started:,.0f} s ({float(cpu):,.0f} s of CPU)")
    prepared = float(marked[0][1])
    for stage, until in (("to prepare", prepared), (f"for {UPDATES} updates too", math.inf)):
        part = [memory for moment, *memory in seen if moment <= until]
        anonymous, files = (max(kind) for kind in zip(*part, strict=True))
        print(f"    peak {stage}: {max(map(sum, part)):,.0f} MiB resident,", end=" ")
        print(f"at most {anonymous:,.0f} anonymous and {files:,.0f} of files", flush=True)


def main(pairs, seed):
    with tempfile.TemporaryDirectory() as directory:
        corpus = Path(directory, "corpus")
        corpus.mkdir()
        write_corpus(corpus, pairs, np.random.default_rng(seed))
        size = sum(path.stat().st_size for path in corpus.iterdir())
        print(f"{pairs:,} pairs, {size / 2**20:,.0f} MiB of text", flush=True)
        flags = ["--preset", "tiny", "--dataset", f"files:{corpus}", "--source_lang", "en", "--target_lang", "de"]
        for name in ("first start", "second start"):
            measure(name, [*flags, "--model_dir", str(Path(directory, "run"))])


if __name__ == "__main__":
    if sys.argv[1:2] == ["--train"]:
        train(sys.argv[2:])
    else:
        parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
        parser.add_argument("--pairs", type=int, default=5_000_000)
        parser.add_argument("--seed", type=int, default=1)
        arguments = parser.parse_args()
        main(arguments.pairs, arguments.seed)
