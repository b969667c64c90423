"""How a model is trained (section 5): loss, schedule, updates, checkpoints, callbacks, and the run."""

from keras_transformer.training.losses import CrossEntropy, RDrop, SimCut, TokenLoss
from keras_transformer.training.schedules import CosineDecay, InverseSquareRoot, LinearDecay
from keras_transformer.training.teacher_forcing import TeacherForcing

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
