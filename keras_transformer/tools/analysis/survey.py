"""Measures every head of a Transformer on a corpus, and how much the loss depends on it."""

import logging
from collections import Counter
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from keras_transformer.config import PAD_ID
from keras_transformer.errors import CorpusError, UserError, counted
from keras_transformer.normalization import mend
from keras_transformer.tokenizer import shift_right, with_eos
from keras_transformer.tools.analysis import roles
from keras_transformer.tools.analysis.annotations import characters_of, pieces_of_words, spans_of, spelling
from keras_transformer.tools.analysis.gates import KINDS, attentions_of, gated
from keras_transformer.translation.directions import begun, default_tags, tagged
from keras_transformer.translation.lines import run_sorted

log = logging.getLogger(__name__)
IDS = tf.TensorSpec([None, None], tf.int32)

# The smallest shares that give a head a role. The first and the last are those of Voita et al. 2019.
POSITIONAL, DIAGONAL, RARE, ALIGNED, ABOVE_BASELINE = 0.9, 0.9, 0.5, 0.5, 0.1
FEWEST_PAIRS = 30  # of a relation: the best of many heads finds fewer by chance


class Sentence(NamedTuple):
    """A pair of sentences as the model reads it, with annotations of its words.

    Args:
        number: int, its line, from 0.
        source_ids, labels: int arrays (S,) and (T,); the latter ends with eos.
        source_pieces, label_pieces: lists of S and T str.
        links: None, or (the pieces of the source words, the pieces of the target words, list of (source word, target
            word)).
        tree: None, or (the pieces of the words, the edges of a `Tree`).
    """

    number: int
    source_ids: np.ndarray
    labels: np.ndarray
    source_pieces: list
    label_pieces: list
    links: tuple | None
    tree: tuple | None


class Attended(NamedTuple):
    """The attention of all heads in one pair of sentences.

    Args:
        source_pieces: list of S str.
        target_pieces: list of T str, which the decoder reads: bos y1 ... yn.
        label_pieces: list of T str, which the decoder predicts: y1 ... yn eos.
        weights: dict of kind -> float32 (heads of this kind, T or S, T or S).
    """

    source_pieces: list
    target_pieces: list
    label_pieces: list
    weights: dict


class Record(NamedTuple):
    """The record of a pair: the looks (see `roles`) by kind, sums of entropies, gradients, looks of words."""

    looks: dict
    entropies: dict
    gradients: np.ndarray
    aligned_looks: np.ndarray | None
    tree_looks: np.ndarray | None
    weights: dict | None


@dataclass(frozen=True)
class Heads:
    """The N heads of a Transformer, in the order of `attentions_of`; an array has a value for each of them.

    Attributes:
        kinds: list of N str, "encoder", "decoder" or "cross".
        layers, places: int (N,), the layer and the number in its attention, from 0.
        entropies: (N,), mean over all queries, in nats.
        offsets, offset_shares: int and float (N,), see `roles.positional`.
        rare, rare_by_chance: (N,), see `roles.rare`.
        diagonal: (N,), see `roles.diagonal`; NaN for self-attention.
        aligned: (N,), see `roles.aligned`; NaN for self-attention, and without alignments.
        importance: (N,), the mean over all pairs of `|d loss / d gate|` (Michel et al. 2019).
        relations: dict of relation -> `roles.Relation`; empty without parses. Its arrays are for the heads of the
            encoder, which are the first of the N.
        sentences: list of `Attended`, the first few pairs.
        pairs: int, the number of pairs that were read.
    """

    kinds: list
    layers: np.ndarray
    places: np.ndarray
    entropies: np.ndarray
    offsets: np.ndarray
    offset_shares: np.ndarray
    rare: np.ndarray
    rare_by_chance: np.ndarray
    diagonal: np.ndarray
    aligned: np.ndarray
    importance: np.ndarray
    relations: dict
    sentences: list
    pairs: int

    def __len__(self):
        return len(self.kinds)

    @property
    def names(self):
        """list of N str, such as "encoder 0.3": layer 0, head 3."""
        return [
            f"{kind} {layer}.{place}" for kind, layer, place in zip(self.kinds, self.layers, self.places, strict=True)
        ]

    @property
    def roles(self):
        """For each head a list of str, such as ["position -1", "nsubj to head"]; empty where none is clear."""
        found = [[] for _ in self.kinds]
        for head, named in enumerate(found):
            if self.offset_shares[head] >= POSITIONAL:
                named.append(f"position {self.offsets[head]:+d}")
            if self.diagonal[head] >= DIAGONAL:
                named.append("diagonal")
            if self.rare[head] >= max(RARE, 2 * self.rare_by_chance[head]):
                named.append("rare words")
            if self.aligned[head] >= ALIGNED:
                named.append("alignment")
        for name, relation in self.relations.items():
            for head in range(len(relation.to_head) if relation.pairs >= FEWEST_PAIRS else 0):
                for shares, direction in ((relation.to_head, "to head"), (relation.to_dependent, "to dependent")):
                    if shares[head] >= relation.baseline + ABOVE_BASELINE:
                        found[head].append(f"{name} {direction}")
        return found


