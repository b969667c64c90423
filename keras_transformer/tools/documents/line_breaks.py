"""Line breaks of a translated text: each between other words, so that no two of them make a blank line.

A blank line ends a paragraph of Markdown, and a subtitle.
"""

import itertools

import regex as re

from keras_transformer.tools.documents.fragment import CLOSE, OPEN, Mark, merged
from keras_transformer.tools.words import TOKEN, tokens_of

LINE_BREAK = re.compile(r"\r\n|\r|\n")
SPACE = " \t\r\n\f\v"
PIECE = re.compile(rf"[{SPACE}]+|{TOKEN}|.", re.DOTALL)
VISIBLE, HIDDEN, GAP, BREAK = range(4)


def is_line_break(part):
    """Whether a part is a line break of the text, in Markdown soft or hard."""
    return isinstance(part, Mark) and part.breaks and part.name in ("", "br") and bool(LINE_BREAK.search(part.text))


def apart(parts):
    """The parts with each line break between other words: none at an end of the text, no two at one place.

    A line break for which the text has too few words is left out.
    """
    pieces = list(itertools.chain.from_iterable(map(_pieces, parts)))
    before = [0, *itertools.accumulate(kind == VISIBLE for _, kind in pieces)]  # how many words stand before each piece
    spaces = {}  # gap between two words, as the number of words before it -> the first white space there
    for place, (_, kind) in enumerate(pieces):
        if kind == GAP:
            spaces.setdefault(before[place], place)
    gaps = _gaps([before[place] for place, (_, kind) in enumerate(pieces) if kind == BREAK], before[-1], spaces)
    breaks = [part for part, kind in pieces if kind == BREAK]
    moved = [[] for _ in pieces]  # the line breaks that stand before each piece
    instead = set()  # white space whose place a line break takes
    for place, (_, kind) in enumerate(pieces):
        if kind != BREAK:
            continue
        part, gap = breaks.pop(0), gaps.pop(0)
        if gap is not None:
            new_place = place if gap == before[place] else spaces.get(gap, before.index(gap))
            moved[new_place].append(part)
            instead.add(new_place)
        elif part.text.startswith("\\") and before[place] < before[-1]:  # its line is not blank, as "\\" is on it
            moved[before.index(before[place] + 1) - 1].append(part)
    apart = []
    for place, (part, kind) in enumerate(pieces):
        apart += moved[place]
        apart += [part] if kind != BREAK and not (kind == GAP and place in instead) else []
    return merged(apart)


def _gaps(wanted, words, spaces):
    """A gap of its own for each line break, or None. One that stands in a gap alone stays; others go to the nearest.

    Args:
        wanted: list of int, the gap in which each stands: the number of words before it.
        words: int, how many there are.
        spaces: the gaps with white space, where a line break divides no word.
    """
    free = set(range(1, words))
    stays = []
    for gap in wanted:
        stays.append(gap in free)
        free.discard(gap)
    gaps = []
    for gap, is_alone in zip(wanted, stays, strict=True):
        if not is_alone:
            gap = min(free, key=lambda other: (other not in spaces, abs(other - gap)), default=None)
            free.discard(gap)
        gaps.append(gap)
    return gaps


def _pieces(part):
    """A part as words, white space and marks: (str or `Mark`, kind)."""
    if is_line_break(part):
        return [(part, BREAK)]
    if isinstance(part, Mark):
        return [(part, GAP if part.is_space else HIDDEN if part.kind in (OPEN, CLOSE) else VISIBLE)]
    return [
        (piece, GAP if not piece.strip(SPACE) else VISIBLE if tokens_of(piece) else HIDDEN)
        for piece in PIECE.findall(part)
    ]
