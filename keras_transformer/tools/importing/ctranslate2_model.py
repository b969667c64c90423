"""Models of CTranslate2: a directory with model.bin, and the packages of Argos Translate, which have one inside.

model.bin tells the shape of the model (`ctranslate2_weights`), and config.json its tokens.
"""

import json
import re
import tempfile
import zipfile
from pathlib import Path

import numpy as np

from keras_transformer.languages import ARGOS, own_codes
from keras_transformer.tags import check_direction
from keras_transformer.tools.importing.ctranslate2_weights import Weights
from keras_transformer.tools.importing.foreign import ForeignModel
from keras_transformer.tools.importing.marian_mt import tag_of, tag_pieces
from keras_transformer.tools.importing.pieces import (
    UNUSED,
    Vocabulary,
    own_pieces,
    read_pieces,
    with_our_ids,
    without_id,
)
from keras_transformer.tools.importing.tensors import ImportedModelError, file_in, read_json

MODEL, PACKAGE = "model.bin", ".argosmodel"
MOST_UNPACKED = 50  # times the size of a package: weights are hardly packed
EPSILON = 1e-5  # of their layer normalisation, where config.json tells none
TOLD = {  # in config.json: the type, and what it is if it is left out
    "unk_token": (str, "<unk>"),
    "bos_token": (str, "<s>"),
    "eos_token": (str, "</s>"),
    "decoder_start_token": (str, "<s>"),
    "add_source_bos": (bool, False),
    "add_source_eos": (bool, False),
    "layer_norm_epsilon": (float, None),
}
TAG = re.compile(r"__([a-z]{2,3})__|([a-z]{2,3}_[A-Z][A-Za-z]+)")  # of a language: __en__, en_XX, eng_Latn
TOKENIZERS = (
    ["tokenizer.model"],
    ["source_tokenizer.model", "target_tokenizer.model"],
    ["source.spm", "target.spm"],
    ["sentencepiece.model"],
    ["sentencepiece.bpe.model"],
)
PADDING = ("<pad>", "<blank>")


def read_directory(directory, source_lang=None, target_lang=None, languages=None):
    """As `hugging_face.read_directory`, for a directory of CTranslate2, or for a package of Argos Translate."""
    if languages is not None:
        raise ImportedModelError("a model of CTranslate2 has one direction here: leave out `languages`")
    weights = Weights(file_in(directory, MODEL))
    config, told = read_config(directory, weights.config), read_told(Path(directory))
    check_direction((told.get("source_lang"), told.get("target_lang")), source_lang, target_lang)
    if not told:
        table = read_table(Path(directory), "source", config)
        told = tokens_around(config, table, source_lang, target_lang, directory)
        source_lang, target_lang = told.get("source_lang", source_lang), told.get("target_lang", target_lang)
    source, target, tokenizers, frame = read_vocabularies(Path(directory), config, told, weights.starts_from_zero)
    model = weights.settings()
    model["share_vocabulary"] &= source.names == target.names
    target = source if model["share_vocabulary"] else target
    epsilon = config["layer_norm_epsilon"]
    named = {
        "source_lang": source_lang or told.get("source_lang"),
        "target_lang": target_lang or told.get("target_lang"),
    }
    settings = {
        **model,
        "layer_norm_epsilon": EPSILON if epsilon is None else epsilon,
        "share_tokenizer": model["share_vocabulary"] and len(tokenizers) == 1,
        "logits_bias": model["logits_bias"] or len(target.hidden) > 0,
        "frame": frame,
        **{name: language for name, language in named.items() if language},
    }
    if not settings["share_tokenizer"]:
        tokenizers = (tokenizers * 2)[:2]
    return ForeignModel(settings, tokenizers, source, target, weights.read)


