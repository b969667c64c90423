"""Models of fairseq in Hugging Face: M2M-100, dense NLLB-200, mBART. One SentencePiece model, and tags of languages.

A tag before the source, or behind it, names its language. A tag at the start of a translation names the other. A run
for one pair has the tags in its `frame`, and its bos stands for the tag of the target. A run for several languages has
`LanguageTags`.
"""

import re

from keras_transformer.config import EOS_ID
from keras_transformer.languages import own_codes
from keras_transformer.tags import piece_of
from keras_transformer.tools.importing import tokenizer_json
from keras_transformer.tools.importing.languages import language_tags
from keras_transformer.tools.importing.marian_mt import names_by_id
from keras_transformer.tools.importing.pieces import CONTROL, Vocabulary, own_pieces, read_pieces, with_our_ids
from keras_transformer.tools.importing.tensors import ImportedModelError, file_in, read_json

START, PAD, EOS, UNK = range(4)  # their ids
CONTROLS = ["<s>", "<pad>", "</s>", "<unk>"]
CODE = re.compile("[a-z]{2,3}(_[A-Za-z]{2,4})?")  # of a language: en, eng_Latn, en_XX; other tags are <mask> and so on
# Published models do not list their languages. Their tokenizers in transformers have these, in the order of their ids.
M2M100 = """af am ar ast az ba be bg bn br bs ca ceb cs cy da de el en es et fa ff fi fr fy ga gd gl gu ha he
hi hr ht hu hy id ig ilo is it ja jv ka kk km kn ko lb lg ln lo lt lv mg mk ml mn mr ms my ne nl no ns oc or
pa pl ps pt ro ru sd si sk sl so sq sr ss su sv sw ta th tl tn tr uk ur uz vi wo xh yi yo zh zu""".split()
MBART = """ar_AR cs_CZ de_DE en_XX es_XX et_EE fi_FI fr_XX gu_IN hi_IN it_IT ja_XX kk_KZ ko_KR lt_LT lv_LV
my_MM ne_NP nl_XX ro_RO ru_RU si_LK tr_TR vi_VN zh_CN""".split()
MBART50 = """af_ZA az_AZ bn_IN fa_IR he_IL hr_HR id_ID ka_GE km_KH mk_MK ml_IN mn_MN mr_IN pl_PL ps_AF pt_XX
sv_SE sw_KE ta_IN te_IN th_TH tl_XX uk_UA ur_PK xh_ZA gl_ES sl_SI""".split()
LISTED = {"M2M100Tokenizer": M2M100, "MBartTokenizer": MBART, "MBart50Tokenizer": MBART + MBART50}
KINDS = {"m2m_100": "M2M100Tokenizer", "mbart": "MBartTokenizer"}  # of a model that names no tokenizer
PIECES, EXTRA = "sentencepiece.bpe.model", "extra_special_tokens"
GENERAL = ("TokenizersBackend", "PreTrainedTokenizer")  # names of tokenizers that tell no kind


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
    path = directory / "tokenizer_config.json"
    told = read_json(directory, path.name) if path.exists() else {}
    kind = kind_of(told, config)
    if (directory / PIECES).exists() or not (directory / tokenizer_json.FILE).exists():
        model = read_pieces(file_in(directory, PIECES))
        names = [*CONTROLS, *(each.piece for each in model.pieces[len(CONTROLS) - 1 :])]
    else:
        model, names = tokenizer_json.read_tokenizer(directory)
    if (directory / "vocab.json").exists():
        names = names_by_id(directory, "vocab.json")
    pieces = own_pieces(model)
    tags = tags_of(directory, told, kind, len(names))
    source = target = START  # our bos is their <s> in a run of several languages
    if languages is None:
        codes = [code for code in tags if CODE.fullmatch(code)]
        source_lang, target_lang = own_codes(codes, (source_lang, target_lang))
        source, target = (tag_of(tags, *each) for each in (("source_lang", source_lang), ("target_lang", target_lang)))
        check_target(config, kind, tags, target_lang)
    known = {id: piece_of(name) for name, id in tags.items()}
    table = names + [known.get(id, "") for id in range(len(names), config["vocab_size"])]
    if table[: len(CONTROLS)] != CONTROLS or max(source, target) >= len(table):
        raise ImportedModelError(f"{directory} must have the pieces {', '.join(CONTROLS)} first. Received: {table[:4]}")
    without_id = set(pieces) - set(names)
    vocabulary = Vocabulary.of(table, PAD, UNK, target, EOS, sorted(without_id))
    settings = {
        "share_vocabulary": True,
        "frame": frame_of(kind, told, config, vocabulary.id_of(source) if languages is None else None),
        "source_lang": source_lang,
        "target_lang": target_lang,
    }
    ids = {name: vocabulary.id_of(id) for name, id in tags.items() if CODE.fullmatch(name) and id < len(table)}
    many = None if languages is None else language_tags("both", ids, languages, source_lang, target_lang)
    return [with_our_ids(model, vocabulary, CONTROL)], vocabulary, vocabulary, settings, many


