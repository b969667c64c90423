"""The tokenizers of a run, trained or taken from another run, and the tags of its languages in them."""

import logging
from dataclasses import replace

import sentencepiece

from keras_transformer.errors import CheckpointError, ConfigError
from keras_transformer.tags import LanguageTags, load_tags, piece_of, plain, short_codes, spellings_of

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
