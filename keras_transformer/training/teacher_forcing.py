"""The Transformer as `fit` sees it: every target token is predicted from the true ones before it (section 5)."""

import contextlib

import keras
import tensorflow as tf

from keras_transformer.tokenizer import PAD_ID
from keras_transformer.training.losses import token_losses
from keras_transformer.training.metrics import Perplexity


class TeacherForcing(keras.Model):
    """Trains a Transformer on ({"source_ids", "target_ids"}, labels, weights) batches.

    The loss is divided by the real target tokens of the global batch: however the batch is split over replicas, over
    several smaller ones in a row, and however much of it is padding, a token counts the same. (Keras would weigh
    replicas equally.)

    Args:
        transformer: the `Transformer`.
        label_smoothing: eps_ls (5.4).
        accumulate_steps: batches that an update is made from, one after the other, as if they were one.
    """

    def __init__(self, transformer, label_smoothing=0.1, accumulate_steps=1, **kwargs):
        super().__init__(dtype=transformer.dtype_policy, **kwargs)
        self.transformer = transformer
        # Everything but the logits, which the loss makes itself and never keeps.
        self.states = keras.Model(transformer.input, transformer.tied_logits.input, name="states")
        self.label_smoothing = label_smoothing
        self.accumulate_steps = accumulate_steps
        self.loss_metric = keras.metrics.Mean(name="loss")
        self.accuracy_metric = keras.metrics.Mean(name="accuracy")
        self.perplexity_metric = Perplexity(name="perplexity")
        self.padding_metric = keras.metrics.Mean(name="padding")
        if accumulate_steps > 1:  # sums over the batches of an update so far, of this replica
            self.gradient_sums = [local_variable(weight.shape) for weight in transformer.trainable_variables]
            self.token_sum = local_variable(())
        self.built = True

    @property
    def metrics(self):
        """Per real target token, over all replicas; and the share of all positions that is padding."""
        return [self.loss_metric, self.accuracy_metric, self.perplexity_metric, self.padding_metric]

    def call(self, inputs, training=False):
        return self.transformer(inputs, training=training)

    def make_train_function(self, force=False):
        """Keras calls what this makes for every update: it takes `accumulate_steps` batches from the iterator that it
        is given, and returns the metrics so far in this epoch. (Keras' own knows nothing of several batches.)"""
        if self.train_function and not force:
            return
        strategy = self.distribute_strategy

        @tf.function(reduce_retracing=True, autograph=False)
        def update(iterator):
            def accumulate(taken):
                strategy.run(self.accumulate, args=(next(iterator),))
                return taken + 1

            if self.accumulate_steps > 1:
                tf.while_loop(lambda taken: taken < self.accumulate_steps - 1, accumulate, [0], parallel_iterations=1)
            strategy.run(self.train_step, args=(next(iterator),))
            return self.get_metrics_result()

        self.train_function = update

    def make_test_function(self, force=False):
        """Likewise for every batch of `evaluate`."""
        if self.test_function and not force:
            return
        strategy = self.distribute_strategy

        @tf.function(reduce_retracing=True, autograph=False)
        def measure(iterator):
            strategy.run(self.test_step, args=(next(iterator),))
            return self.get_metrics_result()

        self.test_function = measure

    def evaluate(self, *arguments, **keywords):
        with self.averaged():
            return super().evaluate(*arguments, **keywords)

    @contextlib.contextmanager
    def averaged(self):
        """A context in which the weights are their exponential averages, if the optimizer keeps any."""
        averages = getattr(self.optimizer, "averages", [])
        weights = self.trainable_variables if averages else []
        values = [keras.ops.convert_to_numpy(weight) for weight in weights]
        for weight, average in zip(weights, averages, strict=True):
            weight.assign(keras.ops.convert_to_numpy(average))
        try:
            yield
        finally:
            for weight, value in zip(weights, values, strict=True):
                weight.assign(value)

    def accumulate(self, batch):
        """Takes up a batch that does not complete an update."""
        gradients, tokens = self._gradients(batch)
        for total, gradient in zip(self.gradient_sums, gradients, strict=True):
            total.assign_add(tokens * gradient)
        self.token_sum.assign_add(tokens)

    def train_step(self, batch):
        """One update, from this batch and those that have been accumulated."""
        gradients, tokens = self._gradients(batch)
        if self.accumulate_steps > 1:
            all_tokens = self.token_sum + tokens
            sums = zip(self.gradient_sums, gradients, strict=True)
            gradients = [(total + tokens * gradient) / all_tokens for total, gradient in sums]
            for total in (*self.gradient_sums, self.token_sum):
                total.assign(tf.zeros_like(total))
        self.optimizer.apply(gradients, self.trainable_variables)  # sums the gradients of all replicas

    def test_step(self, batch):
        """Measures a batch, by float32 logits."""
        inputs, labels, weights = batch
        self._count_padding(inputs)
        self._measure(*self._token_losses(tf.cast(self.states(inputs, training=False), tf.float32), labels, weights))

    def _maybe_symbolic_build(self, iterator=None, data_batch=None):
        """Leaves out what Keras does here: all is built, and it would add up the replicas' batches, which may differ
        in their number of rows."""

    def _gradients(self, batch):
        """This replica's share of the gradient of the mean loss per real token, and the number of real tokens of the
        global batch."""
        inputs, labels, weights = batch
        real_tokens = global_sum(weights)
        self._count_padding(inputs)
        with tf.GradientTape() as tape:
            losses, *others, weights = self._token_losses(self.states(inputs, training=True), labels, weights)
            loss = tf.reduce_sum(losses * weights) / real_tokens
            scaled_loss = self.optimizer.scale_loss(loss)
        # A broken batch, which the optimizer skips, leaves no trace in the epoch's figures.
        tf.cond(tf.math.is_finite(loss), lambda: self._measure(losses, *others, weights), lambda: None)
        gradients = tape.gradient(scaled_loss, self.trainable_variables)
        return [tf.convert_to_tensor(gradient) for gradient in gradients], real_tokens  # of an embedding: slices

    def _count_padding(self, inputs):
        for ids in inputs.values():
            self.padding_metric.update_state(tf.reshape(ids, [-1]) == PAD_ID)

    def _token_losses(self, states, labels, weights):
        """Of the real tokens, each (N,): smoothed loss, cross-entropy, whether right, and weight."""
        states, labels, weights = (tf.boolean_mask(x, weights > 0) for x in (states, labels, weights))
        return *token_losses(states, self.transformer.embedding.matrix, labels, self.label_smoothing), weights

    def _measure(self, smoothed, cross_entropy, is_right, weights):
        self.loss_metric.update_state(smoothed, sample_weight=weights)
        self.accuracy_metric.update_state(is_right, sample_weight=weights)
        self.perplexity_metric.update_state(cross_entropy, sample_weight=weights)


def global_sum(weights):
    """Sum of weights (B, T) over all replicas: the number of real target tokens of the global batch."""
    replica = tf.distribute.get_replica_context()
    return replica.all_reduce(tf.distribute.ReduceOp.SUM, tf.reduce_sum(weights))


def local_variable(shape):
    """A float32 variable, 0, of which every replica has its own and changes it without asking the others."""
    return tf.Variable(
        tf.zeros(shape),
        trainable=False,
        synchronization=tf.VariableSynchronization.ON_READ,
        aggregation=tf.VariableAggregation.SUM,
    )
