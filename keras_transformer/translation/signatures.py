"""The signatures of a SavedModel: each a straight line of TensorFlow ops, split -> encode -> search -> decode -> join.

Every input and output has the batch as its first dimension, so that a server may put requests together. No row's
result depends on the others. No row makes a call raise: an option out of its range counts as the nearest possible
value, and NaN or an infinity as not given. `options.py` lists inputs and outputs.
"""

import functools

import tensorflow as tf

from keras_transformer.config import BOS_ID, EOS_ID, FIRST_PLACEHOLDER_ID, PAD_ID
from keras_transformer.data.full_stops import UNKNOWN
from keras_transformer.decoding.beam import BeamSearch
from keras_transformer.decoding.placeholders import Required, constrained
from keras_transformer.decoding.search import in_turn, last_repeated, log_probs_of, penalty, run
from keras_transformer.decoding.single import SingleSearch
from keras_transformer.layers.embedding import joint_logits, projections_of
from keras_transformer.protection import PLACEHOLDERS
from keras_transformer.tokenizer import shift_right
from keras_transformer.translation import segments
from keras_transformer.translation.directions import TAGS, Directions, OwnTag, begins_with_tag, begun, tagged, untagged
from keras_transformer.translation.options import INPUTS, OUTPUTS, inputs_of
from keras_transformer.translation.sentences import divisions_of

PARTS_APART = 1_000_003  # between the seeds of two texts, so that each part of a text has its own


