"""One update of the weights: Adam (section 5.3) by the gradients of all replicas, and never by a broken one."""

import keras
import tensorflow as tf

FIRST_LOSS_SCALE = 2.0**15
GROWTH_STEPS = 2000  # sound updates in a row that double the loss scale


@keras.saving.register_keras_serializable(package="keras_transformer")
class Adam(keras.optimizers.Optimizer):
    """Adam (Kingma and Ba 2015, the efficient form of algorithm 1), one fused operation a variable.

    Keras' own spends a dozen passes over every variable: 6 % of a step of `tiny` on one CPU core, and as much again on
    every further replica, since each updates its own copy. TensorFlow's kernel needs one.

    A gradient with an infinite or undefined element changes no weight and no moment. Every replica sees so for itself
    from the same sum of gradients. (Keras' accumulation and averages fail under MirroredStrategy, because their
    replicas would have to meet inside a branch.)

    Args:
        learning_rate: float or schedule.
        beta_1: decay of the first moment.
        beta_2: decay of the second.
        epsilon: added to the root of the second.
        ema_decay: decay of the exponential averages of the weights, or None for no averages. The decay of update t is
            min(ema_decay, (1 + t) / (10 + t)), so that the random weights of the start are soon forgotten.
        scale_losses: whether losses are scaled up, and gradients down again, so that float16 can hold small gradients
            (Micikevicius et al. 2018): by half as much after every gradient that overflows, and by twice as much after
            2,000 updates without.

    Attributes:
        gradient_norm: float32 variable (), of the last update's gradient, over all weights and replicas.
        skipped: int32 variable (), how many updates in a row had no sound gradient.
        averages: list of variables like the weights, empty without `ema_decay`.
    """

    def __init__(
        self,
        learning_rate,
        beta_1=0.9,
        beta_2=0.98,
        epsilon=1e-9,
        ema_decay=None,
        scale_losses=False,
        name="adam",
    ):
        super().__init__(learning_rate, name=name)
        self.beta_1 = beta_1
        self.beta_2 = beta_2
        self.epsilon = epsilon
        self.ema_decay = ema_decay
        self.scale_losses = scale_losses

    def build(self, variables):
        if self.built:
            return
        super().build(variables)
        self.momentums, self.velocities = self.add_optimizer_variables(variables, ["momentum", "velocity"])
        self.gradient_norm = self._add_scalar("gradient_norm", "float32", 0.0)
        self.skipped = self._add_scalar("skipped", "int32", 0)
        if self.scale_losses:
            self.loss_scale = self._add_scalar("loss_scale", "float32", FIRST_LOSS_SCALE)
            self.sound_steps = self._add_scalar("sound_steps", "int32", 0)  # since the loss scale has changed
        self.averages = []
        if self.ema_decay is not None:
            self.averages = self.add_optimizer_variables(variables, "average")
            for average, variable in zip(self.averages, variables, strict=True):
                average.assign(variable)

    def _add_scalar(self, name, dtype, value):
        start = keras.initializers.Constant(value)
        return self.add_variable((), start, dtype, aggregation="only_first_replica", name=name)

    def scale_loss(self, loss):
        """The loss () whose gradients `apply` expects."""
        return loss * self.loss_scale if self.scale_losses else loss

    def apply(self, gradients, variables):
        """Updates the variables on every replica by the sum of all replicas' gradients. To be called on replicas.

        Args:
            gradients: list of tensors or tf.IndexedSlices, this replica's share of the gradient of `scale_loss`.
            variables: list of the variables that the optimizer has been built with.
        """
        gradients = [tf.convert_to_tensor(gradient) for gradient in gradients]  # of an embedding they may be slices
        gradients = tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, gradients)
        if self.scale_losses:
            gradients = [gradient / self.loss_scale for gradient in gradients]
        norm = tf.linalg.global_norm(gradients)
        is_sound = tf.math.is_finite(norm)
        step = tf.cast(self.iterations, tf.float32)
        schedule = {
            "lr": self.learning_rate,
            "beta1_power": self.beta_1 ** (step + 1),
            "beta2_power": self.beta_2 ** (step + 1),
        }
        decay = 0.0 if self.ema_decay is None else tf.minimum(self.ema_decay, (2 + step) / (11 + step))
        updates = [self._update(*pair, schedule, decay) for pair in zip(gradients, variables, strict=True)]
        tf.cond(is_sound, lambda: tf.group(*(update() for update in updates)), tf.no_op)
        self.gradient_norm.assign(norm)
        self.skipped.assign(tf.where(is_sound, 0, self.skipped + 1))
        if self.scale_losses:
            self._adapt_loss_scale(is_sound)
        self.iterations.assign_add(1)

    def _update(self, gradient, variable, schedule, decay):
        """A function that makes the operations of one variable's update; what it needs is looked up outside of it,
        where TensorFlow knows which replica this is."""
        index = self._get_variable_index(variable)
        weight, m, v = handle(variable), handle(self.momentums[index]), handle(self.velocities[index])
        average = handle(self.averages[index]) if self.averages else None

        def update():
            adam = tf.raw_ops.ResourceApplyAdam(
                var=weight,
                m=m,
                v=v,
                **schedule,
                beta1=self.beta_1,
                beta2=self.beta_2,
                epsilon=self.epsilon,
                grad=gradient,
            )
            if average is None:
                return adam
            with tf.control_dependencies([adam]):
                new = tf.raw_ops.ReadVariableOp(resource=weight, dtype=tf.float32)
                old = tf.raw_ops.ReadVariableOp(resource=average, dtype=tf.float32)
                return tf.raw_ops.AssignVariableOp(resource=average, value=new + decay * (old - new))

        return update

    def _adapt_loss_scale(self, is_sound):
        sound_steps = tf.where(is_sound, self.sound_steps + 1, 0)
        grows = sound_steps >= GROWTH_STEPS
        self.loss_scale.assign(self.loss_scale * tf.where(grows, 2.0, tf.where(is_sound, 1.0, 0.5)))
        self.sound_steps.assign(tf.where(grows, 0, sound_steps))

    def get_config(self):
        config = super().get_config()  # with much that belongs to the machinery of Keras that is not used here
        names = ("beta_1", "beta_2", "epsilon", "ema_decay", "scale_losses")
        own = {name: getattr(self, name) for name in names}
        return {"name": config["name"], "learning_rate": config["learning_rate"], **own}


def handle(variable):
    """The resource of a TensorFlow or Keras variable, on the replica that is being updated."""
    return (variable.value if isinstance(variable, keras.Variable) else variable).handle
