"""A model as `fit` sees it: every target token is predicted from the true tokens before it (section 5)."""

import contextlib
import warnings
from dataclasses import dataclass

import keras
import tensorflow as tf
from keras import ops

from keras_transformer.config import PAD_ID
from keras_transformer.data.pipeline import deal
from keras_transformer.private_api import AlwaysBuilt
from keras_transformer.training.adapters import trained_variables
from keras_transformer.training.losses import TokenLoss, get_loss, real_tokens, sum_weights
from keras_transformer.training.updates import Updates

# The values of arguments of Keras' `compile` that change nothing here; of all others, that is nothing.
WITHOUT_EFFECT = {
    "steps_per_execution": (1,),  # every update is counted, and may be the last before an interruption
    "jit_compile": ("auto", False),  # batches have many shapes, and XLA would compile for each of them
    "auto_scale_loss": (True,),  # losses are scaled in mixed_float16, and there alone
}


@dataclass(frozen=True)
class Compilation:
    """What `compile` makes. Keras tracks the attributes of a model for ever, but not those of this object.

    Args:
        token_loss: `TokenLoss`.
        states: the model that the loss runs.
        measures: dict, name -> metric of the loss.
        updates: `Updates`.
    """

    token_loss: TokenLoss
    states: keras.layers.Layer
    measures: dict
    updates: Updates


