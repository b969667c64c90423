"""Everything that a run is decided by: one flat, frozen `Config`, and the presets it starts from."""

import dataclasses
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args, get_origin

import yaml


class ConfigError(ValueError):
    """A setting that cannot be; the message is one clear line."""


@dataclass(frozen=True)
class Config:
    """Every setting of a training run. Flags, YAML files and the run's config.yaml use these names."""

    preset: Literal["quickstart", "tiny", "small", "base", "big"] = "quickstart"
    """Where the defaults of all other settings come from; see PRESETS in keras_transformer/config.py."""
    model_dir: str = "runs/quickstart"
    """Directory of the run: config, tokenizer, checkpoints, logs, model. The same command resumes what is there."""

    # What is learned from
    dataset: str = "cldr:en-de"
    """cldr:A-B (made from Unicode locale data, no download), files:DIR (train.LANG, val.LANG, ...) or
    tfds:NAME[/CONFIG]."""
    source_lang: str | None = None
    """Language to translate from; needed with files:."""
    target_lang: str | None = None
    """Language to translate to; needed with files:."""
    vocabulary_size: int = 8000
    """V: most pieces of the shared tokenizer; fewer where the corpus is too small for as many."""
    max_length: int = 256
    """Pairs with more tokens on either side are not trained on; longer input is translated in parts."""
    init_from: str | None = None
    """Directory of a finished run, to start from its weights and tokenizer; the model must have the same shape."""

    # The model (sections 3 and 5.4 of the paper)
    d_model: int = 128
    """D: width of the model."""
    d_ff: int = 512
    """F: inner width of the feed-forward networks."""
    num_heads: int = 4
    """H: heads of every attention; must divide d_model."""
    num_layers: int = 2
    """N: layers of the encoder and of the decoder."""
    dropout_rate: float = 0.1
    """P_drop: dropout of embeddings and residual connections."""
    attention_dropout_rate: float = 0.0
    """Dropout of the attention weights."""
    feed_forward_dropout_rate: float = 0.0
    """Dropout inside the feed-forward networks."""
    subword_dropout_rate: float = 0.0
    """Probability that a piece of source text is divided, in training, into the two that BPE has merged, these again,
    and so on: for small corpora, a remedy against learning them by heart."""
    pre_norm: bool = False
    """Normalise before each sub-layer rather than after it, as the paper does."""

    # Training (section 5)
    epochs: int = 10
    """Passes over the corpus."""
    max_steps: int | None = None
    """Updates to stop after, if that is sooner than the epochs."""
    batch_tokens: int = 4096
    """Most positions (rows x length, padding included) of either side of a batch, over all devices; divided source
    pieces come on top."""
    accumulate_steps: int = 1
    """Batches that every update is made from, as if they were one: for batches that memory does not hold."""
    peak_learning_rate: float | None = None
    """Learning rate at the end of the warm-up; by default that of equation (3), (d_model x warmup_steps)^-0.5."""
    warmup_steps: int = 4000
    """Updates of linear warm-up, before the rate falls with the inverse square root of the update."""
    label_smoothing: float = 0.1
    """eps_ls."""
    patience: int | None = None
    """Epochs without a better validation measure after which training stops early; by default it never does."""
    average_epochs: int = 5
    """The final model is the average of the weights after the last so many epochs."""
    ema_decay: float | None = None
    """Decay, such as 0.999, of an exponential average of the weights; it is then what is validated and exported."""
    best_by: Literal["bleu", "loss"] = "bleu"
    """What validation measure decides which checkpoint is kept as the best one."""
    tokenize: str = "13a"
    """How sacreBLEU splits words: 13a for raw text, none for text that is tokenised already, zh, ja-mecab, ..."""
    validation_sentences: int = 1000
    """Validation BLEU after every epoch uses so many sentences at most."""
    save_minutes: float = 10.0
    """Minutes between two saves within an epoch; 0 saves after every update."""
    seed: int = 1
    """Of initial weights, dropout, shuffling and the generated corpus."""

    # Where it runs
    strategy: Literal["auto", "mirrored", "one_device", "multi_worker", "tpu"] = "auto"
    """mirrored: MirroredStrategy over all GPUs (or CPU devices); auto: that, or one device if there is only one;
    multi_worker: MultiWorkerMirroredStrategy over the machines in TF_CONFIG; tpu: TPUStrategy, untested."""
    precision: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """Of activations; weights stay float32. auto: bfloat16 where the hardware multiplies it fast, else float32."""
    profile: str | None = None
    """START,STOP: two numbers of updates, such as 20,30, between which the profiler of TensorBoard runs."""

    # Decoding
    beam_size: int = 4
    """W: hypotheses kept by beam search."""
    length_penalty: float = 0.6
    """alpha of ((5 + n) / 6)^alpha (GNMT): larger values prefer longer translations."""

    def __post_init__(self):
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            _check(self, field.name, _is_a(value, field.type), f"must be {_describe(field.type)}")
            if field.type in (int, int | None) and field.name != "seed":
                _check(self, field.name, value is None or value >= 1, "must be at least 1")
        for name in (*(name for name in vars(self) if name.endswith("dropout_rate")), "label_smoothing"):
            _check(self, name, 0 <= getattr(self, name) < 1, "must be in [0, 1)")
        decay = self.ema_decay
        _check(self, "ema_decay", decay is None or 0 < decay < 1, "must be between 0 and 1")
        _check(self, "save_minutes", self.save_minutes >= 0, "must not be negative")
        rate = self.peak_learning_rate
        _check(self, "peak_learning_rate", rate is None or rate > 0, "must be positive")
        _check(self, "profile", self.profile is None or _is_range(self.profile), "must be START,STOP with START < STOP")
        _check(self, "num_heads", self.d_model % self.num_heads == 0, f"must divide d_model, {self.d_model}")
        _check(self, "d_model", self.d_model % 2 == 0, "must be even")

    def model_arguments(self):
        """The arguments of `Transformer` among the settings, a dict; the vocabulary size is the tokenizer's."""
        return {name: getattr(self, name) for name in MODEL_ARGUMENTS}

    def profiled_updates(self):
        """START and STOP of `profile` as int; None if nothing is to be profiled."""
        return self.profile and tuple(map(int, self.profile.split(",")))

    def save(self, path):
        """Writes all settings as YAML."""
        Path(path).write_text(yaml.safe_dump(dataclasses.asdict(self), sort_keys=False), encoding="utf-8")

    @classmethod
    def load(cls, path):
        """Reads what `save` wrote. Raises ConfigError."""
        return cls(**read_settings(path))


