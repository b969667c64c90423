"""Before a run: its directory is fit for it, the corpus is tokenised, and another run's weights are at hand."""

import hashlib
import json
import logging
import zipfile
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np
from keras import ops

from keras_transformer.config import Config
from keras_transformer.data.corpora import epoch_weights, mix, open_corpora
from keras_transformer.data.corpus import Corpus, InTurn, write_bad_lines
from keras_transformer.data.encoded import LAYOUT, EncodedPairs, encode_pairs, find_flaw, make_once
from keras_transformer.data.full_stops import learn_known, load_known, save_known
from keras_transformer.data.new_pieces import append_tags, mean_rows, new_in
from keras_transformer.data.subword_dropout import check_bpe
from keras_transformer.errors import CheckpointError, ConfigError, CorpusError, counted
from keras_transformer.files import write_whole
from keras_transformer.models.sequence_to_sequence import load_model
from keras_transformer.tags import LanguageTags
from keras_transformer.tokenizer import SHARED, SOURCE, TARGET, Tokenizer, load_tokenizers
from keras_transformer.training.plan import as_before
from keras_transformer.training.tokenizers import (
    complete_languages,
    describe_languages,
    describe_tokenizers,
    known_languages,
    make_tokenizers,
    new_languages,
)

log = logging.getLogger(__name__)
LEAST_COPIED = 100_000  # characters without a piece in all epochs, before a model copies them: 43,000 were too few

# Settings that may change when a run is resumed: how long it trains, where, and how it translates.
MAY_CHANGE = ("epochs", "max_steps", "patience", "average_epochs", "save_minutes", "profile", "strategy", "model_dir")
MAY_CHANGE += ("beam_size", "length_penalty", "split_sentences", "workers")


@dataclass(frozen=True)
class Data:
    """A corpus, its tokenizers, and its training and validation pairs as token ids.

    The two tokenizers are the same object if both sides share one. `others` has the validation pairs of the other
    corpora of a mixture, by their names. With several directions, `validation` has those of all corpora. `languages`
    are the `LanguageTags` of a run that has tags.
    """

    corpus: Corpus
    source_tokenizer: Tokenizer
    target_tokenizer: Tokenizer
    train: EncodedPairs
    validation: EncodedPairs
    others: dict[str, EncodedPairs] = field(default_factory=dict)
    languages: LanguageTags | None = None

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
    corpus = mix([*([corpus] if corpus else _open_named(config)), *open_replayed(config)])
    config = as_before(config, run)
    check_resumable(config, run)
    origin = open_origin(config, run)
    for each in (corpus, *corpus.others):
        log.info("corpus      %s: %s to %s", each.name, each.source_lang, each.target_lang)
    for note in corpus.notes:
        log.info("            %s", note)
    check_same_corpus(run, corpus)
    known = known_languages(config, run, corpus, origin)
    is_other = bool(_different_parts(run, corpus))
    models = make_tokenizers(config, run, corpus, origin, is_other)  # if this fails, other settings may be tried
    if config.subword_dropout_rate:
        for model in models.values():
            check_bpe(model)
    if codes := new_languages(known, corpus):
        models = {path: append_tags(model, codes) for path, model in models.items()}
    write_whole(run.config, config.save)
    for path, model in models.items():
        write_whole(path, lambda temporary, model=model: temporary.write_bytes(model))
    if bad_lines := [line for each in (corpus, *corpus.others) for line in each.bad_lines]:
        write_bad_lines(run.bad_lines, bad_lines)
    identity = json.dumps(corpus.identity, indent=1)
    write_whole(run.corpus, lambda path: path.write_text(identity, encoding="utf-8"))
    describe_tokenizers(config, run)
    tokenizers = load_tokenizers(run.path)
    if languages := complete_languages(known, corpus, tokenizers[0].model):
        languages.save(run.path)
        describe_languages(languages)
    encode = partial(encode_split, config, run, tokenizers=tokenizers, languages=languages)
    train = encode(corpus, name="train")
    log.info("train       %s", train.describe())
    if not run.has_checkpoint():  # an old run without the file goes on as it is
        in_bytes = train.source.count(tokenizers[0].first_bytes) + config.noise * len(train)
        learn_text(run, corpus, origin, in_bytes * config.epochs >= LEAST_COPIED)
    validation = encode(validated(corpus), name="validation")
    log.info("validation  %s", validation.describe())
    others = {}
    for number, other in enumerate(() if corpus.is_multilingual else corpus.others, start=2):
        pairs = encode(other, name="validation", kept_as=f"validation_{number}")
        log.info("            %s of %s", pairs.describe(), other.name)
        others[other.name] = pairs
    return Data(corpus, *tokenizers, weigh(config, corpus, train), validation, others, languages)


