"""Measures the preparation of a corpus: how much dirt it finds, how many clean pairs it loses, its time and memory.

    python -m benchmarks.cleaning --corpus data/tatoeba-en-de                    # dirt of twelve kinds in 20 %
    python -m benchmarks.cleaning --corpus data/tatoeba-en-de --keep data/dirt   # and its corpora, to train on them
    python -m benchmarks.cleaning --corpus data/tatoeba-en-de --pairs 500000     # time and memory

`DIR` has train.en and train.de. The limits of the steps were chosen with `--half 0 --seed 1`, on every second line of
the corpus. The default is the other half with another seed. Sentences of other languages come from the translations of
Sphinx, which requirements-dev.txt installs.
"""

import argparse
import itertools
import json
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import unicodedata
from collections import Counter
from pathlib import Path

import psutil
import sphinx
from babel.messages.pofile import read_po

DIRTY = 0.2  # of the pairs
LATIN, OTHERS = "fr es it nl pl sv da tr hu ro cs".split(), "ru el".split()
FEWEST_WORDS = 5  # of a held-out sentence, so that few other sentences are like it by chance
POLL = 0.5  # seconds
FIVE_MILLION, CORES = 5_000_000, 2


def foreign_sentences(languages):
    """Sentences of other languages: those of four words or more among the messages of Sphinx."""
    found = []
    for language in languages:
        with open(Path(sphinx.__file__).parent / "locale" / language / "LC_MESSAGES" / "sphinx.po", "rb") as file:
            texts = [message.string for message in read_po(file) if message.id and message.string != message.id]
        found += [t for t in texts if isinstance(t, str) and len(t.split()) >= 4 and not set(t) & set("%{}<>\n_`")]
    return found


def one_side(pair, change, rng):
    """The pair with one side changed, drawn at random."""
    side = rng.randrange(2)
    return tuple(change(text) if number == side else text for number, text in enumerate(pair))


def slightly_changed(text, rng):
    """Another case or punctuation, or a letter lost or doubled."""
    place = rng.randrange(1, max(2, len(text) - 1))
    changes = (
        text.upper(),
        f"{text.rstrip('.!?')} !",
        text[:place] + text[place + 1 :],
        text[:place] + text[place - 1 :],
    )
    return rng.choice(changes)


def invisible(pair, rng):
    """Decomposed characters, and one that nobody sees in the middle."""
    mark = rng.choice("\u200b\u00ad\u200e\ufeff\u0007")
    return tuple(unicodedata.normalize("NFD", text[:2] + mark + text[2:]) for text in pair)


def blank_or_copied(pair, rng):
    return one_side(pair, lambda text: " ", rng) if rng.random() < 0.5 else (pair[0], pair[0])


def untranslated(pair, rng, others):
    """The source but for a word, or another sentence of its language, in place of the target."""
    words = pair[0].split()
    place = rng.randrange(len(words))
    copy = " ".join(words[:place] + words[place + 1 :])
    return (pair[0], copy if len(words) > 4 and rng.random() < 0.5 else rng.choice(others)[0])


def with_numbers(pair, rng):
    """A number that differs: one of the pair if it has any on both sides, else that of a list."""
    digits = [[place for place, c in enumerate(text) if c.isdigit()] for text in pair]
    if all(digits):
        place = rng.choice(digits[1])
        changed = str((int(pair[1][place]) + rng.randrange(1, 9)) % 10)
        return pair[0], pair[1][:place] + changed + pair[1][place + 1 :]
    number = rng.randrange(2, 500)
    return f"{number}. {pair[0]}", f"{number + 1}. {pair[1]}"


def with_url_or_bracket(pair, rng):
    added = rng.choice(
        [f" www.example.org/{rng.randrange(999)}", " (AFP)", " [1]", f" mail{rng.randrange(99)}@example.org"]
    )
    return one_side(pair, lambda text: text + added, rng)


