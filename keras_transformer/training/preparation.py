"""Before a run: its directory is fit for it, the corpus is tokenised, and another run's weights are at hand."""

import hashlib
import itertools
import json
import logging
from dataclasses import asdict, dataclass
from pathlib import Path

from keras_transformer.config import Config
from keras_transformer.data.corpora import open_corpus
from keras_transformer.data.corpus import BothSides, Corpus, OneSide
from keras_transformer.data.encoded import LAYOUT, EncodedPairs, encode_pairs, find_flaw, make_once
from keras_transformer.errors import CheckpointError, ConfigError
from keras_transformer.models.sequence_to_sequence import load_model
from keras_transformer.tokenizer import SHARED, SOURCE, TARGET, Tokenizer, load_tokenizers, read_model, train_tokenizer
from keras_transformer.training.checkpoints import write_atomically
from keras_transformer.wording import counted

log = logging.getLogger(__name__)

# Settings that may change when a run is resumed: how long it trains, where, and how it translates.
MAY_CHANGE = ("epochs", "max_steps", "patience", "average_epochs", "save_minutes", "profile", "strategy", "model_dir")
MAY_CHANGE += ("beam_size", "length_penalty", "split_sentences")


@dataclass(frozen=True)
class Data:
    """A corpus, its tokenizers, and its training and validation pairs as token ids.

    The two tokenizers are the same object if both sides share one.
    """

    corpus: Corpus
    source_tokenizer: Tokenizer
    target_tokenizer: Tokenizer
    train: EncodedPairs
    validation: EncodedPairs

    @property
    def tokenizers(self):
        """(source tokenizer, target tokenizer)."""
        return self.source_tokenizer, self.target_tokenizer


def prepare(config, run, corpus=None):
    """Opens the corpus, and trains the tokenizers and tokenises unless that is done. Reports kept and dropped pairs.

    Args:
        config: `Config`.
        run: `RunDirectory`.
        corpus: `Corpus`; by default the one that `config.dataset` names.

    Returns:
        `Data`.

    Raises:
        ConfigError: if the run directory holds a run with other settings, or the run to start from another model.
        CheckpointError: if the run directory lacks a file that its checkpoints need, or has those of another corpus.
        CorpusError: if the corpus cannot be used.
        TokenizerError: if no tokenizer can be trained, or that of `config.tokenizer` cannot be used.
    """
    # Before the settings are compared with those of a run: a wrong corpus is the mistake that matters more.
    corpus = corpus or open_corpus(config.dataset, config.source_lang, config.target_lang, config.seed)
    check_resumable(config, run)
    origin = open_origin(config, run)
    log.info("corpus      %s: %s to %s", corpus.name, corpus.source_lang, corpus.target_lang)
    for note in corpus.notes:
        log.info("            %s", note)
    check_same_corpus(run, corpus)
    models = make_tokenizers(config, run, corpus, origin)  # if this fails, other settings may be tried
    write_atomically(run.config, config.save)
    for path, model in models.items():
        write_atomically(path, lambda temporary, model=model: temporary.write_bytes(model))
    identity = json.dumps(corpus.identity, indent=1)
    write_atomically(run.corpus, lambda path: path.write_text(identity, encoding="utf-8"))
    describe_tokenizers(config, run)
    tokenizers = load_tokenizers(run.path)
    splits = {}
    for name in ("train", "validation"):
        splits[name] = encode_split(config, run, corpus, tokenizers, name)
        log.info("%-12s%s", name, splits[name].describe())
    return Data(corpus, *tokenizers, **splits)


def make_tokenizers(config, run, corpus, origin):
    """The tokenizers that the run lacks, and all of them if nothing was trained yet but on another corpus.

    Returns:
        dict, from the path of a tokenizer to its model, bytes.
    """
    files = run.tokenizer_files(config.share_vocabulary)
    texts = [BothSides(corpus.train)] if config.share_vocabulary else [OneSide(corpus.train, i) for i in (0, 1)]
    is_other = bool(_different_parts(run, corpus))
    return {
        path: _make_model(config, path.name, text, origin)
        for path, text in zip(files, texts, strict=True)
        if is_other or not path.exists()
    }


def _make_model(config, name, text, origin):
    if origin:
        return (origin.path / name).read_bytes()
    if config.tokenizer:
        return read_model(config.tokenizer)
    return train_tokenizer(text, config.vocabulary_size, config.character_coverage)


def describe_tokenizers(config, run):
    """Says how large the tokenizers of the run are, and where they come from."""
    for path in run.tokenizer_files(config.share_vocabulary):
        size = Tokenizer.load(path).vocabulary_size
        if given := config.init_from or config.tokenizer:
            note = f", those of {given}"
        else:
            asked = f" ({config.vocabulary_size:,} asked for; the corpus is too small for more)"
            note = asked if size < config.vocabulary_size else ""
        name = "tokenizer" if config.share_vocabulary else path.name.split("_")[0]
        log.info("%-12s%s%s", name, counted(size, "piece"), note)


def encode_split(config, run, corpus, tokenizers, name):
    """The `EncodedPairs` of the split `name`: those in the run directory, if the corpus is still the same."""
    ingredients = _ingredients(config, run, corpus.identity)
    pairs, called = getattr(corpus, name), f"{corpus.name}, {name}"
    make_once(
        run.tokens / name,
        ingredients,
        lambda directory: encode_pairs(pairs, *tokenizers, config.max_length, directory, called),
    )
    return EncodedPairs.open(run.tokens / name)