def heads(translator, texts, references, alignments=None, trees=None, keep=0, on_progress=None):
    """Measures every head while the model reads pairs of sentences, each line as one sequence.

    The importance of a head is the mean over the pairs of `|d loss / d gate|`, with the gate of the head at 1 and the
    loss of a pair the mean cross-entropy of its tokens. *Relative to* Michel et al. 2019: not divided by the norm of
    its layer.

    Args:
        translator: `Translator`, whose model is a `Transformer`.
        texts: list of str.
        references: list of str, their translations.
        alignments: None, or as `read_alignments` gives.
        trees: None, or as `read_conllu` gives.
        keep: int, the number of pairs, from the first, whose weights of all heads are kept.
        on_progress: called with the number of pairs done since its last call.

    Returns:
        `Heads`. Pairs with a blank side, and those longer than the `max_length` of the translator, are left out.

    Raises:
        UserError: for a model that is no Transformer, if the numbers of texts, references, alignments and trees differ,
            and if nothing is left.

    Example:

    ```python
    found = kt.analysis.heads(translator, ["one two"], ["eins zwei"])
    found.names[found.importance.argmax()]  # such as "cross 1.0"
    ```
    """
    attentions = attentions_of(translator.model)
    sentences = prepare(translator, texts, references, alignments, trees)
    measure = _measuring(translator.model, attentions, translator.tags).get_concrete_function()

    def record_batch(batch):
        source_ids, labels = (tf.ragged.constant([s[i].tolist() for s in batch], tf.int32).to_tensor() for i in (1, 2))
        weights, gradients = measure(source_ids, labels)
        weights = {kind: of_kind.numpy() for kind, of_kind in weights.items()}
        return [
            _record(sentence, {kind: of_kind[row] for kind, of_kind in weights.items()}, of_row, sentence.number < keep)
            for row, (sentence, of_row) in enumerate(zip(batch, gradients.numpy(), strict=True))
        ]

    records = run_sorted(record_batch, sentences, translator.batch_size, on_progress, size=lambda s: len(s.labels))
    return _summary(translator, attentions, sentences, records)


def prepare(translator, texts, references, alignments=None, trees=None):
    """Makes the `Sentence`s of pairs; arguments and errors are those of `heads`."""
    counts = {"texts": len(texts), "references": len(references)}
    counts |= {name: len(x) for name, x in (("alignments", alignments), ("trees", trees)) if x is not None}
    if len(set(counts.values())) > 1:
        received = ", ".join(f"{count} {name}" for name, count in counts.items())
        raise UserError(f"there must be equally many of each. Received: {received}")
    source, target = translator.source_tokenizer, translator.target_tokenizer
    encoded = source.encode(list(texts)), with_eos(target.encode(list(references)))
    of_sides = zip(encoded, (source, target), strict=True)
    pieces = [ids.with_values(tokenizer.pieces(ids.values)).to_list() for ids, tokenizer in of_sides]
    longest = translator.settings["max_length"]
    rows = list(zip(*(x.to_list() for x in encoded), strict=True))
    is_blank = [not all(map(mend, pair)) for pair in zip(texts, references, strict=True)]
    kept = [i for i, ids in enumerate(rows) if not is_blank[i] and max(map(len, ids)) <= longest]
    if len(kept) < len(rows):
        log.info("%s left out: blank, or of more than %d pieces", counted(len(rows) - len(kept), "pair"), longest)
    if not kept:
        raise UserError("no pair of sentences is left to analyse")
    sentences = []
    for i in kept:
        of_source, of_target = ([piece.decode("utf-8") for piece in side[i]] for side in pieces)
        tree = trees and (_words(of_source, texts[i], trees[i].spans, i), trees[i].edges)
        links = alignments and (
            _words(of_source, texts[i], spans_of(texts[i].split()), i),
            _words(of_target[:-1], references[i], spans_of(references[i].split()), i),
            alignments[i],
        )
        ids = [np.array(x, np.int32) for x in rows[i]]
        sentences.append(Sentence(i, *ids, of_source, of_target, links or None, tree or None))
    return sentences


def _words(pieces, text, spans, number):
    """`pieces_of_words`, if the pieces spell the text."""
    if spelling(pieces)[0] != characters_of(text):
        raise CorpusError(f"line {number + 1:,}: its pieces do not spell its words: the tokenizer rewrites text")
    return pieces_of_words(pieces, spans)


