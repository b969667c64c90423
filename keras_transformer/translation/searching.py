"""The search for translations: the steps of a model, with all that changes its logits."""

import inspect

import tensorflow as tf

from keras_transformer.config import BOS_ID, EOS_ID, PAD_ID
from keras_transformer.decoding.beam import BeamSearch
from keras_transformer.decoding.placeholders import constrained
from keras_transformer.decoding.programs import Programs, room_of
from keras_transformer.decoding.search import presented, search
from keras_transformer.decoding.single import SingleSearch
from keras_transformer.errors import UserError, check_ascending
from keras_transformer.layers.embedding import joint_logits
from keras_transformer.presets import PROGRAM_LENGTHS, PROGRAM_ROWS
from keras_transformer.translation.directions import TAGS, begins_with_tag
from keras_transformer.translation.segments import required_placeholders


class ModelSearch:
    """Greedy search, beam search or sampling with a model.

    Args:
        memory_of: function from source ids, int32 (P, S), and tags to what the decoder reads.
        start, step: those of a `SequenceToSequence`.
        tokenizers: `Tokenizer`s of texts and of translations.
        width: W.
        length_penalty: alpha, where the options have none.
        names: names of the options that `begin` gets: those of `sample`, of `translate_with_options`, or none; and
            tags.
        projections: what `joint_logits` reads.
        candidates: `AllowedPieces`; () for all pieces.
        has_room: whether the state of the model has places for `room_of` its sources; if not, it grows.
    """

    def __init__(
        self,
        memory_of,
        start,
        step,
        tokenizers,
        width,
        length_penalty,
        names,
        projections,
        candidates=(),
        has_room=False,
    ):
        self._memory_of, self._start, self._tokenizers = memory_of, start, tokenizers
        self._length_penalty, self._candidates, self._has_room = length_penalty, candidates, has_room

        def step_to_logits(*arguments):
            states, state = step(*arguments, **{"has_room": True} if has_room else {})
            return joint_logits(states, projections), state

        step_to_logits = begins_with_tag(step_to_logits) if "first_id" in names else step_to_logits
        step_to_logits = candidates.step(step_to_logits) if candidates else step_to_logits
        if all(tokenizer.has_placeholders for tokenizer in tokenizers):
            step_to_logits = constrained(step_to_logits, EOS_ID)
        ids = {"bos_id": BOS_ID, "eos_id": EOS_ID, "pad_id": PAD_ID}
        if "temperature" in names or (width == 1 and not set(names) - set(TAGS)):
            self.width, self._steps = 1, SingleSearch(step_to_logits, **ids)
        else:
            self.width, self._steps = width, BeamSearch(step_to_logits, width=width, **ids)
        self.pad_id = PAD_ID
        self.advance, self.results = self._steps.advance, self._steps.results
        self.with_columns = self._steps.with_columns

    def begin(self, source_ids, limits, wanted, options):
        """The state before the first step.

        Args:
            source_ids: int32 (P, S), the pieces of P parts, padded.
            limits: int32 (P,), most tokens of each translation.
            wanted: int32 scalar, how many of the best hypotheses matter.
            options: name -> tensor (P, ...).
        """
        required = required_placeholders(self._tokenizers, source_ids, limits, options)
        options = dict(options)
        tags = {name: options.pop(name) for name in TAGS if name in options}
        room = {"room": room_of(tf.shape(source_ids)[1])} if self._has_room else {}
        state = self._start(self._memory_of(source_ids, tags), self.width, **room)
        state = {"model": state, "first_id": tags["first_id"]} if "first_id" in tags else state
        if self._candidates:
            state, options = self._candidates.state(state), self._candidates.options(options)
        if required:
            state, limits = required.state(state, self.width), required.limits
        alpha = options.pop("length_penalty", self._length_penalty)
        return self._steps.begin(state, limits, alpha, wanted, options, **room)

    def find(self, *inputs):
        """Searches op by op: the inputs of `begin` -> `Hypotheses`."""
        found = presented(search(self.advance, self.begin(*inputs), self.results), PAD_ID)
        return self._candidates.hypotheses(found) if self._candidates else found


def checked_programs(programs, model, shortlist=None):
    """The `Programs` of an export.

    Args:
        programs: `Programs`, or True for those of the usual sizes.
        model: `SequenceToSequence`.
        shortlist: of the search, or None.

    Raises:
        UserError: for sizes that no programs can have, and for a search that they cannot run.
    """
    programs = Programs(PROGRAM_ROWS, PROGRAM_LENGTHS) if programs is True else programs
    check_ascending(rows=programs.rows, lengths=programs.lengths)
    if shortlist is not None:
        raise UserError("programs have fixed sizes, and a shortlist has another size for each batch: leave out one")
    for member in model.members():
        if "room" not in inspect.signature(member.start).parameters:
            raise UserError(f"the `start` and `step` of {type(member).__name__} need the argument `room` for programs")
    return programs