def validated(corpus):
    """The `Corpus` whose validation pairs measure the loss: with several directions, those of all of its corpora."""
    if not corpus.is_multilingual:
        return corpus
    return replace(corpus, validation=InTurn({each.name: each.validation for each in (corpus, *corpus.others)}))


def _open_named(config):
    languages = (config.source_lang, config.target_lang)
    return open_corpora(config.corpora, *languages, config.seed, config.skip_bad_lines)


def open_replayed(config):
    """The corpora of the run of `init_from` whose pairs are replayed: a list of `Corpus`, empty without `replay`.

    Raises:
        ConfigError: if there is no such run.
        CorpusError: if its corpora are not there any more.
    """
    if not config.replay:
        return []
    path = Path(config.init_from, "config.yaml")
    if not path.exists():
        raise ConfigError(f"`replay` reads the names of the old corpora in {path}, and there is no such file")
    before = Config.load(path)
    try:
        return [replace(corpus, is_replayed=True) for corpus in _open_named(before)]
    except CorpusError as error:
        raise CorpusError(
            f"`replay` takes pairs from the corpora of {config.init_from}, {', '.join(before.corpora)}: {error}. Put "
            "them back, or leave out `replay`"
        ) from error


def weigh(config, corpus, train):
    """The training pairs with the weights of their corpora, of which it says how many pairs an epoch takes.

    Args:
        config: `Config`.
        corpus: `Corpus`.
        train: `EncodedPairs` of it.

    Returns:
        `EncodedPairs`.
    """
    corpora = (corpus, *corpus.others)
    if not corpus.others and corpus.weight == 1:
        return train
    sizes = [share.size for share in train.shares]
    weighted = train.weighted(epoch_weights(corpora, sizes, config.replay, config.sampling_temperature))
    for each, share in zip(corpora, weighted.shares, strict=True):
        counts = " or ".join(f"{count:,}" for count in sorted({share.fewest, share.most}))
        replayed = ", replayed" if each.is_replayed else ""
        log.info(
            "            an epoch takes %s of %s of %s%s", counts, counted(share.size, "pair"), each.name, replayed
        )
    return weighted


def learn_text(run, corpus, origin, copies_unknown):
    """Writes what is `Known` by the corpus into the run, and what its origin knows behind that."""
    known = learn_known(corpus, copies_unknown)
    if origin:
        known = known.extended(load_known(origin.path / run.full_stops.name))
    write_whole(run.full_stops, lambda path: save_known(path, known))
    counts = [counted(len(each.abbreviations), "abbreviation") for each in (known.source, known.target)]
    log.info("full stops  %s of the source, %s of the target", *counts)


def encode_split(config, run, corpus, tokenizers, name, kept_as=None, languages=None):
    """The `EncodedPairs` of the split `name`, with the tags of `languages`.

    The files in the run directory are used if the corpus is still the same.
    """
    ingredients = _ingredients(config, run, corpus.identity)
    pairs, called = getattr(corpus, name), f"{corpus.name}, {name}"
    directory, directions = run.tokens / (kept_as or name), corpus.directions if languages else ()
    make_once(
        directory,
        ingredients,
        lambda unfinished: encode_pairs(pairs, *tokenizers, config.max_length, unfinished, called, directions),
    )
    return EncodedPairs.open(directory).tagged(languages)


def open_split(run, name):
    """The `EncodedPairs` of the split `name` on which a run was trained, from its directory alone.

    Args:
        run: `RunDirectory`.
        name: "train" or "validation".

    Raises:
        CheckpointError: if they are not whole, or of another corpus, tokenizer or length than the run's.
    """
    config = Config.load(run.config)
    flaw = find_flaw(run.tokens / name, _ingredients(config, run, run.corpus_identity()))
    if flaw:
        raise CheckpointError(
            f"the tokenised corpus {run.tokens / name} {flaw}: train.py with the settings of the run makes it again"
        )
    return EncodedPairs.open(run.tokens / name)


def _ingredients(config, run, identity):
    """Everything that the tokenised corpus of a run depends on, for `make_once`; `identity` is that of the corpus."""
    models = [path.read_bytes() for path in run.tokenizer_files(config.has_one_tokenizer)]
    tokenizer = hashlib.sha256(b"".join(models)).hexdigest()
    return {**identity, "tokenizer": tokenizer, "max_length": config.max_length, "layout": LAYOUT}


