"""Writes the rules by which SentencePiece mends text as `normalization.mend` does: `nfc.tsv.xz` and `nfkc.tsv.xz`.

    python -m keras_transformer.tools.mending

Every tokenizer that is trained has these rules inside. They are files, so that they are the same with every version of
Python. Run this again for a new version of Unicode: a run that is resumed keeps its tokenizer.
"""

import functools
import itertools
import lzma
import unicodedata
from collections import defaultdict
from pathlib import Path

import regex

import keras_transformer
from keras_transformer.normalization import COMPLEX, INVISIBLE, SPACE, ZERO_WIDTH_SPACE

FILES = {"nfc.tsv.xz": False, "nfkc.tsv.xz": True}  # name -> whether compatibility characters become ordinary ones
_MENDED = "".join(map(chr, [*range(1, 0xD800), *range(0xE000, 0x110000)]))  # U+0000 can have no rule
_HANGUL = range(0xAC00, 0xD7A4)
_FIXED = 200  # Marks of a smaller combining class have one place each, as the points of Hebrew and Arabic have.


def write_rules():
    """Writes the files into the package."""
    for name, nfkc in FILES.items():
        packed = lzma.compress(mending_rules(nfkc).encode(), preset=9 | lzma.PRESET_EXTREME)
        Path(keras_transformer.__file__).with_name(name).write_bytes(packed)


def mending_rules(nfkc=False):
    """The rules by which SentencePiece mends text as `mend` does.

    It replaces the longest sequence that has a rule, again and again.

    They cover all spellings of every composed character, marks between a letter and the mark that composes it, and
    marks in another order than Unicode's. SentencePiece itself joins spaces. U+0000 cannot have a rule.

    Args:
        nfkc: bool, as for `mend`.

    Returns:
        str, the lines of SentencePiece's `normalization_rule_tsv`.
    """
    table = _composed("NFKC" if nfkc else "NFC", _compatible() if nfkc else ())
    table |= dict.fromkeys(SPACE.findall(_MENDED.replace(" ", "")), " ")
    table |= dict.fromkeys([*INVISIBLE.findall(_MENDED), ZERO_WIDTH_SPACE], "")
    unspaced = set(regex.findall(COMPLEX, _MENDED))
    ends = [*unspaced, *(before for before, after in table.items() if after[-1:] in unspaced)]
    # SentencePiece refuses a rule that changes nothing, and reads a replacement up to U+0000.
    kept = {end + ZERO_WIDTH_SPACE: table.get(end, end) + ZERO_WIDTH_SPACE + "\0" for end in ends}
    return "".join(f"{_codes(before)}\t{_codes(after)}\n" for before, after in sorted({**table, **kept}.items()))


def _codes(text):
    return " ".join(f"{ord(character):X}" for character in text)


def _composed(form, others):
    """The sequences that are not in a form of Unicode, as a table: dict, str -> str."""
    sequences = itertools.chain(_spellings(), _syllables(), _interrupted(), _disordered(), others)
    table = {sequence: unicodedata.normalize(form, sequence) for sequence in sequences}
    return {before: after for before, after in table.items() if before != after}


@functools.cache
def _decomposable():
    """The characters that have a canonical decomposition, but for the syllables of Hangul: a list."""
    return [c for c in _MENDED if unicodedata.normalize("NFD", c) != c and ord(c) not in _HANGUL]


@functools.cache
def _compositions():
    """The characters that a mark can follow to compose another character: dict, str -> set of marks."""
    marks = defaultdict(set)
    for composed in _decomposable():
        parts = unicodedata.decomposition(composed).split()
        if len(parts) == 2 and unicodedata.normalize("NFC", composed) == composed:
            marks[chr(int(parts[0], 16))].add(chr(int(parts[1], 16)))
    return marks


@functools.cache
def _marks():
    """The marks that have a combining class, by the script in their name: dict, str -> list.

    Of those for all scripts ("COMBINING"), only the marks that compose a character.
    """
    composing, marks = set().union(*_compositions().values()), defaultdict(list)
    for mark in filter(unicodedata.combining, _MENDED):
        if _script(mark) != "COMBINING" or mark in composing:
            marks[_script(mark)].append(mark)
    return marks


def _script(character):
    return unicodedata.name(character, "").partition(" ")[0]


def _spellings():
    """Yields every sequence that is canonically equivalent to one character."""
    same = defaultdict(list)
    for character in _decomposable():
        same[unicodedata.normalize("NFC", character)].append(character)
    for character in _decomposable():
        yield character
        base, *marks = unicodedata.normalize("NFD", character)
        for order in itertools.permutations(marks):
            for stop in range(len(marks) + 1):
                first = unicodedata.normalize("NFC", base + "".join(order[:stop]))
                for head in (first, *same[first]) if len(first) == 1 else ():
                    yield head + "".join(order[stop:])


def _syllables():
    """Yields the spellings of every syllable of Hangul in letters."""
    for syllable in map(chr, _HANGUL):
        first, vowel, *last = unicodedata.normalize("NFD", syllable)
        yield "".join([first, vowel, *last])
        yield "".join([unicodedata.normalize("NFC", first + vowel), *last])


def _interrupted():
    """Yields letters with marks that compose a character, and up to two other marks before them or behind them."""
    combining, marks = unicodedata.combining, _marks()
    for letter, composing in _compositions().items():
        others = [mark for mark in marks["COMBINING"] if combining(mark) > _FIXED] + marks[_script(letter)]
        for mark in filter(combining, composing):
            before = [other for other in others if combining(other) < combining(mark)]
            yield from (letter + other + mark for other in before)
            yield from (letter + mark + other for other in composing.intersection(before))
            fixed = [other for other in before if combining(other) < _FIXED]
            yield from (letter + one + other + mark for one, other in itertools.permutations(fixed, 2))


def _disordered():
    """Yields two marks of a script in every order, and three if each has one place."""
    for script, marks in _marks().items():
        yield from map("".join, itertools.permutations(marks, 2))
        fixed = [mark for mark in marks if unicodedata.combining(mark) < _FIXED and script != "COMBINING"]
        yield from map("".join, itertools.permutations(fixed, 3))


def _compatible():
    """Yields the compatibility characters, and those of another width with a mark."""
    changed = [c for c in _MENDED if unicodedata.normalize("NFKC", c) != unicodedata.normalize("NFC", c)]
    yield from changed
    wide = [c for c in changed if unicodedata.east_asian_width(c) in "HF"]
    plain = defaultdict(list)
    for character in wide:
        plain[unicodedata.normalize("NFKC", character)].append(character)
    for letter, marks in _compositions().items():
        for mark in marks if letter in plain else ():
            yield from map("".join, itertools.product([letter, *plain[letter]], [mark, *plain[mark]]))


if __name__ == "__main__":
    write_rules()
