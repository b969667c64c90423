"""A benchmark runs on a toy and prints its figures, or says how it is called. Its page quotes those of a real run."""

import itertools
import json
import re
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from benchmarks import word_links
from tests import tiny, warm_start

ROOT = Path(__file__).parents[1]
OF_TRAINING = {**tiny.SIZES, "d_key": 12, "vocabulary_size": tiny.VOCABULARY, "max_length": 31, "batch_tokens": 401}
TRAINING = "--dataset files:CORPUS --source_lang en --target_lang de --preset tiny --strategy one_device " + " ".join(
    f"--{name} {value}" for name, value in OF_TRAINING.items()
)
SIDES = "--source CORPUS/val.en --reference CORPUS/val.de"

# These benchmarks would take minutes even on a toy. They say how they are called.
LONG = dict.fromkeys(("decode_speed", "export_size", "large_corpus", "serving_load"), ("--help", [r"usage: .*\[-h\]"]))
LINKS = ((1, (1, 2)), (2, (3,)))  # words of the source, and of their translation, from 1 on
# Benchmark -> (its arguments, a pattern for each figure that it prints).
RUNS = {
    **LONG,
    "bulk_translation": ("--saved_model EXPORT --text CORPUS/val.en --lines 7 --workers 1", [r"\| Beam, 1 .*\d \|"]),
    "cleaning": ("--corpus MANY", [r"clean pairs lost \d+\.\d\d%"]),
    "compare_exports": ("EXPORT EXPORT --source CORPUS/val.en", [r"one sentence: .* \d\.\d\d, the same", "of 32"]),
    "compare_runs": (f"RUN {SIDES}", [r"\| run \| 0\.1 M \| [\d,]+ \| [\d,]+ \| \d+\.\d \|"]),
    "engines": (
        "--model_dir RUN --source CORPUS/val.en --tokens 3 --rounds 1",
        [r"\| CTranslate2 of run \| \d+\.\d ms \| 1\.00 \| \d+ ms \| 1\.00 \|", r"\| SavedModel of run \| \d"],
    ),
    "import_model": ("--models tiny", [r"\| tiny \| 0\.00 \| \d+ / \d+ \| \d\.\d \| \d"]),
    "load_time": ("EXPORT --rounds 1", [r"exports/1: \d+\.\d\d CPU s, 1\.00"]),
    "many_languages": (
        f"--text CORPUS/val.en --vocabulary_size {tiny.VOCABULARY} --beam_size 1 --rounds 1",
        [r"\| source \| \d+\.\d\d \| \d\.\d\d\d \|", r"\| both \| \d"],
    ),
    "markup": ("--model_dir RUN --corpus CORPUS --fragments 7", [r"explain +well-formed \d+\.\d%", "judge .*links"]),
    "new_pieces": (
        f"--old CORPUS --new NAMES --source_lang en --target_lang de --vocabulary_size {tiny.VOCABULARY} --sizes 5",
        [r"\| and 5 new pieces \| \d+\.\d\d \| \d+\.\d\d \|"],
    ),
    "matrix_products": ("--matrix 8 512 --rows 2", [r"\| \(8, 512\) \| \d+ \|", r"\| \(8, 528\) \|"]),
    "odd_characters": ("--model_dir RUN --lines 3", [r"\| 😀 before \| \d+\.\d% \|", r"\| U\+00AD inside \| \d"]),
    "peers": (
        "joeynmt --python PEER --corpus MANY --source_lang en --target_lang de --output NEW --minutes 1",
        [r"joeynmt val: BLEU = 0\.\d+ ", r"joeynmt test: chrF2 = \d+\.\d+ nrefs:1\|"],
    ),
    "protection": ("--model_dir RUN --data NAMES --set val", [r"\d+ terms\n", r"with the glossary \| \d+\.\d\d % \|"]),
    "random_texts": ("--saved_model EXPORT --texts 20", [r"\d+ texts of [\d,]+ bytes .*: no text raised"]),
    "search_end": (f"--model_dir RUN {SIDES} --length_penalties 0.6", ["none ahead", "tok:13a"]),
    "tags": (
        "--model_dir RUN --tags TAGGED",
        ["3 tags in 2 paragraphs", r"alignment +\d+\.\d%", r"position alone +\d"],
    ),
    "word_links": (
        "score --corpus VERSES --links VERSES/test.links",
        [r"the run +3 +100\.0% +100\.0% +0\.0%", r"IBM 1, both directions +\d+ +\d+\.\d%"],
    ),
    "train_speed": (TRAINING, [r"[\d,]+ real target tokens/s", r"\d\.\d% of the measured matrix-product rate"]),
    "train_trace": (TRAINING, [r"\| attention \| \d+\.\d \| \d+\.\d% \|", r"\| \w*MatMul \| \d+\.\d \|"]),
}


def test_every_benchmark_is_named_by_a_page_and_runs_here():
    scripts = {path.stem for path in (ROOT / "benchmarks").glob("*.py") if "__main__" in path.read_text("utf-8")}
    scripts |= {path.parent.name for path in (ROOT / "benchmarks").glob("*/__main__.py")} - {"tour"}
    assert scripts == {*RUNS}
    pages = "".join(path.read_text("utf-8") for path in (ROOT / "docs").rglob("*.md"))
    assert [name for name in scripts if f"benchmarks.{name}" not in pages] == []


