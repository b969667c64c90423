"""How weights change (5.3): the optimizer, its learning rate, and one update from all replicas and batches."""

import math

import keras
import tensorflow as tf
from keras import ops

from keras_transformer.presets import OPTIMIZERS
from keras_transformer.private_api import adam_moments, decays, own_update

FIRST_LOSS_SCALE = 2.0**15
GROWTH_STEPS = 2000  # sound updates in a row that double the loss scale
# Options of Keras optimizers for work that `Updates` does, and what to use in their place.
INSTEAD = {
    "clipnorm": "`clip_norm` of TeacherForcing",
    "clipvalue": "`clip_norm` of TeacherForcing",
    "global_clipnorm": "`clip_norm` of TeacherForcing",
    "use_ema": "`ema_decay` of TeacherForcing",
    "loss_scale_factor": "the dtype policy mixed_float16, which scales losses",
    "gradient_accumulation_steps": "`accumulate_steps` of TeacherForcing",
}


def make_optimizer(name, learning_rate, weight_decay=None):
    """The optimizer that a config names, with the arguments of `OPTIMIZERS`.

    Args:
        name: str.
        learning_rate: float or schedule.
        weight_decay: float, in place of that of `OPTIMIZERS`.

    Returns:
        keras.optimizers.Optimizer.
    """
    arguments = {"learning_rate": learning_rate, "name": name, **OPTIMIZERS[name]}
    if weight_decay is not None:
        arguments["weight_decay"] = weight_decay
    if name == "adam":
        return Adam(**arguments)
    return keras.optimizers.get({"class_name": name, "config": arguments})


class WarmUp(keras.optimizers.schedules.LearningRateSchedule):
    """The linear warm-up of every schedule. Here the rate stays at its peak.

    Args:
        peak_rate: the rate at n = warmup_steps.
        warmup_steps: updates of linear increase.
    """

    def __init__(self, peak_rate, warmup_steps):
        self.peak_rate = peak_rate
        self.warmup_steps = warmup_steps

    def __call__(self, step):
        n = ops.cast(step, "float32") + 1.0  # Keras counts updates from 0, where the rate would be 0
        return self.peak_rate * ops.minimum(n / self.warmup_steps, self.fall(n))

    def fall(self, n):
        """The share of the peak after the warm-up; a subclass lets it fall from 1 at n = warmup_steps."""
        return ops.ones_like(n)

    def get_config(self):
        return {"peak_rate": self.peak_rate, "warmup_steps": self.warmup_steps}


@keras.saving.register_keras_serializable(package="keras_transformer")
class InverseSquareRoot(WarmUp):
    """The paper's schedule. With the peak that `paper_peak_rate` gives, it is equation (3).

    Args:
        peak_rate, warmup_steps: those of `WarmUp`.
    """

    def fall(self, n):
        return ops.sqrt(self.warmup_steps / n)


class ToTheEnd(WarmUp):
    """A schedule that knows the last update, after which the rate is 0.

    Args:
        peak_rate, warmup_steps: those of `WarmUp`.
        last_step: the last update; the rate falls with the share of the updates after the warm-up that are done.
    """

    def __init__(self, peak_rate, warmup_steps, last_step):
        super().__init__(peak_rate, warmup_steps)
        self.last_step = last_step

    def done(self, n):
        """The share (0 to 1) of the updates after the warm-up that are done before update n."""
        return ops.clip((n - self.warmup_steps) / max(1.0, self.last_step + 1 - self.warmup_steps), 0.0, 1.0)

    def get_config(self):
        return {**super().get_config(), "last_step": self.last_step}


@keras.saving.register_keras_serializable(package="keras_transformer")
class LinearDecay(ToTheEnd):
    """After the warm-up, the rate falls on a straight line and would reach 0 one update after the last."""

    def fall(self, n):
        return 1.0 - self.done(n)


@keras.saving.register_keras_serializable(package="keras_transformer")
class CosineDecay(ToTheEnd):
    """After the warm-up, the rate falls along half a cosine (Loshchilov & Hutter 2017, without restarts)."""

    def fall(self, n):
        return 0.5 * (1.0 + ops.cos(math.pi * self.done(n)))


def make_schedule(name, peak_rate, warmup_steps, last_step):
    """The schedule of the setting `schedule`.

    Args:
        name: "inverse_square_root", "linear" or "cosine".
        peak_rate, warmup_steps: those of `WarmUp`.
        last_step: the last update of the run, at whose end "linear" and "cosine" reach 0.
    """
    if name == "inverse_square_root":
        return InverseSquareRoot(peak_rate, warmup_steps)
    return {"linear": LinearDecay, "cosine": CosineDecay}[name](peak_rate, warmup_steps, last_step)


def paper_peak_rate(d_model, warmup_steps):
    """The peak of equation (3), which the paper's schedule reaches at n = `warmup_steps`."""
    return (d_model * warmup_steps) ** -0.5


