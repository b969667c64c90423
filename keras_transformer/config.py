"""All settings of a run: one flat, frozen `Config`. `presets` has the defaults that a preset gives."""

import contextlib
import dataclasses
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import yaml

from keras_transformer.checks import check_values
from keras_transformer.errors import ConfigError, is_a
from keras_transformer.presets import ACTIVATIONS, OPTIMIZERS, POSITIONS, PRESETS

PAD_ID, UNK_ID, BOS_ID, EOS_ID = 0, 1, 2, 3  # the control symbols of every vocabulary
FIRST_PLACEHOLDER_ID = 4  # of the placeholders, right behind them, in a vocabulary that has some

# What most presets have. A setting of None is suited to the corpus. A preset without a rate has that of equation (3).
SUITED = {"batch_tokens": 4096, "warmup_steps": 4000, "peak_learning_rate": None}


@dataclass(frozen=True, init=False)
class Config:
    """Every setting of a training run. Flags, YAML files and the run's config.yaml use these names.

    A setting that is not given comes from the preset, and from the defaults below if the preset does not name it.

    Raises:
        ConfigError: for a setting that does not exist or is not possible.

    Example:

    ```python
    Config(preset="big").d_model  # 1024
    Config(preset="tiny", dropout_rate=0.2).dropout_rate  # 0.2
    ```
    """

    # The run
    preset: Literal[tuple(PRESETS)] = "quickstart"
    """Gives the defaults of all other settings. keras_transformer/presets.py lists them."""
    model_dir: str = ""
    """Directory of the run: config, tokenizer, checkpoints, logs, model. The same command resumes the run in it."""

    # The corpus
    dataset: str | tuple[str, ...] = "cldr:en-de"
    """Corpus: cldr:A-B (made from Unicode locale data, no download), files:DIR (train.LANG, val.LANG, ...) or
    tfds:NAME[/CONFIG]. Several are mixed, and the first one decides which weights are best. :WEIGHT may follow a name.
    With :3, an epoch takes every pair three times. With :0.3, it takes 30 % of the pairs, and the next epoch takes
    others. @A-B may follow a name, before the weight: the corpus then translates A to B, such as files:DIR@en-de:0.3.
    With several directions, one model learns them all."""
    tags: Literal["source", "both"] = "source"
    """Tokens that tell a model of several directions the languages. source: the first token of the source names the
    target language. both: it names the source language, and the decoder begins with a token of the target language."""
    sampling_temperature: float = 1.0
    """T, at least 1: an epoch takes pairs of each corpus in proportion to (weight x size)^(1/T). So a larger T lets an
    epoch take more of small corpora and less of large ones. An epoch keeps its size. 1 takes corpora as they are."""
    source_lang: str | None = None
    """Code of the language to translate from, such as en. A corpus files:DIR needs it."""
    target_lang: str | None = None
    """Code of the language to translate to. A corpus files:DIR needs it."""
    skip_bad_lines: bool = False
    """Leave out and list the lines of a corpus files:DIR that are no pair, such as a TSV line without a tab."""
    vocabulary_size: int = 8000
    """V: most pieces of a tokenizer. A small corpus may give fewer."""
    character_coverage: float = 0.9995
    """Share of the characters of the text that become pieces. Rarer characters are written as bytes. 1 makes every
    character a piece, which fills a small vocabulary."""
    nfkc: bool = False
    """Full-width letters and other compatibility characters become ordinary ones, as in Unicode's form NFKC. With two
    tokenizers, only in the source. All text has the form NFC, single spaces and no invisible characters anyway."""
    share_vocabulary: bool = True
    """One vocabulary, and one tokenizer, for both languages, as in the paper. false trains a tokenizer for each
    language."""
    share_tokenizer: bool | None = None
    """By default, as `share_vocabulary`. false beside a shared vocabulary: two tokenizers divide source and target, and
    an id means the same piece in both. Runs of OPUS-MT models have them, so give it with `init_from`."""
    tokenizer: str | None = None
    """SentencePiece model for both languages, instead of training one. It needs pad 0, unk 1, bos 2 and eos 3."""
    protect: float = 0.0
    """Share of the pairs in which words become placeholders: numbers, URLs, addresses and names on both sides, and
    words that translate each other. Every epoch draws new pairs. So the model learns to keep words."""
    upper_case: float = 0.0
    """Share of the pairs that training writes in capitals, on both sides. Scripts without case stay as they are."""
    title_case: float = 0.0
    """Share of the pairs in which every word begins with a capital, on both sides."""
    typos: float = 0.0
    """Share of the pairs whose source gets slips of the hand: swapped, missing, doubled and wrong letters."""
    noise: float = 0.0
    """Share of the pairs that get the same random symbol on both sides. So the model learns to copy emoji."""
    max_length: int = 256
    """Most tokens on either side of a training pair. Longer pairs are left out. Longer texts are divided."""
    init_from: str | None = None
    """Directory of a finished run of a model of the same shape. Training starts from its weights and its tokenizer."""
    replay: float = 0.0
    """Share of the pairs of an epoch that come from the corpora of the run `init_from`, against forgetting."""
    extend_vocabulary: int | None = None
    """Most new pieces that the tokenizer of `init_from` gets from the new text. The vector of a new piece starts as the
    mean of the vectors of the old pieces that spell it."""

    # The model (sections 3 and 5.4 of the paper)
    d_model: int = 128
    """D: width of the model."""
    d_ff: int = 512
    """F: inner width of the feed-forward networks."""
    num_heads: int = 4
    """H: heads of every attention. It must divide `d_model`, unless `d_key` is given."""
    num_layers: int = 2
    """N: layers of the encoder, and of the decoder unless `num_decoder_layers` is given."""
    num_decoder_layers: int | None = None
    """Layers of the decoder. By default, `num_layers`. A decoder with fewer layers translates faster."""
    d_key: int | None = None
    """K: width of a head. By default, `d_model` / `num_heads`."""
    d_value: int | None = None
    """Width of the values of a head. By default, K."""
    num_key_value_heads: int | None = None
    """Heads of keys and values in every attention. Several query heads share each of them. By default, `num_heads`,
    which it must divide. Fewer heads make the cache of a search smaller."""
    heads: str | None = None
    """Heads of each attention of a pruned model, such as 4,3/4,4/0,2: encoder / decoder / decoder to memory."""
    positions: Literal[POSITIONS] = "sinusoidal"
    """How the model knows the order of the tokens. sinusoidal (the paper's) and learned are added to the embeddings.
    sinusoidal_halves (Marian models of Hugging Face) and sinusoidal_tensor2tensor (Marian, M2M-100, OpenNMT-tf) have
    the sines first, then the cosines. relative (Shaw et al. 2018) and rotary (Su et al. 2021) act in self-attention."""
    first_position: int = 0
    """Number of the first position of sinusoids. The paper's is 0, OpenNMT-tf's 1, M2M-100's 2."""
    tie_positions: bool = True
    """One table of learned positions for source and target. false gives source and target a table each."""
    relative_clip: int = 16
    """k: the largest distance that relative positions distinguish. All larger distances count as k."""
    dropout_rate: float = 0.1
    """P_drop: dropout of embeddings and residual connections."""
    attention_dropout_rate: float = 0.0
    """Dropout of the attention weights."""
    feed_forward_dropout_rate: float = 0.0
    """Dropout inside the feed-forward networks."""
    subword_dropout_rate: float = 0.0
    """BPE-dropout (Provilkov et al. 2020): probability that training skips a merge of BPE, on both sides. So a model
    does not learn a small corpus by heart. The last tenth of the run has none. 0.05 makes sentences a fifth longer."""
    pre_norm: bool = False
    """Normalise before each sub-layer. The paper normalises after it."""
    frame: str | None = None
    """Ids of tokens that an imported model expects around every text: before the source / after it / before bos, such
    as /3/ (eos after the source, as Marian) or 17/3/3. They are part of the model: no result shows them."""
    attention_bias: bool = False
    """Biases in the four projections of every attention, Q = X W + b. The paper has none."""
    activation: Literal[ACTIVATIONS] = "relu"
    """Function inside the feed-forward networks. relu is the paper's, gelu the exact one with erf, silu also called
    swish. gelu_tanh (OpenNMT-tf) and gelu_sigmoid (old Marian) are approximations of gelu."""
    layer_norm_epsilon: float = 1e-6
    """epsilon of layer normalisation, under its root."""
    scale_embeddings: bool = True
    """Multiply the embeddings, and learned positions, by the square root of `d_model`, as in the paper (3.4)."""
    embedding_norm: bool = False
    """Normalise the sums of embeddings and positions, as mBART does."""
    logits_bias: bool = False
    """A bias for every token in the logits. The paper has none."""
    tie_embeddings: bool = True
    """One matrix for the embeddings and the logits, as in the paper (3.4). With two vocabularies, the target and the
    logits share it. false gives source, target and logits a matrix each."""

    # The recurrent networks of the time before (architecture rnn, lstm or gru)
    architecture: Literal["transformer", "rnn", "lstm", "gru"] = "transformer"
    """The Transformer, or a recurrent network with simple (rnn), LSTM or GRU cells."""
    bidirectional: bool = True
    """The recurrent encoder reads in both directions. Each direction has half the width."""
    attention: Literal["additive", "dot", "general", "concat", "none"] = "additive"
    """Score of the recurrent decoder's attention (additive: Bahdanau; the others: Luong). none: a fixed context."""
    attention_span: Literal["global", "local_m", "local_p"] = "global"
    """Source positions that attention sees: all, those around the target position, or around a predicted one."""
    attention_window: int = 10
    """Source positions on each side of the centre of a local span."""
    hard_attention: bool = False
    """Attend to one source position only. Training draws it at random. Translation takes the most likely one."""
    context: Literal["last", "mean"] = "last"
    """State of the encoder that a decoder without attention sees: the last one, or the mean of all."""
    input_feeding: bool = False
    """The recurrent decoder also reads its last output (Luong). So it knows where it has looked."""

    # Training (section 5)
    epochs: int = 10
    """Passes over the corpus."""
    max_steps: int | None = None
    """Most updates. Training stops after them, if the epochs have not ended before."""
    batch_tokens: int | None = None
    """Most positions (rows x length, padding included) of either side of a batch, on all devices. Pieces that changes
    of pairs add are not counted. None takes the number of the preset (quickstart 2,048; base and big 25,000; else
    4,096), or for a small corpus so many that an epoch has about 100 updates."""
    accumulate_steps: int = 1
    """Batches for each update, as if they were one batch. Use it for batches that do not fit in memory."""
    optimizer: Literal[tuple(OPTIMIZERS)] = "adam"
    """Optimizer of Keras. adam is the paper's. OPTIMIZERS in keras_transformer/presets.py has their arguments."""
    weight_decay: float | None = None
    """Share of every weight that an update takes away, times the learning rate. By default, adamw has 0.01."""
    clip_norm: float | None = None
    """Largest norm of an update's gradient. A larger gradient is scaled down to it. By default, no limit."""
    peak_learning_rate: float | None = None
    """Learning rate at the end of the warm-up. None takes the number of the preset (quickstart 0.003, tiny 0.0042, rnn,
    lstm and gru 0.002), else that of equation (3), (`d_model` x `warmup_steps`)^-0.5. Where a small corpus makes the
    batches n times smaller than the preset's, None divides this rate by sqrt(n)."""
    warmup_steps: int | None = None
    """Updates in which the learning rate rises linearly, before it falls. None takes the number of the preset
    (quickstart 150, tiny 1,000, rnn, lstm and gru 400, else 4,000), but at most a tenth of the run."""
    schedule: Literal["inverse_square_root", "linear", "cosine"] = "inverse_square_root"
    """How the learning rate falls after the warm-up. inverse_square_root is the paper's and never reaches 0. linear and
    cosine reach 0 at the end of the last epoch."""
    label_smoothing: float = 0.1
    """eps_ls: share of the target probability that is spread evenly over the vocabulary."""
    consistency: Literal["none", "simcut", "r_drop"] = "none"
    """A second pass must predict as the first one. simcut (Gao et al. 2022): from an input in which tokens are cut.
    r_drop (Liang et al. 2021): with another dropout. An update takes twice the time. It is for models that learn
    their corpus by heart: a small model loses by it."""
    consistency_weight: float | None = None
    """Factor of the divergence of the two passes. By default, simcut has 3 and r_drop 5."""
    cut_rate: float = 0.05
    """Share of the tokens that simcut cuts, on both sides."""
    scheduled_sampling_rate: float = 0.0
    """Share of the target tokens that the model's own predictions replace in training (Bengio)."""
    patience: int | None = None
    """Training stops after this many epochs without a better validation measure. By default, it never stops early."""
    average_epochs: int | None = None
    """The final model is the average of the weights after this many last epochs. By default, a fifth of them."""
    ema_decay: float | None = None
    """Decay, such as 0.999, of an exponential average of the weights. This average is validated and exported."""
    validate_every: int | None = None
    """Updates between two validations. By default, a pass over the corpus. An epoch then means this many updates, on
    the screen and for `patience` and `average_epochs`."""
    best_by: Literal["bleu", "loss"] = "bleu"
    """Validation measure that decides which checkpoint is kept as the best one."""
    tokenize: str = "auto"
    """How sacreBLEU splits words: 13a, none for tokenised text, zh, ... auto: as the language and the text need it."""
    validation_sentences: int = 1000
    """Most sentences for the validation BLEU after every epoch."""
    save_minutes: float = 10.0
    """Minutes between two saves within an epoch. 0 saves after every update."""
    seed: int = 1
    """Seed of the initial weights, dropout, shuffling and the generated corpus."""

    # Devices
    strategy: Literal["auto", "mirrored", "one_device", "multi_worker"] = "auto"
    """mirrored: MirroredStrategy on all GPUs (or CPU devices). multi_worker: MultiWorkerMirroredStrategy on the
    machines in TF_CONFIG or `workers`. auto: mirrored, or one_device if there is only one device."""
    workers: str | None = None
    """Addresses of all machines of multi_worker, such as train-{0..3}.train:2222 for four. The environment variable
    JOB_COMPLETION_INDEX, which an Indexed Job of Kubernetes sets, tells which of them this is, counted from 0."""
    precision: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """Dtype of activations. Weights stay float32. auto: bfloat16 if the hardware multiplies it fast, else float32."""
    profile: str | None = None
    """START,STOP, such as 20,30: the profiler of TensorBoard runs between these two updates."""

    # Decoding
    beam_size: int = 4
    """W: hypotheses that beam search keeps."""
    length_penalty: float = 0.6
    """alpha of ((5 + n) / 6)^alpha (GNMT). Larger values prefer longer translations."""
    split_sentences: bool = True
    """Translate the sentences of a text one by one. false translates each line at once, which may be several
    sentences."""

    def __init__(self, preset="quickstart", **settings):
        names = [field.name for field in dataclasses.fields(self)]
        if unknown := [name for name in settings if name not in names]:
            raise ConfigError(f"unknown settings: {', '.join(unknown)}; there are {', '.join(names)}")
        if not isinstance(preset, str) or preset not in PRESETS:
            raise ConfigError(f"unknown preset {preset!r}: it must be one of {', '.join(PRESETS)}")
        settings = {name: os.fspath(x) if isinstance(x, os.PathLike) else x for name, x in settings.items()}
        if isinstance(names := settings.get("dataset"), list | tuple):
            settings["dataset"] = names[0] if len(names) == 1 else tuple(names)
        defaults = {name: value for name, value in PRESETS[preset].items() if name not in SUITED}
        given = {"model_dir": f"runs/{preset}", **defaults, **settings, "preset": preset}
        for field in dataclasses.fields(self):
            object.__setattr__(self, field.name, given.get(field.name, field.default))
        check_values(self)

    def of_preset(self, name):
        """The preset's number for one of `SUITED`: what a setting that is None becomes, unless the corpus is small.

        It is None for the learning rate of a preset that has that of equation (3).
        """
        return PRESETS[self.preset].get(name, SUITED[name])

    @property
    def corpora(self):
        """The corpora that `dataset` names, a tuple of str."""
        return (self.dataset,) if isinstance(self.dataset, str) else self.dataset

    @property
    def has_one_tokenizer(self):
        """Whether one tokenizer divides source and target."""
        return self.share_vocabulary if self.share_tokenizer is None else self.share_tokenizer

    def profiled_updates(self):
        """START and STOP of `profile` as int; None without a profile."""
        return self.profile and tuple(map(int, self.profile.split(",")))

    @property
    def num_positions(self):
        """Positions of the longest text in training: `max_length` tokens after bos, or before eos."""
        return self.max_length + 1

    def save(self, path):
        """Writes all settings as YAML."""
        Path(path).write_text(yaml.safe_dump(dataclasses.asdict(self), sort_keys=False), encoding="utf-8")

    @classmethod
    def load(cls, path):
        """Reads the file of `save`. Raises ConfigError."""
        return cls(**read_settings(path))


