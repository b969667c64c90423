"""All that a trained model can be asked for, as TensorFlow ops from text to text: the signatures of the SavedModel.

Every input and output has the batch as its first dimension, so that a server may put requests together; no row's
result depends on the others, and no row makes a call raise: an option that makes no sense is as if it were not given.
"""

import tensorflow as tf

from keras_transformer.decoding.beam import beam_search
from keras_transformer.decoding.greedy import greedy_search
from keras_transformer.decoding.hypotheses import last_repeated, penalty
from keras_transformer.decoding.next_token import Constraints
from keras_transformer.decoding.sampling import Sampling, sample
from keras_transformer.scoring import beginnings, blocks, explain_labels, pairs, pieces_of, regrouped
from keras_transformer.segments import BLANK, at_once, in_batches, join, join_scores, split
from keras_transformer.tokenizer import BOS_ID, EOS_ID

EXTRA_LENGTH = 50  # a translation may have so many tokens more than its source (6.1)
MOST_FORCED = 1024  # tokens of a prefix; what is beyond is not forced
ALPHAS = (-10.0, 10.0)  # of the length penalty; beyond, numbers overflow
PARTS_APART = 1_000_003  # between the seeds of two texts, for those of a text's parts
ENDS = {"bos_id": BOS_ID, "eos_id": EOS_ID}
MILDEST, STRICTEST = 1e-2, 1e2  # of temperature and repetition penalty, likewise

INPUTS = {
    "translate": {"text": tf.string},
    "alternatives": {"text": tf.string},
    "translate_with_options": {
        "text": tf.string,
        "prefix": tf.string,
        "length_penalty": tf.float32,
        "beam_size": tf.int32,
        "max_length": tf.int32,
        "repetition_penalty": tf.float32,
        "no_repeat_ngram": tf.int32,
    },
    "sample": {"text": tf.string, "temperature": tf.float32, "top_k": tf.int32, "top_p": tf.float32, "seed": tf.int64},
    "score": {"text": tf.string, "translation": tf.string},
    "explain": {"text": tf.string},
}