def write_verses(directory):
    """A corpus of three books with human links, made from a package with three verses: its path."""
    tables = {
        "sources/SBLGNT.tsv": "id\ttext\nn{0}001\tλόγος\nn{0}002\tθεός\n",
        "eng/targets/BSB/nt_BSB.tsv": "id\tsource_verse\ttext\n{0}001\t{0}\tthe\n{0}002\t{0}\tword\n{0}003\t{0}\tGod\n",
    }
    verses = ("41001001", "43001001", "59001001")  # of Mark, John and James
    for name, table in tables.items():
        head, *rows = table.splitlines(keepends=True)
        (directory / "data" / name).parent.mkdir(parents=True)
        text = head + "".join("".join(rows).format(verse) for verse in verses)
        (directory / "data" / name).write_text(text, encoding="utf-8")
    links = [([f"n{v}00{one}"], [f"{v}00{other}" for other in others]) for v in verses for one, others in LINKS]
    drawn = directory / "data" / "eng" / "alignments" / "BSB" / "SBLGNT-BSB-manual.json"
    drawn.parent.mkdir(parents=True)
    drawn.write_text(json.dumps({"records": [{"source": one, "target": others} for one, others in links]}))
    word_links.prepare(SimpleNamespace(package=directory, output=directory))
    return directory


def test_links_that_people_drew_become_a_corpus(tmp_path):
    write_verses(tmp_path)
    for name in ("train", "val", "test"):
        content = [(tmp_path / f"{name}.{ending}").read_text("utf-8") for ending in ("el", "en", "links")]
        assert content == ["λόγος θεός\n", "the word God\n", "0-0 0-1 1-2\n"]


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    """Name in `RUNS` -> path."""
    directory = tmp_path_factory.mktemp("benchmarks")
    corpus = tiny.write_corpus(directory / "corpus")
    for name in ("names", "many"):
        (directory / name).mkdir()
    names = itertools.cycle(["Ann", "Bob", "Cleo", "Dora", "Emil"])
    named = [(f"{name} {one}", f"{name} {two}") for name, (one, two) in zip(names, tiny.pairs(99), strict=False)]
    for stem, pairs in {"train": named[:80], "val": named[80:]}.items():
        tiny.write_pairs(directory / "names", stem, pairs)
    for stem in ("train", "val", "test"):
        tiny.write_pairs(directory / "many", stem, tiny.pairs(3000))
    run = tiny.write_run(directory / "run", corpus)
    tagged = "one <b>two</b> three\teins <b>zwei</b> drei\n<i>ten</i> <b>nine</b>\t<i>zehn</i> <b>neun</b>\n"
    (directory / "tags.tsv").write_text(tagged, encoding="utf-8")
    peer = directory / "peer"  # an environment whose toolkit "translates" by copying
    peer.write_text('#!/bin/sh\ncase "$*" in *translate*) cat;; esac\n', encoding="utf-8")
    peer.chmod(0o755)
    return {
        "PEER": peer,
        "NEW": directory / "new",
        "TAGGED": directory / "tags.tsv",
        "VERSES": write_verses(directory / "verses"),
        "CORPUS": corpus,
        "NAMES": directory / "names",
        "MANY": directory / "many",
        "RUN": run.path,
        "EXPORT": tiny.saved_model() / "exports" / "1",
    }


def run(warm, *arguments, script=None):
    """What a program prints that runs as a fork of the process of `warm`."""
    program = [*warm_start.command(warm), *map(str, arguments)]
    ran = subprocess.run(program, cwd=ROOT, input=script, capture_output=True, text=True, timeout=500)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_a_benchmark_prints_its_figures(name, places, warm):
    arguments, patterns = RUNS[name]
    for place, path in places.items():
        arguments = arguments.replace(place, str(path))
    printed = run(warm, "-m", f"benchmarks.{name}", *arguments.split(), script="")
    assert [pattern for pattern in patterns if not re.search(pattern, printed)] == [], printed


DRAW = """
import sys
from pathlib import Path
from types import SimpleNamespace
from benchmarks.tour import __main__ as tour, pictures
pictures.PAGES, run, *pages = Path(sys.argv[1]), *sys.argv[2:]
tour.main(SimpleNamespace(pages=pages, model_dir=run, text="one two three"))
"""


@pytest.mark.slow
def test_the_tour_draws_a_picture_for_each_page_that_trains_nothing(places, warm, tmp_path):
    for page in (ROOT / "docs/tour").glob("*.md"):  # a picture can be of the blocks of its page
        shutil.copy(page, tmp_path)
    pages = ["lookup", "order", "square_root", "step_by_step"]
    printed = run(warm, "-", tmp_path, places["RUN"], *pages, script=DRAW)
    assert {path.stem for path in tmp_path.glob("*.png")} == {*pages} and printed.count("wrote ") == len(pages)
