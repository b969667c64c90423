"""tokenizer.json: the one file of a tokenizer that transformers 5 saves. It becomes a SentencePiece model."""

import base64
import binascii
import re

from sentencepiece.sentencepiece_model_pb2 import ModelProto, TrainerSpec

from keras_transformer.tools.importing.pieces import BYTE, CONTROL, CONTROLS, UNKNOWN
from keras_transformer.tools.importing.tensors import ImportedModelError, read_json

FILE = "tokenizer.json"
SPACES = {" ", "▁"}  # a piece that begins with the second one begins a word
BYTE_PIECE = re.compile("<0x[0-9A-F]{2}>")


def added_tokens(directory):
    """The tokens that stand beside the pieces: dict from their text to their id. Raises ImportedModelError."""
    added = read_json(directory, FILE).get("added_tokens") or []
    try:
        return {each["content"]: int(each["id"]) for each in added}
    except (TypeError, KeyError, ValueError):
        raise ImportedModelError(f"{directory}/{FILE} must give each of its added_tokens content and id") from None


def read_tokenizer(directory):
    """The pieces of a tokenizer.json.

    Args:
        directory: path.

    Returns:
        `ModelProto`; list of str, the pieces by their ids, up to the first token that was added to them.

    Raises:
        ImportedModelError: for a tokenizer that SentencePiece cannot be, or a damaged file.
    """
    told = read_json(directory, FILE)
    try:
        scores, kind = scores_of(told["model"])
        normalizers, pre_tokenizers = (steps_of(told.get(name)) for name in ("normalizer", "pre_tokenizer"))
        prepended = [is_prepended(step) for step in pre_tokenizers if step["type"] == "Metaspace"]
        is_known = {step["type"] for step in pre_tokenizers} <= {"Metaspace", "WhitespaceSplit"} and prepended
        if not is_known or not all(map(is_of_spaces, normalizers)):
            raise ValueError("its text is not divided at spaces alone, or is spelt anew")
        charsmaps = [step["precompiled_charsmap"] for step in normalizers if step["type"] == "Precompiled"]
        charsmap = base64.b64decode((charsmaps or [None])[0] or "")
        added = [id for id in added_tokens(directory).values() if id >= len(CONTROLS)]
        scores = dict([*scores.items()][: min(added, default=None)])  # mBART lists the tags as pieces, too
        return model_of(scores, kind, charsmap, prepended[0]), [*scores]
    except (TypeError, KeyError, ValueError, AttributeError, binascii.Error) as error:
        raise ImportedModelError(f"{directory}/{FILE} is no SentencePiece tokenizer, or is damaged: {error}") from None


def around_text(directory):
    """The tokens that a tokenizer.json puts before a text and behind it: two lists of str.

    Raises:
        ImportedModelError: if its template is damaged.
    """
    told = read_json(directory, FILE)
    try:
        template = (told.get("post_processor") or {}).get("single") or [{"Sequence": {}}]
        names = [None if "Sequence" in step else str(step["SpecialToken"]["id"]) for step in template]
        return names[: names.index(None)], names[names.index(None) + 1 :]
    except (TypeError, KeyError, ValueError, AttributeError):
        raise ImportedModelError(f"{directory}/{FILE} has no text in the template of its post_processor") from None


def scores_of(model):
    """The pieces of the "model" in the order of their ids, a dict from piece to score; "BPE" or "Unigram".

    Of BPE, a file lists the pairs that are joined, the first ones first. SentencePiece joins the pair with the best
    score.
    """
    kind = model["type"]
    if kind == "Unigram":
        scores = {piece: float(score) for piece, score in model["vocab"]}
        if len(scores) < len(model["vocab"]):
            raise ValueError("a piece stands in it twice")
        return scores, kind
    if kind != "BPE":
        raise ValueError(f"its kind is {kind}")
    ids = model["vocab"]
    if sorted(ids.values()) != list(range(len(ids))):
        raise ValueError("its pieces must have the ids from 0 on, and no two the same")
    ranks = {}
    for rank, pair in enumerate(model["merges"]):
        ranks.setdefault("".join(pair.split(" ") if isinstance(pair, str) else pair), rank)
    never = len(model["merges"])
    return {piece: -float(ranks.get(piece, never + id)) for piece, id in sorted(ids.items(), key=lambda x: x[1])}, kind


def steps_of(step):
    """The steps of a normalizer or a pre-tokenizer, a list of dicts."""
    if step is None:
        return []
    inner = step.get("normalizers") or step.get("pretokenizers")
    return [step] if inner is None else [each for part in inner for each in steps_of(part)]


def is_prepended(metaspace):
    """Whether a text gets a space before it."""
    return metaspace.get("prepend_scheme", "always") != "never" and metaspace.get("add_prefix_space", True)


def is_of_spaces(normalizer):
    """Whether SentencePiece does the same: by its table of characters, or because it joins and strips spaces."""
    pattern = normalizer.get("pattern", {})
    spaces = pattern.get("String") or pattern.get("Regex", "").removesuffix("{2,}")
    is_replaced = normalizer["type"] == "Replace" and spaces in SPACES and normalizer["content"] in SPACES
    return is_replaced or normalizer["type"] in ("Precompiled", "Strip")


def model_of(scores, kind, charsmap, is_prepended):
    """The `ModelProto` of pieces with scores; `charsmap` is its table of characters, bytes."""
    model = ModelProto()
    for piece, score in scores.items():
        new = model.pieces.add(piece=piece, score=score)
        if piece in CONTROLS.values():
            new.type = UNKNOWN if piece == "<unk>" else CONTROL
        elif BYTE_PIECE.fullmatch(piece):
            new.type, model.trainer_spec.byte_fallback = BYTE, True
    model.trainer_spec.model_type = TrainerSpec.BPE if kind == "BPE" else TrainerSpec.UNIGRAM
    spec = model.normalizer_spec
    spec.name, spec.precompiled_charsmap, spec.add_dummy_prefix = "precompiled", charsmap, is_prepended
    spec.remove_extra_whitespaces = spec.escape_whitespaces = True
    return model
