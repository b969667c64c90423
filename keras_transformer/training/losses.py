"""What training minimises: the contract of a loss, label-smoothed cross-entropy (section 5.4), and consistency.

SimCut (Gao et al. 2022) and R-Drop (Liang et al. 2021) run the model twice, and both passes must predict alike.

A new loss is one class here and one line in `LOSSES`. `TeacherForcing` divides every loss by the real target tokens.
"""

import keras
import tensorflow as tf
from keras import ops

from keras_transformer.config import PAD_ID
from keras_transformer.training.token_losses import log_ratio, losses_of_passes, mean_of, token_losses


@keras.saving.register_keras_serializable(package="keras_transformer")
class Perplexity(keras.metrics.Mean):
    """exp of the mean cross-entropy per real target token, without label smoothing."""

    def result(self):
        return ops.exp(super().result())


class TokenLoss:
    """The contract of a loss: a number for every real target token, from the states of one pass or of several.

    A loss never sees padding. It gets states, not logits: a loss that needs probabilities makes them with
    `output_matrix`, and keeps them only as long as it needs them.

    Attributes:
        passes: how often training runs the model on a batch. Every pass draws its own dropout. Validation runs it once.
        measures: dict, name -> class of the Keras metric of everything that the loss reports beside itself.
        seeds: the states of the seed generators that it draws from, Keras variables: a run resumes from them.
    """

    passes = 1
    measures = {}
    seeds = ()

    def run(self, states, inputs):
        """Runs the model for training. A subclass may change the inputs, or the model, from one pass to the next.

        Args:
            states: model from inputs to the decoder's output (B, T, D).
            inputs: {"source_ids": int (B, S), "target_ids": int (B, T)}.

        Returns:
            list of `passes` tensors (B, T, D).
        """
        return [states(inputs, training=True) for _ in range(self.passes)]

    def of_tokens(self, passes, output_matrix, labels, output_bias=None):
        """The loss of N real target tokens.

        Args:
            passes: list of (N, D), the states of every pass; in validation of one.
            output_matrix: (V, D), see `SequenceToSequence.output_matrix`.
            labels: int32 (N,).
            output_bias: (V,), see `SequenceToSequence.output_bias`. It is given only for a model that has one.

        Returns:
            float32 (N,), differentiable; and a dict from the names in `measures` to values (N,).
        """
        raise TypeError(f"{type(self).__name__} must have the method `of_tokens`")

    def get_config(self):
        """The arguments of the loss, with which a saved trainer makes it again: {} for a loss without arguments."""
        return {}

    @classmethod
    def from_config(cls, config):
        """The loss of these arguments."""
        return cls(**config)


@keras.saving.register_keras_serializable(package="keras_transformer")
class CrossEntropy(TokenLoss):
    """Cross-entropy with label smoothing (5.4); see `token_losses`.

    Args:
        label_smoothing: eps_ls, in [0, 1).

    Example:

    ```python
    trainer.compile("adam", loss=CrossEntropy(label_smoothing=0.1))
    ```
    """

    measures = {"accuracy": keras.metrics.Mean, "perplexity": Perplexity}

    def __init__(self, label_smoothing=0.1):
        if not 0 <= label_smoothing < 1:
            raise ValueError(f"`label_smoothing` must be in [0, 1). Received: label_smoothing={label_smoothing}")
        self.label_smoothing = label_smoothing

    def of_tokens(self, passes, output_matrix, labels, output_bias=None):
        smoothed, cross_entropy, is_right = token_losses(
            passes[0], output_matrix, labels, self.label_smoothing, output_bias
        )
        return smoothed, {"accuracy": is_right, "perplexity": cross_entropy}

    def get_config(self):
        return {"label_smoothing": self.label_smoothing}


class Consistency(CrossEntropy):
    """Smoothed cross-entropy, and a divergence of the probabilities of two passes; validation has no divergence.

    A subclass has `shares`, the factors of the cross-entropies of the passes, and `compare`, see `losses_of_passes`.

    Args:
        label_smoothing: eps_ls, in [0, 1).
        weight: factor of the divergence.
    """

    passes = 2
    measures = {**CrossEntropy.measures, "divergence": keras.metrics.Mean}

    def __init__(self, label_smoothing=0.1, weight=1.0):
        super().__init__(label_smoothing)
        if weight < 0:
            raise ValueError(f"`weight` must not be negative. Received: weight={weight}")
        self.weight = weight

    def of_tokens(self, passes, output_matrix, labels, output_bias=None):
        if len(passes) == 1:
            return super().of_tokens(passes, output_matrix, labels, output_bias)
        loss, divergence, cross_entropy, is_right = losses_of_passes(
            passes, output_matrix, labels, self.label_smoothing, output_bias, self.shares, self.compare
        )
        return loss, {"accuracy": is_right, "perplexity": cross_entropy, "divergence": divergence}

    def get_config(self):
        return {**super().get_config(), "weight": self.weight}


