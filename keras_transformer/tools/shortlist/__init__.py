"""The lexical shortlist: a search chooses among target pieces that the source makes likely, not among all.

A decoding step of a small model spends much of its time on the vocabulary: the product with the matrix (V, D), the
softmax, and the search for the largest of V logits. Each row of a batch has a list of its own: the likeliest target
pieces of each of its source pieces, the most frequent pieces, and all pieces of a forced prefix. A step computes the
logits of all pieces that are on any list of the batch. The pieces that are not on a row's own list are then hidden from
that row, so that no row's result depends on the rows beside it.
"""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from keras_transformer.config import BOS_ID, EOS_ID, FIRST_PLACEHOLDER_ID, PAD_ID, UNK_ID
from keras_transformer.decoding.search import IMPOSSIBLE, marked
from keras_transformer.errors import check_positive
from keras_transformer.evaluation import measure
from keras_transformer.layers.embedding import columns_of
from keras_transformer.protection import PLACEHOLDERS
from keras_transformer.tokenizer import load_tokenizers
from keras_transformer.tools.lexicon import likeliest, most_frequent
from keras_transformer.training.preparation import open_split
from keras_transformer.translation.options import LANGUAGE_INPUTS

FREQUENT = 1000  # target pieces that are on every list


class AllowedPieces(NamedTuple):
    """The target pieces on the lists of P rows, U of them. A search knows each by its number, 0 ... U-1.

    The pieces are sorted, and the control symbols are among them. So a control symbol's number is its id.
    """

    pieces: tf.Tensor  # int32 (U,)
    hidden: tf.Tensor  # float32 (P, 1, U), added to the logits of a row: 0, or `IMPOSSIBLE` off its list

    def projections(self, members):
        """What `joint_logits` reads, for these pieces alone: of each model (D, U), and (U,) or None."""

        def of(member):
            columns = columns_of(tf.gather(member.output_matrix, self.pieces), member.compute_dtype)
            return columns, None if member.output_bias is None else tf.gather(member.output_bias, self.pieces)

        return [of(member) for member in members]

    def state(self, state):
        """Turns the first state of the model into the one for `step`."""
        return {"model": state, "hidden": self.hidden}

    def step(self, step):
        """The step function of a search among the candidates.

        Args:
            step: that of the model (see `beam_search`). It reads pieces; its logits (P, W, U) are of the candidates.
        """

        def step_by_numbers(ids, parents, position, state):
            logits, model_state = step(tf.gather(self.pieces, ids), parents, position, state["model"])
            return logits + state["hidden"], {**state, "model": model_state}

        return step_by_numbers

    def options(self, options):
        """The options of a search, with the prefix in numbers."""
        if "prefix" not in options:
            return options
        prefix = options["prefix"]
        numbers = tf.searchsorted(self.pieces, tf.reshape(prefix, [-1]))
        return {**options, "prefix": tf.reshape(numbers, tf.shape(prefix))}

    def hypotheses(self, hypotheses):
        """The hypotheses of a search, with pieces in place of its numbers."""
        return hypotheses._replace(ids=tf.gather(self.pieces, hypotheses.ids))


