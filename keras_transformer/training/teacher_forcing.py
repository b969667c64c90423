"""The Transformer as `fit` sees it: every target token is predicted from the true ones before it (section 5)."""

import keras
import tensorflow as tf

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
        self.label_smoothing = label_smoothing
        self.loss_metric = keras.metrics.Mean(name="loss")
        self.accuracy_metric = keras.metrics.Mean(name="accuracy")
        self.perplexity_metric = Perplexity(name="perplexity")
        self.built = True

    @property
    def metrics(self):
        """Per real target token, over all replicas."""
        return [self.loss_metric, self.accuracy_metric, self.perplexity_metric]

    def call(self, inputs, training=False):
        return self.transformer(inputs, training=training)

    def train_step(self, batch):
        """One update. Returns the metrics so far in this epoch."""
        _, _, weights = batch
        with tf.GradientTape() as tape:
            losses = self._forward(batch, training=True)
            loss = tf.reduce_sum(losses * tf.reshape(weights, [-1])) / global_sum(weights)
            scaled_loss = self.optimizer.scale_loss(loss)
        gradients = tape.gradient(scaled_loss, self.trainable_variables)
        self.optimizer.apply(gradients, self.trainable_variables)  # sums the gradients of all replicas
        return self.get_metrics_result()

    def test_step(self, batch):
        """Updates and returns the metrics."""
        self._forward(batch, training=False)
        return self.get_metrics_result()

    def _maybe_symbolic_build(self, iterator=None, data_batch=None):
        """Leaves out what Keras does here: all is built, and it would add up the replicas' batches, which may differ
        in their number of rows."""

    def _forward(self, batch, training):
        """Smoothed losses float32 (B*T,); counts every real token in the metrics."""
        inputs, labels, weights = batch
        logits = self(inputs, training=training)
        logits = tf.reshape(logits, [-1, logits.shape[-1]])  # (B*T, V)
        labels, weights = tf.reshape(labels, [-1]), tf.reshape(weights, [-1])
        smoothed, cross_entropy = token_losses(labels, logits, self.label_smoothing)
        is_right = tf.gather_nd(logits, tf.stack([tf.range(tf.size(labels)), labels], 1)) >= tf.reduce_max(logits, -1)
        self.loss_metric.update_state(smoothed, sample_weight=weights)
        self.accuracy_metric.update_state(is_right, sample_weight=weights)
        self.perplexity_metric.update_state(cross_entropy, sample_weight=weights)
        return smoothed


def global_sum(weights):
    """Sum of weights (B, T) over all replicas: the number of real target tokens of the global batch."""
    replica = tf.distribute.get_replica_context()
    return replica.all_reduce(tf.distribute.ReduceOp.SUM, tf.reduce_sum(weights))