def kind_of(told, config):
    """The class of a tokenizer in transformers: its own file names it, or else the model, or the kind of the model."""
    named = (str(each.get("tokenizer_class") or "").removesuffix("Fast") for each in (told, config))
    return next((name for name in named if name and name not in GENERAL), KINDS.get(str(config["model_type"])))


def frame_of(kind, told, config, tag):
    """The setting `frame` of a model; `tag` is our id of the tag of the source, None for several languages.

    Raises:
        ImportedModelError: for a kind of model whose frame is not known, or cannot be that of several languages.
    """
    is_behind = kind == "MBartTokenizer" or (kind == "NllbTokenizer" and told.get("legacy_behaviour"))
    if is_behind and tag is None:
        raise ImportedModelError(
            "the tag of the source language stands behind the source: give `source_lang` and `target_lang`, and no "
            f"`languages`. Received: tokenizer_class={kind}"
        )
    around = f"/{EOS_ID},{tag}/" if is_behind else f"{tag or ''}/{EOS_ID}/"
    if kind == "MBartTokenizer":
        return around  # the decoder starts from the tag
    if kind not in (*LISTED, "NllbTokenizer") or config["decoder_start_token_id"] != EOS:
        start = config["decoder_start_token_id"]
        raise ImportedModelError(
            "the decoder must start from </s>, and the tokenizer be of M2M100, Nllb, MBart or MBart50. Received: "
            f"decoder_start_token_id={start}, tokenizer_class={kind}"
        )
    return f"{around}{EOS_ID}"


def check_target(config, kind, tags, target_lang):
    """Refuses another target language than the one from which config.json says that every translation begins."""
    forced = config.get("forced_bos_token_id")
    begins = config.get("decoder_start_token_id") if kind == "MBartTokenizer" and forced is None else forced
    own = next((code for code, id in tags.items() if id == begins), None)
    if own not in (None, target_lang):
        raise ImportedModelError(f"config.json says that the model translates into {own}. Received: {target_lang=!s}")


def tags_of(directory, told, kind, count):
    """The tags of all languages: dict from code to their id.

    Args:
        directory: path.
        told: dict, their tokenizer_config.json.
        kind: that of `kind_of`.
        count: number of pieces, behind which the tags come.

    Raises:
        ImportedModelError: if no file lists them, and the kind does not tell them.
    """
    try:
        found = {each["content"]: int(id) for id, each in (told.get("added_tokens_decoder") or {}).items()}
    except (TypeError, KeyError, ValueError, AttributeError):
        raise ImportedModelError(
            f"{directory}/tokenizer_config.json has no ids and contents in added_tokens_decoder"
        ) from None
    if not any(id >= count for id in found.values()) and (directory / tokenizer_json.FILE).exists():
        found = tokenizer_json.added_tokens(directory)
    if not any(id >= count for id in found.values()):
        path = directory / "special_tokens_map.json"
        special = read_json(directory, path.name) if path.exists() else {}
        lists = [each.get(name) for each in (special, told) for name in ("additional_special_tokens", EXTRA)]
        is_usual = told.get("language_codes") in (None, "m2m100")  # wmt21 has others
        is_usual &= kind != "M2M100Tokenizer" or (directory / "vocab.json").exists()  # else it may be NLLB-200
        listed = next(filter(None, lists), LISTED.get(kind, []) if is_usual else [])
        names = [each["content"] if isinstance(each, dict) else each for each in listed]
        found = {name: count + i for i, name in enumerate(names)}
    if not found:
        raise ImportedModelError(
            f"{directory} has no list of its languages: download its special_tokens_map.json or {tokenizer_json.FILE}"
        )
    return {name.strip("_") if name.startswith("__") else name: id for name, id in found.items() if id >= count}


def tag_of(tags, name, language):
    """Their id of the tag of a language. Raises ImportedModelError."""
    if language not in tags:
        known = ", ".join(sorted(tags))
        raise ImportedModelError(
            f"the model has several languages: give `{name}`, one of {known}. Received: {name}={language}"
        )
    return tags[language]
