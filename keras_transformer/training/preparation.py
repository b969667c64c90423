"""Before a run: its directory is fit for it, the corpus is tokenised, and another run's weights are at hand."""

import hashlib
import itertools
import json
import logging
import zipfile
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import numpy as np
from keras import ops

from keras_transformer.config import Config
from keras_transformer.data.corpora import epoch_weights, mix, open_corpora
from keras_transformer.data.corpus import BothSides, Corpus, InTurn, OneSide, write_bad_lines
from keras_transformer.data.encoded import LAYOUT, EncodedPairs, encode_pairs, find_flaw, make_once
from keras_transformer.data.new_pieces import append_pieces, learn_pieces, mean_rows, new_in
from keras_transformer.data.typed_text import with_cases
from keras_transformer.errors import CheckpointError, ConfigError, CorpusError, counted
from keras_transformer.files import write_whole
from keras_transformer.models.sequence_to_sequence import load_model
from keras_transformer.protection import PLACEHOLDERS
from keras_transformer.tokenizer import SHARED, SOURCE, TARGET, Tokenizer, load_tokenizers, read_model, train_tokenizer
from keras_transformer.training.plan import as_before
from keras_transformer.translation.sentences import learn_full_stops, load_full_stops, save_full_stops

log = logging.getLogger(__name__)

# Settings that may change when a run is resumed: how long it trains, where, and how it translates.
MAY_CHANGE = ("epochs", "max_steps", "patience", "average_epochs", "save_minutes", "profile", "strategy", "model_dir")
MAY_CHANGE += ("beam_size", "length_penalty", "split_sentences", "workers")


@dataclass(frozen=True)
class Data:
    """A corpus, its tokenizers, and its training and validation pairs as token ids.

    The two tokenizers are the same object if both sides share one. `others` has the validation pairs of the other
    corpora of a mixture, by their names.
    """

    corpus: Corpus
    source_tokenizer: Tokenizer
    target_tokenizer: Tokenizer
    train: EncodedPairs
    validation: EncodedPairs
    others: dict[str, EncodedPairs] = field(default_factory=dict)

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
    models = make_tokenizers(config, run, corpus, origin)  # if this fails, other settings may be tried
    write_whole(run.config, config.save)
    for path, model in models.items():
        write_whole(path, lambda temporary, model=model: temporary.write_bytes(model))
    if bad_lines := [line for each in (corpus, *corpus.others) for line in each.bad_lines]:
        write_bad_lines(run.bad_lines, bad_lines)
    identity = json.dumps(corpus.identity, indent=1)
    write_whole(run.corpus, lambda path: path.write_text(identity, encoding="utf-8"))
    describe_tokenizers(config, run)
    if not run.has_checkpoint():  # an old run without the file goes on as it is
        count_full_stops(run, corpus, origin)
    tokenizers = load_tokenizers(run.path)
    train = encode_split(config, run, corpus, tokenizers, "train")
    log.info("train       %s", train.describe())
    validation = encode_split(config, run, corpus, tokenizers, "validation")
    log.info("validation  %s", validation.describe())
    others = {}
    for number, other in enumerate(corpus.others, start=2):
        pairs = encode_split(config, run, other, tokenizers, "validation", f"validation_{number}")
        log.info("            %s of %s", pairs.describe(), other.name)
        others[other.name] = pairs
    return Data(corpus, *tokenizers, weigh(config, corpus, train), validation, others)


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
    weighted = train.weighted(epoch_weights(corpora, [share.size for share in train.shares], config.replay))
    for each, share in zip(corpora, weighted.shares, strict=True):
        counts = " or ".join(f"{count:,}" for count in sorted({share.fewest, share.most}))
        replayed = ", replayed" if each.is_replayed else ""
        log.info(
            "            an epoch takes %s of %s of %s%s", counts, counted(share.size, "pair"), each.name, replayed
        )
    return weighted


def make_tokenizers(config, run, corpus, origin):
    """The tokenizers that the run lacks, and all of them if nothing was trained yet but on another corpus.

    Returns:
        dict, from the path of a tokenizer to its model, bytes.
    """
    files = run.tokenizer_files(config.has_one_tokenizer)
    new = InTurn({each.name: pairs for each, pairs in _training_pairs(corpus) if not each.is_replayed})
    texts = [BothSides(new)] if config.has_one_tokenizer else [OneSide(new, i) for i in (0, 1)]
    is_other = bool(_different_parts(run, corpus))
    return {
        path: _make_model(config, path.name, text, origin)
        for path, text in zip(files, texts, strict=True)
        if is_other or not path.exists()
    }