def read_package(path, source_lang=None, target_lang=None, languages=None):
    """As `read_directory`, for a file NAME.argosmodel. Its arrays are read into memory."""
    with tempfile.TemporaryDirectory() as temporary:
        try:
            with zipfile.ZipFile(path) as archive:
                size = sum(each.file_size for each in archive.infolist())
                if size > MOST_UNPACKED * path.stat().st_size:
                    raise ValueError(f"it unpacks to {size:,} bytes")
                archive.extractall(temporary)
        except (OSError, zipfile.BadZipFile, ValueError) as error:
            raise ImportedModelError(f"{path} is not a package of Argos Translate, or is damaged: {error}") from None
        roots = [found.parent for found in Path(temporary).glob("*/metadata.json")]
        if len(roots) != 1:
            raise ImportedModelError(f"{path} must have one directory with metadata.json and model/")
        about = read_json(roots[0], "metadata.json")
        if about.get("target_prefix"):
            raise ImportedModelError(f"{path} puts {about['target_prefix']!r} before translations, and no run does so")
        if not (roots[0] / "sentencepiece.model").exists():
            raise ImportedModelError(
                f"{path} has no sentencepiece.model: a package with another tokenizer has no equal"
            )
        (roots[0] / "sentencepiece.model").rename(roots[0] / "model" / "tokenizer.model")
        own = (code if isinstance(code, str) else None for code in (about.get("from_code"), about.get("to_code")))
        own, given = ([ARGOS.get(code, code) for code in codes] for codes in (own, (source_lang, target_lang)))
        check_direction(own, *given)
        named = (code or known for code, known in zip(given, own, strict=True))
        foreign = read_directory(roots[0] / "model", *named, languages)
        weights = foreign.weight.__self__
        weights.tensors = {name: np.array(weights.tensors[name]) for name in weights.tensors}
    return foreign


def read_config(directory, of_the_file=None):
    """The settings of config.json, a dict with each of `TOLD`. Raises ImportedModelError for another type.

    An old model.bin has them itself: `of_the_file`.
    """
    config = read_json(directory, "config.json") if of_the_file is None else dict(of_the_file)
    if config.get("decoder_start_token", "") is None:
        raise ImportedModelError(f"{directory} leaves the first token of a translation to its user, and no run does so")
    for name, (kind, default) in TOLD.items():
        value = config.setdefault(name, default)
        if type(value) is not kind and not (name == "layer_norm_epsilon" and value is None):
            raise ImportedModelError(f"{directory}/config.json: {name} must be a {kind.__name__}. Received: {value!r}")
    return config


def read_told(directory):
    """What export.json says if we have exported the model: a dict with strings; {} without it."""
    if not (directory / "export.json").exists():
        return {}
    about = read_json(directory, "export.json")
    run = about.get("run") if isinstance(about.get("run"), dict) else {}
    found = {name: run.get(name) for name in ("source_lang", "target_lang")}
    found |= {name: about.get(name) for name in ("source_tag", "source_end", "target_prefix")}
    return {name: value for name, value in found.items() if isinstance(value, str)}


def tokens_around(config, table, source_lang, target_lang, directory):
    """The tokens around texts that a tokenizer or the user adds, so that the engine does not know of them.

    An OPUS-MT model of many target languages has >>deu<< before each text. Of models from Hugging Face, a translation
    begins with eos. MarianMT and BART have no other tags. NLLB-200, M2M-100 and mBART-50 have a tag before each text.

    Args:
        config: see `read_config`.
        table: list of str, the pieces of the source.
        source_lang, target_lang: codes of languages, or None.
        directory: path, for messages.

    Returns:
        dict as of `read_told`: {} for a model whose engine adds all tokens.

    Raises:
        ImportedModelError: if the model has tags, and none of the two languages.
    """
    eos, tag = config["eos_token"], tag_of(tag_pieces(table), target_lang, directory)
    marked = {"source_tag": tag} if tag else {}
    if config["decoder_start_token"] != eos or config["add_source_eos"]:
        return marked
    known = {found[1] or found[2]: piece for piece in table if (found := TAG.fullmatch(piece))}
    if not known:
        return {**marked, "source_end": eos}
    codes = own_codes(known, (source_lang, target_lang))
    if not all(code in known for code in codes):
        raise ImportedModelError(
            f"the model has {len(known)} languages: give `source_lang` and `target_lang`, such as {min(known)} and "
            f"{max(known)}. Received: source_lang={source_lang}, target_lang={target_lang}"
        )
    tags = dict(zip(("source_tag", "target_prefix"), (known[code] for code in codes), strict=True))
    return {"source_lang": codes[0], "target_lang": codes[1], "source_end": eos, **tags}


