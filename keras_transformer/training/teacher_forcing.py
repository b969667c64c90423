"""The Transformer as `fit` sees it: every target token is predicted from the true ones before it (section 5)."""

import keras
import tensorflow as tf

from keras_transformer.tokenizer import PAD_ID
from keras_transformer.training.losses import token_losses
from keras_transformer.training.metrics import Perplexity


class TeacherForcing(keras.Model):
    """Trains a Transformer on ({"source_ids", "target_ids"}, labels, weights) batches.

    The loss is divided by the real target tokens of the global batch: however the batch is split over replicas, and
    however much of it is padding, a token counts the same. (Keras would weigh replicas equally.)

    Args:
        transformer: the `Transformer`.
        label_smoothing: eps_ls (5.4).
    """

    def __init__(self, transformer, label_smoothing=0.1, **kwargs):
        super().__init__(dtype=transformer.dtype_policy, **kwargs)
        self.transformer = transformer
        # Everything but the logits, which the loss makes itself and never keeps.
        self.states = keras.Model(transformer.input, transformer.tied_logits.input, name="states")
        self.label_smoothing = label_smoothing
        self.loss_metric = keras.metrics.Mean(name="loss")
        self.accuracy_metric = keras.metrics.Mean(name="accuracy")
        self.perplexity_metric = Perplexity(name="perplexity")
        self.padding_metric = keras.metrics.Mean(name="padding")
        self.built = True

    @property
    def metrics(self):
        """Per real target token, over all replicas; and the share of all positions that is padding."""
        return [self.loss_metric, self.accuracy_metric, self.perplexity_metric, self.padding_metric]

    def call(self, inputs, training=False):
        return self.transformer(inputs, training=training)

    def train_step(self, batch):
        """One update. Returns the metrics so far in this epoch."""
        inputs, labels, weights = batch
        real_tokens = global_sum(weights)
        self._count_padding(inputs)
        with tf.GradientTape() as tape:
            states = self.states(inputs, training=True)
            losses, weights = self._token_losses(states, labels, weights)
            loss = tf.reduce_sum(losses * weights) / real_tokens
            scaled_loss = self.optimizer.scale_loss(loss)
        gradients = tape.gradient(scaled_loss, self.trainable_variables)
        self.optimizer.apply(gradients, self.trainable_variables)  # sums the gradients of all replicas
        return self.get_metrics_result()

    def test_step(self, batch):
        """Updates and returns the metrics, computed from float32 logits."""
        inputs, labels, weights = batch
        self._count_padding(inputs)
        self._token_losses(tf.cast(self.states(inputs, training=False), tf.float32), labels, weights)
        return self.get_metrics_result()

    def _maybe_symbolic_build(self, iterator=None, data_batch=None):
        """Leaves out what Keras does here: all is built, and it would add up the replicas' batches, which may differ
        in their number of rows."""

    def _count_padding(self, inputs):
        for ids in inputs.values():
            self.padding_metric.update_state(tf.reshape(ids, [-1]) == PAD_ID)

    def _token_losses(self, states, labels, weights):
        """Smoothed losses and weights of the real tokens, float32 (N,); counts them in the metrics."""
        states, labels, weights = (tf.boolean_mask(x, weights > 0) for x in (states, labels, weights))
        matrix = self.transformer.embedding.matrix
        smoothed, cross_entropy, is_right = token_losses(states, matrix, labels, self.label_smoothing)
        self.loss_metric.update_state(smoothed, sample_weight=weights)
        self.accuracy_metric.update_state(is_right, sample_weight=weights)
        self.perplexity_metric.update_state(cross_entropy, sample_weight=weights)
        return smoothed, weights


def global_sum(weights):
    """Sum of weights (B, T) over all replicas: the number of real target tokens of the global batch."""
    replica = tf.distribute.get_replica_context()
    return replica.all_reduce(tf.distribute.ReduceOp.SUM, tf.reduce_sum(weights))