def count_full_stops(run, corpus, origin):
    """Writes the abbreviations of both languages of the corpus into the run, and those of its origin behind them."""
    pairs = InTurn({each.name: pairs for each, pairs in _training_pairs(corpus)})
    of_sides = [learn_full_stops(OneSide(pairs, side)) for side in (0, 1)]
    if origin:
        before = load_full_stops(origin.path / run.full_stops.name)
        of_sides = [new.extended(old) for new, old in zip(of_sides, before, strict=True)]
    write_whole(run.full_stops, lambda path: save_full_stops(path, of_sides))
    known = [counted(len(each.abbreviations), "abbreviation") for each in of_sides]
    log.info("full stops  %s of the source, %s of the target", *known)


def _training_pairs(corpus):
    """Every corpus of a mixture, with its own training pairs."""
    splits = corpus.train.splits.values() if corpus.others else [corpus.train]
    return zip((corpus, *corpus.others), splits, strict=True)


def _make_model(config, name, text, origin):
    if origin:
        model, most = (origin.path / name).read_bytes(), config.extend_vocabulary
        check_placeholders(config, model)
        return append_pieces(model, learn_pieces(model, text, most)) if most else model
    if config.share_vocabulary != config.has_one_tokenizer:
        raise ConfigError(
            "`share_tokenizer` false beside `share_vocabulary` true needs two tokenizers whose ids mean the same, and "
            "training makes none: start from a run that has them with `init_from`, or leave out `share_tokenizer`"
        )
    if config.tokenizer:
        model = read_model(config.tokenizer)
        check_placeholders(config, model)
        return model
    placeholders = PLACEHOLDERS if config.protect else ()
    nfkc = config.nfkc and name != TARGET
    if config.upper_case or config.title_case:
        text = with_cases(text, config.upper_case, config.title_case)
    return train_tokenizer(text, config.vocabulary_size, config.character_coverage, placeholders, nfkc)


def check_placeholders(config, model):
    """Refuses `protect` beside a tokenizer, bytes, that has no placeholders. Raises ConfigError."""
    if config.protect and not Tokenizer(model).has_placeholders:
        given = f"`init_from` {config.init_from}" if config.init_from else f"`tokenizer` {config.tokenizer}"
        remedy = "start from a run that was trained with `protect`, or leave `protect` out"
        if config.tokenizer:
            remedy = f"train it with spm_train --user_defined_symbols={','.join(PLACEHOLDERS)}"
        raise ConfigError(f"`protect` needs placeholders, and the tokenizer of {given} has none: {remedy}")


def describe_tokenizers(config, run):
    """Says how large the tokenizers of the run are, and where they come from."""
    for path in run.tokenizer_files(config.has_one_tokenizer):
        size = Tokenizer.load(path).vocabulary_size
        before = Path(config.init_from or "", path.name)
        if config.extend_vocabulary and before.exists():  # a run that is resumed does not need it any more
            note = f", those of {config.init_from} and {size - Tokenizer.load(before).vocabulary_size:,} new ones"
        elif given := config.init_from or config.tokenizer:
            note = f", those of {given}"
        else:
            asked = f" ({config.vocabulary_size:,} asked for; the corpus is too small for more)"
            note = asked if size < config.vocabulary_size else ""
        name = "tokenizer" if config.has_one_tokenizer else path.name.split("_")[0]
        log.info("%-12s%s%s", name, counted(size, "piece"), note)


def encode_split(config, run, corpus, tokenizers, name, kept_as=None):
    """The `EncodedPairs` of the split `name`: those in the run directory, if the corpus is still the same."""
    ingredients = _ingredients(config, run, corpus.identity)
    pairs, called = getattr(corpus, name), f"{corpus.name}, {name}"
    directory = run.tokens / (kept_as or name)
    make_once(
        directory,
        ingredients,
        lambda unfinished: encode_pairs(pairs, *tokenizers, config.max_length, unfinished, called),
    )
    return EncodedPairs.open(directory)


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
    before = json.loads(run.corpus.read_text(encoding="utf-8")) if run.corpus.exists() else now
    return [name for name in {**before, **now} if before.get(name) != now.get(name)]


def validation_pairs(config, corpus):
    """The first `validation_sentences` pairs of a corpus' validation split that are not blank, a list."""
    filled = (pair for pair in corpus.validation if pair[0].strip() and pair[1].strip())
    return list(itertools.islice(filled, config.validation_sentences))


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