def _measuring(model, attentions, tags):
    """The graph from a batch to the weights by kind, (B, heads, T, S), and the gradients of the gates, (B, N).

    Weights on the tokens of the model's `frame` and on a tag of the source are left out. So a row can sum to less
    than 1.
    """
    target, source = model.target_frame.width, len(model.source_frame.before) + (tags is not None)
    first = {"encoder": (source, source), "decoder": (target, target), "cross": (target, source)}

    @tf.function(autograph=False, input_signature=[IDS, IDS])
    def measure(source_ids, labels):
        gates = [tf.ones([tf.shape(labels)[0], attention.num_heads]) for attention in attentions]
        with tf.GradientTape() as tape:
            tape.watch(gates)
            with gated(attentions, gates) as weights:
                of_rows = default_tags(tags, tf.shape(labels)[0])
                states = model.decode(begun(shift_right(labels), of_rows), model.encode(tagged(source_ids, of_rows)))
            is_real = tf.cast(labels != PAD_ID, tf.float32)
            losses = is_real * tf.nn.sparse_softmax_cross_entropy_with_logits(labels, model.logits(states))
            means = tf.reduce_sum(losses, axis=1) / tf.reduce_sum(is_real, axis=1)  # (B,)
        gradients = tape.gradient(means, gates)  # of the sum; each gate acts on the loss of one pair
        rows, length, width = tf.shape(labels)[0], tf.shape(labels)[1], tf.shape(source_ids)[1]
        sizes = {"encoder": (width, width), "decoder": (length, length), "cross": (length, width)}
        by_kind = {kind: [tf.zeros([rows, 0, *sizes[kind]])] for kind in KINDS}  # a kind may have lost all its heads
        for attention, of_attention in zip(attentions, weights, strict=True):
            (row, column), (height, width) = first[attention.kind], sizes[attention.kind]
            by_kind[attention.kind].append(of_attention[:, :, row : row + height, column : column + width])
        return {kind: tf.concat(of_kind, axis=1) for kind, of_kind in by_kind.items()}, tf.concat(gradients, axis=1)

    return measure


def _record(sentence, padded, gradients, is_kept):
    """The `Record` of one row of a batch. A look of the decoder belongs to the word that the decoder predicts."""
    width, length = len(sentence.source_ids), len(sentence.labels)
    sizes = {"encoder": (width, width), "decoder": (length, length), "cross": (length, width)}
    weights = {kind: padded[kind][:, :rows, :columns].astype(np.float32) for kind, (rows, columns) in sizes.items()}
    aligned_looks = tree_looks = None
    if sentence.links:
        source_words, target_words, _ = sentence.links
        aligned_looks = roles.most_attended(roles.attention_of_words(weights["cross"], target_words, source_words))
    if sentence.tree:
        words, _ = sentence.tree
        tree_looks = roles.most_attended(roles.attention_of_words(weights["encoder"], words, words))
    return Record(
        {kind: roles.most_attended(w).astype(np.int16) for kind, w in weights.items()},
        {kind: roles.entropies(w).sum(axis=1) for kind, w in weights.items()},
        gradients,
        aligned_looks,
        tree_looks,
        weights if is_kept else None,
    )


def _summary(translator, attentions, sentences, records):
    bos = translator.target_tokenizer.pieces(shift_right(tf.constant([[1]]))[0]).numpy()[0].decode("utf-8")
    read = [shift_right(sentence.labels[None]).numpy()[0] for sentence in sentences]  # bos y1 ... yn
    columns = [_of_kind(kind, sentences, read, records) for kind in KINDS]
    of_heads = {name: np.concatenate([column[name] for column in columns]) for name in columns[0]}
    linked = [(r.aligned_looks, s.links[2]) for r, s in zip(records, sentences, strict=True) if s.links]
    if linked:
        of_heads["aligned"][-linked[0][0].shape[0] :] = roles.aligned(*zip(*linked, strict=True))
    parsed = [(r.tree_looks, s.tree[1]) for r, s in zip(records, sentences, strict=True) if s.tree]
    return Heads(
        kinds=[attention.kind for attention in attentions for _ in range(attention.num_heads)],
        layers=np.repeat([attention.layer for attention in attentions], [a.num_heads for a in attentions]),
        places=np.concatenate([np.arange(attention.num_heads) for attention in attentions]),
        importance=np.mean([np.abs(record.gradients) for record in records], axis=0),
        relations=roles.syntactic(*zip(*parsed, strict=True)) if parsed else {},
        sentences=[
            Attended(s.source_pieces, [bos, *s.label_pieces[:-1]], s.label_pieces, record.weights)
            for s, record in zip(sentences, records, strict=True)
            if record.weights
        ],
        pairs=len(records),
        **of_heads,
    )


def _of_kind(kind, sentences, read, records):
    """The columns of `Heads` that need no annotation, of the heads of one kind."""
    looks, is_causal = [record.looks[kind] for record in records], kind == "decoder"
    keys = read if is_causal else [sentence.source_ids for sentence in sentences]
    frequency = Counter(np.concatenate(keys).tolist())
    widths = [len(ids) for ids in keys]
    number = len(looks[0])
    offsets, offset_shares = roles.positional(looks, widths, is_causal)
    rare, by_chance = roles.rare(looks, [[frequency[id] for id in ids.tolist()] for ids in keys], is_causal)
    return {
        "entropies": np.sum([record.entropies[kind] for record in records], axis=0) / sum(x.shape[1] for x in looks),
        "offsets": offsets,
        "offset_shares": offset_shares,
        "rare": rare,
        "rare_by_chance": np.full(number, by_chance),
        "diagonal": roles.diagonal(looks, widths) if kind == "cross" else np.full(number, np.nan),
        "aligned": np.full(number, np.nan),
    }