class Signatures:
    """One method for each signature, from tensors (B,) to a dict of tensors (B, ...).

    Text of several lines or sentences, or of more than `max_length` pieces, is translated in parts. White space around
    sentences, such as line breaks, is kept. Blank text gives blank text and score 0.

    The score of a translation is its log-probability over its length penalty. For a text in parts, it is the sum of
    their log-probabilities over the penalty of all their tokens.

    Args:
        model: `SequenceToSequence`.
        source_tokenizer: `Tokenizer` of the texts.
        target_tokenizer: `Tokenizer` of the translations, which may be the same object.
        beam_size: W; 1 is greedy search. It is also the number of alternatives.
        length_penalty: alpha.
        max_length: most source pieces that are translated as one sequence.
        extra_length: most tokens that a translation has more than its source.
        split_sentences: whether the sentences of a text are translated one by one, or each line at once.
        known: `Known` of the corpus, which decides about sentences, and about characters that the tokenizer lacks.
        shortlist: `Shortlist` of the translations; None: a search chooses among all pieces. `sample`, `score` and
            `explain` always use all pieces.
        tags: `LanguageTags` of a model of many languages, whose signatures have two more inputs, see `inputs_of`.
        projections: function from the members of the model to what `joint_logits` reads. By default, every search lays
            out the matrices anew, because weights change in training.
        programs: `Programs` of `keras_transformer.tools.engines.compiled`, which `translate` and `alternatives` run.
            None: every search runs op by op.
    """

    def __init__(
        self,
        model,
        source_tokenizer,
        target_tokenizer,
        beam_size,
        length_penalty,
        max_length,
        split_sentences=True,
        known=UNKNOWN,
        shortlist=None,
        tags=None,
        projections=projections_of,
        extra_length=segments.EXTRA_LENGTH,
        programs=None,
    ):
        self.model, self.members = model, model.members()
        self.tokenizers = self.source_tokenizer, self.target_tokenizer = source_tokenizer, target_tokenizer
        self.beam_size, self.length_penalty = beam_size, length_penalty
        self.max_length, self.extra_length = max_length, extra_length
        self.shortlist, self.directions = shortlist, tags and Directions(tags)
        self.reader = self.directions or OwnTag.of_model(self.members[0], source_tokenizer)
        self.projections, self.programs = projections, programs
        self.division, self.division_of_translations = divisions_of(*self.tokenizers, split_sentences, known)
        # A SavedModel holds each tf.function once. Without AutoGraph, tracing takes a fraction of the time.
        as_function = functools.partial(tf.function, autograph=False)
        self._encode, self.step = as_function(model.encode), as_function(model.step)
        self._decode, self._split = as_function(target_tokenizer.decode), as_function(segments.divide_into_parts)
        self._join, self._join_scores = as_function(segments.join), as_function(segments.join_scores)

    def functions(self):
        """Name -> tf.function of every signature, from a dict of the `INPUTS` to a dict of the `OUTPUTS`."""

        def as_function(signature):
            inputs = inputs_of(signature, self.directions)
            specs = {name: tf.TensorSpec([None], dtype, name) for name, dtype in inputs.items()}
            # TensorFlow takes two functions of the same lines for one that it must trace again and again, and warns.
            return tf.function(functools.partial(self._outputs, signature), input_signature=[specs], autograph=False)

        return {signature: as_function(signature) for signature in INPUTS}

    def _outputs(self, signature, inputs):
        found = self.answer(signature, inputs)
        return {
            name: tf.ensure_shape(found[name], [self.beam_size if d == "W" else None for d in dimensions])
            for name, (_, dimensions) in OUTPUTS[signature].items()
        }

    def answer(self, signature, inputs):
        """The outputs of a signature from its inputs: tags in texts and languages become the ids of `Directions.of`."""
        if not self.reader:
            return getattr(self, signature)(**inputs)
        return self.reader.marked(getattr(self, signature)(**self.reader.of(**inputs)), **inputs)

    # The signatures. Their `tags` are the ids of `Directions.of`: none for a model of one direction.

    def translate(self, text, **tags):
        """The best translation that beam search finds.

        Args:
            text: string (B,).

        Returns:
            {"translation": string (B,), "score": float32 (B,)}.
        """
        return _best(*self._found(text, self._split_source(text), tags))

    def alternatives(self, text, **tags):
        """The W best translations.

        The second alternative of a text in parts is made of the second best of each part, and so on. Where the search
        has found fewer, the last one is repeated.

        Args:
            text: string (B,).

        Returns:
            {"translations": string (B, W), "scores": float32 (B, W)}, best first.
        """
        translations, scores = self._found(text, self._split_source(text), tags, count=self.beam_size)
        return {"translations": translations, "scores": scores}

    def translate_with_options(self, text, **options):
        """As `translate`, with options for each row.

        Args:
            text: string (B,).
            options: tensors (B,), as `options.py` lists them, and tags. The prefix of a text in parts is that of its
                first part. `max_length` is never less than the prefix has tokens.

        Returns:
            As `translate`. The score uses the log-probabilities after the options.
        """
        options = segments.in_range(options, self.beam_size, self.length_penalty)
        parts = self._split_source(text)
        prefix = segments.prefix_ids(self.target_tokenizer, options.pop("prefix"), parts)
        limits = segments.limits_of(parts.ids, self.extra_length, prefix, options.pop("max_length"), parts.rows)
        return _best(*self._found(text, parts, options, limits, of_parts={"prefix": prefix}))

    def sample(self, text, **options):
        """A translation drawn at random, likely ones more often.

        Args:
            text: string (B,).
            options: tensors (B,), as `options.py` lists them, and tags.

        Returns:
            As `translate`; the score is that of the model without the options.
        """
        options = segments.in_range(options, self.beam_size, self.length_penalty)
        parts = self._split_source(text)
        seeds = tf.gather(options.pop("seed"), parts.rows) * PARTS_APART + parts.places
        return _best(*self._found(text, parts, options, of_parts={"seed": seeds}))

    def score(self, text, translation, **tags):
        """How likely given translations are, scored as `translate` scores its own.

        A translation from `translate` gets the score that `translate` returned, up to rounding, with three exceptions:
        the tokenizer divides the translation into other pieces than the search found; the search reached its limit,
        without eos; or the text has placeholders. If text and translation have the same number of parts, they are
        scored in pairs; otherwise as a whole, up to `segments.LONGEST_SCORED`.

        Args:
            text: string (B,). Blank text has no translation, even if one is given: score 0, no pieces.
            translation: string (B,). For a blank one, only eos is scored.

        Returns:
            {"score": float32 (B,), "token_scores": float32 (B, T), the log-probability of each piece, 0 on padding,
            "pieces": string (B, T), "</s>" at the end of each part, "" on padding}.
        """
        parts, most = self._split_source(text), tf.constant(self.max_length + self.extra_length, tf.int64)
        translation_parts = self._split(translation, self.target_tokenizer, most, self.division_of_translations)
        owners, sources, labels = segments.pairs(self.tokenizers, text, translation, parts, translation_parts)
        tags = {name: tf.gather(tag, owners) for name, tag in tags.items()}
        token_scores, _ = self.explain_labels(sources, labels, segments.at_once(text), tags)
        labels = segments.regrouped(labels, owners, tf.size(text, tf.int64))
        token_scores = labels.with_values(token_scores)
        return {
            "score": tf.reduce_sum(token_scores, axis=1) / penalty(labels.row_lengths(), self.length_penalty),
            "token_scores": token_scores.to_tensor(),
            "pieces": segments.pieces_of(self.target_tokenizer, labels),
        }

    def explain(self, text, **tags):
        """The best translation, piece by piece, and the source pieces that each piece comes from.

        If a text is translated in parts, it explains the first parts, up to `max_length` pieces in all.

        Args:
            text: string (B,).

        Returns:
            {"source_pieces": string (B, S), "pieces": string (B, T), "token_scores": float32 (B, T), all as in `score`,
            "alignment": float32 (B, T, S), how much the model looks at each source piece when it predicts each piece
            (`SequenceToSequence.align`). A row sums to 1 over the source pieces of its part; 0 on padding}.
        """
        parts = self._split_source(text)
        owners, offsets, sources = segments.beginnings(parts, self.max_length)
        tags = {name: tf.gather(tag, owners) for name, tag in tags.items()}
        labels = self.find_labels(sources, segments.at_once(text), tags)
        token_scores, alignment = self.explain_labels(sources, labels, segments.at_once(text), tags)
        number = tf.size(text, tf.int64)
        pieces = segments.regrouped(labels, owners, number)
        return {
            "source_pieces": segments.pieces_of(self.source_tokenizer, segments.regrouped(sources, owners, number)),
            "pieces": segments.pieces_of(self.target_tokenizer, pieces),
            "token_scores": pieces.with_values(token_scores).to_tensor(),
            "alignment": segments.blocks(alignment, labels, sources, owners, offsets, number),
        }

    def _found(self, text, parts, options, limits=None, count=1, of_parts=None):
        """Translates texts: encode -> search -> decode -> join.

        Args:
            text: string (B,).
            parts: their `Segments`.
            options: name -> tensor (B,), options and tags.
            limits: int32 (P,), most tokens of the translation of each part; None for the usual ones.
            count: how many hypotheses of each part are wanted.
            of_parts: options of each part, name -> tensor (P, ...); None for none.

        Returns:
            string (B, count), and scores float32 (B, count), best first.
        """
        limits = segments.limits_of(parts.ids, self.extra_length) if limits is None else limits
        given = {name: tf.gather(option, parts.rows) for name, option in options.items()} | (of_parts or {})
        batch_size = segments.at_once(text)
        translations, *scores = self.translate_parts(parts.ids, limits, tf.constant(count), batch_size, given)
        alpha = options.get("length_penalty", tf.constant(self.length_penalty))
        return self._join(parts, translations), self._join_scores(parts, *scores, alpha)

    # Their stops.

    def _split_source(self, text):
        """The `Segments` of texts, string (B,)."""
        return self._split(text, self.source_tokenizer, tf.constant(self.max_length, tf.int64), self.division)

    @tf.function(autograph=False)
    def translate_parts(self, ids, limits, count, batch_size, options):
        """encode -> search -> decode. Memory does not grow with P: at most `batch_size` parts are under way at a time.

        Args:
            ids: RaggedTensor int32 (P, None), the pieces of each part.
            limits: int32 (P,), most tokens of each translation.
            count: int32 scalar, how many hypotheses of each part are wanted.
            batch_size: int64 scalar.
            options: see `search`.

        Returns:
            string (P, count), scores float32 (P, count), lengths int32 (P, count).
        """

        def translate(some):
            given = {name: option[some] for name, option in options.items()}
            found = last_repeated(self.find(ids[some].to_tensor(PAD_ID), limits[some], count, given))
            tokens, scores, lengths = (field[:, :count] for field in found)
            texts = self._decode(tf.reshape(tokens, [-1, tf.shape(tokens)[2]]))
            return tf.reshape(texts, tf.shape(scores)), scores, lengths

        nothing = [tf.zeros([0, count], dtype) for dtype in (tf.string, tf.float32, tf.int32)]
        return in_turn(translate, ids.nrows(), batch_size, tuple(nothing))

    def memory_of(self, source_ids, tags):
        """What the decoder reads of source ids, int32 (P, S), behind their tags if the model has several directions."""
        return self._encode(tagged(source_ids, tags) if self.directions else source_ids)

    @tf.function(autograph=False)
    def find_labels(self, sources, batch_size, tags=None):
        """encode -> search, as in `explain_labels`: sources, RaggedTensor int32 (P, None) -> the same, of labels."""

        def search(some):
            source_ids, limits = sources[some].to_tensor(PAD_ID), segments.limits_of(sources[some], self.extra_length)
            given = {name: tag[some] for name, tag in (tags or {}).items()}
            found = self.find(source_ids, limits, tf.constant(1), given, is_free=True)
            ids, lengths = found.ids[:, 0], found.lengths[:, 0]
            return tf.boolean_mask(ids, tf.sequence_mask(lengths, tf.shape(ids)[1])), lengths

        nothing = tf.zeros([0], tf.int32)
        labels, lengths = in_turn(search, sources.nrows(), batch_size, (nothing, nothing))
        return tf.RaggedTensor.from_row_lengths(labels, tf.cast(lengths, tf.int64), validate=False)

    @tf.function(autograph=False)
    def find(self, source_ids, limits, wanted, options, is_free=False):
        """Finds translations: encode -> search.

        Args:
            source_ids: int32 (P, S), the pieces of P parts, padded.
            limits: int32 (P,), most tokens of each translation.
            wanted: int32 scalar, how many of the best hypotheses matter.
            options: name -> tensor (P, ...): those of `sample`, of `translate_with_options`, or none; and tags.
            is_free: whether it chooses among all pieces, even if there is a shortlist.

        Returns:
            `Hypotheses`.
        """
        candidates = () if is_free else self.candidates(source_ids, options)
        projections = candidates.projections(self.members) if candidates else self.projections(self.members)
        make = functools.partial(ModelSearch, self, options.keys(), projections, candidates)
        if self.programs and not candidates and not is_free and options.keys() <= set(TAGS):
            return self.programs.find(make, source_ids, limits, wanted, options)
        return make().find(source_ids, limits, wanted, options)

    def candidates(self, source_ids, options):
        """The `AllowedPieces` of a search, for source_ids int32 (P, S) and its options; () for all pieces."""
        if self.shortlist is None or "temperature" in options:
            return ()
        nothing = tf.zeros([tf.shape(source_ids)[0], 0], tf.int32)
        return self.shortlist.candidates(source_ids, options.get("prefix", nothing))

    @tf.function(autograph=False)
    def explain_labels(self, sources, labels, batch_size, tags=None):
        """log P(y_t | y_1 ... y_t-1, source) of every label, and how much it looks at each token of its source.

        Args:
            sources: RaggedTensor int32 (P, None).
            labels: RaggedTensor int32 (P, None), N in all.
            batch_size: int64 scalar, most pairs at a time.
            tags: ids of `Directions.of`, name -> int32 (P,); None for a model of one direction.

        Returns:
            float32 (N,), and the alignments of all labels, flat: float32 (M,). Each label has as many as its source has
            tokens, and they sum to 1.
        """

        def explain(some):
            some_sources, some_labels = sources[some], labels[some]
            given = {name: tag[some] for name, tag in (tags or {}).items()}
            target_ids = shift_right(some_labels.to_tensor(PAD_ID))
            target_ids = begun(target_ids, given) if self.directions else target_ids
            memory = self.memory_of(some_sources.to_tensor(PAD_ID), given)
            states, alignment = self.model.align(target_ids, memory)
            is_label, is_source = (tf.sequence_mask(x.row_lengths()) for x in (some_labels, some_sources))
            alignment = untagged(alignment, is_source, given) if self.directions else alignment
            log_probs = log_probs_of(self.model.logits, tf.boolean_mask(states, is_label), some_labels.values)
            return log_probs, tf.boolean_mask(alignment, is_label[:, :, None] & is_source[:, None, :])

        return in_turn(explain, sources.nrows(), batch_size, (tf.zeros([0]), tf.zeros([0])))


