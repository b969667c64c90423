"""A lexicon, counted from a corpus: the target pieces that each source piece may become.

IBM model 1 (Brown et al. 1993): every target token f comes from one token e of its source sentence. All tokens e are
equally likely, and e becomes f with probability t(f | e). The expectation-maximisation algorithm finds t in two steps
that alternate:

    how much f comes from e:  t(f | e) / sum of t(f | e') over the tokens e' of the source
    t(f | e):                 the sum of these shares over the corpus, divided by the sum for e

With a `tension`, tokens near the diagonal are likelier than others, as in fast_align (Dyer et al. 2013): a token i of S
and a token j of T have the weight exp(-tension d), where d is the distance between i / S and j / T.
"""

import numpy as np

from keras_transformer.config import PAD_ID

ITERATIONS = 5
MOST_LINKS = 1 << 25  # pairs of a source token and a target token; they take 40 bytes each while t is computed


def links(pairs, rows):
    """Links every target token of some sentences with every token of its source: L links.

    Args:
        pairs: `EncodedPairs`.
        rows: int (R,), the sentences.

    Returns:
        int (L,) four times: the source piece, the target piece, and the numbers of the source token and of the target
        token among all tokens of these sentences. The links of a target token stand together.
    """
    source, target = pairs.source.of(rows), pairs.target.of(rows)
    widths = np.repeat(source.lengths, target.lengths)  # of each target token, the links
    begins = np.repeat(source.starts[:-1], target.lengths) - (np.cumsum(widths) - widths)
    targets = np.repeat(np.arange(len(target.ids)), widths)
    sources = begins[targets] + np.arange(len(targets))
    return source.ids[sources], target.ids[targets], sources, targets


def nearness(pairs, rows, sources, targets, tension):
    """The weights of the links of some sentences, as `links` gives them: float (L,); 1.0 without a tension."""
    if not tension:
        return 1.0

    def shares(side):
        text = side.of(rows)
        places = np.arange(len(text.ids)) - np.repeat(text.starts[:-1], text.lengths)
        return places / np.repeat(text.lengths, text.lengths)

    return np.exp(-tension * np.abs(shares(pairs.source)[sources] - shares(pairs.target)[targets]))


def translation_probabilities(pairs, iterations=ITERATIONS, tension=0.0):
    """t(f | e) of IBM model 1, for all pieces that occur in the same pair of sentences.

    In a large corpus, only evenly spaced pairs are counted, which have at most `MOST_LINKS` links together.

    Args:
        pairs: `EncodedPairs`.
        iterations: of the EM algorithm, which starts from equal probabilities.
        tension: preference for the diagonal; 0 for none.

    Returns:
        int (N,), the source pieces e, sorted; int (N,), the target pieces f; float (N,), t.
    """
    total = int(np.dot(pairs.source.lengths, pairs.target.lengths))
    rows = np.arange(0, len(pairs), -(-total // MOST_LINKS))
    sources, targets, *places = links(pairs, rows)
    near, tokens = nearness(pairs, rows, *places, tension), places[1]
    size = int(targets.max()) + 1
    different, kinds = np.unique(sources.astype(np.int64) * size + targets, return_inverse=True)
    sources, targets = different // size, different % size
    t = np.ones(len(different))
    for _ in range(iterations):
        shares = t[kinds] * near
        shares /= np.bincount(tokens, shares)[tokens]
        t = np.bincount(kinds, shares)
        t /= np.bincount(sources, t)[sources]
    return sources, targets, t


def likeliest(pairs, source_size, count):
    """The likeliest target pieces of every source piece.

    Args:
        pairs: `EncodedPairs`.
        source_size: number of source pieces.
        count: number of target pieces for each.

    Returns:
        int (source_size, count), the likeliest first; padding behind them, where a source piece has fewer.
    """
    sources, targets, t = translation_probabilities(pairs)
    order = np.lexsort((-t, sources))
    ranks = np.arange(len(order)) - np.searchsorted(sources, sources)
    order, ranks = order[ranks < count], ranks[ranks < count]
    table = np.full((source_size, count), PAD_ID)
    table[sources[order], ranks] = targets[order]
    return table


def most_frequent(pairs, count):
    """The most frequent target pieces of a corpus, int (count,) or fewer: all that occur."""
    frequencies = np.bincount(pairs.target.ids)
    return np.argsort(-frequencies, kind="stable")[: min(count, np.count_nonzero(frequencies))]


def by_direction(pairs, rows):
    """The rows (B,) of `EncodedPairs` of each direction: a list of int arrays, only one in a run of one direction."""
    if not pairs.directions:
        return [rows]
    different = list(dict.fromkeys(pairs.directions))
    numbers = np.array([different.index(each) for each in pairs.directions])[pairs.shares_of(rows)]
    return [rows[numbers == number] for number in range(len(different))]
