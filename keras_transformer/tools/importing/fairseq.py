"""Models of fairseq in Hugging Face: M2M-100, dense NLLB-200, mBART. One SentencePiece model, and tags of languages.

A tag before the source, or behind it, names its language. A tag at the start of a translation names the other. A run
for one pair has the tags in its `frame`, and its bos stands for the tag of the target. A run for several languages has
`LanguageTags`.
"""

import re
from pathlib import Path

from keras_transformer.config import EOS_ID
from keras_transformer.languages import own_codes
from keras_transformer.tags import piece_of
from keras_transformer.tools.importing.languages import language_tags
from keras_transformer.tools.importing.marian_mt import names_by_id
from keras_transformer.tools.importing.pieces import CONTROL, Vocabulary, own_pieces, read_pieces, with_our_ids
from keras_transformer.tools.importing.tensors import ImportedModelError, file_in, read_json

START, PAD, EOS, UNK = range(4)  # their ids
CONTROLS = ["<s>", "<pad>", "</s>", "<unk>"]
CODE = re.compile("[a-z]{2,3}(_[A-Za-z]{2,4})?")  # of a language: en, eng_Latn, en_XX; other tags are <mask> and so on


def settings_of(config):
    """The settings of the model that only these kinds have, a dict."""
    settings = {"pre_norm": True, "tie_embeddings": bool(config.get("tie_word_embeddings", True))}
    if config["model_type"] == "m2m_100":
        return {**settings, "positions": "sinusoidal_tensor2tensor", "first_position": config["pad_token_id"] + 1}
    rows = config["max_position_embeddings"]
    positions = {"positions": "learned", "tie_positions": False, "embedding_norm": True, "max_length": rows - 1}
    return {**settings, **positions}


def read_vocabularies(directory, config, source_lang, target_lang, languages=None):
    """As `marian_mt.read_vocabularies`, with one tokenizer for both sides."""
    told = read_json(directory, "tokenizer_config.json")
    model = read_pieces(file_in(directory, "sentencepiece.bpe.model"))
    pieces = own_pieces(model)
    if (directory / "vocab.json").exists():
        names = names_by_id(directory, "vocab.json")
    else:
        names = [*CONTROLS, *(each.piece for each in model.pieces[len(CONTROLS) - 1 :])]
    tags = tags_of(directory, told, len(names))
    source = target = START  # our bos is their <s> in a run of several languages
    if languages is None:
        codes = [code for code in tags if CODE.fullmatch(code)]
        source_lang, target_lang = own_codes(codes, (source_lang, target_lang))
        source, target = (tag_of(tags, *each) for each in (("source_lang", source_lang), ("target_lang", target_lang)))
    known = {id: piece_of(name) for name, id in tags.items()}
    table = names + [known.get(id, "") for id in range(len(names), config["vocab_size"])]
    if table[: len(CONTROLS)] != CONTROLS or max(source, target) >= len(table):
        raise ImportedModelError(f"{directory} must have the pieces {', '.join(CONTROLS)} first. Received: {table[:4]}")
    without_id = set(pieces) - set(names)
    vocabulary = Vocabulary.of(table, PAD, UNK, target, EOS, sorted(without_id))
    settings = {
        "share_vocabulary": True,
        "frame": frame_of(told, config, vocabulary.id_of(source) if languages is None else None),
        "source_lang": source_lang,
        "target_lang": target_lang,
    }
    ids = {name: vocabulary.id_of(id) for name, id in tags.items() if CODE.fullmatch(name) and id < len(table)}
    many = None if languages is None else language_tags("both", ids, languages, source_lang, target_lang)
    return [with_our_ids(model, vocabulary, CONTROL)], vocabulary, vocabulary, settings, many


def frame_of(told, config, tag):
    """The setting `frame` of a model; `tag` is our id of the tag of the source, None for several languages.

    Raises:
        ImportedModelError: for a kind of model whose frame is not known, or cannot be that of several languages.
    """
    kind = str(told.get("tokenizer_class")).removesuffix("Fast")
    is_behind = kind == "MBartTokenizer" or (kind == "NllbTokenizer" and told.get("legacy_behaviour"))
    if is_behind and tag is None:
        raise ImportedModelError(
            "the tag of the source language stands behind the source: give `source_lang` and `target_lang`, and no "
            f"`languages`. Received: tokenizer_class={told.get('tokenizer_class')}"
        )
    around = f"/{EOS_ID},{tag}/" if is_behind else f"{tag or ''}/{EOS_ID}/"
    if kind == "MBartTokenizer":
        return around  # the decoder starts from the tag
    if kind not in ("M2M100Tokenizer", "NllbTokenizer", "MBart50Tokenizer") or config["decoder_start_token_id"] != EOS:
        start = config["decoder_start_token_id"]
        raise ImportedModelError(
            "the decoder must start from </s>, and the tokenizer be of M2M100, Nllb, MBart or MBart50. Received: "
            f"decoder_start_token_id={start}, tokenizer_class={told.get('tokenizer_class')}"
        )
    return f"{around}{EOS_ID}"


def tags_of(directory, told, count):
    """The tags of all languages: dict from code to their id.

    Args:
        directory: path.
        told: dict, their tokenizer_config.json.
        count: number of pieces, behind which the tags come.
    """
    listed = told.get("added_tokens_decoder") or {}
    found = {each["content"]: int(id) for id, each in listed.items()}
    if not any(id >= count for id in found.values()) and (directory / "tokenizer.json").exists():
        added = read_json(directory, "tokenizer.json").get("added_tokens", [])
        found = {each["content"]: each["id"] for each in added}
    if not any(id >= count for id in found.values()):
        special = (
            read_json(directory, "special_tokens_map.json")
            if Path(directory, "special_tokens_map.json").exists()
            else told
        )
        names = special.get("additional_special_tokens") or told.get("additional_special_tokens") or []
        found = {name: count + i for i, name in enumerate(names)}
    return {name.strip("_") if name.startswith("__") else name: id for name, id in found.items() if id >= count}


def tag_of(tags, name, language):
    """Their id of the tag of a language. Raises ImportedModelError."""
    if language not in tags:
        known = ", ".join(sorted(tags))
        raise ImportedModelError(
            f"the model has several languages: give `{name}`, one of {known}. Received: {name}={language}"
        )
    return tags[language]
