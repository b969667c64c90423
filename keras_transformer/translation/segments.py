"""Long text: divided into parts that the model reads one by one, and joined again, all as TensorFlow ops.

A text is white space and sentences in turn. White space goes to the output as it is. Sentences go through the model, in
several parts if they have more than `max_length` pieces. Emoji and other pictures around a sentence belong to the white
space, and so do the characters that the tokenizer does not know: few models have learned to copy them. Inside a
sentence, they divide it.

Values of parts of different lengths are flat: all parts stand one after the other, as in a RaggedTensor.
"""

from typing import NamedTuple

import tensorflow as tf

from keras_transformer.config import PAD_ID
from keras_transformer.decoding.search import penalty
from keras_transformer.tokenizer import with_eos
from keras_transformer.translation.options import OPTIONS
from keras_transformer.translation.sentences import BLANK, BORDER, CLOSING, DIVISION, NO_SPACE, RESERVED, WIDE_STOP

FEWEST_AT_ONCE = 32  # parts that are translated side by side, unless there are more texts than that

JOINTS = ((rf"({WIDE_STOP}{CLOSING}*){NO_SPACE}", r"\1"), (NO_SPACE, " "))

LONGEST_CHARACTER = 4  # bytes, each of which may be a piece
EXTRA_LENGTH = 50  # most tokens that a translation may have more than its source (6.1), where nothing shows more
LONGEST_ASKED = 1024  # tokens of a translation of which a text may ask for more than usual
MOST_FORCED = 1024  # tokens of a prefix; the rest is not forced
LONGEST_SCORED = 1024  # tokens of a text that is scored as a whole; the rest is cut off


class Segments(NamedTuple):
    """A batch of B texts as P parts.

    Args:
        fragments: RaggedTensor string (B, None), the white space and the sentences of each text in their order.
        counts: int64 (N,), the number of parts of each of all N fragments; 0 for white space.
        ids: RaggedTensor int32 (P, None), the pieces of each part.
        gaps: string (P,), the text before the translation of each part: a space if the part begins with a new word.
        rows: int64 (P,), the text to which each part belongs.
        places: int64 (P,), the place of each part in its text.
    """

    fragments: tf.RaggedTensor
    counts: tf.Tensor
    ids: tf.RaggedTensor
    gaps: tf.Tensor
    rows: tf.Tensor
    places: tf.Tensor


def split_at(breaks, text):
    """Divides texts at their white space.

    Args:
        breaks: see `sentences.Division`.
        text: string (B,).

    Returns:
        RaggedTensor string (B, None), the white space and the sentences of each text in their order.
    """
    text = tf.strings.unicode_transcode(text, "UTF-8", "UTF-8", errors="replace")
    text = tf.where(tf.strings.regex_full_match(text, f"{BLANK}*"), "", text)
    for pattern, rewrite in (RESERVED, *breaks):
        text = tf.strings.regex_replace(text, pattern, rewrite)
    return tf.strings.split(text, BORDER)


def divide_into_parts(text, tokenizer, max_length, division=DIVISION):
    """Divides a batch of texts into parts.

    Args:
        text: string (B,). Invalid UTF-8 becomes U+FFFD; blank text has no parts.
        tokenizer: `Tokenizer`.
        max_length: int, or int64 scalar: most pieces of a part. A character of up to 4 pieces is never divided.
        division: `sentences.Division`.

    Returns:
        `Segments`.
    """
    fragments = split_at(division.breaks, text)
    is_copied = tf.strings.regex_full_match(fragments.values, division.copied)
    read = tf.where(is_copied, "", fragments.values)
    for pattern, rewrite in division.respelled:
        read = tf.strings.regex_replace(read, pattern, rewrite)
    sentences = tokenizer.encode(read)
    pieces = tokenizer.pieces(sentences.values)  # (T,)
    starts_word = tf.strings.regex_full_match(pieces, "(?s)▁.*")
    starts_character = ~tf.strings.regex_full_match(pieces, "<0x[89AB].>")  # the others are inner bytes of a character

    is_first = offsets_in_rows(sentences) == 0
    begins = divisions(sentences, is_first | starts_word, is_first | starts_character, max_length)
    counts = tf.reduce_sum(sentences.with_values(tf.cast(begins, tf.int64)), axis=1)
    first = tf.squeeze(tf.where(begins), axis=1)  # (P,)
    parts = tf.RaggedTensor.from_row_starts(sentences.values, first, validate=False)
    gaps = tf.where(tf.gather(starts_word & ~is_first, first), " ", "")
    rows = tf.gather(fragments.value_rowids(), tf.gather(sentences.value_rowids(), first))
    places = tf.ragged.range(tf.reduce_sum(fragments.with_values(counts), axis=1)).values
    return Segments(fragments, counts, parts, gaps, rows, places)