def read_vocabularies(directory, config, told, starts_from_zero=False):
    """The pieces, the tokenizers and the tokens around texts.

    With `starts_from_zero`, no piece stands for the vector that a translation begins with.

    Returns:
        `Vocabulary` of source and target; list of one or two SentencePiece models, bytes; the setting `frame`.

    Raises:
        ImportedModelError: if a file is missing, or a token that is no piece.
    """
    tables = [read_table(directory, side, config) for side in ("source", "target")]
    names = next((names for names in TOKENIZERS if all((directory / name).exists() for name in names)), None)
    if names is None:
        raise ImportedModelError(
            f"{directory} has no tokenizer: copy the SentencePiece model of the texts into it, as tokenizer.model, or "
            "as source.spm and target.spm"
        )
    models = [read_pieces(directory / name) for name in names]
    *before_target, bos = config["decoder_start_token"], *told.get("target_prefix", "").split()
    vocabularies = [
        vocabulary_of(table, model, config, None if starts_from_zero else bos)
        for table, model in zip(tables, (models * 2)[:2], strict=True)
    ]
    source, target = vocabularies
    around = (
        [*[config["bos_token"]] * bool(config["add_source_bos"]), *told.get("source_tag", "").split()],
        [*told.get("source_end", "").split(), *[config["eos_token"]] * bool(config["add_source_eos"])],
    )
    frame = [[our_id(source, tables[0], piece) for piece in pieces] for pieces in around]
    frame.append([our_id(target, tables[1], piece) for piece in before_target])
    tokenizers = [
        model.SerializeToString()
        if [each.piece for each in model.pieces] == vocabulary.names
        else with_our_ids(model, vocabulary, UNUSED)
        for model, vocabulary in zip(models, vocabularies, strict=False)
    ]
    return source, target, tokenizers, "/".join(",".join(map(str, ids)) for ids in frame)


def read_table(directory, side, config):
    """The pieces of "source" or "target" by their ids, a list of str. Raises ImportedModelError.

    An unknown piece that is not among them has the id behind the last one, as in the engine.
    """
    table = read_names(directory, side)
    return table if config["unk_token"] in table else [*table, config["unk_token"]]


def read_names(directory, side):
    """The pieces that a file lists, as in `read_table`."""
    for stem in ("shared_vocabulary", f"{side}_vocabulary"):
        if (directory / f"{stem}.json").exists():
            try:
                table = json.loads((directory / f"{stem}.json").read_text(encoding="utf-8"))
            except (ValueError, RecursionError) as error:
                raise ImportedModelError(f"{directory}/{stem}.json is damaged: {error}") from None
            if not isinstance(table, list) or not all(isinstance(piece, str) for piece in table):
                raise ImportedModelError(f"{directory}/{stem}.json must be a list of pieces")
            return table
        if (directory / f"{stem}.txt").exists():
            return (directory / f"{stem}.txt").read_text("utf-8", "replace").removesuffix("\n").split("\n")
    raise ImportedModelError(f"{directory} has no shared_vocabulary.json and no {side}_vocabulary.json")


def vocabulary_of(table, model, config, bos):
    """The `Vocabulary` of a list of pieces. `bos` is the piece that a translation begins with."""
    ids = {piece: id for id, piece in reversed([*enumerate(table)])}
    unk, eos = config["unk_token"], config["eos_token"]
    for piece in (unk, eos):
        if piece not in ids:
            raise ImportedModelError(f"the vocabulary has no piece {piece!r}, which config.json names")
    pad = next((ids[piece] for piece in PADDING if piece in ids and piece != bos), None)
    missing = without_id(own_pieces(model), table)
    return Vocabulary.of(table, pad, ids[unk], ids.get(bos), ids[eos], missing)


def our_id(vocabulary, table, piece):
    """Our id of a piece. Raises ImportedModelError if there is no such piece."""
    if piece not in table:
        raise ImportedModelError(f"the vocabulary has no piece {piece!r}, which config.json or export.json names")
    return vocabulary.id_of(table.index(piece))
