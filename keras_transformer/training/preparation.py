"""Before a run: its directory is fit for it, its tokenizers are made, and the corpus is tokenised."""

import hashlib
import itertools
import json
import logging
import shutil
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path

import sentencepiece
from sentencepiece.sentencepiece_model_pb2 import ModelProto

from keras_transformer.config import Config
from keras_transformer.data.corpora import (
    BothSides,
    Corpus,
    InTurn,
    OneSide,
    epoch_weights,
    mix,
    open_corpora,
    write_bad_lines,
)
from keras_transformer.data.encoded import LAYOUT, EncodedPairs, encode_pairs, find_flaw, make_once
from keras_transformer.data.full_stops import UNKNOWN, Known, learn_known, load_known, save_known
from keras_transformer.errors import CheckpointError, ConfigError, CorpusError, TokenizerError, counted
from keras_transformer.files import write_whole
from keras_transformer.process import find_tool
from keras_transformer.protection import PLACEHOLDERS
from keras_transformer.settings import SETTINGS
from keras_transformer.tags import LanguageTags, load_tags, piece_of
from keras_transformer.tokenizer import TARGET, Tokenizer, load_tokenizers, read_model, train_tokenizer
from keras_transformer.training.decide import Begun
from keras_transformer.training.origin import Origin

log = logging.getLogger(__name__)
SAMPLE_SENTENCES = 32  # for the proof of an export
LEAST_COPIED = 100_000  # characters without a piece in all epochs, before a model copies them: 43,000 were too few


@dataclass(frozen=True)
class Data:
    """A corpus, its tokenizers, and its training and validation pairs as token ids.

    The two tokenizers are the same object if both sides share one. `others` has the validation pairs of the other
    corpora of a mixture, by their names. With several directions, `validation` has those of all corpora. `languages`
    are the `LanguageTags` of a run that has tags. `known` is what the corpus says about sentences.
    """

    corpus: Corpus
    source_tokenizer: Tokenizer
    target_tokenizer: Tokenizer
    train: EncodedPairs
    validation: EncodedPairs
    others: dict[str, EncodedPairs] = field(default_factory=dict)
    languages: LanguageTags | None = None
    known: Known = UNKNOWN

    @property
    def tokenizers(self):
        """(source tokenizer, target tokenizer)."""
        return self.source_tokenizer, self.target_tokenizer