def divisions(ids, starts_word, starts_character, max_length):
    """Decides where a part begins: with every sentence, and at about equal distances in a long sentence.

    A part begins at a word if a word begins at most a quarter of `max_length` before, and never inside a character.

    Args:
        ids: RaggedTensor int32 (N, None), T in all.
        starts_word: bool (T,), whether a word starts with the piece; true for the first piece of a sentence.
        starts_character: bool (T,), whether a character starts with the piece; true for the first of a sentence.
        max_length: see `divide_into_parts`.

    Returns:
        bool (T,).
    """
    place = offsets_in_rows(ids)
    word, character = latest(place, starts_word), latest(place, starts_character)
    max_length = tf.cast(max_length, tf.int64)
    reach = tf.maximum(max_length // 4, 1)
    # Where the word begins, or the last multiple of `reach` in a long word.
    unit = word + (character - word) // reach * reach

    # A word belongs to the part in which it starts, so a part can exceed the limit by one word.
    room = tf.maximum(max_length - reach - LONGEST_CHARACTER, 1)
    lengths = tf.gather(ids.row_lengths(), ids.value_rowids())  # (T,)
    counts = tf.where(lengths > max_length, (lengths + room - 1) // room, 1)
    part = unit * counts // lengths
    return (place == 0) | (part != tf.roll(part, 1, axis=0))


def offsets_in_rows(ids):
    """The place of every value in its row, int64 (T,), of a RaggedTensor (N, None)."""
    return tf.ragged.range(ids.row_lengths()).values


def latest(values, flags):
    """`values` (T,) of the latest place at which `flags`, bool (T,), is true; the first flag must be true."""
    return tf.gather(tf.boolean_mask(values, flags), tf.cumsum(tf.cast(flags, tf.int32)) - 1)


def limits_of(ids, extra_length, prefix=None, max_length=None, rows=None):
    """Most tokens of the translation of each part, int32 (P,).

    Args:
        ids: RaggedTensor int32 (P, None), the pieces of each part.
        extra_length: int, most tokens that a translation has more, if the text does not ask for another limit.
        prefix: int32 (P, L), tokens that are forced, then padding; None for none.
        max_length: int32 (B,), the limit that each text asks for; 0 for none. More than `LONGEST_ASKED` tokens are not
            given: a translation that does not end would take memory without bounds.
        rows: int64 (P,), the text of each part.
    """
    limits = tf.cast(ids.row_lengths(), tf.int32) + extra_length
    if prefix is None:
        return limits
    asked = tf.gather(max_length, rows)
    forced = tf.math.count_nonzero(prefix != PAD_ID, axis=1, dtype=tf.int32)
    return tf.maximum(tf.where(asked > 0, tf.minimum(asked, tf.maximum(limits, LONGEST_ASKED)), limits), forced)


def in_range(given, beam_size, length_penalty):
    """The options of a row in range: a value out of range counts as the nearest possible one.

    Args:
        given: name -> tensor (B,). What is no option stays as it is.
        beam_size: W, the largest beam, and that of a row which gives none.
        length_penalty: alpha of a row which gives none.

    Returns:
        dict of the same names.
    """
    defaults, options = {"beam_size": beam_size, "length_penalty": length_penalty}, dict(given)
    for option in (option for option in OPTIONS if option.name in given and option.dtype != "string"):
        values = given[option.name]
        default = tf.cast(defaults.get(option.name, option.default), values.dtype)
        is_given = tf.ones_like(values, tf.bool) if option.least < 0 else values > 0
        if values.dtype.is_floating:
            is_given &= tf.math.is_finite(values)
        limits = (tf.cast(limit, values.dtype) for limit in (option.least, option.most))
        options[option.name] = tf.where(is_given, tf.clip_by_value(values, *limits), default)
    if "beam_size" in options:
        options["beam_size"] = tf.minimum(options["beam_size"], beam_size)
    return options


def prefix_ids(tokenizer, prefix, segments):
    """The tokens that each part must begin with: those of its text for the first part, none for the others.

    Args:
        tokenizer: `Tokenizer` of the translations.
        prefix: string (B,).
        segments: `Segments`.

    Returns:
        int32 (P, L), padded.
    """
    text = tf.strings.regex_replace(prefix, f"^{BLANK}+", "")
    ids = tokenizer.encode(text)[:, :MOST_FORCED].to_tensor(PAD_ID)
    return tf.where(segments.places[:, None] == 0, tf.gather(ids, segments.rows), PAD_ID)


def at_once(text):
    """How many parts of texts (B,) are translated side by side, int64 scalar."""
    return tf.maximum(tf.size(text, tf.int64), FEWEST_AT_ONCE)


def join(segments, translations):
    """translations string (P, C), C of each part -> string (B, C), C of each text."""
    fragments, counts = segments.fragments, segments.counts
    owners, number = tf.repeat(tf.range(tf.size(counts)), counts), tf.size(counts)
    sentences = tf.strings.unsorted_segment_join(segments.gaps[:, None] + translations, owners, number)  # (N, C)
    sentences = tf.where(counts[:, None] > 0, sentences, fragments.values[:, None])
    text = tf.strings.unsorted_segment_join(sentences, fragments.value_rowids(), fragments.nrows())
    for pattern, rewrite in JOINTS:
        text = tf.strings.regex_replace(text, pattern, rewrite)
    return text


def join_scores(segments, scores, lengths, length_penalty):
    """The scores of texts from those of their parts: summed log-probabilities over the penalty of all their tokens.

    Args:
        segments: `Segments`.
        scores: float32 (P, C), normalised.
        lengths: int32 (P, C), tokens of each translation.
        length_penalty: alpha, float32 scalar or (B,).

    Returns:
        float32 (B, C). The score of a text of one part is its part's, to the bit; the score of blank text is 0.
    """
    rows, number = segments.rows, segments.fragments.nrows()
    totals = tf.math.unsorted_segment_sum(lengths, rows, number)  # (B, C)
    alphas = tf.gather(tf.broadcast_to(length_penalty, [number]), rows)[:, None]
    shares = penalty(lengths, alphas) / penalty(tf.gather(totals, rows), alphas)
    return tf.math.unsorted_segment_sum(scores * shares, rows, number)


def pieces_of(tokenizer, ids):
    """ids, RaggedTensor int32 (B, None) -> their pieces, string (B, T); "" on padding."""
    ids = ids.to_tensor(PAD_ID)
    return tf.where(ids == PAD_ID, "", tokenizer.pieces(ids))


def regrouped(parts, owners, number):
    """Joins ragged rows of parts to rows of texts.

    Args:
        parts: RaggedTensor (P, None).
        owners: int64 (P,), the text of each part, sorted.
        number: B, int64.

    Returns:
        RaggedTensor (B, None).
    """
    rows = tf.gather(owners, parts.value_rowids())
    return tf.RaggedTensor.from_value_rowids(parts.values, rows, nrows=number, validate=False)


def pairs(tokenizers, text, translation, text_parts, translation_parts):
    """The pairs to score: part by part if a text and its translation have equally many parts, else the whole texts.

    Args:
        tokenizers: `Tokenizer`s of texts and of translations.
        text: string (B,); a blank one has nothing to score.
        translation: string (B,).
        text_parts: `Segments` of `text`.
        translation_parts: `Segments` of `translation`.

    Returns:
        for P pairs: the text of each, int64 (P,), sorted; sources and labels, RaggedTensors int32 (P, None).
    """
    counts = [
        tf.math.unsorted_segment_sum(tf.ones_like(x.rows), x.rows, tf.size(text))
        for x in (text_parts, translation_parts)
    ]
    in_parts = counts[0] == counts[1]
    as_whole = ~in_parts & (counts[0] > 0)

    def ids(segments, whole, tokenizer):
        parts = tf.ragged.boolean_mask(segments.ids, tf.gather(in_parts, segments.rows))
        return tf.concat([parts, tokenizer.encode(tf.boolean_mask(whole, as_whole))[:, :LONGEST_SCORED]], axis=0)

    rows = tf.boolean_mask(text_parts.rows, tf.gather(in_parts, text_parts.rows))
    owners = tf.concat([rows, tf.where(as_whole)[:, 0]], axis=0)
    order = tf.argsort(owners, stable=True)
    sources = ids(text_parts, text, tokenizers[0])
    labels = ids(translation_parts, tf.where(counts[1] > 0, translation, ""), tokenizers[1])
    return tf.gather(owners, order), tf.gather(sources, order), with_eos(tf.gather(labels, order))


def beginnings(segments, max_length):
    """The first part of every text, and the parts after it as long as all have at most `max_length` pieces together.

    Returns:
        for P parts: the text of each, int64 (P,), sorted; where it begins in the pieces of its text, int64 (P,); its
        ids, RaggedTensor int32 (P, None).
    """
    begins = tf.cumsum(segments.ids.row_lengths(), exclusive=True)
    first = tf.range(tf.size(begins, tf.int64)) - segments.places  # of the parts of the same text
    offsets = begins - tf.gather(begins, first)
    kept = (segments.places == 0) | (offsets + segments.ids.row_lengths() <= max_length)
    owners, offsets = (tf.boolean_mask(x, kept) for x in (segments.rows, offsets))
    return owners, offsets, tf.ragged.boolean_mask(segments.ids, kept)


def blocks(alignment, labels, sources, owners, offsets, number):
    """The alignments of texts, from those of their parts: each part is a block, with zeros beside it.

    Args:
        alignment: float32 (M,), flat, from `explain_labels`.
        labels: RaggedTensor int32 (P, None), of the parts.
        sources: RaggedTensor int32 (P, None), of the parts.
        owners: int64 (P,), the text of each part, sorted.
        offsets: int64 (P,), where the part begins in the pieces of its text.
        number: B, int64.

    Returns:
        float32 (B, T, S).
    """
    parts = labels.value_rowids()  # (N,)
    rows = tf.gather(owners, parts)
    lengths = regrouped(labels, owners, number).row_lengths()  # of the labels of each text
    widths, starts = tf.gather(sources.row_lengths(), parts), tf.gather(offsets, parts)
    columns = tf.ragged.range(starts, starts + widths).values  # (M,)
    cells = [tf.repeat(rows, widths), tf.repeat(tf.ragged.range(lengths).values, widths), columns]
    source_lengths = tf.math.unsorted_segment_max(offsets + sources.row_lengths(), owners, number)
    longest = [tf.reduce_max(tf.concat([x, [0]], axis=0)) for x in (lengths, source_lengths)]
    return tf.scatter_nd(tf.stack(cells, axis=1), alignment, tf.stack([number, *longest]))
