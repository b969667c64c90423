"""Another run whose weights and tokenizer a new one starts from (`--init_from`)."""

from pathlib import Path

from keras_transformer.config import MODEL_ARGUMENTS, Config, ConfigError
from keras_transformer.model import load_transformer


class Origin:
    """A finished run, as a new one starts from it.

    Args:
        model_dir: its directory.

    Raises:
        ConfigError: if train.py has not finished a model there.
    """

    def __init__(self, model_dir):
        path = Path(model_dir)
        self.config = path / "config.yaml"
        self.tokenizer = path / "tokenizer.model"
        self.model = path / "model.keras"
        for needed in (self.config, self.tokenizer, self.model):
            if not needed.exists():
                raise ConfigError(f"`init_from` must hold a finished run. Received: {path}, without {needed.name}")

    def check(self, config):
        """Raises ConfigError if the model of `config` is another one, by the settings that differ."""
        before = Config.load(self.config)
        # What is dropped while training is no part of the model.
        names = [name for name in MODEL_ARGUMENTS if not name.endswith("dropout_rate")]
        different = [
            f"{name} is {getattr(before, name)}, not {getattr(config, name)}"
            for name in names
            if getattr(before, name) != getattr(config, name)
        ]
        if different:
            raise ConfigError(f"{config.init_from} holds another model: {', '.join(different)}")

    def load(self, transformer, tokenizer):
        """Assigns the weights of the finished model.

        Args:
            transformer: `Transformer` of the same shape.
            tokenizer: path of the tokenizer that it is trained with.

        Raises:
            ConfigError: if that is not the one that the weights were made with.
        """
        if tokenizer.read_bytes() != self.tokenizer.read_bytes():
            raise ConfigError(f"{tokenizer} is not {self.tokenizer}, which the weights to start from were made with")
        for weight, start in zip(transformer.weights, load_transformer(self.model).weights, strict=True):
            weight.assign(start)


def open_origin(config, run):
    """The `Origin` that a new run starts from, checked; None for none, and for a run that goes on."""
    if config.init_from is None or run.has_checkpoint():
        return None
    origin = Origin(config.init_from)
    origin.check(config)
    return origin