class Signatures:
    """What can be asked for: one method per signature, from tensors (B,) to a dict of tensors (B, ...).

    Text of several sentences, or of more than `max_length` pieces, is translated in parts; white space around
    sentences, such as line breaks, is kept. Blank text gives blank text and score 0.

    A score is the log-probability of a translation over its length penalty; of a text in parts, the sum of their
    log-probabilities over the penalty of all their tokens.

    Args:
        model: `Transformer`.
        tokenizer: `Tokenizer`.
        beam_size: W; 1 is greedy search. It is the number of alternatives, too.
        length_penalty: alpha.
        max_length: most source pieces that are translated as one sequence.
    """

    def __init__(self, model, tokenizer, beam_size, length_penalty, max_length):
        self.model = model
        self.tokenizer = tokenizer
        self.beam_size = beam_size
        self.length_penalty = length_penalty
        self.max_length = max_length
        # Functions of their own, of which the SavedModel holds one however many signatures call it.
        self._encode = tf.function(model.encode)
        self._start_cache = tf.function(lambda source_ids: model.start_cache(*self._encode(source_ids)))
        self._decode_step = tf.function(model.decode_step)
        self._search = tf.function(self._search_best)
        self._explain = tf.function(self._explain_in_batches)
        self._split = tf.function(lambda text, max_length: split(text, tokenizer, max_length))
        self._best = tf.function(self._best_in_parts)
        self._decode = tf.function(tokenizer.decode)
        self._join = tf.function(join)
        self._join_scores = tf.function(join_scores)

    def functions(self):
        """Name -> tf.function of every signature, with the names, dtypes and shapes of `INPUTS`."""
        functions = {}
        for name, inputs in INPUTS.items():
            specs = [tf.TensorSpec([None], dtype, input_name) for input_name, dtype in inputs.items()]
            functions[name] = tf.function(getattr(self, name), input_signature=specs)
        return functions

    def translate(self, text):
        """The best translation that beam search finds: {"translation": string (B,), "score": float32 (B,)}."""
        return _only(self._best(text, tf.constant(1)))

    def alternatives(self, text):
        """The W best: {"translations": string (B, W), "scores": float32 (B, W)}, best first.

        Of a text in parts, the second is made of the second best of each part, and so on. Where the search has found
        fewer, the last one is repeated.
        """
        results = self._best(text, tf.constant(self.beam_size))
        translations, scores = (tf.ensure_shape(result, [None, self.beam_size]) for result in results)
        return {"translations": translations, "scores": scores}

    def translate_with_options(
        self, text, prefix, length_penalty, beam_size, max_length, repetition_penalty, no_repeat_ngram
    ):
        """As `translate`, each row as it wishes.

        Args:
            text: string (B,).
            prefix: string (B,), what the translation has to begin with, but for white space at its beginning; of a text
                in parts, it is that of the first.
            length_penalty: float32 (B,), alpha, between -10 and 10; that of the export if it is not a number.
            beam_size: int32 (B,), at most W; W if it is not positive.
            max_length: int32 (B,), most tokens of the translation of a part, no fewer than the prefix has; that many
                more than the source as `EXTRA_LENGTH` says if it is not positive.
            repetition_penalty: float32 (B,): the log-probabilities of tokens used already are multiplied by it, so that
                above 1 they become less likely; 1 if it is not positive.
            no_repeat_ngram: int32 (B,): no sequence of so many tokens comes twice in a part; 0 allows all.

        Returns:
            see `translate`; the score is that of the penalised log-probabilities.
        """
        alpha = tf.clip_by_value(length_penalty, *ALPHAS)
        alpha = tf.where(tf.math.is_finite(length_penalty), alpha, self.length_penalty)
        options = {
            "prefix": self.tokenizer.encode(tf.strings.regex_replace(prefix, f"^{BLANK}+", ""))[:, :MOST_FORCED],
            "length_penalty": alpha,
            "beam_size": tf.where(beam_size > 0, tf.minimum(beam_size, self.beam_size), self.beam_size),
            "max_length": max_length,
            "repetition_penalty": _positive(repetition_penalty),
            "no_repeat_ngram": no_repeat_ngram,
        }

        def find(cache, limits, place, prefix, max_length, repetition_penalty, no_repeat_ngram, **options):
            lengths = tf.where(place == 0, tf.cast(prefix.row_lengths(), tf.int32), 0)
            constraints = Constraints(
                prefix=tf.pad(prefix.to_tensor(), [[0, 0], [0, 1]]),  # never without a column
                prefix_lengths=lengths[:, None],
                repetition_penalty=repetition_penalty[:, None],
                no_repeat_ngram=no_repeat_ngram[:, None],
            )
            limits = tf.maximum(tf.where(max_length > 0, tf.minimum(limits, max_length), limits), lengths)
            options |= {"width": self.beam_size, "constraints": constraints, **ENDS}
            return beam_search(self._step(), cache, limits, **options)

        return _only(self._translate_in_parts(text, find, options, alpha))

    def sample(self, text, temperature, top_k, top_p, seed):
        """A translation drawn at random, the more often the likelier it is.

        Args:
            text: string (B,).
            temperature: float32 (B,): below 1 likely tokens become likelier still; 1 if it is not positive.
            top_k: int32 (B,): only the so many most likely tokens are drawn; 0 allows all.
            top_p: float32 (B,), at most 1: only the most likely tokens that have this probability together are drawn;
                1 if it is not positive.
            seed: int64 (B,): the same seed gives the same translation, whoever shares the batch.

        Returns:
            see `translate`; the score is the model's, whatever was drawn from.
        """
        options = {
            "temperature": _positive(temperature),
            "top_k": top_k,
            "top_p": tf.where(top_p > 0, tf.minimum(top_p, 1.0), 1.0),  # NaN is not above 0 either
            "seed": seed,
        }

        def find(cache, limits, place, seed, **options):
            sampling = Sampling(seed=seed * PARTS_APART + place, **options)
            return sample(self._step(), cache, limits, sampling, length_penalty=self.length_penalty, **ENDS)

        return _only(self._translate_in_parts(text, find, options))

    def score(self, text, translation):
        """How likely given translations are, scored as `translate` scores its own.

        The score of what `translate` returned is the one that came with it, up to rounding, unless the pieces found are
        not those into which the tokenizer divides their text (there is more than one way to spell a word), or the
        search has reached its limit, without eos. Where text and translation have the same number of parts, these are
        scored in pairs; otherwise both as a whole, up to `scoring.LONGEST` tokens.

        Args:
            text: string (B,). Blank text has no translation, whatever is given: score 0, no pieces.
            translation: string (B,). Of a blank one, nothing but eos is scored.

        Returns:
            {"score": float32 (B,), "token_scores": float32 (B, T), the log-probability of each piece, 0 on padding,
            "pieces": string (B, T), "</s>" at the end of each part, "" on padding}.
        """
        parts = self._parts(text), self._parts(translation, EXTRA_LENGTH)
        owners, sources, labels = pairs(self.tokenizer, text, translation, *parts)
        token_scores, _ = self._explain(sources, labels, at_once(text))
        labels = regrouped(labels, owners, tf.size(text, tf.int64))
        token_scores = labels.with_values(token_scores)
        return {
            "score": tf.reduce_sum(token_scores, axis=1) / penalty(labels.row_lengths(), self.length_penalty),
            "token_scores": token_scores.to_tensor(),
            "pieces": pieces_of(self.tokenizer, labels),
        }

    def explain(self, text):
        """The best translation, piece by piece, and what in the source each piece comes from.

        Of text in parts, as many are explained as have `max_length` pieces together, the first at least.

        Returns:
            {"source_pieces": string (B, S), "pieces": string (B, T), "token_scores": float32 (B, T), all as in `score`,
            "alignment": float32 (B, T, S), what the last decoder layer attends to in the source when it predicts each
            piece, averaged over its heads. A row sums to 1 over the source pieces of its part; 0 on padding}.
        """
        owners, offsets, sources = beginnings(self._parts(text), self.max_length)

        def find(ids):
            limits = tf.cast(ids.row_lengths(), tf.int32) + EXTRA_LENGTH
            best = self._search(self._start_cache(ids.to_tensor()), limits, tf.constant(1))
            best_ids, lengths = best.ids[:, 0], best.lengths[:, 0]
            return tf.boolean_mask(best_ids, tf.sequence_mask(lengths, tf.shape(best_ids)[1])), lengths

        nothing = (tf.zeros([0], tf.int32), tf.zeros([0], tf.int32))
        flat, counts = in_batches(find, {"ids": sources}, sources.nrows(), at_once(text), nothing)
        labels = tf.RaggedTensor.from_row_lengths(flat, tf.cast(counts, tf.int64), validate=False)
        token_scores, alignment = self._explain(sources, labels, at_once(text))
        number = tf.size(text, tf.int64)
        pieces = regrouped(labels, owners, number)
        return {
            "source_pieces": pieces_of(self.tokenizer, regrouped(sources, owners, number)),
            "pieces": pieces_of(self.tokenizer, pieces),
            "token_scores": pieces.with_values(token_scores).to_tensor(),
            "alignment": blocks(alignment, labels, sources, owners, offsets, number),
        }

    def _parts(self, text, room=0):
        return self._split(text, tf.constant(self.max_length + room, tf.int64))

    def _explain_in_batches(self, sources, labels, batch_size):
        """`explain_labels` of any number of pairs."""

        def explain(sources, labels):
            return explain_labels(self.model, self._encode(sources.to_tensor()), sources, labels)

        rows = {"sources": sources, "labels": labels}
        return in_batches(explain, rows, sources.nrows(), batch_size, (tf.zeros([0]), tf.zeros([0])))

    def _best_in_parts(self, text, count):
        def find(cache, limits, place):
            return last_repeated(self._search(cache, limits, count))

        return self._translate_in_parts(text, find, count=count)

    def _step(self):
        """The step function of one search."""
        matrix = self.model.tied_logits.matrix()
        return lambda *state: self._decode_step(*state, matrix)

    def _search_best(self, cache, limits, wanted):
        options = {"length_penalty": self.length_penalty, **ENDS}
        if self.beam_size == 1:
            return greedy_search(self._step(), cache, limits, **options)
        return beam_search(self._step(), cache, limits, width=self.beam_size, wanted=wanted, **options)

    def _translate_in_parts(self, text, find, options=None, length_penalty=None, count=1):
        """Translates texts part by part.

        Args:
            text: string (B,).
            find: function (cache, limits, place int64 (C,) of each part in its text, **options of its text)
                -> `Hypotheses`, of C parts.
            options: dict of tensors (B, ...).
            length_penalty: alpha, float32 (B,), of the scores that `find` gives, if it is not that of the export.
            count: int, or int32 scalar: how many of the hypotheses are wanted.

        Returns:
            string (B, count) and float32 (B, count).
        """
        segments = self._parts(text)
        parts = {name: tf.gather(option, segments.rows) for name, option in (options or {}).items()}
        parts |= {"ids": segments.ids, "place": segments.places}

        def translate_parts(ids, **options):
            cache = self._start_cache(ids.to_tensor())
            found = find(cache, tf.cast(ids.row_lengths(), tf.int32) + EXTRA_LENGTH, **options)
            ids, scores, lengths = (field[:, :count] for field in found)
            texts = self._decode(tf.reshape(ids, [-1, tf.shape(ids)[2]]))
            return tf.reshape(texts, tf.shape(scores)), scores, lengths

        nothing = (tf.zeros([0, count], tf.string), tf.zeros([0, count]), tf.zeros([0, count], tf.int32))
        translations, *scored = in_batches(translate_parts, parts, segments.ids.nrows(), at_once(text), nothing)
        alpha = tf.fill(tf.shape(text), self.length_penalty) if length_penalty is None else length_penalty
        return self._join(segments, translations), self._join_scores(segments, *scored, alpha)


def _only(results):
    """The first of `count` translations and scores, as the outputs of a signature."""
    translations, scores = results
    return {"translation": translations[:, 0], "score": scores[:, 0]}


def _positive(option):
    """A factor, float32 (B,), within reason; 1 where it is not a positive number."""
    is_positive = tf.math.is_finite(option) & (option > 0)
    return tf.where(is_positive, tf.clip_by_value(option, MILDEST, STRICTEST), 1.0)
