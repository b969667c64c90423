"""Long text: taken apart into what the model reads at a time, and put together again, all as TensorFlow ops.

A text is white space and sentences in turn. White space goes to the output as it is; sentences go through the model, in
parts where they have more than `max_length` pieces.

A break that is missed costs little, since the model then reads two sentences as one; a wrong one tears a sentence. So
white space divides two sentences only

- with a line break in it, or
- between an end and a beginning. An end is a question or exclamation mark or its like in other scripts, or a full stop
  after three small letters, two letters of a script without case, the four digits of a year, or a closing bracket or
  quote: what precedes it in abbreviations, initials and ordinals is shorter, with a few exceptions. A beginning is an
  upper-case letter or one of a script without case, perhaps behind a quote or the like.

The full-width stops of Chinese and Japanese end a sentence without white space, too.

tensorflow-text's own sentence breaker is not used: it breaks inside "14:35" and "1.5", and before a closing quote.
"""

from typing import NamedTuple

import tensorflow as tf

from keras_transformer.decoding.hypotheses import penalty

BLANK = r"[\pZ\pC]"  # separators, control and invisible formatting characters
LINE_BREAK = r"[\n\v\f\r\x{85}\x{2028}\x{2029}]"
CLOSING = r"""["'\p{Pe}\p{Pf}\p{Pi}]"""
FULL_STOP = rf"(?:[\p{{Ll}}\p{{M}}]{{3}}|\p{{Lo}}{{2}}|\p{{Nd}}{{4}}|{CLOSING})\."
WIDE_STOP = "[。！？｡]"
END = rf"(?:{FULL_STOP}|[!?؟۔։।॥።፧။།]|{WIDE_STOP}){CLOSING}*"
BEGINNING = r"[\pP\pS]*[\p{Lu}\p{Lt}\p{Lo}]"
ABBREVIATIONS = "Capt|Corp|Dept|Prof|Sept|approx|bspw|bzw|evtl|inkl|vgl"  # that the rule for full stops takes for words
FEWEST_AT_ONCE = 32  # parts of texts that are translated side by side, or as many as there are texts

# Unicode keeps these code points for uses like ours: no text may contain them.
BORDER = "\uffff"  # between white space and a sentence
NO_SPACE = "\ufffe"  # in place of the white space between two sentences that have none
ENDED = "\ufdd0"  # behind an end, as long as it is not known what follows
BREAKS = (
    (rf"(\A{BLANK}+|{BLANK}*{LINE_BREAK}{BLANK}*|{BLANK}+\z)", rf"{BORDER}\1{BORDER}"),
    (rf"({END})({BLANK})", rf"\1{ENDED}\2"),
    (rf"\b((?:{ABBREVIATIONS})\.){ENDED}", r"\1"),
    (rf"{ENDED}({BLANK}+)({BEGINNING})", rf"{BORDER}\1{BORDER}\2"),
    (ENDED, ""),
    (rf"({WIDE_STOP})([^\pP\pZ\pC{BORDER}]|[\p{{Ps}}\p{{Pi}}])", rf"\1{BORDER}{NO_SPACE}{BORDER}\2"),
)

LONGEST_CHARACTER = 4  # bytes, each of which may be a piece


class Segments(NamedTuple):
    """A batch of B texts as P parts that the model reads one by one.

    Args:
        fragments: RaggedTensor string (B, None), the white space and the sentences of each text in their order.
        counts: int64 (N,), the number of parts of each of all N fragments; 0 for white space.
        ids: RaggedTensor int32 (P, None), the pieces of each part.
        gaps: string (P,), what comes before the translation of each part: a space if it begins with a new word.
    """

    fragments: tf.RaggedTensor
    counts: tf.Tensor
    ids: tf.RaggedTensor
    gaps: tf.Tensor

    @property
    def rows(self):
        """int64 (P,), the text to which each part belongs."""
        return tf.repeat(self.fragments.value_rowids(), self.counts)

    @property
    def places(self):
        """int64 (P,), the place of each part in its text."""
        return tf.ragged.range(tf.reduce_sum(self.fragments.with_values(self.counts), axis=1)).values


def split(text, tokenizer, max_length):
    """Takes a batch of texts apart.

    Args:
        text: string (B,). Invalid UTF-8 becomes U+FFFD; blank text has no parts.
        tokenizer: `Tokenizer`.
        max_length: int, or int64 scalar: most pieces of a part. Less than 4 does not divide a character of 4 pieces.

    Returns:
        `Segments`.
    """
    fragments = split_sentences(text)
    is_space = tf.strings.regex_full_match(fragments.values, f"{BLANK}*|{NO_SPACE}")
    sentences = tokenizer.encode(tf.where(is_space, "", fragments.values))
    pieces = tokenizer.pieces(sentences.values)  # (T,)
    starts_word = tf.strings.regex_full_match(pieces, "(?s)▁.*")
    starts_character = ~tf.strings.regex_full_match(pieces, "<0x[89AB].>")  # the others are bytes inside of one

    is_first = places(sentences) == 0
    begins = divisions(sentences, is_first | starts_word, is_first | starts_character, max_length)
    counts = tf.reduce_sum(sentences.with_values(tf.cast(begins, tf.int64)), axis=1)
    first = tf.squeeze(tf.where(begins), axis=1)  # (P,)
    gaps = tf.where(tf.gather(starts_word & ~is_first, first), " ", "")
    return Segments(fragments, counts, tf.RaggedTensor.from_row_starts(sentences.values, first, validate=False), gaps)


