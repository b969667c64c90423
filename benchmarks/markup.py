"""Are tags around the right words after translation? 300 fragments of HTML, made of sentences of a parallel corpus.

    python -m benchmarks.markup --model_dir runs/mine --corpus data/multi30k-en-de --split val

Each fragment is a sentence of the source with one to three pairs of tags around random words, some of them nested, and
with an empty tag. They are translated with the alignments of the run.

The judge knows nothing of the model: word alignments of IBM model 1 with a preference for the diagonal (fast_align,
Dyer et al. 2013), learnt from the training text in both directions. Only links on which both directions agree count. A
tag is right if all links from its source words end in the words that it surrounds in the translation, and no other
links do. A tag without links is not judged. A tag touches if it surrounds at least one of the linked words. Two more
rows show what the figures mean: tags that are placed by position alone, and tags that are placed by the judge's own
links.
"""

import argparse
import random
import re
from collections import Counter
from xml.parsers import expat

import numpy as np

import keras_transformer as kt
from keras_transformer.tools.documents.alignment import align_words
from keras_transformer.tools.documents.fragment import CLOSE, OPEN, Mark, layout_of, parts_of
from keras_transformer.tools.documents.placement import place
from keras_transformer.tools.documents.units import joined
from keras_transformer.tools.words import is_sign, tokens_of

TAG = re.compile(r"<[^<>]+>")
NAMES = ("a", "b", "em", "i", "span", "u")
ITERATIONS, TENSION = 5, 4.0


def words_of(text):
    """The words of a text, lower-cased."""
    return [text[start:end].lower() for start, end in tokens_of(text)]


def make_fragment(text, rng):
    """A sentence with tags around random words: str."""
    tokens = [span for span in tokens_of(text) if not is_sign(text[span[0]])]
    names, spans = rng.sample(NAMES, rng.randint(1, 3)), []
    for name in names:
        low, high = (0, len(tokens)) if not spans or rng.random() < 0.5 else spans[-1][:2]  # half of them nested
        start = rng.randrange(low, high)
        end = rng.randint(start + 1, min(high, start + 4))
        if all(end <= low or start >= high or low <= start and end <= high for low, high, _ in spans):
            spans.append((start, end, name))
    pieces, last = [], 0
    image = rng.randrange(len(tokens) + 1) if rng.random() < 0.3 else -1
    for at, (start, end) in enumerate([*tokens, (len(text), len(text))]):
        opened = [f'<{name} class="x{at}">' for low, _, name in spans if low == at]
        closed = [f"</{name}>" for _, high, name in spans[::-1] if high == at + 1]
        picture = f'<img src="{at}.png"/>' if image == at else ""
        pieces += [text[last:start], picture, *opened, text[start:end], *closed]
        last = end
    return "".join(pieces)


def learn(pairs):
    """The probabilities of the second words given the first: dict (word, word) -> float."""
    ids, keys, groups, priors = {}, [], [], []
    for number, (source, target) in enumerate(pairs):
        for j, word in enumerate(target):
            for i, other in enumerate(source):
                keys.append(ids.setdefault((other, word), len(ids)))
                groups.append(number * 1000 + j)
                priors.append(abs(i / len(source) - j / len(target)))
    keys, priors = np.array(keys), np.exp(-TENSION * np.array(priors))
    groups = np.unique(groups, return_inverse=True)[1]
    firsts = {word: n for n, word in enumerate(dict.fromkeys(other for other, _ in ids))}
    of_first = np.array([firsts[other] for other, _ in ids])
    table = np.ones(len(ids))
    for _ in range(ITERATIONS):
        cells = table[keys] * priors
        counts = np.bincount(keys, cells / np.bincount(groups, cells)[groups], len(ids))
        table = counts / np.bincount(of_first, counts)[of_first]
    return dict(zip(ids, table.tolist(), strict=True))


def links_of(source, target, forward, backward):
    """The links on which both directions agree: set of (source token, target token)."""

    def chosen(one, other, table):
        scores = [
            [
                table.get((first, second), 0) * np.exp(-TENSION * abs(i / len(one) - j / len(other)))
                for i, first in enumerate(one)
            ]
            for j, second in enumerate(other)
        ]
        return {(int(np.argmax(row)), j) for j, row in enumerate(scores) if max(row) > 0.01}

    return chosen(source, target, forward) & {(i, j) for j, i in chosen(target, source, backward)}


def spans_of(parts):
    """The text without tags, and the tokens that each pair surrounds: dict of opening tag -> set of int."""
    text, open_ones, spans = "", [], {}
    for part in parts:
        if not isinstance(part, Mark):
            text += part
        elif part.kind == OPEN:
            open_ones.append((part.text, len(text)))
        elif part.kind == CLOSE:
            opening, start = open_ones.pop()
            spans[opening] = (start, len(text))
    tokens = tokens_of(text)
    return text, {
        opening: {t for t, (begin, stop) in enumerate(tokens) if begin < end and stop > start}
        for opening, (start, end) in spans.items()
    }


