"""Several machines that train one model together: `--strategy multi_worker`."""

from keras_transformer.tools.workers.group import Workers

__all__ = ["Workers"]
