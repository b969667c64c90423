"""How a run reads given translations: where it looks for each of their pieces, and for each of their words."""

import numpy as np
import tensorflow as tf

from keras_transformer.errors import UserError
from keras_transformer.tokenizer import with_eos
from keras_transformer.tools.analysis.annotations import pieces_of_words, spans_of
from keras_transformer.translation.lines import run_sorted
from keras_transformer.translation.results import Explanation
from keras_transformer.translation.segments import LONGEST_SCORED
from keras_transformer.translation.translator import Translator

LEAST_WEIGHT = 0.1  # of a link: a word that looks everywhere comes from nowhere


def explain_pairs(translator, texts, translations, on_progress=None):
    """As `explain`, of translations that are given, and of whole texts: each is read at once, up to 1,024 pieces.

    Args:
        translator: `Translator`, of a run. An export cannot do this.
        texts: list of str.
        translations: list of str, one for each text.
        on_progress: called with the number of texts done since its last call.

    Returns:
        list of `Explanation`.

    Raises:
        UserError: for another translator.
    """
    if not isinstance(translator, Translator):
        raise UserError(f"only a run explains given translations. Received: a {type(translator).__name__}")
    if len(texts) != len(translations):
        raise UserError(f"each text needs a translation. Received: {len(texts)} and {len(translations)}")
    codes = translator.codes(len(texts))
    rows = list(zip(texts, translations, *codes.values(), strict=True))

    def explain_batch(rows):
        texts, translations, *languages = map(list, zip(*rows, strict=True))
        return _explained(translator.signatures, texts, translations, dict(zip(codes, languages, strict=True)))

    return run_sorted(explain_batch, rows, translator.batch_size, on_progress, size=lambda row: len(row[0] + row[1]))


def _explained(signatures, texts, translations, languages):
    """A batch of `explain_pairs`."""
    inputs = {name: tf.constant(values, tf.string) for name, values in {"text": texts, **languages}.items()}
    tags = signatures.reader.of(**inputs) if signatures.reader else inputs
    sources = signatures.source_tokenizer.encode(tags.pop("text"))[:, :LONGEST_SCORED]
    labels = with_eos(signatures.target_tokenizer.encode(tf.constant(translations))[:, :LONGEST_SCORED])
    scores, weights = signatures.explain_labels(sources, labels, tf.constant(len(texts), tf.int64), tags)
    found, at, first = [], 0, 0
    sides = zip(signatures.tokenizers, (sources, labels), strict=True)
    pieces = [_rows_of_pieces(tokenizer, ids) for tokenizer, ids in sides]
    for of_source, of_target in zip(*pieces, strict=True):
        size = len(of_source) * len(of_target)
        alignment = weights[at : at + size].numpy().reshape(len(of_target), len(of_source))
        found.append(Explanation(of_source, of_target, scores[first : first + len(of_target)].numpy(), alignment))
        at, first = at + size, first + len(of_target)
    return found


def _rows_of_pieces(tokenizer, ids):
    return [[piece.decode("utf-8") for piece in tokenizer.pieces(row).numpy()] for row in ids]


def link_words(explanation, text, translation):
    """The links between the words of a text and of its translation, which white space divides.

    Each word of the translation has at most one link: to the word at which its pieces look most.

    Args:
        explanation: `Explanation` of the two.
        text, translation: str.

    Returns:
        list of (word of the text, word of the translation), numbers from 0, in the order of the translation.
    """
    sides = ((explanation.source_pieces, text), (explanation.pieces, translation))
    sources, targets = (pieces_of_words(pieces, spans_of(line.split())) for pieces, line in sides)
    found = []
    for number, own in enumerate(targets):
        looks = [explanation.alignment[np.ix_(own, pieces)].sum() / max(1, len(own)) for pieces in sources]
        if looks and max(looks) >= LEAST_WEIGHT:
            found.append((int(np.argmax(looks)), number))
    return found
