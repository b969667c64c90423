"""Several models that translate together: each predicts, and the mean of their probabilities counts."""

import keras
from keras import ops

from keras_transformer.errors import UserError, counted
from keras_transformer.layers.embedding import joint_logits, log_of_mean, projections_of
from keras_transformer.models.sequence_to_sequence import SequenceToSequence
from keras_transformer.tags import check_direction
from keras_transformer.training.checkpoints import load_translator
from keras_transformer.training.run_directory import RunDirectory


@keras.saving.register_keras_serializable(package="keras_transformer")
class Ensemble(SequenceToSequence):
    """The mean of the probabilities of several models: P = (P_1 + ... + P_n) / n.

    Methods, call arguments and result: see `SequenceToSequence`. `memory` and the decoding state are tuples, with one
    entry of each member. The states of the members stand side by side, D = D_1 + ... + D_n. The logits are log P.

    An ensemble only translates: a loss needs one `output_matrix`, and an ensemble has several.

    Args:
        members: list of two or more `SequenceToSequence`, with the same vocabularies. They are not changed: the
            ensemble has copies.
        dtype: name of a dtype policy for all members; None: the policy of the first.

    Raises:
        ValueError: if there are fewer than two, if their vocabularies have other sizes, or if one is an ensemble.

    Example:

    ```python
    models = [kt.Transformer(vocabulary_size=97, d_model=8, num_heads=2, d_ff=16, num_layers=1) for _ in range(2)]
    logits = kt.Ensemble(models)({"source_ids": [[7, 8, 9]], "target_ids": [[2, 7]]})  # (1, 2, 97)
    ```
    """

    def __init__(self, members, *, dtype=None, **kwargs):
        if nested := sum(len(member.members()) > 1 for member in members):
            received = counted(nested, "ensemble")
            raise ValueError(f"members are no ensembles: give the models themselves. Received: {received}")
        sizes = {member.output_matrix.shape[0] for member in members}
        if len(members) < 2 or len(sizes) > 1:
            raise ValueError(
                "an ensemble needs two or more models of the same vocabulary. Received: "
                f"{len(members)}, of {sorted(sizes)} pieces"
            )
        policy = keras.dtype_policies.get(dtype or members[0].dtype_policy)
        self._members = [_copied(member, f"member_{i}", policy) for i, member in enumerate(members)]
        super().__init__(policy=policy, **kwargs)

    def members(self):
        return tuple(self._members)

    def connect(self, source_ids, target_ids):
        inputs = {"source_ids": source_ids, "target_ids": target_ids}
        return log_of_mean([member(inputs) for member in self.members()])

    def encode(self, source_ids):
        return tuple(member.encode(source_ids) for member in self.members())

    def decode(self, target_ids, memory):
        return self._beside(member.decode(target_ids, own) for member, own in self._each(memory))

    def start(self, memory, width, room=None):
        return tuple(member.start(own, width, room) for member, own in self._each(memory))

    def step(self, ids, parents, position, state, has_room=False):
        found = [member.step(ids, parents, position, own, has_room) for member, own in self._each(state)]
        return self._beside(states for states, _ in found), tuple(own for _, own in found)

    def logits(self, states):
        return joint_logits(states, projections_of(self.members()))

    def align(self, target_ids, memory, training=False):
        """As in the contract: the mean of what the members look at."""
        found = [member.align(target_ids, own, training) for member, own in self._each(memory)]
        return self._beside(states for states, _ in found), sum(weights for _, weights in found) / len(found)

    def get_config(self):
        members = [keras.saving.serialize_keras_object(member) for member in self.members()]
        policy = keras.dtype_policies.serialize(self.dtype_policy)
        return {"members": members, "dtype": policy, "name": self.name}

    @classmethod
    def from_config(cls, config, custom_objects=None):
        return cls(**{**config, "members": [keras.saving.deserialize_keras_object(each) for each in config["members"]]})

    def _each(self, own):
        return zip(self.members(), own, strict=True)

    def _beside(self, states):
        return ops.concatenate(list(states), axis=-1)


def _copied(model, name, policy):
    """The same model under another name and dtype policy."""
    config = {**model.get_config(), "name": name, "dtype": policy}
    copy = type(model).from_config(config)
    for variable, original in zip(copy.weights, model.weights, strict=True):
        variable.assign(original)
    return copy


def ensemble_of(first, others, checkpoint):
    """A translator of several runs: the mean of the probabilities of their models counts.

    Args:
        first: `Translator` of the first run, which gives its search and its tokenizers.
        others: paths of the other runs.
        checkpoint: of each of the other runs, see `Run.translator`.

    Raises:
        UserError: for a run with other tokenizers or languages, whose pieces mean something else.
    """
    translators = [first, *(load_translator(RunDirectory(path), checkpoint) for path in others)]
    for path, other in zip(others, translators[1:], strict=True):
        models = [(each.source_tokenizer.model, each.target_tokenizer.model, each.tags) for each in (first, other)]
        try:
            check_direction(first.languages, *other.languages)
            is_same = models[0] == models[1]
        except UserError:
            is_same = False
        if not is_same:
            raise UserError(
                f"an ensemble needs runs with the same tokenizers and languages, and those of {path} differ: train it "
                "with `train.py --tokenizer`, which takes the tokenizer.model of the first run"
            )
    shortest = min(translator.settings["max_length"] for translator in translators)  # learned positions have no more
    together = first.with_model(Ensemble([translator.model for translator in translators]), max_length=shortest)
    together.files = [file for translator in translators for file in translator.files]
    return together
