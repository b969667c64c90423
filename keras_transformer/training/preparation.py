"""Before a run: its directory is fit for it, and its corpus is there as token ids."""

import hashlib
import itertools
from dataclasses import asdict, dataclass

from keras_transformer.config import Config, ConfigError
from keras_transformer.data.cache import make_once
from keras_transformer.data.corpora import open_corpus
from keras_transformer.data.corpus import BothSides, Corpus
from keras_transformer.data.encoded import LAYOUT, EncodedPairs, encode_pairs
from keras_transformer.tokenizer import Tokenizer, train_tokenizer
from keras_transformer.training.checkpoints import CheckpointError, write_atomically
from keras_transformer.training.origin import open_origin

# What may differ when a run goes on: how long and where. All else would make it another run.
MAY_CHANGE = ("epochs", "max_steps", "patience", "average_epochs", "save_minutes", "profile", "strategy", "model_dir")
MAY_CHANGE += ("beam_size", "length_penalty")


@dataclass(frozen=True)
class Data:
    """A corpus and what of it is trained and validated on, as token ids."""

    corpus: Corpus
    tokenizer: Tokenizer
    train: EncodedPairs
    validation: EncodedPairs


def prepare(config, run):
    """Opens the corpus, makes or loads the tokenizer, tokenises unless that is done; says what was kept and dropped.

    Returns:
        `Data`.

    Raises:
        ConfigError: if the run directory holds a run with other settings, or the run to start from another model.
        CheckpointError: if something has gone from the run directory that its checkpoints need.
        CorpusError: if the corpus cannot be used.
    """
    check_resumable(config, run)
    origin = open_origin(config, run)
    corpus = open_corpus(config.dataset, config.source_lang, config.target_lang, config.seed)
    print(f"corpus      {corpus.name}: {corpus.source_lang} to {corpus.target_lang}")
    for note in corpus.notes:
        print(f"            {note}")
    write_atomically(run.config, config.save)
    if not run.tokenizer.exists():
        text = BothSides(corpus.train)
        model = origin.tokenizer.read_bytes() if origin else train_tokenizer(text, config.vocabulary_size)
        write_atomically(run.tokenizer, lambda path: path.write_bytes(model))
    tokenizer = Tokenizer.load(run.tokenizer)
    size = tokenizer.vocabulary_size
    asked = f" ({config.vocabulary_size:,} asked for; the corpus has no more)" if size < config.vocabulary_size else ""
    print(f"tokenizer   {size:,} pieces{f', those of {config.init_from}' if config.init_from else asked}")
    splits = {}
    for name in ("train", "validation"):
        splits[name] = encode_split(config, run, corpus, tokenizer, name)
        print(f"{name:12}{splits[name].describe()}", flush=True)
    return Data(corpus, tokenizer, **splits)


def encode_split(config, run, corpus, tokenizer, name):
    """The `EncodedPairs` of the split `name`: those that the run directory has, if the corpus is still the same."""
    ingredients = {
        "corpus": f"{corpus.source_lang} to {corpus.target_lang}, {corpus.fingerprint}",
        "tokenizer": hashlib.sha256(run.tokenizer.read_bytes()).hexdigest(),
        "max_length": config.max_length,
        "layout": LAYOUT,
    }
    pairs, called = getattr(corpus, name), f"{corpus.name}, {name}"
    make_once(
        run.tokens / name,
        ingredients,
        lambda directory: encode_pairs(pairs, tokenizer, config.max_length, directory, called),
    )
    return EncodedPairs.open(run.tokens / name)


def check_resumable(config, run):
    """Refuses to go on with a run under other settings, or without what its checkpoints were made with.

    Raises:
        ConfigError: that names the settings.
        CheckpointError: that names the file.
    """
    for needed in (run.config, run.tokenizer):
        if run.has_checkpoint() and not needed.exists():
            raise CheckpointError(f"checkpoints without their {needed}: put it back, or choose another --model_dir")
    if not run.config.exists():
        return
    before, now = asdict(Config.load(run.config)), asdict(config)
    different = [name for name in now if before[name] != now[name] and name not in MAY_CHANGE]
    if different:
        changes = ", ".join(f"{name} was {before[name]} and is {now[name]}" for name in different)
        raise ConfigError(f"{run.path} holds a run with other settings: {changes}. Choose another --model_dir")


def validation_pairs(config, data):
    """The first `validation_sentences` pairs of the validation split that are not blank, a list."""
    filled = (pair for pair in data.corpus.validation if pair[0].strip() and pair[1].strip())
    return list(itertools.islice(filled, config.validation_sentences))
