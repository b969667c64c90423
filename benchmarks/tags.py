"""Are tags where people put them? Paragraphs with the same inline tags in the source and in a human translation.

    python -m benchmarks.tags --model_dir runs/help-en-de --tags DIR/tags.tsv

Every line of the file has a paragraph, a tab, and its translation, both with tags (HTML). The run reads both without
tags: the human translation is forced. Then the tags of the source are placed by the alignment of the run, as in
documents. A tag is right if it surrounds the words that it surrounds in the human translation. Equal tags of a
paragraph may change places. Tags that are placed by position alone show what the figure means.
"""

import argparse
import html
import re
from collections import Counter

import numpy as np

import keras_transformer as kt
from benchmarks.markup import by_position
from keras_transformer.tools.analysis.forced import explain_pairs
from keras_transformer.tools.documents.alignment import align_words
from keras_transformer.tools.documents.fragment import CLOSE, OPEN, Mark, layout_of, parts_of
from keras_transformer.tools.documents.placement import place
from keras_transformer.tools.words import tokens_of

TAG = re.compile(r"<[^<>]+>")


class Forced:
    """A translator whose translations are given.

    Args:
        translator: `Translator`.
        translations: dict, text -> translation.
    """

    def __init__(self, translator, translations):
        self.translator, self.translations = translator, translations

    def explain(self, texts, on_progress=None):
        """As `TextTranslator.explain`. A part of a text, which has no translation of its own, gets the run's."""
        known = [text for text in texts if text in self.translations]
        found = dict(zip(known, self._explained(known), strict=True))
        return [found[text] if text in found else self.translator.explain(text) for text in texts]

    def _explained(self, texts):
        return explain_pairs(self.translator, texts, [self.translations[text] for text in texts])


def parts_of_html(fragment):
    """The parts of a fragment, its texts without entities."""
    return [part if isinstance(part, Mark) else html.unescape(part) for part in parts_of(fragment, TAG)]


def text_of(parts):
    """The text of parts, without tags."""
    return "".join(part for part in parts if not isinstance(part, Mark))


def spans_of(parts):
    """The words that each pair of tags surrounds: a `Counter` of (opening tag, first word, word behind the last)."""
    tokens, found, open_ones, length = tokens_of(text_of(parts)), Counter(), [], 0
    for part in parts:
        if not isinstance(part, Mark):
            length += len(part)
        elif part.kind == OPEN:
            open_ones.append((part.text, length))
        elif part.kind == CLOSE:
            opening, start = open_ones.pop()
            inside = [place for place, (begin, stop) in enumerate(tokens) if begin < length and stop > start]
            found[opening, min(inside, default=-1), max(inside, default=-1)] += 1
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model_dir", required=True)
    parser.add_argument("--checkpoint", default="average")
    parser.add_argument("--tags", required=True, help="tags.tsv")
    parser.add_argument("--show", type=int, default=0, help="print this number of paragraphs with wrong tags")
    arguments = parser.parse_args()
    with open(arguments.tags, encoding="utf-8") as file:
        rows = [[parts_of_html(side) for side in line.rstrip("\n").split("\t")] for line in file]
    layouts = [layout_of(source) for source, _ in rows]
    human = [text_of(target) for _, target in rows]
    texts = [layout.text for layout in layouts]
    forced = Forced(
        kt.load(arguments.model_dir, arguments.checkpoint, beam_size=1), dict(zip(texts, human, strict=True))
    )
    aligned = align_words(forced, texts)
    counts, wrong = Counter(), []
    for (source, target), layout, text, found in zip(rows, layouts, human, aligned, strict=True):
        expected = spans_of(target)
        counts["tags"] += expected.total()
        size = len(tokens_of(text)), len(tokens_of(layout.text))
        if found.weights.shape != size:  # the pieces spell other words
            counts["in paragraphs with other words"] += expected.total()
            continue
        for name, weights in {"alignment": found.weights, "position alone": by_position(*size)}.items():
            placed = place(layout, text, np.asarray(weights))
            right = (spans_of(placed) & expected).total()
            counts[name] += right
            if name == "alignment" and right < expected.total():
                wrong.append((source, target, placed))
    print(f"{counts['tags']} tags in {len(rows)} paragraphs; right, placed by")
    for name in ("alignment", "position alone"):
        print(f"{name:16}{counts[name] / counts['tags']:.1%}")
    print(f"{counts['in paragraphs with other words']} tags are wrong because pieces spell other words")
    for sides in wrong[: arguments.show]:
        print(
            "\n" + "\n".join("".join(part.text if isinstance(part, Mark) else part for part in side) for side in sides)
        )


if __name__ == "__main__":
    main()
