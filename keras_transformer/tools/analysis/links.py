"""Links between the tokens of a corpus, for `guided_alignment`: learnt from the corpus, or read from a file.

IBM model 1 with a preference for the diagonal (`tools/lexicon.py`) finds the likeliest source token of every target
token, and the likeliest target token of every source token. A link is what both find.
"""

import itertools
from pathlib import Path

import numpy as np
from tqdm import tqdm

from keras_transformer.data.corpora import Kept
from keras_transformer.data.encoded import EncodedPairs, Sentences, tokenised
from keras_transformer.data.links import PLACES, as_rows
from keras_transformer.data.text_files import lines_of
from keras_transformer.errors import CorpusError, counted
from keras_transformer.tools.analysis.annotations import pieces_of_words, read_links, spans_of
from keras_transformer.tools.lexicon import by_direction, links, nearness, translation_probabilities

TENSION = 4.0  # preference for the diagonal, that of fast_align
LEAST_PROBABILITY = 0.01  # of a link
CHUNK = 2048  # pairs that are linked at a time
DTYPE = np.dtype(np.uint32)


def learn_links(pairs):
    """The links of `EncodedPairs`, learnt from themselves in each direction: `Sentences`, see `data/links.py`."""
    found = []
    for rows in by_direction(pairs, np.arange(len(pairs))):
        there = pairs.of(rows)
        back = EncodedPairs(there.target, there.source, {})
        sources, targets = likeliest_tokens(there), likeliest_tokens(back)
        agreed = np.flatnonzero(sources >= 0)
        agreed = agreed[targets[sources[agreed]] == agreed]
        agreed = agreed[~np.isin(agreed, there.target.starts[1:] - 1)]  # eos is no word
        which = np.searchsorted(there.target.starts, agreed, side="right") - 1
        places = agreed - there.target.starts[which], sources[agreed] - there.source.starts[which]
        found.append((rows[which], *places))
    return as_rows(*map(np.concatenate, zip(*found, strict=True)), len(pairs))


def likeliest_tokens(pairs):
    """For every target token, the number of its likeliest source token, among all source tokens; -1 for none."""
    sources, targets, t = translation_probabilities(pairs, tension=TENSION)
    size = int(targets.max()) + 1
    known = sources.astype(np.int64) * size + targets  # sorted
    found = np.full(len(pairs.target.ids), -1)
    starts = range(0, len(pairs), CHUNK)
    for start in tqdm(starts, "linking words", delay=3, leave=False, disable=None):
        rows = np.arange(start, min(start + CHUNK, len(pairs)))
        sources, targets, *places = links(pairs, rows)
        wanted = sources.astype(np.int64) * size + targets
        at = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
        likely = (known[at] == wanted) & (targets < size) & (t[at] > LEAST_PROBABILITY)
        weights = np.where(likely, t[at] * nearness(pairs, rows, *places, TENSION), 0.0)
        order = np.lexsort((-weights, places[1]))
        tokens, first = np.unique(places[1][order], return_index=True)
        best = order[first]
        best, tokens = best[weights[best] > 0], tokens[weights[best] > 0]
        found[pairs.target.starts[start] + tokens] = pairs.source.starts[start] + places[0][best]
    return found


def links_of_file(path, texts, pairs, tokenizers, max_length):
    """The links of `EncodedPairs` in a file of word alignments: `Sentences`, see `data/links.py`.

    All pieces of a source word are linked with all pieces of its target word. The file has the links of the whole
    training text, of the pairs that are held out, too.

    Args:
        path: of a file in Pharaoh's format, see `read_alignments`. It may end in .gz.
        texts: iterable of (source, target) strings, from which `pairs` were made.
        pairs: `EncodedPairs`.
        tokenizers: each a `Tokenizer`, of source and target.
        max_length: that of `pairs`, which decides which of the texts became pairs.

    Raises:
        CorpusError: if the file does not fit the texts, or cannot be read.
    """
    lines, number, rows, found = lines_of(Path(path)), 0, itertools.count(), []
    texts, keep = (texts.pairs, iter(texts.keep)) if isinstance(texts, Kept) else (texts, itertools.repeat(True))
    spelled = [Spelling(tokenizer) for tokenizer in tokenizers]
    rest = iter(tqdm(texts, "reading links", unit=" pairs", unit_scale=True, delay=3, leave=False, disable=None))
    while chunk := list(itertools.islice(rest, CHUNK)):
        sides, has_text, fits = tokenised(chunk, tokenizers, max_length)
        for both, ids, is_whole in zip(chunk, zip(*sides, strict=True), has_text & fits, strict=True):
            number += 1
            line = next(lines, None)
            if line is None:
                raise CorpusError(f"{path} has {counted(number - 1, 'line')}, but there are more pairs")
            of_words = read_links(line, both, f"{path}, line {number:,}")
            if not (next(keep) and is_whole):
                continue
            row = next(rows)
            sources, targets = (each.pieces_of(text, own) for each, text, own in zip(spelled, both, ids, strict=True))
            for source, target in of_words:
                found += [(row, t, s) for t in targets[target] for s in sources[source]]
    if next(lines, None) is not None:
        raise CorpusError(f"{path} has more lines than there are pairs, {number:,}")
    return as_rows(*np.array(found, np.int64).reshape(-1, 3).T, len(pairs))


class Spelling:
    """The pieces of a tokenizer by their ids, to find those of words."""

    def __init__(self, tokenizer):
        pieces = tokenizer.pieces(np.arange(tokenizer.vocabulary_size, dtype=np.int32)).numpy()
        self._pieces = [piece.decode("utf-8") for piece in pieces]

    def pieces_of(self, text, ids):
        """For each word of a text the list of the places of its pieces in `ids`, a list of int."""
        return pieces_of_words([self._pieces[id] for id in ids], spans_of(text.split()))


def write_links(found, directory):
    """Writes `Sentences` of links into a directory, for `open_links`. Raises CorpusError if there are none."""
    if not len(found.ids):
        raise CorpusError("no words of the corpus could be linked: give `alignments`, or leave `guided_alignment` out")
    found.ids.astype(DTYPE).tofile(Path(directory, "links_ids"))
    found.starts.astype(np.int64).tofile(Path(directory, "links_starts"))


def open_links(directory):
    """The `Sentences` of `write_links`, mapped into memory."""
    return Sentences.open(Path(directory, "links"), DTYPE)


def describe(found, pairs):
    """How many pairs have links, as words, and the share of the target tokens that have one, in %."""
    rows = np.repeat(np.arange(len(pairs)), found.lengths)
    tokens = np.unique(rows * PLACES + found.ids // PLACES)
    return counted(len(np.unique(rows)), "pair"), 100 * len(tokens) / int(pairs.target_pieces.sum())
