"""Adam (section 5.3), one fused operation a variable."""

import keras
import tensorflow as tf


@keras.saving.register_keras_serializable(package="keras_transformer")
class Adam(keras.optimizers.Adam):
    """`keras.optimizers.Adam` with the same arguments, variables and results.

    Keras spends a dozen passes over every variable on an update: 6 % of a step of `tiny` on one CPU core, and as much
    again on every further replica, since each updates its own copy. TensorFlow's own kernel needs one.
    """

    def update_step(self, gradient, variable, learning_rate):
        """m, v and the variable after this gradient (Kingma and Ba 2015, the efficient form of algorithm 1)."""
        index = self._get_variable_index(variable)
        step = tf.cast(self.iterations + 1, variable.dtype)
        tf.raw_ops.ResourceApplyAdam(
            var=handle(variable),
            m=handle(self._momentums[index]),
            v=handle(self._velocities[index]),
            beta1_power=self.beta_1**step,
            beta2_power=self.beta_2**step,
            lr=tf.cast(learning_rate, variable.dtype),
            beta1=self.beta_1,
            beta2=self.beta_2,
            epsilon=self.epsilon,
            grad=tf.convert_to_tensor(gradient),  # of an embedding it may come as slices
        )


def handle(variable):
    """The resource of a TensorFlow or Keras variable, on the replica that is being updated."""
    return (variable.value if isinstance(variable, keras.Variable) else variable).handle
