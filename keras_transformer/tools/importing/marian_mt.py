"""`MarianMTModel` of Hugging Face: OPUS-MT. source.spm and target.spm divide text, vocab.json has the ids of pieces."""

from keras_transformer.config import EOS_ID
from keras_transformer.errors import UserError
from keras_transformer.languages import own_codes
from keras_transformer.tags import check_direction
from keras_transformer.tools.importing import tokenizer_json
from keras_transformer.tools.importing.languages import language_tags
from keras_transformer.tools.importing.pieces import (
    CONTROL,
    UNUSED,
    Vocabulary,
    own_pieces,
    read_pieces,
    with_our_ids,
    without_id,
)
from keras_transformer.tools.importing.tensors import ImportedModelError, file_in, read_json

TOLD, GENERAL = "tokenizer_config.json", "PreTrainedTokenizerFast"


def settings_of(config):
    """The settings of the model that only this kind has, a dict."""
    for name, needed in (("normalize_before", False), ("normalize_embedding", False)):
        if config.get(name, needed) != needed:
            raise ImportedModelError(f"a MarianMTModel has no other {name} than {needed}. Received: {config[name]}")
    return {
        "positions": "sinusoidal_halves",
        "pre_norm": False,
        "tie_embeddings": bool(config.get("tie_word_embeddings", True)),
    }


def read_vocabularies(directory, config, source_lang, target_lang, languages=None):
    """The tokenizers and vocabularies of a directory.

    Args:
        directory, source_lang, target_lang, languages: those of `hugging_face.read_directory`.
        config: dict, their config.json.

    Returns:
        list of SentencePiece models, bytes; `Vocabulary` of source and of target; dict of settings; `LanguageTags`, or
        None for one direction.
    """
    is_shared = config.get("share_encoder_decoder_embeddings", True)
    if not (directory / "source.spm").exists() and (directory / tokenizer_json.FILE).exists():
        raise ImportedModelError(
            f"{directory} has tokenizer.json in place of source.spm, target.spm and vocab.json: download these three "
            "from the page of the original model"
        )
    models = [read_pieces(file_in(directory, name)) for name in ("source.spm", "target.spm")]
    known = [own_pieces(model) for model in models]
    names = ["vocab.json"] if is_shared else ["vocab.json", "target_vocab.json"]
    tables = [names_by_id(directory, name) for name in names]
    sizes = [config["vocab_size"]] if is_shared else [config["vocab_size"], config["decoder_vocab_size"]]
    sides = [{**known[0], **known[1]}] if is_shared else known
    start = {"pad": None, "bos": config["decoder_start_token_id"], "eos": config["eos_token_id"]}
    vocabularies = [
        Vocabulary.of(
            table + [""] * (size - len(table)),
            unk=id_of(table, "<unk>", name),
            without_id=without_id(pieces, table),
            **start,
        )
        for table, name, size, pieces in zip(tables, names, sizes, sides, strict=True)
    ]
    source, target = vocabularies[0], vocabularies[-1]
    tokenizers = [with_our_ids(models[0], source, CONTROL), with_our_ids(models[1], target, UNUSED)]
    tags = tags_of(tables[0], source)
    before, many = before_source(tags, directory, source_lang, target_lang, languages)
    described = read_json(directory, TOLD) if (directory / TOLD).exists() else {}
    told, after = languages_of(described), [EOS_ID]
    if described.get("tokenizer_class") == GENERAL:  # a MarianTokenizer puts eos behind every text, and no more
        names = tokenizer_json.around_text(directory)
        before, after = ([source.id_of(id_of(tables[0], piece, "vocab.json")) for piece in side] for side in names)
    frame = before, after, []
    if languages is None:  # of several targets, the tags decide
        check_direction((told.get("source_lang"), None if tags else told.get("target_lang")), source_lang, target_lang)
    else:
        check_source(told.get("source_lang"), many.default[0], languages)
    given = {"source_lang": source_lang, "target_lang": target_lang}
    settings = {
        "share_vocabulary": is_shared,
        "share_tokenizer": False,
        "frame": "/".join(",".join(map(str, ids)) for ids in frame),
        **told,
        **{name: language for name, language in given.items() if language},
    }
    return tokenizers, source, target, settings, many


def names_by_id(directory, name):
    """The pieces in a JSON file of {piece: id}, a list. Raises ImportedModelError."""
    table = read_json(directory, name)
    ids = sorted(table.values()) if all(type(id) is int for id in table.values()) else None
    if ids != list(range(len(table))):
        raise ImportedModelError(f"{directory}/{name} must give each piece an id from 0 on, and no two the same")
    return sorted(table, key=table.get)


def id_of(table, piece, name):
    """The id of a piece in the list of a file. Raises ImportedModelError."""
    if piece not in table:
        raise ImportedModelError(f"{name} has no piece {piece}")
    return table.index(piece)


def tag_pieces(table):
    """The tags >>deu<< in a list of pieces: dict from code to piece."""
    return {piece[2:-2]: piece for piece in table if piece.startswith(">>") and piece.endswith("<<")}


def tags_of(table, vocabulary):
    """The tags >>deu<< in a list of pieces: dict from code to the list of our ids that stand before the source."""
    return {code: [vocabulary.id_of(table.index(piece))] for code, piece in tag_pieces(table).items()}


def tag_of(tags, target_lang, directory):
    """What `tags` has for a language; [] if the model has no tags. Raises ImportedModelError."""
    (code,) = own_codes(tags, [target_lang])
    if tags and code not in tags:
        known = ", ".join(tags)
        raise ImportedModelError(
            f"{directory} has several target languages: give `target_lang`, one of {known}. Received: {target_lang}"
        )
    return tags.get(code, [])


def before_source(tags, directory, source_lang, target_lang, languages):
    """What stands before every source: (list of ids, `LanguageTags` of what follows them or None).

    Args:
        tags: those of `tags_of`.
        directory, source_lang, target_lang, languages: those of `hugging_face.read_directory`.

    Raises:
        ImportedModelError: for languages that the model does not have, or tags of several pieces.
    """
    if languages is None:
        return tag_of(tags, target_lang, directory), None
    many = language_tags("source", {code: ids[-1] for code, ids in tags.items()}, languages, source_lang, target_lang)
    first, *others = {tuple(tags[code][:-1]) for code in many.targets}
    if others:
        raise ImportedModelError("a tag must be one piece: give `source_lang` and `target_lang`, and no `languages`")
    return [*first], many


def check_source(own, source, languages):
    """Refuses several target languages that begin with another source than that of the model.

    Args:
        own: the source language in the files of the model, or None.
        source: that of the run: `source_lang`, or else the first of `languages`.
        languages: list of codes.
    """
    try:
        check_direction((own, None), source)
    except UserError:
        raise ImportedModelError(
            f"the model translates from {own}: name it first in `languages`, or by `source_lang`. Received: "
            f"source language {source}, languages={','.join(languages)}"
        ) from None


def languages_of(described):
    """The languages that the content of tokenizer_config.json names: a dict of settings."""
    found = {name: described.get(name) for name in ("source_lang", "target_lang")}
    return {name: language for name, language in found.items() if isinstance(language, str) and language}