def by_position(length, source_length):
    """Weights (T, S) that prefer the same place in the sentence, for a comparison without an alignment."""
    rows, columns = ((np.arange(n) + 0.5) / max(1, n) for n in (length, source_length))
    return np.exp(-20 * np.abs(rows[:, None] - columns))


def by_judge(layout, text, weights, forward, backward):
    """The links of the judge as weights (T, S). They show how well tags can be placed with a perfect alignment."""
    judged = np.zeros_like(weights)
    for i, j in links_of(words_of(layout.text), words_of(text), forward, backward):
        judged[j, i] = 1
    return judged


def is_well_formed(text):
    """Whether a fragment is."""
    try:
        expat.ParserCreate().Parse(f"<p>{text}</p>".replace("&", "&amp;"), True)
    except expat.ExpatError:
        return False
    return True


def measure(fragments, translated, forward, backward):
    """Counts of tags and links, a `Counter`."""
    counts = Counter()
    for fragment, parts in zip(fragments, translated, strict=True):
        written = joined(parts)
        counts["well-formed"] += is_well_formed(written)
        counts["same tags"] += sorted(TAG.findall(fragment)) == sorted(TAG.findall(written))
        text, before = spans_of(parts_of(fragment, TAG))
        translation, after = spans_of(parts)
        signs = {j for j, (start, _) in enumerate(tokens_of(translation)) if is_sign(translation[start])}
        links = links_of(words_of(text), words_of(translation), forward, backward)
        links = {(i, j) for i, j in links if j not in signs}
        for opening, inside in before.items():
            held = [(i in inside, j in after.get(opening, ())) for i, j in links]
            if any(source for source, _ in held):
                counts["judged"] += 1
                counts["right"] += all(source == target for source, target in held)
                counts["touching"] += any(source and target for source, target in held)
                counts["links"] += sum(source or target for source, target in held)
                counts["links kept"] += sum(source and target for source, target in held)
    return counts


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model_dir", required=True)
    parser.add_argument("--checkpoint", default="average")
    parser.add_argument("--corpus", required=True, help="directory with train.en, train.de, SPLIT.en")
    parser.add_argument("--split", default="val")
    parser.add_argument("--source_lang", default="en")
    parser.add_argument("--target_lang", default="de")
    parser.add_argument("--fragments", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--show", type=int, default=0, help="print this number of fragments with their translations")
    arguments = parser.parse_args()

    def lines(split, language):
        with open(f"{arguments.corpus}/{split}.{language}", encoding="utf-8") as file:
            return file.read().splitlines()

    rng = random.Random(arguments.seed)
    sentences = rng.sample(lines(arguments.split, arguments.source_lang), arguments.fragments)
    fragments = [make_fragment(text, rng) for text in sentences]
    translator = kt.load(arguments.model_dir, arguments.checkpoint)
    layouts = [layout_of(parts_of(fragment, TAG)) for fragment in fragments]
    found = align_words(translator, [layout.text for layout in layouts])
    sides = (lines("train", language) for language in (arguments.source_lang, arguments.target_lang))
    pairs = [(words_of(source), words_of(target)) for source, target in zip(*sides, strict=True)]
    tables = learn(pairs), learn([(target, source) for source, target in pairs])
    print(f"{len(fragments)} fragments, seed {arguments.seed}, placed by")
    for name, weights in {
        "explain": [aligned.weights for aligned in found],
        "position alone": [by_position(*aligned.weights.shape) for aligned in found],
        "the judge": [by_judge(layout, *aligned, *tables) for layout, aligned in zip(layouts, found, strict=True)],
    }.items():
        translated = [
            place(layout, aligned.text, of_text)
            for layout, aligned, of_text in zip(layouts, found, weights, strict=True)
        ]
        counts = measure(fragments, translated, *tables)
        shares = [f"{key} {counts[key] / len(fragments):.1%}" for key in ("well-formed", "same tags")]
        shares += [f"{key} {counts[key] / counts['judged']:.1%}" for key in ("right", "touching")]
        shares.append(f"links {counts['links kept'] / counts['links']:.1%}")
        print(f"{name:16}{', '.join(shares)} of {counts['judged']} tags for which the judge has links")
        if name == "explain":
            for fragment, parts in list(zip(fragments, translated, strict=True))[: arguments.show]:
                print(f"{fragment}\n  {joined(parts)}")


if __name__ == "__main__":
    main()
