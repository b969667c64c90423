"""The three recurrent cells by their equations.

x is the input at a position, h the state before it, h' the state after it; * multiplies element by element.
"""

import keras
from keras import ops

from keras_transformer.layers.kernels import Layer
from keras_transformer.layers.recurrence import scan


class Cell(Layer):
    """One position of a recurrent network: the base class of the three cells.

    W x + b does not depend on the state, so `project` computes it for all positions with one product. `call` adds the
    part that does.

    Args:
        units: U, width of the state.

    Call arguments:
        projected: (B, ..., G*U), from `project`; G is the number of gates and candidates.
        state: tuple of (B, ..., U), the state before this position. Its first tensor is h.

    Returns:
        the state after this position, a tuple in the shape of `state`.
    """

    gates = 1  # G
    tensors = 1  # of a state

    def __init__(self, units, **kwargs):
        super().__init__(**kwargs)
        self.units = units
        self.input_map = keras.layers.Dense(self.gates * units, name="input_map", dtype=self.dtype_policy)

    def build(self, x_shape, state_shape=None):
        self.input_map.build(x_shape)
        self.recurrent_kernel = self.add_recurrent("recurrent_kernel", self.gates)

    def add_recurrent(self, name, gates):
        """A new matrix (U, gates*U), which starts orthogonal: it neither lengthens nor shortens the state."""
        return self.add_weight(name=name, shape=(self.units, gates * self.units), initializer="orthogonal")

    def project(self, x):
        """W x + b of all gates: (B, ..., D) -> (B, ..., G*U)."""
        return self.input_map(x)

    def zero_state(self, batch):
        """The state before the first position: a tuple of (B, U)."""
        return tuple(ops.zeros((batch, self.units), self.compute_dtype) for _ in range(self.tensors))


@keras.saving.register_keras_serializable(package="keras_transformer")
class SimpleCell(Cell):
    """h' = act(W x + U h + b) (Elman 1990). Call arguments and result: see `Cell`.

    *Relative to the paper*: act is tanh, as in every later network; Elman's is "sigmoid".

    Args:
        units: U, width of the state.
        activation: act, by its name in Keras.
    """

    def __init__(self, units, activation="tanh", **kwargs):
        super().__init__(units, **kwargs)
        self.activation = activation
        self.act = keras.activations.get(activation)

    def call(self, projected, state):
        (h,) = state
        return (self.act(projected + ops.matmul(h, self.recurrent_kernel)),)


@keras.saving.register_keras_serializable(package="keras_transformer")
class LSTMCell(Cell):
    """Long short-term memory (Hochreiter & Schmidhuber 1997, with the forget gate of Gers et al. 2000).

        i, f, o = sigmoid(W x + U h + b) of each gate         input, forget, output
        c~ = tanh(W x + U h + b)                              candidate
        c' = f * c + i * c~,   h' = o * tanh(c')

    The state is (h, c). The matrices hold i, f, c~ and o in this order. The bias of f starts at 1, so that a new
    network remembers (Jozefowicz et al. 2015). Arguments: see `Cell`.
    """

    gates = 4
    tensors = 2

    def build(self, x_shape, state_shape=None):
        super().build(x_shape)
        bias = [ops.zeros(self.units), ops.ones(self.units), ops.zeros(2 * self.units)]
        self.input_map.bias.assign(ops.concatenate(bias))

    def call(self, projected, state):
        h, c = state
        i, f, candidate, o = ops.split(projected + ops.matmul(h, self.recurrent_kernel), 4, axis=-1)
        c = ops.sigmoid(f) * c + ops.sigmoid(i) * ops.tanh(candidate)
        return ops.sigmoid(o) * ops.tanh(c), c


@keras.saving.register_keras_serializable(package="keras_transformer")
class GRUCell(Cell):
    """Gated recurrent unit (Cho et al. 2014), with the update gate as in Bahdanau et al. 2015.

        z, r = sigmoid(W x + U h + b) of each gate            update, reset
        h~ = tanh(W x + U (r * h) + b)                        candidate
        h' = (1 - z) * h + z * h~

    The matrix of the input holds z, r and h~ in this order. Arguments: see `Cell`.
    """

    gates = 3

    def build(self, x_shape, state_shape=None):
        self.input_map.build(x_shape)
        self.recurrent_kernel = self.add_recurrent("recurrent_kernel", 2)  # of z and r
        self.candidate_kernel = self.add_recurrent("candidate_kernel", 1)  # a slice of one matrix costs a copy a step

    def call(self, projected, state):
        (h,) = state
        of_z, of_r, of_candidate = ops.split(projected, 3, axis=-1)
        u_z, u_r = ops.split(ops.matmul(h, self.recurrent_kernel), 2, axis=-1)
        z, r = ops.sigmoid(of_z + u_z), ops.sigmoid(of_r + u_r)
        candidate = ops.tanh(of_candidate + ops.matmul(r * h, self.candidate_kernel))
        return (h + z * (candidate - h),)


CELLS = {"rnn": SimpleCell, "lstm": LSTMCell, "gru": GRUCell}


def run(cell, x, state):
    """Runs a cell over all positions: x (B, T, D) and a state, tuple of (B, U) -> tuple of (B, T, U), after each."""
    return scan(lambda state, projected: cell(projected, state), state, cell.project(x))