def prepare(config, run, corpus=None, before=None):
    """Opens the corpus, and trains the tokenizers and tokenises unless that is done. Reports kept and dropped pairs.

    Args:
        config: `Config`.
        run: `RunDirectory`.
        corpus: `Corpus`; by default the one that `config.dataset` names.
        before: dict, `Corpus.identity` of the run that goes on; by default that of `run`, if it has a checkpoint.

    Returns:
        `Data`.

    Raises:
        ConfigError: if the run directory holds a run with other settings, or the run to start from another model.
        CheckpointError: if the run directory lacks a file that its checkpoints need, or has those of another corpus.
        CorpusError: if the corpus cannot be used.
        TokenizerError: if no tokenizer can be trained, or that of `config.tokenizer` cannot be used.
    """
    # Before the settings are compared with those of a run: a wrong corpus is the mistake that matters more.
    before = run.corpus_identity() if run.has_checkpoint() else before
    corpus = mix([*([corpus] if corpus else _open_named(config)), *open_replayed(config)], before)
    has_same_settings = check_resumable(config, run)
    origin = open_origin(config, run)
    for each in (corpus, *corpus.others):
        log.info("corpus      %s: %s to %s", each.name, each.source_lang, each.target_lang)
    for note in corpus.notes:
        log.info("            %s", note)
    is_same = check_same_corpus(run, corpus) and has_same_settings
    check_alignments(config, corpus)
    tags = known_languages(config, run, corpus, origin)
    models = make_tokenizers(config, run, corpus, origin, is_same)  # if this fails, other settings may be tried
    if config.subword_dropout_rate:
        find_tool("variation", "`subword_dropout_rate`").check_bpe(*models.values())
    if codes := tags.untagged(corpus.directions) if tags else []:
        models = {path: append_tags(model, codes) for path, model in models.items()}
    if bool(tags) != run.tags.exists() and not is_same:  # tokens know the directions of their pairs, or not
        shutil.rmtree(run.tokens, ignore_errors=True)
    if not is_same:  # an earlier start, which trained nothing, may have left others
        for path in (run.tags, run.bad_lines, *run.tokenizer_files(True), *run.tokenizer_files(False)):
            path.unlink(missing_ok=True)
    if not run.has_checkpoint():  # a run that goes on keeps its settings until it has decided by them
        run.keep_settings(config)
    for path, model in models.items():
        write_whole(path, lambda temporary, model=model: temporary.write_bytes(model))
    if bad_lines := [line for each in (corpus, *corpus.others) for line in each.bad_lines]:
        write_bad_lines(run.bad_lines, bad_lines)
    write_whole(run.corpus, lambda path: path.write_text(json.dumps(corpus.identity, indent=1), encoding="utf-8"))
    describe_tokenizers(config, run)
    tokenizers = load_tokenizers(run.path)
    if tags:
        pieces = sentencepiece.SentencePieceProcessor(model_proto=tokenizers[0].model)
        tags = tags.extended(corpus.directions, pieces.piece_to_id)
        tags.save(run.path)
        log.info("languages   %s", tags.describe())
    encode = partial(encode_split, config, run, tokenizers=tokenizers, languages=tags)
    train = encode_training(config, run, corpus, tokenizers, encode)
    if not run.has_checkpoint():  # an old run without the file goes on as it is
        in_bytes = train.source.count(tokenizers[0].first_bytes) + config.noise * len(train)
        learn_text(run, corpus, origin, in_bytes * config.epochs >= LEAST_COPIED)
    validation = encode(validated(corpus), name="validation")
    log.info("validation  %s", validation.describe())
    if corpus.others or corpus.weight != 1:
        sizes = [share.size for share in train.shares]
        weights = epoch_weights((corpus, *corpus.others), sizes, config.replay, config.sampling_temperature)
        train = train.weighted(weights)
    return Data(corpus, *tokenizers, train, validation, encode_others(corpus, encode), tags, load_known(run.full_stops))


def validated(corpus):
    """The `Corpus` whose validation pairs measure the loss: with several directions, those of all of its corpora."""
    if not corpus.is_multilingual:
        return corpus
    return replace(corpus, validation=InTurn({each.name: each.validation for each in (corpus, *corpus.others)}))


def encode_others(corpus, encode):
    """The validation pairs of the other corpora of one direction, by their names: dict.

    Args:
        corpus: `Corpus`.
        encode: `encode_split`, but for the corpus and the names.
    """
    found = {}
    for number, other in enumerate(() if corpus.is_multilingual else corpus.others, start=2):
        found[other.name] = encode(other, name="validation", kept_as=f"validation_{number}")
        log.info("            %s of %s", found[other.name].describe(), other.name)
    return found


def _open_named(config):
    return open_corpora(config.corpora, config.source_lang, config.target_lang, config.seed, config.skip_bad_lines)


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


def encode_training(config, run, corpus, tokenizers, encode):
    """The training pairs, by `encode` of `prepare`; with `guided_alignment` their links, too."""
    pairs = encode(corpus, name="train")
    log.info("train       %s", pairs.describe())
    if not config.guided_alignment:
        return pairs
    tool = find_tool("analysis.links", "`guided_alignment`")
    file, directory = config.alignments, run.tokens / "links"
    made_from = hashlib.sha256(Path(file).read_bytes()).hexdigest() if file else "the corpus"
    make_once(
        directory,
        {**_ingredients(config, run, corpus.identity), "links": made_from},
        lambda unfinished: tool.write_links(
            tool.links_of_file(file, corpus.train, pairs, tokenizers, config.max_length)
            if file
            else tool.learn_links(pairs),
            unfinished,
        ),
    )
    links = tool.open_links(directory)
    log.info("links       %s, of %.0f%% of the target tokens", *tool.describe(links, pairs))
    return replace(pairs, links=links)