class Shortlist(tf.Module):
    """The lists of the source pieces.

    Args:
        table: int (source pieces, N), target pieces; padding where there are fewer, and in the row of padding.
        frequent: int (A,), target pieces that are on every list, besides the control symbols. They include the
            placeholders of a model that has some, so that a placeholder's number is its id, too.
        vocabulary_size: V, number of target pieces.
    """

    def __init__(self, table, frequent, vocabulary_size):
        super().__init__(name="shortlist")
        dtype = np.int16 if vocabulary_size <= 1 << 15 else np.int32  # not every engine looks up unsigned numbers
        self.vocabulary_size = vocabulary_size
        self.table = tf.Variable(table.astype(dtype), trainable=False, name="table")
        frequent = np.union1d(frequent, [PAD_ID, UNK_ID, BOS_ID, EOS_ID])
        self.frequent = tf.Variable(frequent.astype(dtype), trainable=False, name="frequent")

    @classmethod
    def count(cls, pairs, source_tokenizer, target_tokenizer, size):
        """Counts the lists in a corpus.

        A source piece that is also a target piece is on its own list, so that names can be copied.

        Args:
            pairs: `EncodedPairs`.
            source_tokenizer, target_tokenizer: `Tokenizer` of each side of the pairs; they may be the same.
            size: N, number of the likeliest target pieces of a source piece.

        Raises:
            UserError: for a size that is not positive.
        """
        check_positive(shortlist=size)
        size = min(size, target_tokenizer.vocabulary_size)
        sources, targets = (
            tokenizer.pieces(tf.range(tokenizer.vocabulary_size)).numpy().tolist()
            for tokenizer in (source_tokenizer, target_tokenizer)
        )
        ids = {piece: id for id, piece in enumerate(targets)}
        copies = [[ids.get(piece, PAD_ID)] for piece in sources]
        table = np.concatenate([likeliest(pairs, len(sources), size), copies], axis=1)
        frequent = most_frequent(pairs, FREQUENT)
        if target_tokenizer.has_placeholders:
            frequent = np.union1d(frequent, FIRST_PLACEHOLDER_ID + np.arange(len(PLACEHOLDERS)))
        return cls(table, frequent, len(targets))

    def candidates(self, source_ids, prefix):
        """The target pieces that a batch may choose from.

        Args:
            source_ids: int32 (P, S), padded.
            prefix: int32 (P, L), pieces that each row begins with, padded.

        Returns:
            `AllowedPieces`.
        """
        rows, length = tf.unstack(tf.shape(source_ids))
        of_source = tf.reshape(tf.gather(self.table, source_ids), [rows, length * self.table.shape[1]])
        of_all = tf.broadcast_to(tf.cast(self.frequent, tf.int32), [rows, self.frequent.shape[0]])
        listed = tf.concat([tf.cast(of_source, tf.int32), of_all, prefix], axis=1)[:, None]
        is_listed = marked(listed, tf.ones_like(listed, tf.bool), self.vocabulary_size)[:, 0]  # (P, V)
        pieces = tf.where(tf.reduce_any(is_listed, axis=0))[:, 0]
        hidden = tf.where(tf.gather(is_listed, pieces, axis=1), 0.0, IMPOSSIBLE)[:, None]
        return AllowedPieces(tf.cast(pieces, tf.int32), hidden)


def count_shortlist(run, size):
    """The `Shortlist` of a run, counted from its tokenised training corpus.

    Args:
        run: `RunDirectory`.
        size: N, number of the likeliest target pieces of each source piece.

    Raises:
        UserError: for a size that is not positive, and if there is no tokenised corpus, or another than the run's.
    """
    check_positive(shortlist=size)
    return Shortlist.count(open_split(run, "train"), *load_tokenizers(run.path), size)


def compare_with_all_pieces(translator, run):
    """What a shortlist changes in the translations of the validation set.

    Args:
        translator: `Translator` with a shortlist.
        run: `RunDirectory` of the same model.

    Returns:
        dict: the number of sentences, how many have the same translation as without the shortlist, and BLEU with and
        without, with its signature.
    """
    pairs = open_split(run, "validation")
    sources = pairs.source.texts(translator.source_tokenizer)
    references = pairs.target.texts(translator.target_tokenizer)
    every = translator.with_model(translator.model, shortlist=None)
    how = {}
    if pairs.directions:
        languages = [pairs.directions[share] for share in pairs.shares_of(np.arange(len(pairs)))]
        how = {name: [each[side] for each in languages] for side, name in enumerate(LANGUAGE_INPUTS)}
    translations = [each.translate(sources, **how) for each in (translator, every)]
    tokenize, target_lang = run.tokenization(), run.languages()[1]
    bleu, bleu_of_all = (measure(found, references, tokenize, target_lang) for found in translations)
    return {
        "sentences": len(sources),
        "equal": sum(one == other for one, other in zip(*translations, strict=True)),
        "bleu": bleu.bleu,
        "bleu_of_all_pieces": bleu_of_all.bleu,
        "bleu_signature": bleu.bleu_signature,
    }