@keras.saving.register_keras_serializable(package="keras_transformer")
class TeacherForcing(AlwaysBuilt):
    """Trains a model on ({"source_ids", "target_ids"}, labels, weights) batches, or on arrays of the same.

    `labels` are the target ids, `target_ids` the same shifted to the right. Labels that are 0 are padding and never
    count. `weights` are those of the tokens, (B, T), or of the pairs, (B,); without weights, every token weighs 1.

    The loss is divided by the real target tokens of the global batch. So every token counts the same, however the batch
    is divided over replicas or over several smaller batches, and however much of it is padding. (Keras would weigh
    replicas equally.)

    It is used as any Keras model, and refuses by name what docs/python.md lists. `predict` gives logits.

    Args:
        network: the `SequenceToSequence`.
        accumulate_steps, clip_norm, ema_decay: see `Updates`.
        scheduled_sampling_rate: share of the target tokens that the model reads as it predicts them; see `mix_targets`.

    Example:

    ```python
    trainer = TeacherForcing(network)
    trainer.compile("adam", loss=CrossEntropy(label_smoothing=0.1))  # or any other Keras optimizer, and `TokenLoss`
    trainer.fit({"source_ids": source_ids, "target_ids": shift_right(target_ids)}, target_ids)
    ```
    """

    def __init__(
        self, network, accumulate_steps=1, clip_norm=None, ema_decay=None, scheduled_sampling_rate=0.0, **kwargs
    ):
        if len(members := network.members()) > 1:
            raise ValueError(f"an ensemble only translates: train each of its {len(members)} members by itself")
        super().__init__(**{"dtype": network.dtype_policy, **kwargs})
        self.network = network
        source_ids, target_ids = network.input["source_ids"], network.input["target_ids"]
        # All of the network but the logits: the loss computes them and never keeps them.
        self.states = keras.Model(network.input, network.decode(target_ids, network.encode(source_ids)), name="states")
        self.accumulate_steps = accumulate_steps
        self.clip_norm = clip_norm
        self.ema_decay = ema_decay
        self.scheduled_sampling_rate = scheduled_sampling_rate
        self.coins = keras.random.SeedGenerator(name="coins") if scheduled_sampling_rate else None
        self.loss_metric = keras.metrics.Mean(name="loss")
        self.padding_metric = keras.metrics.Mean(name="padding")
        self.compilation = None
        self.built = True

    @property
    def token_loss(self):
        """The `TokenLoss`."""
        return self.compilation.token_loss

    @property
    def measures(self):
        """dict, name -> metric of the loss; Keras saves them, as it saves `updates`. {} before `compile`."""
        return self.compilation.measures if self.compilation else {}

    @property
    def updates(self):
        """The `Updates`."""
        return self.compilation.updates

    @property
    def metrics(self):
        """Means per real target token, over all replicas; and the share of all positions that is padding."""
        return [self.loss_metric, *self.measures.values(), self.padding_metric]

    def compile(self, optimizer="adam", loss=None, *, run_eagerly=False, **others):
        """Chooses the optimizer and the loss. To be called under the strategy of the network.

        Args:
            optimizer: any Keras optimizer, or its name.
            loss: `TokenLoss`, or a name of `LOSSES`; None for `CrossEntropy`.
            run_eagerly: run every update without a graph, for a debugger.
            others: arguments of Keras that change nothing, see `WITHOUT_EFFECT`. The loss brings its metrics.

        Raises:
            ValueError: for an argument of Keras that has no meaning here, by its name.
        """
        refused = {name: x for name, x in others.items() if x not in WITHOUT_EFFECT.get(name, (None, [], {}))}
        if refused:
            received = ", ".join(f"{name}={value!r}" for name, value in refused.items())
            raise ValueError(f"TeacherForcing has its own metrics and updates: leave {received} out of `compile`")
        token_loss = get_loss(loss)
        super().compile(optimizer=optimizer, run_eagerly=run_eagerly, jit_compile=False, auto_scale_loss=False)
        updates = Updates(
            self.optimizer,
            self.accumulate_steps,
            self.clip_norm,
            self.ema_decay,
            scale_losses=self.dtype_policy.compute_dtype == "float16",
            name="updates",
        )
        updates.build(self.network.trainable_variables)
        measures = {name: metric(name=name) for name, metric in token_loss.measures.items()}
        self.compilation = Compilation(token_loss, self.model_for(token_loss), measures, updates)

    def model_for(self, token_loss):
        """What a `TokenLoss` runs: from the inputs to the states (B, T, D), and to the alignment if it reads it."""
        return Aligned(self.network) if token_loss.reads_alignment else self.states

    def get_compile_config(self):
        """The optimizer and the loss, with which a saved trainer goes on; None before `compile`."""
        if not self.compiled:
            return None
        return {
            "optimizer": keras.optimizers.serialize(self.optimizer),
            "loss": keras.saving.serialize_keras_object(self.token_loss),
        }

    def compile_from_config(self, config):
        """Compiles a loaded trainer."""
        optimizer = keras.optimizers.deserialize(config["optimizer"])
        self.compile(optimizer, keras.saving.deserialize_keras_object(config["loss"]))

    def get_config(self):
        names = ("accumulate_steps", "clip_norm", "ema_decay", "scheduled_sampling_rate", "name")
        network = keras.saving.serialize_keras_object(self.network)
        return {"network": network, **{name: getattr(self, name) for name in names}}

    @classmethod
    def from_config(cls, config):
        return cls(**{**config, "network": keras.saving.deserialize_keras_object(config["network"])})

    def save_own_variables(self, store):
        """Saves the seeds of dropout, which Keras saves with no layer."""
        for number, seed in enumerate(self.seeds):
            store[f"seed_{number}"] = ops.convert_to_numpy(seed)

    def load_own_variables(self, store):
        for number, seed in enumerate(self.seeds):
            seed.assign(store[f"seed_{number}"])

    @property
    def seeds(self):
        """The states of all seed generators, Keras variables: of dropout in the network, and of `own_seeds`."""
        weights = {id(weight) for weight in self.network.weights}
        return [*(variable for variable in self.network.variables if id(variable) not in weights), *self.own_seeds]

    @property
    def own_seeds(self):
        """The states of the seed generators of scheduled sampling and of the loss."""
        coins = [self.coins.state] if self.coins else []
        return [*coins, *(self.token_loss.seeds if self.compiled else [])]

    @property
    def resumable_variables(self):
        """All variables that a run resumes from: trained weights, dropout seeds, and those of the updates."""
        return [*trained_variables(self.network), *self.own_seeds, *self.updates.resumable_variables]

    def call(self, inputs, training=False):
        return self.network(inputs, training=training)

    def export(self, *arguments, **keywords):
        """As Keras does: writes the network, with the averages of the weights."""
        with self.averaged():
            return self.network.export(*arguments, **keywords)

    def fit(self, x=None, *arguments, steps_per_epoch=None, class_weight=None, **keywords):
        """As Keras does. `steps_per_epoch` counts updates, and every update takes `accumulate_steps` batches.

        If the batches of an epoch are no multiple of `accumulate_steps`, the first update of the next epoch takes those
        that are left.

        Raises:
            ValueError: for `class_weight`, if no variable of the network is trainable, and for data without labels.
        """
        _refuse_class_weight(class_weight)
        how = {"steps_per_epoch": steps_per_epoch, **keywords}
        if self.accumulate_steps == 1:
            return super().fit(x, *arguments, **how)
        if steps_per_epoch is not None:
            # Keras takes an update for a batch. It would read a dataset anew only after as many updates.
            return super().fit(x.repeat() if isinstance(x, tf.data.Dataset) else x, *arguments, **how)
        with warnings.catch_warnings():  # Keras would miss as many updates as there are batches
            warnings.filterwarnings("ignore", "Your input ran out of data")
            return super().fit(x, *arguments, **how)

    def train_on_batch(self, x, y=None, sample_weight=None, class_weight=None, return_dict=False):
        """As Keras does, with the errors of `fit`. Only the last batch of an update changes the weights."""
        _refuse_class_weight(class_weight)
        return super().train_on_batch(x, y, sample_weight, return_dict=return_dict)

    def make_train_function(self, force=False):
        """Makes the function that Keras calls for every update.

        The function takes `accumulate_steps` batches from an iterator and returns the metrics so far in this epoch.
        Keras' own takes one.
        """
        if not self.network.trainable_variables:
            raise ValueError("there is nothing to train: every layer of the network has trainable=False")
        if self.train_function and not force:
            return
        strategy = self.distribute_strategy

        def update(iterator):
            if self.accumulate_steps > 1:
                taken = self.updates.batches_taken  # those that the end of a dataset has left over, too

                def add(_):
                    batch = self._next_of(iterator)
                    with tf.control_dependencies(tf.nest.flatten(batch, expand_composites=True)):
                        strategy.run(self.add_step, args=(batch,))
                        return [tf.identity(taken.assign_add(1, read_value=True))]

                tf.while_loop(lambda _: taken < self.accumulate_steps - 1, add, [0], parallel_iterations=1)
            batch = self._next_of(iterator)
            # At the end of a dataset, `next` fails, and an operation that does not wait for it may run all the same.
            with tf.control_dependencies(tf.nest.flatten(batch, expand_composites=True)):
                if self.accumulate_steps > 1:
                    taken.assign(0)
                strategy.run(self.train_step, args=(batch,))
            return self.get_metrics_result()

        self.train_function = self._in_graph(update)

    def make_test_function(self, force=False):
        """Makes the function that Keras calls for every batch of `evaluate`."""
        if self.test_function and not force:
            return
        strategy = self.distribute_strategy

        def measure(iterator):
            strategy.run(self.test_step, args=(self._next_of(iterator),))
            results, unmeasured = self.get_metrics_result(), self.token_loss.training_only
            return {name: value for name, value in results.items() if name not in unmeasured}

        self.test_function = self._in_graph(measure)

    def _next_of(self, iterator):
        """The next batch of an iterator of Keras, which has divided it, or of another."""
        is_divided = isinstance(iterator, tf.distribute.DistributedIterator)
        return next(iterator) if is_divided else deal(next(iterator), self.distribute_strategy)

    def _in_graph(self, function):
        """The function in a graph, of an iterator of `fit`, or of the generator of a batch of `train_on_batch`."""
        run = function if self.run_eagerly else tf.function(function, reduce_retracing=True, autograph=False)

        def run_on(iterator):
            if isinstance(iterator, tf.data.Iterator | tf.distribute.DistributedIterator):
                return run(iterator)
            batch = tuple(part for part in next(iterator) if part is not None)
            try:
                return run(iter(tf.data.Dataset.from_tensors(batch)))
            except (StopIteration, tf.errors.OutOfRangeError):  # the batch waits for the others of its update
                return self.get_metrics_result()

        return run_on

    def evaluate(self, *arguments, **keywords):
        """As Keras does, with the averages of the weights."""
        with self.averaged():
            return super().evaluate(*arguments, **keywords)

    @contextlib.contextmanager
    def averaged(self):
        """A context in which the weights are their exponential averages, if there are any."""
        averages = self.updates.averages if self.compiled else []
        weights = self.network.trainable_variables if averages else []
        values = [ops.convert_to_numpy(weight) for weight in weights]
        for weight, average in zip(weights, averages, strict=True):
            weight.assign(ops.convert_to_numpy(average))
        try:
            yield
        finally:
            for weight, value in zip(weights, values, strict=True):
                weight.assign(value)

    def add_step(self, batch):
        """Takes up a batch that does not complete an update."""
        self.updates.add(*self._gradients(batch))

    def train_step(self, batch):
        """Makes one update, from this batch and those that `add_step` has taken up."""
        self.updates.apply(*self._gradients(batch), self.network.trainable_variables)

    def test_step(self, batch):
        """Measures a batch, by float32 logits."""
        inputs, labels, weights, is_real = real_tokens(batch)
        self._count_padding(inputs)
        states = tf.cast(self.states(inputs, training=False), tf.float32)
        self._measure(*self._losses_of_tokens([states], is_real, labels), weights)

    def _gradients(self, batch):
        """This replica's share of the gradient of the mean loss, and the sum of weights that the loss is divided by."""
        inputs, labels, weights, is_real = real_tokens(batch)
        divisor = sum_weights(weights)
        self._count_padding(inputs)
        if self.scheduled_sampling_rate:
            inputs = self.mix_targets(inputs)
        with tf.GradientTape() as tape:
            passes = self.token_loss.run(self.compilation.states, inputs)
            losses, measured = self._losses_of_tokens(passes, is_real, labels)
            loss = tf.reduce_sum(losses * weights) / divisor
            scaled_loss = self.updates.scale_loss(loss)
        # `Updates` skips a broken batch, which must leave no trace in the epoch's figures either.
        tf.cond(tf.math.is_finite(loss), lambda: self._measure(losses, measured, weights), lambda: None)
        gradients = tape.gradient(scaled_loss, self.network.trainable_variables)
        return [tf.convert_to_tensor(gradient) for gradient in gradients], divisor  # an embedding's are slices

    def mix_targets(self, inputs):
        """Scheduled sampling (Bengio et al. 2015): some of the target tokens become the model's own predictions.

        In use, a model reads its own tokens, which may be wrong; with teacher forcing alone it has never read a wrong
        one. *Relative to the paper*: the predictions are made from the true tokens, all at once (Mihaylova & Martins
        2019), so that training needs one more pass and not one for each position. The rate is constant.

        Args:
            inputs: {"source_ids", "target_ids"}.

        Returns:
            the same, with a share of `scheduled_sampling_rate` of the target tokens after bos replaced by the most
            likely token of their position.
        """
        target_ids = inputs["target_ids"]
        drawn = keras.random.uniform(tf.shape(target_ids), seed=self.coins) < self.scheduled_sampling_rate
        chosen = tf.where((drawn & (target_ids != PAD_ID))[:, 1:])  # (N, 2): row, and the position before the token
        ids = {name: inputs[name] for name in ("source_ids", "target_ids")}
        states = tf.gather_nd(self.states(ids, training=False), chosen)
        predicted = tf.argmax(self.network.logits(states), axis=-1, output_type=target_ids.dtype)
        return {**inputs, "target_ids": tf.tensor_scatter_nd_update(target_ids, chosen + [0, 1], predicted)}

    def _count_padding(self, inputs):
        for name in ("source_ids", "target_ids"):
            self.padding_metric.update_state(tf.reshape(inputs[name], [-1]) == PAD_ID)

    def _losses_of_tokens(self, passes, is_real, labels):
        """Of the real tokens: loss (N,), and dict of measures (N,)."""
        passes = [tf.boolean_mask(states, is_real) for states in passes]
        bias = self.network.output_bias
        given = {} if bias is None else {"output_bias": bias}
        return self.token_loss.of_tokens(passes, self.network.output_matrix, labels, **given)

    def _measure(self, losses, measured, weights):
        self.loss_metric.update_state(losses, sample_weight=weights)
        for name, metric in self.measures.items():
            if name in measured:  # validation may measure less than training
                metric.update_state(measured[name], sample_weight=weights)