def make_dirt(pairs, rng):
    """Puts dirt of twelve kinds into pairs.

    Returns:
        (list of pairs, list of (place, kind, the clean pair) of the dirty ones, list of held-out pairs).
    """
    foreign, script = foreign_sentences(LATIN), foreign_sentences(OTHERS)
    places = rng.sample(range(len(pairs)), int(DIRTY * len(pairs)))
    dirty = set(places)
    clean = [place for place in range(len(pairs)) if place not in dirty]
    copied = iter(rng.sample(clean, len(places) // 4))  # no pair gets two copies
    texts, dirt, held_out = list(pairs), [], []
    symbols = "| -- | 12.50 | *** | 7/8 | == | 100 %"

    def glued(number):
        return tuple(" ".join(side) for side in zip(*(pairs[rng.choice(clean)] for _ in range(number)), strict=True))

    def slightly(pair):
        return one_side(pair, lambda text: slightly_changed(text, rng), rng)

    kinds = {
        "invisible characters": lambda pair: invisible(pair, rng),
        "exact duplicates": None,
        "near duplicates": None,
        "blank or copied": lambda pair: blank_or_copied(pair, rng),
        "untranslated": lambda pair: untranslated(pair, rng, pairs),
        "too long": lambda pair: glued(30),
        "length ratio": lambda pair: one_side(pair, lambda text: f"{text} {glued(3)[pair.index(text)]}", rng),
        "symbols or script": lambda pair: one_side(
            pair, lambda text: symbols[rng.randrange(9) :] if rng.random() < 0.5 else rng.choice(script), rng
        ),
        "another language": lambda pair: (
            one_side(pair, lambda text: rng.choice(foreign), rng) if rng.random() < 0.67 else pair[::-1]
        ),
        "numbers": lambda pair: with_numbers(pair, rng),
        "URLs or brackets": lambda pair: with_url_or_bracket(pair, rng),
        "held out": None,
    }
    long = iter([place for place in places if min(len(text.split()) for text in pairs[place]) >= FEWEST_WORDS])
    of_held_out = set(itertools.islice(long, len(places) // len(kinds)))
    others = [kind for kind in kinds if kind != "held out"]
    for number, place in enumerate(places):
        kind = "held out" if place in of_held_out else others[number % len(others)]
        origin = pairs[place]
        if kind == "held out":
            held_out.append(origin)
            texts[place] = (
                origin if rng.random() < 0.5 else one_side(origin, lambda text: slightly_changed(text, rng), rng)
            )
        elif kinds[kind]:
            texts[place] = kinds[kind](origin)
        else:
            origin = pairs[next(copied)]
            texts[place] = origin if kind == "exact duplicates" else slightly(origin)
        dirt.append((place, kind, origin))
    return texts, dirt, held_out


def write_side(path, texts):
    path.write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")


def write_pairs(directory, stem, pairs):
    """Writes two files of lines."""
    directory.mkdir(exist_ok=True)
    for language, texts in zip(("en", "de"), zip(*pairs, strict=True), strict=True):
        write_side(directory / f"{stem}.{language}", texts)


def read_pairs(directory):
    """The pairs of train.en and train.de."""
    sides = [(directory / f"train.{language}").read_text("utf-8").split("\n")[:-1] for language in ("en", "de")]
    return list(zip(*sides, strict=True))


def prepare(directory, *flags):
    """Runs the program on DIRECTORY/raw, in DIRECTORY/clean. Returns (seconds of CPU, seconds, peak MiB)."""
    command = [sys.executable, "-m", "keras_transformer", "clean", "--input", f"files:{directory}/raw"]
    command += ["--output", f"{directory}/clean", "--source_lang", "en", "--target_lang", "de", *flags]
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.time()
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    peak = [0]
    watcher = threading.Thread(target=watch, args=(psutil.Process(child.pid), peak), daemon=True)
    watcher.start()
    if child.wait():
        sys.exit(child.returncode)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return cpu, time.time() - started, peak[0]


def watch(process, peak):
    """Keeps the greatest memory (MiB, resident) of a process and its children."""
    while process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
        held = 0
        for one in [process, *process.children(recursive=True)]:
            try:
                held += one.memory_info().rss
            except psutil.NoSuchProcess:
                continue
        peak[0] = max(peak[0], held / 2**20)
        time.sleep(POLL)


def measure_dirt(corpus, half, seed, directory):
    """Prints the share of each kind that is found, and the clean pairs that are lost.

    Leaves the corpora `original`, `raw` (with dirt) and `clean` in a directory, each with the validation set.
    """
    pairs = read_pairs(corpus)[half::2]
    texts, dirt, held_out = make_dirt(pairs, random.Random(seed))
    write_pairs(directory, "held_out", held_out)
    write_pairs(directory / "original", "train", pairs)
    write_pairs(directory / "raw", "train", texts)
    prepare(directory, "--without", f"{directory}/held_out.en", f"{directory}/held_out.de")
    for file, kind in itertools.product(corpus.glob("val.*"), ("original", "raw", "clean")):
        shutil.copy(file, directory / kind)
    kept = Counter(read_pairs(directory / "clean"))
    lines = (directory / "clean/dropped.jsonl").read_text("utf-8").splitlines()
    records = [json.loads(line) for line in lines]
    steps = {(one["source"], one["target"]): one["step"] for one in records if one["step"] != "duplicates"}
    found, number = Counter(), Counter(kind for _, kind, _ in dirt)
    by_step, copies = {kind: Counter() for kind in number}, {}
    for place, kind, origin in dirt:
        text = texts[place]
        if kind == "exact duplicates":
            is_found = kept[origin] <= 1
        elif kind == "near duplicates":
            is_found, copies[origin] = text in steps or origin in steps, text
        else:
            is_found = text in steps or (kind == "invisible characters" and kept[origin] > 0)
        found[kind] += is_found
        by_step[kind][steps.get(text, "mended" if is_found else "kept")] += 1
    print(f"{len(pairs):,} pairs, {len(dirt):,} of them dirty")
    for kind, count in number.items():
        print(f"{kind:22}{count:6,}{found[kind] / count:8.1%}   {dict(by_step[kind].most_common(4))}")
    print(f"{'all':22}{len(dirt):6,}{found.total() / len(dirt):8.1%}")
    dirty = {place for place, _, _ in dirt}
    clean = [pair for place, pair in enumerate(texts) if place not in dirty]
    lost = [pair for pair in clean if pair in steps]
    represented = sum(pair in copies and copies[pair] not in steps for pair in lost)
    print(f"clean pairs lost {len(lost) / len(clean):.2%}: {dict(Counter(steps[pair] for pair in lost).most_common())}")
    print(f"  of these, {represented:,} are lost to their own slightly changed copy, which stays")


def measure_speed(corpus, pairs, seed):
    """Prints the time and memory of a preparation, and what they are for five million pairs."""
    rng, sentences = random.Random(seed), read_pairs(corpus)
    made = ([f"{a} {b}" for a, b in zip(*rng.sample(sentences, 2), strict=True)] for _ in range(pairs))
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        write_pairs(directory / "raw", "train", map(tuple, made))
        cpu, seconds, peak = prepare(directory)
        kept = len(read_pairs(directory / "clean"))
    print(f"{pairs:,} pairs, {kept:,} kept: {cpu:,.0f} s of CPU, {seconds:,.0f} s, at most {peak:,.0f} MiB")
    hours = cpu / pairs * FIVE_MILLION / CORES / 60
    print(f"{1e6 * cpu / pairs:,.0f} us of CPU a pair; {FIVE_MILLION:,} on {CORES} free cores: {hours:.0f} minutes")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", type=Path, required=True)
    parser.add_argument("--half", type=int, choices=(0, 1), default=1)
    parser.add_argument("--seed", type=int, default=2)
    parser.add_argument("--keep", type=Path, help="new directory for the original, the dirty and the prepared corpus")
    parser.add_argument("--pairs", type=int, help="measure time and memory with so many pairs")
    arguments = parser.parse_args()
    if arguments.pairs:
        measure_speed(arguments.corpus, arguments.pairs, arguments.seed)
    elif arguments.keep:
        arguments.keep.mkdir()
        measure_dirt(arguments.corpus, arguments.half, arguments.seed, arguments.keep)
    else:
        with tempfile.TemporaryDirectory() as name:
            measure_dirt(arguments.corpus, arguments.half, arguments.seed, Path(name))