@keras.saving.register_keras_serializable(package="keras_transformer")
class Adam(keras.optimizers.Adam):
    """`keras.optimizers.Adam` (section 5.3; Kingma and Ba 2015), with one operation for each variable.

    *Relative to* `keras.optimizers.Adam`, which makes a dozen passes over every variable: 6 % of a step of `tiny` on
    one CPU core, and as much again on every further replica, because each updates its own copy.
    """

    def update_step(self, gradient, variable, learning_rate):
        if self.amsgrad:
            return super().update_step(gradient, variable, learning_rate)
        m, v = adam_moments(self, variable)
        step = tf.cast(self.iterations, tf.float32) + 1
        tf.raw_ops.ResourceApplyAdam(
            var=_tf_variable(variable).handle,
            m=_tf_variable(m).handle,
            v=_tf_variable(v).handle,
            beta1_power=self.beta_1**step,
            beta2_power=self.beta_2**step,
            lr=learning_rate,
            beta1=self.beta_1,
            beta2=self.beta_2,
            epsilon=self.epsilon,
            grad=tf.convert_to_tensor(gradient),  # an embedding's are slices
        )


@keras.saving.register_keras_serializable(package="keras_transformer")
class Updates(keras.layers.Layer):
    """Updates variables by a Keras optimizer, under any strategy, and never by a broken gradient.

    It alone knows of replicas, accumulation, loss scale, clipping, finite checks and averages. A gradient with an
    infinite or undefined element changes no weight and no moment. (Keras accumulates and averages inside a branch, in
    which the replicas of MirroredStrategy cannot meet. Here they meet first.)

    Args:
        optimizer: keras.optimizers.Optimizer, without options for work that is done here (`INSTEAD`).
        accumulate_steps: batches that an update is made from, as if they were one.
        clip_norm: largest norm of the gradient, over all weights; a larger gradient is scaled down. None: no limit.
        ema_decay: decay of exponential averages of the weights; None keeps none. The decay of update t is
            min(ema_decay, (1 + t) / (10 + t)), so that the random weights of the start are soon forgotten.
        scale_losses: scale losses up, and gradients down again, so that float16 can hold small gradients (Micikevicius
            et al. 2018). The scale is halved after every gradient that overflows, and doubled after 2,000 updates
            without one.

    Attributes:
        gradient_norm: float32 variable (), of the last update's gradient before clipping.
        skipped: int32 variable (), how many updates in a row had no sound gradient.
        averages: list of variables like the weights, empty without `ema_decay`.

    Raises:
        ValueError: for an option of the optimizer that `INSTEAD` names, and for an optimizer that does more than update
            one variable after the other (LossScaleOptimizer, MultiOptimizer, Muon, Nadam).
    """

    def __init__(self, optimizer, accumulate_steps=1, clip_norm=None, ema_decay=None, scale_losses=False, **kwargs):
        super().__init__(**kwargs)
        for name, instead in INSTEAD.items():
            if getattr(optimizer, name, None):
                value = getattr(optimizer, name)
                raise ValueError(f"`{name}` of the optimizer is not supported: use {instead}. Received: {name}={value}")
        if name := own_update(type(optimizer)):
            raise ValueError(f"the optimizer {type(optimizer).__name__} is not supported: it has its own `{name}`")
        self.optimizer = optimizer
        self.accumulate_steps = accumulate_steps
        self.clip_norm = clip_norm
        self.ema_decay = ema_decay
        self.scale_losses = scale_losses

    def build(self, variables):
        """Makes the optimizer's variables and its own. To be called under the strategy of `variables`."""
        self.optimizer.build(variables)
        self.gradient_norm = self._add_scalar("gradient_norm", "float32", 0.0)
        self.skipped = self._add_scalar("skipped", "int32", 0)
        if self.scale_losses:
            self.loss_scale = self._add_scalar("loss_scale", "float32", FIRST_LOSS_SCALE)
            self.sound_steps = self._add_scalar("sound_steps", "int32", 0)  # since the loss scale has changed
        self.averages = []
        if self.ema_decay is not None:
            for variable in variables:
                name = f"average_{variable.path.replace('/', '_')}"
                average = self.add_weight(
                    shape=variable.shape, dtype="float32", initializer="zeros", trainable=False, name=name
                )
                self.averages.append(average)
        self._begin_averages = lambda: [  # a function, because a list of variables would be weights of this layer
            average.assign(variable) for average, variable in zip(self.averages, variables, strict=False)
        ]
        self._begin_averages()
        if self.accumulate_steps > 1:  # sums over the batches of an update so far, of this replica
            self.gradient_sums = [_local_variable(variable.shape) for variable in variables]
            self.token_sum = _local_variable(())
            only_first = tf.VariableAggregation.ONLY_FIRST_REPLICA
            self.batches_taken = tf.Variable(0, trainable=False, aggregation=only_first)  # since the last update

    def _add_scalar(self, name, dtype, value):
        start = keras.initializers.Constant(value)
        scalar = {"shape": (), "dtype": dtype, "initializer": start, "trainable": False, "name": name}
        return self.add_weight(**scalar, aggregation="only_first_replica", autocast=False)

    def load_own_variables(self, store):
        """Begins anew if the file is of a trainer that was not compiled, or that trained other variables."""
        if len(store.keys()) == len(self.weights):
            super().load_own_variables(store)
        else:
            self._begin_averages()

    @property
    def resumable_variables(self):
        """All variables that a checkpoint needs: those of the optimizer, then its own."""
        return [*self.optimizer.variables, *self.weights]

    def scale_loss(self, loss):
        """The loss () whose gradients `add` and `apply` expect."""
        return loss * self.loss_scale if self.scale_losses else loss

    def add(self, gradients, tokens):
        """Takes up a batch that does not complete an update. Arguments as for `apply`, and called on replicas too."""
        for total, gradient in zip(self.gradient_sums, gradients, strict=True):
            total.assign_add(tokens * gradient)
        self.token_sum.assign_add(tokens)

    def apply(self, gradients, tokens, variables):
        """Updates the variables on every replica by the sum of all replicas' gradients. To be called on replicas.

        Args:
            gradients: list of tensors, this replica's share of the gradient of `scale_loss` of the mean over tokens.
            tokens: float32 (), the number of tokens that the mean is over.
            variables: list of the variables of `build`.
        """
        replica = tf.distribute.get_replica_context()
        gradients = replica.all_reduce(tf.distribute.ReduceOp.SUM, self._with_added(gradients, tokens))
        if self.scale_losses:
            gradients = [gradient / self.loss_scale for gradient in gradients]
        norm = tf.linalg.global_norm(gradients)
        is_sound = tf.math.is_finite(norm)
        if self.clip_norm is not None:
            gradients = [gradient * (self.clip_norm / tf.maximum(norm, self.clip_norm)) for gradient in gradients]
        step = tf.cast(self.optimizer.iterations, tf.float32)
        decay = 0.0 if self.ema_decay is None else tf.minimum(self.ema_decay, (2 + step) / (11 + step))
        rate = tf.cast(self.optimizer.learning_rate, tf.float32)

        def update_all(strategy, is_sound, gradients, rate, decay):
            """Called once for all replicas, with values that have a component for each."""

            def update_each():
                for pair, average in zip(zip(variables, gradients, strict=True), averages, strict=True):
                    self._update(strategy, *pair, average, rate, decay)
                return tf.no_op()

            tf.cond(strategy.experimental_local_results(is_sound)[0], update_each, tf.no_op)

        averages = self.averages or [None] * len(variables)
        replica.merge_call(update_all, args=(is_sound, gradients, rate, decay))
        self.gradient_norm.assign(norm)
        self.skipped.assign(tf.where(is_sound, 0, self.skipped + 1))
        if self.scale_losses:
            self._adapt_loss_scale(is_sound)
        self.optimizer.iterations.assign_add(1)

    def _with_added(self, gradients, tokens):
        """The gradient of the mean over the tokens of all batches of an update; the sums start again at 0."""
        if self.accumulate_steps == 1:
            return gradients
        all_tokens = self.token_sum + tokens
        sums = zip(self.gradient_sums, gradients, strict=True)
        gradients = [(total + tokens * gradient) / all_tokens for total, gradient in sums]
        for total in (*self.gradient_sums, self.token_sum):
            total.assign(tf.zeros_like(total))
        return gradients

    def _update(self, strategy, variable, gradient, average, rate, decay):
        """Updates one variable, and its average, on every replica."""
        decays_weight = decays(self.optimizer, variable)

        def update(tf_variable, gradient, rate, decay):
            if decays_weight:
                tf_variable.assign_sub(tf_variable * self.optimizer.weight_decay * rate)
            self.optimizer.update_step(gradient, tf_variable, rate)
            if average is not None:
                old = _tf_variable(average)
                old.assign(tf_variable + decay * (old - tf_variable))

        strategy.extended.update(_tf_variable(variable), update, args=(gradient, rate, decay), group=False)

    def _adapt_loss_scale(self, is_sound):
        sound_steps = tf.where(is_sound, self.sound_steps + 1, 0)
        grows = sound_steps >= GROWTH_STEPS
        self.loss_scale.assign(self.loss_scale * tf.where(grows, 2.0, tf.where(is_sound, 1.0, 0.5)))
        self.sound_steps.assign(tf.where(grows, 0, sound_steps))


def _tf_variable(variable):
    return variable.value if isinstance(variable, keras.Variable) else variable


def _local_variable(shape):
    """A float32 variable, 0, of which every replica has its own and changes it without asking the others."""
    return tf.Variable(
        tf.zeros(shape),
        trainable=False,
        synchronization=tf.VariableSynchronization.ON_READ,
        aggregation=tf.VariableAggregation.SUM,
    )