@keras.saving.register_keras_serializable(package="keras_transformer")
class SimCut(Consistency):
    """The model must predict from a part of its input as it does from the whole (Gao et al. 2022, equation 4).

        loss = smoothed cross-entropy of p + weight KL(p || q)

    p are the probabilities from the whole input, q those from a cut one: the vectors of some tokens are 0, of source
    and target. The first token of the target is never cut. Both passes draw dropout, and the gradient goes through
    both:

        d KL / d z_p = p (log p - log q - KL),  d KL / d z_q = q - p

    Args:
        label_smoothing, weight: see `Consistency`.
        cut_rate: share of the tokens that are cut.
    """

    shares = (1.0, 0.0)

    def __init__(self, label_smoothing=0.1, weight=3.0, cut_rate=0.05):
        super().__init__(label_smoothing, weight)
        if not 0 <= cut_rate < 1:
            raise ValueError(f"`cut_rate` must be in [0, 1). Received: cut_rate={cut_rate}")
        self.cut_rate = cut_rate
        self.knife = keras.random.SeedGenerator(name="knife")

    @property
    def seeds(self):
        return [self.knife.state]

    def run(self, states, inputs):
        cut = {"source_ids": self.cut(inputs["source_ids"])}
        target_ids = inputs["target_ids"]
        cut["target_ids"] = tf.concat([target_ids[:, :1], self.cut(target_ids[:, 1:])], axis=1)
        return [states(inputs, training=True), states(cut, training=True)]

    def cut(self, ids):
        """ids int (B, T) -> the same with some of them negative: `TokenEmbedding` makes their vectors 0."""
        drawn = keras.random.uniform(tf.shape(ids), seed=self.knife) < self.cut_rate
        return tf.where(drawn & (ids != PAD_ID), -ids, ids)

    def compare(self, p, q):
        divergence = mean_of(p, log_ratio(p, q))  # (N, 1)
        weight = tf.cast(self.weight, p.dtype)

        def d_logits():
            surprise = log_ratio(p, q) - tf.cast(divergence, p.dtype)  # made again: one array less is kept
            return [p + weight * p * surprise, weight * (q - p)]

        return self.weight * divergence[:, 0], d_logits

    def get_config(self):
        return {**super().get_config(), "cut_rate": self.cut_rate}


@keras.saving.register_keras_serializable(package="keras_transformer")
class RDrop(Consistency):
    """Two passes with different dropout must predict alike (Liang et al. 2021, equation 4, here its half).

        loss = (smoothed cross-entropy of p + smoothed cross-entropy of q + weight (KL(p || q) + KL(q || p)) / 2) / 2

    The half makes it the mean over a batch of twice the size.

    Args:
        label_smoothing, weight: see `Consistency`.
    """

    shares = (0.5, 0.5)

    def __init__(self, label_smoothing=0.1, weight=5.0):
        super().__init__(label_smoothing, weight)

    def compare(self, p, q):
        factor = self.weight / 4
        forth, back = mean_of(p, log_ratio(p, q)), mean_of(q, log_ratio(q, p))  # (N, 1)
        half, rate = (tf.cast(x, p.dtype) for x in (0.5, factor))

        def d_logits():
            ratio = log_ratio(p, q)
            d_p = p * (half + rate * (1 + ratio - tf.cast(forth, p.dtype))) - rate * q
            d_q = q * (half + rate * (1 - ratio - tf.cast(back, p.dtype))) - rate * p
            return [d_p, d_q]

        return factor * (forth + back)[:, 0], d_logits


LOSSES = {"cross_entropy": CrossEntropy, "simcut": SimCut, "r_drop": RDrop}


def get_loss(loss):
    """The `TokenLoss` that `compile` is given: an object, a name of `LOSSES`, or None for the paper's.

    Raises:
        ValueError: for anything else, such as a loss of Keras, which knows no padding and divides by all positions.
    """
    if loss is None:
        return CrossEntropy()
    if isinstance(loss, str) and loss in LOSSES:
        return LOSSES[loss]()
    if not isinstance(loss, TokenLoss):
        raise ValueError(f"`loss` must be a `TokenLoss` or one of {', '.join(LOSSES)}. Received: loss={loss!r}")
    return loss


def count_real_tokens(weights):
    """The number of real target tokens of the global batch, over all replicas: the divisor of the loss.

    Args:
        weights: float32 (B, T) of this replica, 0 on padding.

    Returns:
        float32 ().
    """
    replica = tf.distribute.get_replica_context()
    return replica.all_reduce(tf.distribute.ReduceOp.SUM, tf.reduce_sum(weights))


def loss_class_of(config):
    """The class of the loss of a `Config`."""
    return LOSSES["cross_entropy" if config.consistency == "none" else config.consistency]


def make_loss(config):
    """The `TokenLoss` of a `Config`."""
    loss_class, arguments = loss_class_of(config), {"label_smoothing": config.label_smoothing}
    if config.consistency_weight is not None and issubclass(loss_class, Consistency):
        arguments["weight"] = config.consistency_weight
    if loss_class is SimCut:
        arguments["cut_rate"] = config.cut_rate
    return loss_class(**arguments)
