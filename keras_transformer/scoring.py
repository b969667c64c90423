"""How likely translations are, piece by piece, and what in the source each piece comes from.

One teacher-forced pass over pairs of sources and labels (y1 ... yn eos) gives both, as TensorFlow ops. What comes of
pairs of different lengths is put flat: the values of all labels one after the other, as in a RaggedTensor.
"""

import tensorflow as tf

from keras_transformer.tokenizer import BOS_ID, EOS_ID, PAD_ID

LONGEST = 1024  # tokens of a text that is scored as a whole; what is beyond is cut
LOGITS_AT_A_TIME = 1024  # tokens: (B, T, V) of a large batch would be gigabytes


def explain_labels(model, encoded, sources, labels):
    """log P(y_t | y_1 ... y_t-1, source) of every label, and what the last decoder layer attends to in its source.

    Args:
        model: `Transformer`.
        encoded: what `encode` gave for the sources, dense.
        sources: RaggedTensor int32 (B, None).
        labels: RaggedTensor int32 (B, None), N in all.

    Returns:
        float32 (N,), and flat the alignments of all labels: float32 (M,), for each label as many as its source has
        tokens, which sum to 1.
    """
    states, alignment = model.align(shift_right(labels.to_tensor()), *encoded)  # (B, T, D), (B, T, S)
    is_label, is_source = (tf.sequence_mask(x.row_lengths()) for x in (labels, sources))
    log_probs = _log_probs(model, tf.boolean_mask(states, is_label), labels.values)
    return log_probs, tf.boolean_mask(alignment, is_label[:, :, None] & is_source[:, None, :])


def _log_probs(model, states, labels):
    """Of labels int32 (N,), given the states (N, D) that predict them: float32 (N,)."""

    def of_some(start):
        some = slice(start, start + LOGITS_AT_A_TIME)
        return -tf.nn.sparse_softmax_cross_entropy_with_logits(labels[some], model.tied_logits(states[some]))

    log_probs = tf.map_fn(
        of_some,
        tf.range(0, tf.size(labels), LOGITS_AT_A_TIME),
        fn_output_signature=tf.RaggedTensorSpec([None], tf.float32, ragged_rank=0),
        parallel_iterations=1,
    )
    return log_probs.values


def shift_right(labels):
    """labels int32 (B, T) = y1 ... yn eos -> target_ids int32 (B, T) = bos y1 ... yn."""
    bos = tf.fill([tf.shape(labels)[0], 1], BOS_ID)
    return tf.concat([bos, labels], axis=1)[:, :-1]


def pieces_of(tokenizer, ids):
    """ids, RaggedTensor int32 (B, None) -> their pieces, string (B, T); "" on padding."""
    ids = ids.to_tensor()
    return tf.where(ids == PAD_ID, "", tokenizer.pieces(ids))


def regrouped(parts, owners, number):
    """RaggedTensor (P, None) of parts -> (B, None) of texts, given the text of each part, int64 (P,), sorted, and B."""
    rows = tf.gather(owners, parts.value_rowids())
    return tf.RaggedTensor.from_value_rowids(parts.values, rows, nrows=number, validate=False)


def pairs(tokenizer, text, translation, text_parts, translation_parts):
    """What there is to score: the parts of texts with those of their translations, if they have as many, or the whole.

    Args:
        tokenizer: `Tokenizer`.
        text: string (B,); a blank one has nothing to score.
        translation: string (B,).
        text_parts: `Segments` of `text`.
        translation_parts: `Segments` of `translation`.

    Returns:
        of P pairs their texts, int64 (P,), sorted; their sources and labels, RaggedTensors int32 (P, None).
    """
    counts = [
        tf.math.unsorted_segment_sum(tf.ones_like(x.rows), x.rows, tf.size(text))
        for x in (text_parts, translation_parts)
    ]
    in_parts = counts[0] == counts[1]
    as_whole = ~in_parts & (counts[0] > 0)

    def ids(segments, whole):
        parts = tf.ragged.boolean_mask(segments.ids, tf.gather(in_parts, segments.rows))
        return tf.concat([parts, tokenizer.encode(tf.boolean_mask(whole, as_whole))[:, :LONGEST]], axis=0)

    rows = tf.boolean_mask(text_parts.rows, tf.gather(in_parts, text_parts.rows))
    owners = tf.concat([rows, tf.where(as_whole)[:, 0]], axis=0)
    order = tf.argsort(owners, stable=True)
    labels = ids(translation_parts, tf.where(counts[1] > 0, translation, ""))
    return tf.gather(owners, order), tf.gather(ids(text_parts, text), order), with_eos(tf.gather(labels, order))


def with_eos(labels):
    """RaggedTensor int32 (P, None) -> the same with eos at the end of each row.

    Not tf.concat along axis 1: it transposes integers, of which oneDNN complains on the console.
    """
    number = labels.nrows()
    ends = tf.RaggedTensor.from_tensor(tf.fill([number, 1], EOS_ID))
    rows = tf.range(number)
    each_and_its_end = tf.reshape(tf.stack([rows, rows + number], axis=1), [-1])
    parts = tf.gather(tf.concat([labels, ends], axis=0), each_and_its_end)
    return regrouped(parts, tf.repeat(rows, 2), number)


def beginnings(segments, max_length):
    """Of every text its first part, and as many more as have `max_length` pieces together.

    Returns:
        of P parts their texts, int64 (P,), sorted; where they begin in the pieces of their text, int64 (P,); their ids,
        RaggedTensor int32 (P, None).
    """
    begins = tf.cumsum(segments.ids.row_lengths(), exclusive=True)
    first = tf.range(tf.size(begins, tf.int64)) - segments.places  # of the parts of the same text
    offsets = begins - tf.gather(begins, first)
    kept = (segments.places == 0) | (offsets + segments.ids.row_lengths() <= max_length)
    owners, offsets = (tf.boolean_mask(x, kept) for x in (segments.rows, offsets))
    return owners, offsets, tf.ragged.boolean_mask(segments.ids, kept)


def blocks(alignment, labels, sources, owners, offsets, number):
    """Alignments of parts as those of their texts: each is a block, beside which there is nothing.

    Args:
        alignment: float32 (M,), flat, from `explain_labels`.
        labels: RaggedTensor int32 (P, None), of the parts.
        sources: RaggedTensor int32 (P, None).
        owners: int64 (P,), the text of each, sorted.
        offsets: int64 (P,), where its source begins in the pieces of the text.
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
