"""The tokenizers of a run, trained or taken from another run, and the tags of its languages in them."""

import logging
from dataclasses import replace
from pathlib import Path

import sentencepiece

from keras_transformer.data.corpora import BothSides, InTurn, OneSide
from keras_transformer.data.new_pieces import append_pieces, learn_pieces
from keras_transformer.data.typed_text import with_cases
from keras_transformer.errors import CheckpointError, ConfigError, counted
from keras_transformer.protection import PLACEHOLDERS
from keras_transformer.tags import LanguageTags, load_tags, piece_of, plain, short_codes, spellings_of
from keras_transformer.tokenizer import TARGET, Tokenizer, read_model, train_tokenizer

log = logging.getLogger(__name__)


def known_languages(config, run, corpus, origin):
    """The `LanguageTags` that a run begins with: its own if it is resumed, or those of its origin; None for no tags.

    Raises:
        ConfigError: for settings that do not go with the directions of the corpora.
        CheckpointError: if a run of several directions has lost its languages.json.
    """
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


def new_languages(languages, corpus):
    """The codes of the corpora for which the `LanguageTags` have no tag yet, a list of str."""
    if languages is None:
        return []
    codes = [code for each in corpus.directions for code in (each if languages.place == "both" else each[1:])]
    own, tagged = _own_codes(languages), _tagged(languages)
    return [code for code in dict.fromkeys(own.get(plain(code), code) for code in codes) if code not in tagged]


def complete_languages(languages, corpus, model):
    """The `LanguageTags` with the languages of the corpora, whose first direction is the default.

    Args:
        languages: `LanguageTags`, or None for no tags.
        corpus: `Corpus`.
        model: SentencePiece model with a tag for each of `new_languages`, bytes.

    Returns:
        `LanguageTags` or None.
    """
    if languages is None:
        return None
    pieces = sentencepiece.SentencePieceProcessor(model_proto=model)
    own, tagged = _own_codes(languages), _tagged(languages)
    sides = []
    for known, given in zip(languages.sides.values(), zip(*corpus.directions, strict=True), strict=True):
        codes = dict.fromkeys(own.get(plain(code), code) for code in given)
        sides.append(known | {code: tagged.get(code, pieces.piece_to_id(piece_of(code))) for code in codes})
    complete = LanguageTags(languages.place, *sides, (None, None))
    return replace(complete, default=complete.find(*corpus.directions[0]))


def _own_codes(languages):
    """The form of a code -> the code by which the `LanguageTags` know the language: dict."""
    return spellings_of(languages.sources | languages.targets)


def _tagged(languages):
    """The languages that have a tag: dict from code to id."""
    return languages.targets | (languages.sources if languages.place == "both" else {})


def describe_languages(languages):
    """Logs the languages of a run."""
    names = [", ".join(short_codes(side).values()) for side in languages.sides.values()]
    log.info("languages   from %s to %s; tags: %s", *names, languages.place)


def make_tokenizers(config, run, corpus, origin, is_other=False):
    """The tokenizers that the run lacks, and all of them if nothing was trained yet but on another corpus.

    Args:
        config: `Config`.
        run: `RunDirectory`.
        corpus: `Corpus`.
        origin: `Origin` or None.
        is_other: whether the tokenizers that the run has are of another corpus.

    Returns:
        dict, from the path of a tokenizer to its model, bytes.
    """
    files = run.tokenizer_files(config.has_one_tokenizer)
    new = InTurn({each.name: pairs for each, pairs in corpus.parts if not each.is_replayed})
    texts = [BothSides(new)] if config.has_one_tokenizer else [OneSide(new, i) for i in (0, 1)]
    return {
        path: _make_model(config, path.name, text, origin)
        for path, text in zip(files, texts, strict=True)
        if is_other or not path.exists()
    }


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