def check_alignments(config, corpus):
    """Refuses `alignments` that cannot be used, before the long work. Raises ConfigError."""
    if config.alignments and corpus.others:
        raise ConfigError("`alignments` has links for one corpus. Received: several in `dataset`; leave it out")
    if config.alignments and not Path(config.alignments).is_file():
        raise ConfigError(f"`alignments` must name a file. Received: {config.alignments}, which is none")


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

    As long as a run has no checkpoint, other settings may be tried.

    Returns:
        Whether the settings are those of the last start, but for those that may change: bool. True with a checkpoint.

    Raises:
        ConfigError: that names the settings.
        CheckpointError: that names the file; and for a model without checkpoints, which would be lost.
    """
    begun = Begun.of(run)
    if run.model.exists() and not begun.is_resumed:
        raise CheckpointError(f"{run.path} has a model and no checkpoints to go on from: choose another `model_dir`")
    for needed in (run.config, *run.tokenizer_files((begun.config or config).has_one_tokenizer)):
        if run.has_checkpoint() and not needed.exists():
            raise CheckpointError(f"checkpoints without their {needed}: put it back, or choose another `model_dir`")
    if begun.config is None:
        return False
    before, now = asdict(begun.config), asdict(begun.completed(config))
    found = {name for name in begun.decided if before.get(name, 0) is None and now[name] == begun.decided[name]}
    different = [name for name in now if before[name] != now[name] and not (name in found or SETTINGS[name].may_change)]
    if different and begun.is_resumed:
        changes = ", ".join(f"{name} was {before[name]} and is {now[name]}" for name in different)
        raise ConfigError(f"{run.path} holds a run with other settings: {changes}. Choose another `model_dir`")
    return not different


def check_same_corpus(run, corpus):
    """Refuses to resume a run on another corpus: its tokenizer and its updates are of the first one.

    Returns:
        Whether the corpus is as it was when the run began: bool.

    Raises:
        CheckpointError: that names the parts of the corpus that differ.
    """
    now = corpus.identity
    before = run.corpus_identity() or now
    different = [name for name in {**before, **now} if before.get(name) != now.get(name)]
    if different and run.has_checkpoint():
        raise CheckpointError(
            f"{run.path} holds a run on another corpus: {', '.join(different)} changed. Put the old text back, or "
            "choose another `model_dir`"
        )
    return not different


def open_origin(config, run):
    """The `Origin` of a new run; None without `init_from`, and for a run that is resumed."""
    return None if config.init_from is None or run.has_checkpoint() else Origin(config)


def known_languages(config, run, corpus, origin):
    """The `LanguageTags` that a run begins with: its own if it is resumed, or those of its origin; None for no tags.

    Raises:
        ConfigError: for settings that do not go with the directions of the corpora.
        CheckpointError: if a run of several directions has lost its languages.json.
    """
    if config.tags == "none":
        if corpus.is_multilingual:
            raise ConfigError("several directions need `tags`: source or both. Received: tags=none")
        return None
    before = load_tags(run.path) if run.has_checkpoint() else origin and load_tags(origin.path)
    if corpus.is_multilingual and run.has_checkpoint() and before is None:
        raise CheckpointError(f"checkpoints without their {run.tags}: put it back, or choose another `model_dir`")
    if before is None and not corpus.is_multilingual:
        if config.tags != "source":
            raise ConfigError(f"`tags` has no effect with one direction: leave it out. Received: tags={config.tags}")
        return None
    if not config.share_vocabulary:
        raise ConfigError(
            "several directions need one vocabulary for all languages: `share_vocabulary` must not be false"
        )
    if before and before.place != config.tags:
        raise ConfigError(f"{config.init_from} was trained with `tags` {before.place}. Received: tags={config.tags}")
    return before or LanguageTags(config.tags, {}, {}, (None, None))


def append_tags(model, codes):
    """Adds tags of languages behind the pieces of a tokenizer, which keep their ids: control pieces `<2de>`.

    No text yields a control piece.

    Args:
        model: a SentencePiece model, bytes.
        codes: list of str, of languages. A tag that the model has is not added.

    Returns:
        The longer model, bytes.

    Raises:
        TokenizerError: for a tag that is a piece of another kind.
    """
    description = ModelProto.FromString(model)
    kinds = {piece.piece: piece.type for piece in description.pieces}
    for tag in dict.fromkeys(map(piece_of, codes)):
        if kinds.get(tag, ModelProto.SentencePiece.CONTROL) != ModelProto.SentencePiece.CONTROL:
            raise TokenizerError(
                f"{tag} tells the languages of texts, and the tokenizer yields it for text, too: train one with "
                f"spm_train --control_symbols={tag}"
            )
        if tag not in kinds:
            description.pieces.add(piece=tag, type=ModelProto.SentencePiece.CONTROL)
    description.trainer_spec.vocab_size = len(description.pieces)
    return description.SerializeToString(deterministic=True)


def make_tokenizers(config, run, corpus, origin, is_same):
    """The tokenizers that the run lacks, and all of them if those that it has are not of this start.

    Args:
        config: `Config`.
        run: `RunDirectory`.
        corpus: `Corpus`.
        origin: `Origin` or None.
        is_same: whether the tokenizers that the run has are of this corpus and these settings.

    Returns:
        dict, from the path of a tokenizer to its model, bytes.
    """
    new = InTurn({each.name: pairs for each, pairs in corpus.parts if not each.is_replayed})
    texts = [BothSides(new)] if config.has_one_tokenizer else [OneSide(new, i) for i in (0, 1)]
    return {
        path: _make_model(config, path.name, text, origin)
        for path, text in zip(run.tokenizer_files(config.has_one_tokenizer), texts, strict=True)
        if origin or not (is_same and path.exists())
    }


def _make_model(config, name, text, origin):
    if origin:
        model, most = (origin.path / name).read_bytes(), config.extend_vocabulary
        check_placeholders(config, model)
        if not most:
            return model
        return find_tool("importing.new_pieces", "`extend_vocabulary`").extend_tokenizer(model, text, most)
    if config.share_vocabulary != config.has_one_tokenizer:
        raise ConfigError(
            "`share_tokenizer` false beside `share_vocabulary` true needs two tokenizers over one vocabulary. Training "
            "cannot make them. Start with `init_from` from a run that has them, or leave out `share_tokenizer`"
        )
    if config.tokenizer:
        model = read_model(config.tokenizer)
        check_placeholders(config, model)
        return model
    placeholders = PLACEHOLDERS if config.protect else ()
    nfkc = config.nfkc and name != TARGET
    if config.upper_case or config.title_case:
        variation = find_tool("variation", "`upper_case`" if config.upper_case else "`title_case`")
        text = variation.with_cases(text, config.upper_case, config.title_case)
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


def write_samples(config, run, data):
    """Writes samples.txt, with which an export of the run is proven."""
    samples = [source for source, _ in validation_pairs(config, data.corpus)[:SAMPLE_SENTENCES]]
    write_whole(run.samples, lambda path: path.write_text("\n".join(samples), encoding="utf-8"))


def validation_pairs(config, corpus):
    """The first `validation_sentences` pairs of a corpus' validation split that are not blank, a list."""
    return first_filled(corpus.validation, config.validation_sentences)


def first_filled(pairs, count):
    """The first pairs that are not blank, a list."""
    return list(itertools.islice((pair for pair in pairs if pair[0].strip() and pair[1].strip()), count))
