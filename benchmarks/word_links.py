"""Are the links of `align` those that people draw? The alignment error rate on the Greek New Testament.

    pip download --no-deps bible-alignments && unzip bible_alignments-*.whl -d bible
    python -m benchmarks.word_links prepare --package bible --output data/verses
    python train.py --dataset files:data/verses --source_lang el --target_lang en ... --model_dir runs/verses
    python -m keras_transformer align --model_dir runs/verses --source data/verses/test.el \\
      --target data/verses/test.en --output runs/verses/links
    python -m benchmarks.word_links score --corpus data/verses --links runs/verses/links

The package has the links that Biblica's people drew between the Greek words and those of the Berean Standard Bible
(CC-BY-4.0). Mark is the test set, James the validation set, and the other books are for training. The error rate of
links A beside the human links S is 1 - 2 |A and S| / (|A| + |S|) (Och and Ney 2003; all links are sure). A second row
has the links of IBM model 1 with a preference for the diagonal. It learns from all books in both directions, and a link
counts if both find it, as `--guided_alignment` does.
"""

import argparse
import csv
import json
from collections import defaultdict
from pathlib import Path

from benchmarks.markup import learn, links_of

BOOKS = {"41": "test", "59": "val"}  # Mark and James, as the identifiers number them
SIDES = ("el", "en")


def words_of(path, verse_of):
    """The words of a file of the package: dict, verse -> dict of identifier -> word."""
    verses = defaultdict(dict)
    with open(path, encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE):
            verses[verse_of(row)][row["id"]] = row["text"]
    return verses


def prepare(arguments):
    """Writes the corpus, and the human links of every set."""
    data = arguments.package / "data"
    greek = words_of(data / "sources" / "SBLGNT.tsv", lambda row: row["id"][1:9])
    english = words_of(data / "eng" / "targets" / "BSB" / "nt_BSB.tsv", lambda row: row["source_verse"])
    drawn = defaultdict(set)
    with open(data / "eng" / "alignments" / "BSB" / "SBLGNT-BSB-manual.json", encoding="utf-8") as file:
        for record in json.load(file)["records"]:
            drawn[record["source"][0][1:9]] |= {(one, other) for one in record["source"] for other in record["target"]}
    arguments.output.mkdir(parents=True, exist_ok=True)
    lines = defaultdict(list)
    for verse in sorted(greek.keys() & english.keys()):
        places = [{id: place for place, id in enumerate(side[verse])} for side in (greek, english)]
        links = {(one, other) for one, other in drawn[verse] if one in places[0] and other in places[1]}
        name = BOOKS.get(verse[:2], "train")
        for language, side in zip(SIDES, (greek, english), strict=True):
            lines[f"{name}.{language}"].append(" ".join(side[verse].values()))
        lines[f"{name}.links"].append(" ".join(f"{places[0][one]}-{places[1][other]}" for one, other in sorted(links)))
    for name, texts in lines.items():
        (arguments.output / name).write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
        print(f"{name:12}{len(texts):,} verses")


def read_links(path):
    """A list of sets of (source word, target word), from a file in Pharaoh's format."""
    return [{tuple(map(int, link.split("-"))) for link in line.split()} for line in open(path, encoding="utf-8")]


def describe(name, found, human):
    """Prints how many links are right, how many of the human ones are found, and the error rate."""
    right = sum(len(one & other) for one, other in zip(found, human, strict=True))
    count, total = (sum(map(len, links)) for links in (found, human))
    print(f"{name:24}{count:8,}{right / count:11.1%}{right / total:9.1%}{1 - 2 * right / (count + total):12.1%}")


def score(arguments):
    """Compares links with those of people."""
    human = read_links(arguments.corpus / "test.links")
    texts = {
        name: [
            [line.lower().split() for line in open(arguments.corpus / f"{name}.{language}", encoding="utf-8")]
            for language in SIDES
        ]
        for name in ("train", "val", "test")
    }
    pairs = [pair for sides in texts.values() for pair in zip(*sides, strict=True)]
    tables = learn(pairs), learn([pair[::-1] for pair in pairs])
    print(f"{'links of':24}{'links':>8}{'precision':>11}{'recall':>9}{'error rate':>12}")
    describe("the run", read_links(arguments.links), human)
    describe("IBM 1, both directions", [links_of(*pair, *tables) for pair in zip(*texts["test"], strict=True)], human)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    making = commands.add_parser("prepare", help="write the corpus")
    making.add_argument("--package", type=Path, required=True, help="the unpacked wheel")
    making.add_argument("--output", type=Path, required=True, help="directory for the corpus")
    making.set_defaults(run=prepare)
    scoring = commands.add_parser("score", help="compare links with those of people")
    scoring.add_argument("--corpus", type=Path, required=True, help="what `prepare` wrote")
    scoring.add_argument("--links", type=Path, required=True, help="what `align` wrote for test")
    scoring.set_defaults(run=score)
    arguments = parser.parse_args()
    arguments.run(arguments)


if __name__ == "__main__":
    main()
