"""The characters that a model does not know: signs without a piece, and letters of scripts of which it has none.

A model reads such a character as bytes, and few models have learned to copy them. If they go through the model, they
take the sentence with them. So they stay where they are around a sentence. Inside a sentence, the model does not read
them, unless its training had many of them. The vocabulary decides, no list. A sign with a piece is unknown as a word of
its own if the corpus does not have it so: a degree sign behind a number is no degree sign before a date.

Characters are ranges for a class of RE2, such as "\\x{2600}-\\x{26ff}". Between two of them, unassigned code points
belong to the range.
"""

import functools
import itertools
from collections import Counter
from typing import NamedTuple
from unicodedata import category

import regex
import sentencepiece
from babel import Locale

LEAST_COPIED = 100_000  # characters in all epochs before a model copies them: 43,000 were not enough
LEAST_ALONE = 10  # times that a sign is a word of its own in a corpus before a model knows it so
LETTER, SIGN, END = r"\p{L}", r"[\p{P}\p{S}]", r"\p{Sentence_Terminal}"
MARK = r"(?V1)[\p{M}&&[\p{sc=Zyyy}\p{sc=Zinh}]&&\p{ccc=0}]"  # such as variation selectors; accents become letters
# Unicode's blocks of arrows, shapes, dingbats, notes and pictures, with the marks that make emoji of characters
PICTURES = ((0x2190, 0x27BF), (0x2900, 0x297F), (0x2B00, 0x2BFF), (0x20E3, 0x20E3), (0xFE0E, 0xFE0F))
PICTURES += ((0x1D000, 0x1D1FF), (0x1F000, 0x1FBFF))
_CHARACTERS = "".join(map(chr, [*range(0x21, 0xD800), *range(0xE000, 0xFFFE), *range(0x10000, 0x32400)]))


class Unknown(NamedTuple):
    """Characters that a model does not know, each field a str of ranges.

    Args:
        signs: signs without a piece, and letters of other scripts.
        marks: marks of no script without a piece.
        alone: signs with a piece that are unknown as words of their own.
    """

    signs: str = ""
    marks: str = ""
    alone: str = ""


def unknown_to(tokenizers, lone_signs=None):
    """Finds the characters that a model does not know.

    Args:
        tokenizers: list of `Tokenizer`. A character that one of them knows is known.
        lone_signs: str, the signs that are words of their own in the corpus; None if there is no corpus.

    Returns:
        `Unknown`. All is known if a tokenizer knows no letter, because its model reads all text as bytes.
    """
    return _unknown_to(tuple(dict.fromkeys(tokenizer.model for tokenizer in tokenizers)), lone_signs)


@functools.lru_cache(maxsize=32)  # a quarter of a second for a tokenizer
def _unknown_to(models, lone_signs):
    pieces = [sentencepiece.SentencePieceProcessor(model_proto=model) for model in models]
    written = ["".join(map(each.id_to_piece, _ids_of_text(each))) for each in pieces]
    if not all(regex.search(LETTER, text) for text in written):
        return Unknown()
    signs, marks = ([c for c in _all(kind) if c not in set().union(*written)] for kind in (SIGN, MARK))
    for each in pieces:
        signs, marks = _not_read_by(each, signs), _not_read_by(each, marks)
    letters = "".join(regex.findall(LETTER, "".join(written)))
    scripts = "".join(script for script in _scripts() if regex.search(script, letters))
    foreign = _all(rf"(?V1)[{LETTER}--[\p{{sc=Zyyy}}\p{{sc=Zinh}}{scripts}]]")
    never_alone = {*signs, *_all(END), *(lone_signs or "")}
    alone = [c for c in _all(SIGN) if c not in never_alone and not _is_picture(c)] if lone_signs is not None else []
    return Unknown(*map(_ranges_of, ([*signs, *foreign], marks, alone)))


def find_lone_signs(lines):
    """The signs that are words of their own in lines, an iterable of str: a str."""
    counts = Counter()
    for token, count in Counter(itertools.chain.from_iterable(map(str.split, lines))).items():
        if regex.fullmatch(f"{SIGN}+", token):
            counts.update(dict.fromkeys(token, count))
    return "".join(sorted(sign for sign, count in counts.items() if count >= LEAST_ALONE))


def first_bytes(tokenizer):
    """The ids of the pieces that begin a character in bytes, a list of int: one for each character without a piece."""
    pieces = sentencepiece.SentencePieceProcessor(model_proto=tokenizer.model)
    ids = (pieces.piece_to_id(f"<0x{byte:02X}>") for byte in range(0xC2, 0xF5))
    return [id for id in ids if pieces.is_byte(id)]


def written(spans):
    """The ranges of pairs of a first and a last code point, as a str."""
    return "".join(rf"\x{{{first:x}}}-\x{{{last:x}}}" for first, last in spans)


def _ids_of_text(pieces):
    """The ids of the pieces that write text, a list of int."""
    others = (pieces.is_byte, pieces.is_control, pieces.is_unknown, pieces.is_unused)
    return [id for id in range(pieces.vocab_size()) if not any(is_other(id) for is_other in others)]


def _not_read_by(pieces, characters):
    """The characters that are bytes or unknown even after the tokenizer has mended them."""
    read = zip(characters, pieces.encode(characters), strict=True)
    return [c for c, ids in read if any(pieces.is_byte(id) or pieces.is_unknown(id) for id in ids)]


@functools.cache
def _scripts():
    """A pattern for each script of Unicode, by the codes that CLDR has a name for: a list."""
    codes = set(Locale("en").scripts) - {"Zyyy", "Zinh", "Zzzz"}
    return [pattern for code in sorted(codes) if _is_pattern(pattern := rf"\p{{sc={code}}}")]


def _is_pattern(text):
    try:
        return bool(regex.compile(text))
    except regex.error:  # codes such as "Hans" are no scripts of Unicode
        return False


@functools.cache
def _all(pattern):
    return regex.findall(pattern, _CHARACTERS)


def _is_picture(character):
    return any(first <= ord(character) <= last for first, last in PICTURES)


def _ranges_of(characters):
    spans = []
    for point in sorted(map(ord, characters)):
        if spans and all(_is_unassigned(other) for other in range(spans[-1][1] + 1, point)):
            spans[-1][1] = point
        else:
            spans.append([point, point])
    return written(spans)


def _is_unassigned(point):
    is_noncharacter = point & 0xFFFE == 0xFFFE or 0xFDD0 <= point < 0xFDF0  # they stand between sentences
    return category(chr(point)) == "Cn" and not is_noncharacter