MODEL_ARGUMENTS = (
    "d_model",
    "num_heads",
    "d_ff",
    "num_layers",
    "dropout_rate",
    "attention_dropout_rate",
    "feed_forward_dropout_rate",
    "pre_norm",
)

# Table 3 of the paper: base and big. The others are for less data and less time.
PRESETS = {
    "quickstart": {
        "vocabulary_size": 4000,
        "dropout_rate": 0.05,
        "pre_norm": True,
        "epochs": 12,
        "batch_tokens": 2048,
        "peak_learning_rate": 0.003,
        "warmup_steps": 400,
        "average_epochs": 3,
        "validation_sentences": 200,
    },
    "tiny": {
        "d_ff": 256,
        "num_layers": 4,
        "dropout_rate": 0.3,
        "pre_norm": True,
        "epochs": 80,
        "peak_learning_rate": 0.0042,
        "warmup_steps": 1000,
        "average_epochs": 16,
        "validation_sentences": 500,
        "length_penalty": 1.8,
    },
    "small": {
        "vocabulary_size": 16000,
        "d_model": 256,
        "d_ff": 1024,
        "num_layers": 4,
        "dropout_rate": 0.2,
        "epochs": 30,
    },
    "base": {
        "vocabulary_size": 37000,
        "d_model": 512,
        "d_ff": 2048,
        "num_heads": 8,
        "num_layers": 6,
        "batch_tokens": 25000,
        "epochs": 20,
    },
    "big": {
        "vocabulary_size": 37000,
        "d_model": 1024,
        "d_ff": 4096,
        "num_heads": 16,
        "num_layers": 6,
        "dropout_rate": 0.3,
        "batch_tokens": 25000,
        "epochs": 60,
    },
}


def preset(name):
    """The `Config` of a preset. Raises ConfigError for a name that is none."""
    if name not in list(PRESETS):  # a file may hold anything, a list too
        raise ConfigError(f"unknown preset {name!r}: it must be one of {', '.join(PRESETS)}")
    return Config(preset=name, model_dir=f"runs/{name}", **PRESETS[name])


def read_settings(path):
    """Reads a YAML file of settings into a dict.

    Raises:
        ConfigError: if there is no such file, it is not a YAML mapping, or has a setting that does not exist.
    """
    try:
        settings = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"cannot read settings from {path}: {' '.join(str(error).split())}") from error
    if not isinstance(settings, dict):
        raise ConfigError(f"{path} must hold `name: value` lines, not {type(settings).__name__}")
    names = [field.name for field in dataclasses.fields(Config)]
    unknown = [str(name) for name in settings if name not in names]
    if unknown:
        raise ConfigError(f"{path} has unknown settings: {', '.join(unknown)}; there are {', '.join(names)}")
    return settings


def _check(config, name, holds, rule):
    if not holds:
        raise ConfigError(f"`{name}` {rule}. Received: {name}={getattr(config, name)!r}")


def _is_range(text):
    return re.fullmatch("[0-9]+,[0-9]+", text) and int(text.split(",")[0]) < int(text.split(",")[1])


def _is_a(value, kind):
    """Whether a value is of a field's type: a class, a Literal or a union. An int is a float, a bool is no int."""
    if get_origin(kind) is Literal:
        return isinstance(value, str) and value in get_args(kind)
    if get_args(kind):
        return any(_is_a(value, choice) for choice in get_args(kind))
    return type(value) is kind or (kind is float and type(value) is int)


def _describe(kind):
    if get_origin(kind) is Literal:
        return f"one of {', '.join(get_args(kind))}"
    return kind.__name__ if isinstance(kind, type) else str(kind)