def _best(translations, scores):
    return {"translation": translations[:, 0], "score": scores[:, 0]}


class ModelSearch:
    """Greedy search, beam search or sampling with a model.

    Args:
        signatures: `Signatures` of the model.
        names: names of the options that `begin` gets: those of `sample`, of `translate_with_options`, or none; and
            tags.
        projections: what `joint_logits` reads.
        candidates: `AllowedPieces`; () for all pieces.
        room_of: function from the length of the sources to the places of the model's state. None: the state grows.
    """

    def __init__(self, signatures, names, projections, candidates=(), room_of=None):
        self._signatures, self._candidates, self._room_of = signatures, candidates, room_of
        self._keeps = all(tokenizer.has_placeholders for tokenizer in signatures.tokenizers)

        def step_to_logits(*arguments):
            states, state = signatures.step(*arguments, **{"has_room": True} if room_of else {})
            return joint_logits(states, projections), state

        step_to_logits = begins_with_tag(step_to_logits) if "first_id" in names else step_to_logits
        step_to_logits = candidates.step(step_to_logits) if candidates else step_to_logits
        step_to_logits = constrained(step_to_logits, EOS_ID) if self._keeps else step_to_logits
        ids = {"bos_id": BOS_ID, "eos_id": EOS_ID, "pad_id": PAD_ID}
        if "temperature" in names or (signatures.beam_size == 1 and not set(names) - set(TAGS)):
            self.width, self._steps = 1, SingleSearch(step_to_logits, **ids)
        else:
            self.width = signatures.beam_size
            self._steps = BeamSearch(step_to_logits, width=self.width, **ids)
        self.advance, self.results, self.pad_id = self._steps.advance, self._steps.results, PAD_ID

    def begin(self, source_ids, limits, wanted, options):
        """The state before the first step.

        Args:
            source_ids: int32 (P, S), the pieces of P parts, padded.
            limits: int32 (P,), most tokens of each translation.
            wanted: int32 scalar, how many of the best hypotheses matter.
            options: name -> tensor (P, ...).
        """
        options = dict(options)
        tags = {name: options.pop(name) for name in TAGS if name in options}
        room = {"room": self._room_of(tf.shape(source_ids)[1])} if self._room_of else {}
        memory = self._signatures.memory_of(source_ids, tags)
        state = self._signatures.model.start(memory, self.width, **room)
        state = {"model": state, "first_id": tags["first_id"]} if "first_id" in tags else state
        prefix = options.get("prefix", source_ids[:, :0])
        if self._candidates:
            state, options = self._candidates.state(state), self._candidates.options(options)
        if self._keeps:
            required = Required.of(source_ids, prefix, limits, FIRST_PLACEHOLDER_ID, len(PLACEHOLDERS))
            state, limits = required.state(state, self.width), required.limits
        alpha = options.pop("length_penalty", self._signatures.length_penalty)
        return self._steps.begin(state, limits, alpha, wanted, options, **room)

    def find(self, *inputs):
        """Searches op by op: the inputs of `begin` -> `Hypotheses`."""
        found = run(self, self.begin(*inputs))
        return self._candidates.hypotheses(found) if self._candidates else found
