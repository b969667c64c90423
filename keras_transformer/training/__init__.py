"""How a model is trained (section 5): loss, schedule, updates, checkpoints, callbacks, and the run."""

from keras_transformer.training.losses import CrossEntropy, RDrop, SimCut, TokenLoss
from keras_transformer.training.teacher_forcing import TeacherForcing
from keras_transformer.training.updates import CosineDecay, InverseSquareRoot, LinearDecay

__all__ = [
    "CosineDecay",
    "CrossEntropy",
    "InverseSquareRoot",
    "LinearDecay",
    "RDrop",
    "SimCut",
    "TeacherForcing",
    "TokenLoss",
]