class Aligned(keras.layers.Layer):
    """A network from its inputs to the states (B, T, D) and to the alignment (B, T, S)."""

    def __init__(self, network):
        super().__init__(dtype=network.dtype_policy)
        self.network = network

    def call(self, inputs, training=False):
        return self.network.align(inputs["target_ids"], self.network.encode(inputs["source_ids"]), training)


def _refuse_class_weight(class_weight):
    if class_weight is not None:
        raise ValueError("`class_weight` has no meaning for sentences: give each token a weight by `sample_weight`")


def vary_seeds(seeds, first_replica=0):
    """Gives the dropout of every replica its own seeds. With equal seeds, all replicas would drop the same positions.

    The seeds of the first replica stay as they are: a checkpoint holds them. To be called again after a checkpoint is
    loaded.

    Args:
        seeds: Keras variables, `TeacherForcing.seeds`.
        first_replica: number, among all replicas, of the first one here. It is above 0 on a worker that has loaded the
            checkpoint of the first worker.
    """
    for states in seed_states(seeds):
        first = tf.identity(states[0])
        for replica, state in enumerate(states, start=first_replica):
            state.assign(first + tf.constant([replica, 0], state.dtype))  # (seed, draws so far)


def seed_states(seeds):
    """The states of seed generators on the replicas: for each Keras variable a list of tf.Variable (2,)."""
    return [list(getattr(seed.value, "values", [seed.value])) for seed in seeds]
