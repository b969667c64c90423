"""Annotations of a corpus by people or other programs: word alignments, dependency parses; and the pieces of words.

A word is a span of its sentence: (start, stop), counted in characters without white space. Pieces of a tokenizer and
words of any annotation can both be counted in these characters.
"""

import re
from pathlib import Path
from typing import NamedTuple

from keras_transformer.data.text_files import lines_of
from keras_transformer.errors import CorpusError, counted
from keras_transformer.normalization import mend

BYTE = re.compile("<0x([0-9A-F]{2})>")
SPACE = "▁"  # in a piece


class Tree(NamedTuple):
    """A dependency parse.

    Args:
        spans: list of (start, stop), its words.
        edges: list of (int, the word that each depends on, -1 for the root; str, the relation).
    """

    spans: list
    edges: list


def characters_of(text):
    """The characters of a text that are no white space, as a tokenizer mends them."""
    return "".join(mend(text.replace(SPACE, " ")).split())


def spans_of(words):
    """The spans of words (list of str) that follow each other, with or without white space between them."""
    spans, end = [], 0
    for word in words:
        spans.append((end, end + len(characters_of(word))))
        end = spans[-1][1]
    return spans


def spelling(pieces):
    """The characters that pieces spell.

    Args:
        pieces: list of str of a sentence, as `Tokenizer.pieces` gives. Bytes of one character may be several pieces.

    Returns:
        str, the characters without white space; for each character the set of the numbers of its pieces. They include
        the pieces of the white space before the character.
    """
    data, owners = bytearray(), []
    for number, piece in enumerate(pieces):
        byte = BYTE.fullmatch(piece)
        part = bytes([int(byte[1], 16)]) if byte else piece.replace(SPACE, " ").encode("utf-8")
        data += part
        owners += [number] * len(part)
    characters, of_characters, start, stop = [], [], 0, 0
    for character in data.decode("utf-8", "replace"):
        stop += len(character.encode("utf-8"))
        if not character.isspace():
            characters.append(character)
            of_characters.append(set(owners[start:stop]))
            start = stop
    return "".join(characters), of_characters


def pieces_of_words(pieces, spans):
    """Finds the pieces of each word.

    Args:
        pieces: list of str of a sentence, as for `spelling`.
        spans: list of (start, stop), words.

    Returns:
        for each word the ascending list of the numbers of its pieces. A piece can belong to two words.
    """
    _, owners = spelling(pieces)
    return [sorted(set().union(*owners[start:stop])) for start, stop in spans]


def read_alignments(path, sources, targets):
    """Reads word alignments in Pharaoh's format: a line `0-0 1-2` for each pair of sentences, source-target from 0.

    Args:
        path: of the file.
        sources, targets: lists of str. White space divides them into words.

    Returns:
        for each pair the list of its (source word, target word).

    Raises:
        CorpusError: if the file does not fit the sentences.
        FileError: if it cannot be read.
    """
    lines = list(lines_of(Path(path)))
    if len(lines) != len(sources):
        raise CorpusError(f"{path} has {counted(len(lines), 'line')}, but there are {counted(len(sources), 'pair')}")
    return [
        read_links(line, (source, target), f"{path}, line {number:,}")
        for number, (line, source, target) in enumerate(zip(lines, sources, targets, strict=True), start=1)
    ]


def read_links(line, texts, place):
    """A line of a file for `read_alignments`, for two texts: a list of (source word, target word).

    Raises:
        CorpusError: if it does not fit the texts. The error begins with `place`, a str.
    """
    links = [re.fullmatch(r"(\d+)-(\d+)", link) for link in line.split()]
    if None in links:
        raise CorpusError(f"{place}: not in Pharaoh's format, such as 0-0 1-2: {line[:60]!r}")
    pairs = [(int(link[1]), int(link[2])) for link in links]
    sizes = [len(text.split()) for text in texts]
    outside = next((pair for pair in pairs if pair[0] >= sizes[0] or pair[1] >= sizes[1]), None)
    if outside:
        raise CorpusError(
            f"{place}: {outside[0]}-{outside[1]} is outside of the sentences, "
            f"which have {sizes[0]} and {sizes[1]} words"
        )
    return pairs


def read_conllu(path, sentences):
    """Reads dependency parses in the CoNLL-U format.

    Args:
        path: of the file.
        sentences: list of str. The parses must have the same words; white space does not count.

    Returns:
        list of `Tree`, one for each sentence. The words of a multiword token ("zum") all have its span.

    Raises:
        CorpusError: if the file is not CoNLL-U, or does not fit the sentences.
        FileError: if it cannot be read.
    """
    blocks = [block for block in re.split(r"\n\s*\n", "\n".join(lines_of(Path(path)))) if block.strip()]
    if len(blocks) != len(sentences):
        there_are = counted(len(sentences), "sentence")
        raise CorpusError(f"{path} has {counted(len(blocks), 'parse')}, but there are {there_are}")
    return [
        _tree(block, sentence, f"{path}, parse {number:,}")
        for number, (block, sentence) in enumerate(zip(blocks, sentences, strict=True), start=1)
    ]


def _tree(block, sentence, place):
    rows = [line.split("\t") for line in block.strip().split("\n") if line.strip() and line[0] != "#"]
    rows = [row for row in rows if "." not in row[0]]  # an empty node is no word of the text
    surfaces, spans, edges, within = [], [], [], 0
    for row in rows:
        token = re.fullmatch(r"(\d+)(?:-(\d+))?", row[0])
        if len(row) != 10 or not token or not (token[2] or row[6].isdigit()):
            raise CorpusError(f"{place}: not a line of ten columns as in CoNLL-U: {' '.join(row)[:60]!r}")
        if token[2] or int(token[1]) > within:
            surfaces.append(row[1])
        if token[2]:
            within = int(token[2])
        else:
            spans.append(len(surfaces) - 1)
            edges.append((int(row[6]) - 1, row[7]))
    if any(governor >= len(edges) for governor, _ in edges):
        raise CorpusError(f"{place}: a word depends on a word that the parse does not have")
    if "".join(map(characters_of, surfaces)) != characters_of(sentence):
        raise CorpusError(f"{place}: its words {' '.join(surfaces)[:60]!r} are not those of {sentence[:60]!r}")
    of_surfaces = spans_of(surfaces)
    return Tree([of_surfaces[surface] for surface in spans], edges)
