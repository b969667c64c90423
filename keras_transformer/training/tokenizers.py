"""The tokenizers of a run, trained or taken from another run, and the tags of its languages in them."""

import logging
from pathlib import Path

from keras_transformer.data.corpus import BothSides, InTurn, OneSide
from keras_transformer.data.new_pieces import append_pieces, learn_pieces
from keras_transformer.data.typed_text import with_cases
from keras_transformer.errors import CheckpointError, ConfigError, counted
from keras_transformer.protection import PLACEHOLDERS
from keras_transformer.tags import LanguageTags, load_tags
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