def configure(**settings):
    """The `Config` of some settings; with `init_from`, the settings of the model are those of that run.

    Example:

    ```python
    configure(preset="tiny", epochs=20).epochs  # 20
    ```
    """
    return Config(**{**settings_of_origin(settings), **settings})


def preset(name, **settings):
    """The settings of a preset: `Config`.

    Args:
        name: a preset, such as "quickstart", "tiny", "gru", "base".
        settings: those that differ.

    Example:

    ```python
    preset("tiny", epochs=20).d_ff  # 256
    ```
    """
    return configure(preset=name, **settings)


def settings_of_origin(given):
    """The settings of the model that a run starts from with `init_from`, so that the new one has its shape.

    Args:
        given: dict, the settings that a user gives. A run that is resumed has the settings itself.

    Returns:
        dict; {} without `init_from`, and if there is no such run.
    """
    origin, places = given.get("init_from"), (given.get("model_dir"), given.get("init_from"))
    paths = [Path(place, "config.yaml") for place in places if origin and place]
    known = {path.parent: read_settings(path) for path in paths if path.is_file()}
    before = next(
        (each for path, each in known.items() if Path(origin) in (path, Path(each.get("init_from") or "."))), {}
    )
    names = [field.name for field in dataclasses.fields(Config)]
    of_model = [name for name in names[names.index("d_model") : names.index("epochs")] if "dropout" not in name]
    of_model += ["share_vocabulary", "share_tokenizer", "tags"]
    if before.get("positions") == "learned":
        of_model.append("max_length")  # the number of positions
    return {name: before[name] for name in of_model if name in before}


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
        raise ConfigError(f"{path} must hold `name: value` lines, and has none")
    names = [field.name for field in dataclasses.fields(Config)]
    if unknown := [str(name) for name in settings if name not in names]:
        raise ConfigError(f"{path} has unknown settings: {', '.join(unknown)}; there are {', '.join(names)}")
    for field in dataclasses.fields(Config):
        if isinstance(settings.get(field.name), str) and is_a(0.0, field.type):
            with contextlib.suppress(ValueError):  # YAML 1.1 reads 1e-3 as text, and 1.0e-3 as a number
                settings[field.name] = float(settings[field.name])
    return settings