def check_resumable(config, run):
    """Refuses to resume a run with other settings, or without the files that its checkpoints need.

    Raises:
        ConfigError: that names the settings.
        CheckpointError: that names the file.
    """
    for needed in (run.config, *run.tokenizer_files(config.has_one_tokenizer)):
        if run.has_checkpoint() and not needed.exists():
            raise CheckpointError(f"checkpoints without their {needed}: put it back, or choose another `model_dir`")
    if not run.config.exists():
        return
    before, now = asdict(Config.load(run.config)), asdict(as_before(config, run))
    different = [name for name in now if before[name] != now[name] and name not in MAY_CHANGE]
    if different:
        changes = ", ".join(f"{name} was {before[name]} and is {now[name]}" for name in different)
        raise ConfigError(f"{run.path} holds a run with other settings: {changes}. Choose another `model_dir`")


def check_same_corpus(run, corpus):
    """Refuses to resume a run on another corpus: its tokenizer and its updates are of the first one.

    Raises:
        CheckpointError: that names the parts of the corpus that differ.
    """
    different = _different_parts(run, corpus)
    if different and run.has_checkpoint():
        raise CheckpointError(
            f"{run.path} holds a run on another corpus: {', '.join(different)} changed. Put the old text back, or "
            "choose another `model_dir`"
        )


def _different_parts(run, corpus):
    """The names of the parts of the corpus that are not as they were when the run began."""
    now = corpus.identity
    before = run.corpus_identity() or now
    return [name for name in {**before, **now} if before.get(name) != now.get(name)]


class Origin:
    """A finished run from whose weights and tokenizers a new run starts (`init_from`).

    Args:
        config: `Config` of the new run.

    Raises:
        ConfigError: if `init_from` holds no finished model, or one of another shape; it names the settings that differ.
    """

    def __init__(self, config):
        self.path = Path(config.init_from)
        self._check_has("config.yaml", "model.keras")
        before = Config.load(self.path / "config.yaml")
        self._check_has(*([SHARED] if before.has_one_tokenizer else [SOURCE, TARGET]))
        names = self._settings_of_the_model(before, config)
        values = {name: (getattr(before, name), getattr(config, name)) for name in names}
        if before.share_vocabulary == config.share_vocabulary:
            values["share_tokenizer"] = before.has_one_tokenizer, config.has_one_tokenizer
        different = [f"{name} is {old}, not {new}" for name, (old, new) in values.items() if old != new]
        if different:
            raise ConfigError(f"{config.init_from} holds another model: {', '.join(different)}")

    def _settings_of_the_model(self, before, config):
        """The settings that decide about the shapes of weights, and about what a model does with them: list of str."""
        if before.architecture != config.architecture:  # then no other setting can be compared
            return ["architecture"]
        with zipfile.ZipFile(self.path / "model.keras") as archive:  # the weights are for `load`
            arguments = json.loads(archive.read("config.json"))["config"]
        free = {name for name in arguments if name.endswith(("dropout_rate", "vocabulary_size"))}
        if "learned" not in (before.positions, config.positions):
            free.add("num_positions")  # a size of learned positions only
        names = ["share_vocabulary", *arguments]
        return [name for name in names if hasattr(config, name) and name not in free]

    def _check_has(self, *names):
        for name in names:
            if not (self.path / name).exists():
                raise ConfigError(f"`init_from` must hold a finished run. Received: {self.path}, without {name}")

    def load(self, network, tokenizer_files):
        """Assigns the weights of the finished model. Rows of new pieces are means, see `mean_rows`.

        Args:
            network: `SequenceToSequence` of the same shape.
            tokenizer_files: paths of the tokenizers of the new run, of both sides or of source and target.

        Raises:
            ConfigError: if they are not those of the origin, with new pieces behind them or without.
        """
        models = [(self.path / path.name).read_bytes() for path in tokenizer_files]
        added = [new_in(path.read_bytes(), model) for path, model in zip(tokenizer_files, models, strict=True)]
        for path, pieces in zip(tokenizer_files, added, strict=True):
            if pieces is None:
                raise ConfigError(f"{path} is not {self.path / path.name}, with which the first weights were trained")
        for weight, start in zip(network.weights, load_model(self.path / "model.keras").weights, strict=True):
            rows = ops.convert_to_numpy(start)
            if weight.shape != start.shape:
                side = 0 if "source_embedding" in weight.path else -1
                rows = np.concatenate([rows, mean_rows(rows, models[side], added[side])])
            weight.assign(rows)


def open_origin(config, run):
    """The `Origin` of a new run; None without `init_from`, and for a run that is resumed."""
    return None if config.init_from is None or run.has_checkpoint() else Origin(config)