def split_sentences(text):
    """text string (B,) -> its white space and sentences in their order, RaggedTensor string (B, None)."""
    text = tf.strings.unicode_transcode(text, "UTF-8", "UTF-8", errors="replace")
    text = tf.where(tf.strings.regex_full_match(text, f"{BLANK}*"), "", text)
    text = tf.strings.regex_replace(text, f"[{BORDER}{NO_SPACE}{ENDED}]", "\ufffd")
    for pattern, rewrite in BREAKS:
        text = tf.strings.regex_replace(text, pattern, rewrite)
    return tf.strings.split(text, BORDER)


def divisions(ids, starts_word, starts_character, max_length):
    """Decides where a part begins: with every sentence, and in a long one about equally far apart.

    That is at a word if one begins at most a quarter of `max_length` before, and never inside of a character.

    Args:
        ids: RaggedTensor int32 (N, None), T in all.
        starts_word: bool (T,); the first piece of a sentence does.
        starts_character: bool (T,); likewise.
        max_length: see `split`.

    Returns:
        bool (T,).
    """
    place = places(ids)
    word, character = latest(place, starts_word), latest(place, starts_character)
    max_length = tf.cast(max_length, tf.int64)
    reach = tf.maximum(max_length // 4, 1)
    unit = word + (character - word) // reach * reach  # where the word begins, or as much of a long one

    # A unit counts where it begins, so that its part may become longer by all of it.
    room = tf.maximum(max_length - reach - LONGEST_CHARACTER, 1)
    lengths = tf.gather(ids.row_lengths(), ids.value_rowids())  # (T,)
    counts = tf.where(lengths > max_length, (lengths + room - 1) // room, 1)
    part = unit * counts // lengths
    return (place == 0) | (part != tf.roll(part, 1, axis=0))


def places(ids):
    """The place of every value in its row, int64 (T,), of a RaggedTensor (N, None)."""
    return tf.ragged.range(ids.row_lengths()).values


def latest(values, flags):
    """What `values` (T,) is at the latest place where `flags`, bool (T,), is true; it is at the first."""
    return tf.gather(tf.boolean_mask(values, flags), tf.cumsum(tf.cast(flags, tf.int32)) - 1)


def at_once(text):
    """How many parts of texts (B,) are worked on side by side, int64: the batch size for `in_batches`."""
    return tf.maximum(tf.size(text, tf.int64), FEWEST_AT_ONCE)


def in_batches(function, rows, number, batch_size, nothing):
    """Applies a function to at most `batch_size` rows at a time, so that memory does not depend on how many there are.

    Args:
        function: from keywords, tensors (C, ...), to a nest of tensors (C, ...).
        rows: name -> tensor (P, ...), dense or ragged.
        number: P, int64 scalar.
        batch_size: int64 scalar, positive.
        nothing: what the function gives for no rows: a nest of tensors (0, ...).

    Returns:
        the nest of tensors (P, ...).
    """

    def one_batch(start, results):
        more = function(**{name: row[start : start + batch_size] for name, row in rows.items()})
        return start + batch_size, tf.nest.map_structure(lambda *x: tf.concat(x, axis=0), results, more)

    shapes = tf.nest.map_structure(lambda x: tf.TensorShape([None, *x.shape[1:]]), nothing)
    _, results = tf.while_loop(
        cond=lambda start, results: start < number,
        body=one_batch,
        loop_vars=(tf.constant(0, tf.int64), nothing),
        shape_invariants=(tf.TensorShape([]), shapes),
        parallel_iterations=1,
    )
    return results


def join(segments, translations):
    """translations string (P, C), C of each part -> string (B, C), C of each text."""
    fragments, counts = segments.fragments, segments.counts
    owners, number = tf.repeat(tf.range(tf.size(counts)), counts), tf.size(counts)
    sentences = tf.strings.unsorted_segment_join(segments.gaps[:, None] + translations, owners, number)  # (N, C)
    sentences = tf.where(counts[:, None] > 0, sentences, fragments.values[:, None])
    text = tf.strings.unsorted_segment_join(sentences, fragments.value_rowids(), fragments.nrows())
    text = tf.strings.regex_replace(text, f"({WIDE_STOP}{CLOSING}*){NO_SPACE}", r"\1")
    return tf.strings.regex_replace(text, NO_SPACE, " ")


def join_scores(segments, scores, lengths, length_penalty):
    """The scores of texts from those of their parts: summed log-probabilities over the penalty of all their tokens.

    Args:
        segments: `Segments`.
        scores: float32 (P, C), normalised.
        lengths: int32 (P, C), tokens of each translation.
        length_penalty: alpha, float32 scalar or (B,).

    Returns:
        float32 (B, C). That of a text of one part is its part's, to the bit; that of blank text is 0.
    """
    rows, number = segments.rows, segments.fragments.nrows()
    totals = tf.math.unsorted_segment_sum(lengths, rows, number)  # (B, C)
    alphas = tf.gather(tf.broadcast_to(length_penalty, [number]), rows)[:, None]
    shares = penalty(lengths, alphas) / penalty(tf.gather(totals, rows), alphas)
    return tf.math.unsorted_segment_sum(scores * shares, rows, number)