def open_split(run, name):
    """The `EncodedPairs` of the split `name` on which a run was trained, from its directory alone.

    Args:
        run: `RunDirectory`.
        name: "train" or "validation".

    Raises:
        CheckpointError: if they are not whole, or of another corpus, tokenizer or length than the run's.
    """
    config = Config.load(run.config)
    identity = json.loads(run.corpus.read_text(encoding="utf-8")) if run.corpus.exists() else {}
    flaw = find_flaw(run.tokens / name, _ingredients(config, run, identity))
    if flaw:
        raise CheckpointError(
            f"the tokenised corpus {run.tokens / name} {flaw}: train.py with the settings of the run makes it again"
        )
    return EncodedPairs.open(run.tokens / name)


def _ingredients(config, run, identity):
    """Everything that the tokenised corpus of a run depends on, for `make_once`; `identity` is that of the corpus."""
    models = [path.read_bytes() for path in run.tokenizer_files(config.share_vocabulary)]
    tokenizer = hashlib.sha256(b"".join(models)).hexdigest()
    return {**identity, "tokenizer": tokenizer, "max_length": config.max_length, "layout": LAYOUT}


def check_resumable(config, run):
    """Refuses to resume a run with other settings, or without the files that its checkpoints need.

    Raises:
        ConfigError: that names the settings.
        CheckpointError: that names the file.
    """
    for needed in (run.config, *run.tokenizer_files(config.share_vocabulary)):
        if run.has_checkpoint() and not needed.exists():
            raise CheckpointError(f"checkpoints without their {needed}: put it back, or choose another --model_dir")
    if not run.config.exists():
        return
    before, now = asdict(Config.load(run.config)), asdict(config)
    different = [name for name in now if before[name] != now[name] and name not in MAY_CHANGE]
    if different:
        changes = ", ".join(f"{name} was {before[name]} and is {now[name]}" for name in different)
        raise ConfigError(f"{run.path} holds a run with other settings: {changes}. Choose another --model_dir")


def check_same_corpus(run, corpus):
    """Refuses to resume a run on another corpus: its tokenizer and its updates are of the first one.

    Raises:
        CheckpointError: that names the parts of the corpus that differ.
    """
    different = _different_parts(run, corpus)
    if different and run.has_checkpoint():
        raise CheckpointError(
            f"{run.path} holds a run on another corpus: {', '.join(different)} changed. Put the old text back, or "
            "choose another --model_dir"
        )


def _different_parts(run, corpus):
    """The names of the parts of the corpus that are not as they were when the run began."""
    now = corpus.identity
    before = json.loads(run.corpus.read_text(encoding="utf-8")) if run.corpus.exists() else now
    return [name for name in {**before, **now} if before.get(name) != now.get(name)]


def validation_pairs(config, data):
    """The first `validation_sentences` pairs of the validation split that are not blank, a list."""
    filled = (pair for pair in data.corpus.validation if pair[0].strip() and pair[1].strip())
    return list(itertools.islice(filled, config.validation_sentences))


class Origin:
    """A finished run from whose weights and tokenizers a new run starts (`--init_from`).

    Args:
        config: `Config` of the new run.

    Raises:
        ConfigError: if `init_from` holds no finished model, or one of another shape; it names the settings that differ.
    """

    def __init__(self, config):
        self.path = Path(config.init_from)
        self._check_has("config.yaml", "model.keras")
        before = Config.load(self.path / "config.yaml")
        self._check_has(*([SHARED] if before.share_vocabulary else [SOURCE, TARGET]))
        self.model = load_model(self.path / "model.keras")
        shape = [name for name in self.model.get_config() if not name.endswith(("dropout_rate", "vocabulary_size"))]
        if "learned" not in (before.positions, config.positions):
            shape.remove("num_positions")  # a size of learned positions only
        different = [
            f"{name} is {getattr(before, name)}, not {getattr(config, name)}"
            for name in ("share_vocabulary", *shape)
            if hasattr(config, name) and getattr(before, name) != getattr(config, name)
        ]
        if different:
            raise ConfigError(f"{config.init_from} holds another model: {', '.join(different)}")

    def _check_has(self, *names):
        for name in names:
            if not (self.path / name).exists():
                raise ConfigError(f"`init_from` must hold a finished run. Received: {self.path}, without {name}")

    def load(self, network, tokenizer_files):
        """Assigns the weights of the finished model.

        Args:
            network: `SequenceToSequence` of the same shape.
            tokenizer_files: paths of the tokenizers of the new run.

        Raises:
            ConfigError: if they are not those of the origin.
        """
        for path in tokenizer_files:
            if path.read_bytes() != (self.path / path.name).read_bytes():
                raise ConfigError(f"{path} is not {self.path / path.name}, with which the first weights were trained")
        for weight, start in zip(network.weights, self.model.weights, strict=True):
            weight.assign(start)


def open_origin(config, run):
    """The `Origin` of a new run; None without `init_from`, and for a run that is resumed."""
    return None if config.init_from is None or run.has_checkpoint() else Origin(config)
