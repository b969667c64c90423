"""Puts the tags of a fragment into its translation.

The translation is a row of tokens, and an alignment says how much each of them comes from each token of the source. In
the translation, a pair surrounds the tokens that come from the tokens it surrounds in the source. A pair has one span,
inside the span of the pair around it, so the result is always well-formed.
"""

import itertools
import unicodedata
from dataclasses import dataclass, field

import numpy as np
import regex

from keras_transformer.tools.documents.fragment import EMPTY, Element, expanded
from keras_transformer.tools.words import is_hump, is_katakana, is_sign, is_unspaced, tokens_of

UNALIGNED = -1e-3  # weight of a token that comes from nothing: it joins a span only if it is inside
COVERED = 2  # a pair is put inside its neighbour if the neighbour has a token that fits this many times better

INNER = 0.1  # share of the fit of the pairs inside that is added to the fit of a pair
SIGN_FIT = 0.4  # largest fit of a sign to a pair without signs: a comma stays outside a link

STOP, QUOTE = regex.compile(r"\p{Terminal_Punctuation}"), regex.compile(r"\p{Quotation_Mark}")
# Signs that divide words or sentences; others, such as an ellipsis or a percent sign, belong to the word before them.
DIVIDING = regex.compile(r"[\p{Terminal_Punctuation}\p{Quotation_Mark}\p{Ps}\p{Pe}\p{Dash}]")


class _Side:
    """What the tokens of a text are: arrays, one entry for each token.

    Attributes:
        tokens: list of (start, end).
        signs: bool, no words and no numbers.
        stops: bool, signs that end a clause.
        brackets: int, 1 for one that opens, -1 for one that closes, else 0.
        quotes: bool.
    """

    def __init__(self, text, tokens):
        firsts = [text[start] for start, _ in tokens]
        self.tokens = tokens
        self.signs = np.array([*map(is_sign, firsts)], bool)
        self.stops = np.array([STOP.match(first) is not None for first in firsts], bool)
        self.quotes = np.array([QUOTE.match(first) is not None for first in firsts], bool)
        kinds = [unicodedata.category(first) for first in firsts]
        self.brackets = np.array([(kind == "Ps") - (kind == "Pe") for kind in kinds], int)


@dataclass(frozen=True)
class _Alignment:
    """The weights (T, S), and the tokens of both sides.

    `joints` are the gaps of the translation that white space would make wider: set of int. `attached` are the signs
    that belong to the word before them: set of int.
    """

    weights: np.ndarray
    source: _Side
    target: _Side
    joints: set
    attached: set

    def inside(self, element):
        """The tokens of the source that an element surrounds: list of int."""
        return [s for s, (start, end) in enumerate(self.source.tokens) if start < element.end and end > element.start]


@dataclass
class _Placed:
    """An element with its span of target tokens, and the elements inside."""

    element: Element
    start: int
    end: int
    inside: list = field(default_factory=list)


def place(layout, target, weights):
    """Puts the tags of a fragment into the translation of its text.

    Args:
        layout: `Layout` of the fragment.
        target: str, the translation of `layout.text`.
        weights: float (T, S), how much each of the T tokens of `target` comes from each of the S tokens of the source
            (`tokens_of`).

    Returns:
        list of parts, the translated fragment.
    """
    source_tokens, target_tokens = tokens_of(layout.text), tokens_of(target)
    weights = np.array(weights, "float64").reshape(len(target_tokens), len(source_tokens))
    attached = _attached(target, target_tokens, {layout.text[start:end] for start, end in source_tokens})
    weights[list(attached)] = 0
    weights = weights / np.maximum(weights.sum(axis=1, keepdims=True), 1e-9)
    weights = _of_whole_words(weights, layout, source_tokens, target, target_tokens)
    root = _Placed(layout.root, 0, len(target_tokens))
    sides = _Side(layout.text, source_tokens), _Side(target, target_tokens)
    alignment = _Alignment(weights, *sides, _joints(target, target_tokens), attached)
    _place_inside(root, layout.root.children, alignment)
    return expanded([*layout.before, *_written(root, target, target_tokens), *layout.after])


def _place_inside(around, elements, alignment):
    """Places elements inside the span of `around`: first the pairs, the surest first, then the empty tags."""
    pairs = [(element, _fit(element, alignment)) for element in elements if element.closing]
    waiting = {place: [] for place in range(len(pairs))}  # pairs that share the span of another one
    placed, free = {}, list(range(around.start, around.end))
    spans = {i: _best_span(*pair, free, alignment) for i, pair in enumerate(pairs)}
    while spans:
        best = max(spans, key=lambda i: spans[i][2])
        element, fit = pairs[best]
        start = end = around.end
        host = _host(element, fit, free, {i: p for i, p in placed.items() if p.inside is not None}, pairs)
        if host is not None:
            waiting[host].append(element)
            placed[best] = _Placed(element, 0, 0, None)
        else:
            if free:
                start, end, _ = spans[best]
            placed[best] = _Placed(element, start, end)
            free = [t for t in free if not start <= t < end]
        del spans[best]
        for i, (begin, stop, _) in spans.items():
            if begin < end and stop > start:  # its span is taken
                spans[i] = _best_span(*pairs[i], free, alignment)
    around.inside = [p for p in placed.values() if p.inside is not None]
    for place, p in placed.items():
        if p.inside is not None:
            _place_inside(p, [*waiting[place], *p.element.children], alignment)
    around.inside += [_place_empty(element, around, alignment) for element in elements if not element.closing]


def _host(element, fit, free, placed, pairs):
    """The number of the neighbour whose span the element must share; None if the element has a place of its own."""
    taken = {t: i for i, p in placed.items() for t in range(p.start, p.end)}
    if not taken:
        return None
    most = max(taken, key=lambda t: fit[t])
    if free and max(fit[t] for t in free) * COVERED >= fit[most]:
        return None
    host = taken[most]
    return host if pairs[host][0].opening.name != element.opening.name else None


def _fit(element, alignment):
    """float (T,): the share of each target token that comes from inside the element.

    Of two spans that fit equally, the one with the words of the inner pairs is better.
    """
    inside = alignment.inside(element)
    of_pairs = [_fit(child, alignment) for child in element.children if child.closing]
    fit = alignment.weights[:, inside].sum(axis=1) + INNER * sum(of_pairs)
    has_sign = alignment.source.signs[inside].any()
    return fit if has_sign else np.where(alignment.target.signs, np.minimum(fit, SIGN_FIT), fit)


def _best_span(element, fit, free, alignment):
    """The span of free tokens that comes most from inside and least from outside: (start, end, its gain).

    The signs behind it that belong to its last word are a part of it. If its source ends without a stop, it does, too.
    """
    if not free:
        return 0, 0, -np.inf
    threshold = min(0.5, max(fit[t] for t in free) / 2)
    best = free[0], free[0] + 1, -np.inf
    start, gain, last = free[0], 0.0, None
    is_aligned = alignment.weights.any(axis=1)
    for t in free:
        if t - 1 != last or gain <= 0:
            start, gain = t, 0.0
        gain += fit[t] - threshold if is_aligned[t] else UNALIGNED
        if gain > best[2]:
            best = start, t + 1, gain
        last = t
    start, end, gain = best
    while end in alignment.attached and end in free:
        end += 1
    inside = alignment.inside(element)
    if inside and not alignment.source.stops[inside[-1]]:
        while alignment.target.stops[end - 1] and end - start > 1:
            end -= 1
    return *_enclosed(start, end, free, inside, alignment), gain


def _enclosed(start, end, free, inside, alignment):
    """Moves the edges of a span to its own quotes and brackets.

    It drops quotes and brackets at its edges if its source has none. Then it takes the partner of a bracket inside, or
    drops a bracket at its edge that has no partner.

    Args:
        start, end: the span.
        free: the tokens that it may take.
        inside: the tokens of the source that belong to it.
        alignment: `_Alignment`.
    """
    source, target = alignment.source, alignment.target
    brackets, has_brackets = target.brackets, source.brackets[inside].any()
    strange = (brackets != 0) & (not has_brackets) | target.quotes & (not source.quotes[inside].any())
    while end - start > 1 and (strange[start] or strange[end - 1]):
        start, end = (start + 1, end) if strange[start] else (start, end - 1)
    while True:
        depth = np.concatenate([[0], np.cumsum(brackets[start:end])])
        opened, closed = depth[-1] - depth.min(), -depth.min()  # brackets without a partner
        if opened and end in free and brackets[end] < 0:
            end += 1
        elif closed and start - 1 in free and brackets[start - 1] > 0:
            start -= 1
        elif depth[-1] < depth[:-1].min() and end - start > 1:  # a closing one at the end
            end -= 1
        elif depth[1:].min() > 0 and end - start > 1:  # an opening one at the start
            start += 1
        else:
            break
    return start, end


def _place_empty(element, around, alignment):
    """Finds the gap for an empty tag: beside the translations of its neighbours, and outside other tags.

    A gap is better if the words before it come from the words before the tag, and the words after it from the words
    after. So line breaks divide the translation as they divide the source. A line that ends with a sign in the source
    ends with one again.
    """
    source_tokens, weights = alignment.source.tokens, alignment.weights
    before = sum(end <= element.start for _, end in source_tokens)  # tokens of the source before it
    highest = np.maximum(weights.max(axis=0, initial=0), 1e-9)
    had_space, has_space = element.spaces
    holds_left = not element.opening.breaks and before > 0 and (not had_space or has_space)
    holds_right = not element.opening.breaks and before < len(source_tokens) and (not has_space or had_space)
    holds_sign = element.opening.breaks and before > 0 and alignment.source.signs[before - 1]
    from_before = weights[:, :before].sum(axis=1)
    from_after = weights[:, before:].sum(axis=1)
    best, best_score = around.start, -np.inf
    first, last = around.start, around.end
    before_gap, from_start = (np.concatenate([[0], np.cumsum(sides)]) for sides in (from_before, from_after))
    covered = {gap for p in around.inside for gap in range(p.start + 1, p.end)}
    inside = alignment.inside(around.element)
    if element.opening.breaks and inside and inside[0] < before <= inside[-1] and last - first > 1:
        first, last = first + 1, last - 1  # a break between words stays between words
    gaps = [gap for gap in range(first, last + 1) if gap not in covered]
    between_words = [gap for gap in gaps if gap not in alignment.joints]
    for gap in between_words or gaps if element.opening.breaks else gaps:
        right_sides = before_gap[gap] - before_gap[around.start] + from_start[around.end] - from_start[gap]
        score = right_sides / max(1, around.end - around.start)
        if holds_left and gap > around.start:
            score += weights[gap - 1, before - 1] / highest[before - 1]
        if holds_right and gap < around.end:
            score += weights[gap, before] / highest[before]
        if holds_sign and gap > 0 and alignment.target.signs[gap - 1]:
            score += 1
        if score > best_score:
            best, best_score = gap, score
    return _Placed(element, best, best)


def _joints(text, tokens):
    """The gaps inside "it's" and before a comma: no white space is there, and the script has white space."""
    return {
        gap
        for gap, ((_, end), (start, _)) in enumerate(itertools.pairwise(tokens), 1)
        if end == start and not is_unspaced(text[start]) and not is_unspaced(text[end - 1])
    }


def _attached(text, tokens, source_words):
    """The signs that the source has not, and that belong to the word before them: set of int."""
    found = set()
    for place, ((_, before), (start, end)) in enumerate(itertools.pairwise(tokens), 1):
        sign, following = text[start:end], text[end : end + 1]
        is_last = not following.strip() or is_sign(following) or is_unspaced(following)
        if before == start and is_last and is_sign(sign) and not DIVIDING.match(sign) and sign not in source_words:
            found.add(place)
    return found


def _of_whole_words(weights, layout, source_tokens, target, target_tokens):
    """Gives all tokens of a word the same weights: float (T, S).

    Tags may divide two words of the source that are written as one: <b>Ctrl</b><b>Shift</b>. Then the words of the
    translation that are written as one come from them, in the same order.
    """
    edges, divided = _edges(layout.root), []
    for run in _runs(layout.text, source_tokens):
        if edges.intersection(start for start, _ in source_tokens[run.start + 1 : run.stop]):
            divided.append(run)
    for run in _runs(target, target_tokens):
        of_run = weights[run]
        shares = [of_run[:, other].sum() for other in divided]
        if not divided or max(shares) * 4 < of_run.sum():
            of_run[:] = of_run.mean(axis=0)
            continue
        source = divided[int(np.argmax(shares))]
        if source.stop - source.start == len(of_run):
            of_run[:] = 0
            of_run[:, source] = np.eye(len(of_run))
    return weights


def _edges(element):
    """The places of the tags of an element and of those inside: a set of int."""
    return {element.start, element.end}.union(*map(_edges, element.children))


def _runs(text, tokens):
    """The words of several tokens: list of slices. A run of Katakana is one (UAX 29). So are words written as one."""
    katakana = [is_katakana(text[start:end]) for start, end in tokens]
    runs = [slice(0, 0)]
    for place, ((_, end), (start, _)) in enumerate(itertools.pairwise(tokens), 1):
        if end == start and (is_hump(text, start) or katakana[place - 1] and katakana[place]):
            first = runs.pop().start if runs[-1].stop == place else place - 1
            runs.append(slice(first, place + 1))
    return runs[1:]


def _written(root, target, tokens):
    """The parts of the translation: its text, with the marks between its tokens and the white space at its place."""
    row = _row(root)
    parts, marks, last = [], [], 0
    for item in [*row, None]:
        if isinstance(item, tuple):
            marks.append(item)
            continue
        start, end = (len(target), len(target)) if item is None else tokens[item]
        edges = last == 0, item is None
        parts += [*_gap(target[last:start], marks, edges), target[start:end]]
        marks, last = [], end
    return [part for part in parts if part]


def _row(placed):
    """Target tokens, int, and marks, (mark, spaces of the source), in their order."""
    row, t = [], placed.start
    # At one place empty tags come before the pairs that start there, and after the pairs that end there.
    order = sorted(
        placed.inside, key=lambda p: (p.start, p.element.closing is not None, p.element.start, p.start == p.end)
    )
    for p in order:
        row += range(t, p.start)
        t = p.end
        row.append((p.element.opening, p.element.spaces))
        if p.element.closing:
            row += [*_row(p), (p.element.closing, p.element.closing_spaces)]
    return [*row, *range(t, placed.end)]


def _gap(space, marks, edges):
    """The parts between two tokens: marks, and the white space where the source has it.

    Args:
        space: str, the white space of the translation.
        marks: list of (mark, whether the source has white space before it, and after it).
        edges: two bool, whether the text begins here, and whether it ends here.
    """
    if not marks:
        return [space]
    written = []
    if any(mark.is_space for mark, _ in marks):
        before = not edges[0]  # whether a word or a mark that is no space stands before
        for (mark, spaces), (following, _) in itertools.zip_longest(marks, marks[1:], fillvalue=(None, None)):
            is_before_word = following is None and not edges[1] and mark.kind == EMPTY and not mark.breaks
            is_behind_word = before and spaces[0] and not mark.is_space and not is_before_word
            written += [" " if is_behind_word else "", mark, " " if is_before_word and all(spaces) else ""]
            before = not mark.is_space
        return written
    if not space or any(mark.breaks and not any(spaces) for mark, spaces in marks):
        for mark, spaces in marks:
            is_apart = mark.kind == EMPTY and not mark.breaks and any(spaces)
            is_before = is_apart and not edges[0] and (spaces[0] or edges[1]) and written[-1:] != [" "]
            is_after = is_apart and not edges[1] and (spaces[1] if mark.inside else not is_before)
            written += [" " if is_before else "", mark, " " if is_after else ""]
        return written
    wishes = [_wish(mark, spaces) for mark, spaces in marks]
    at = min(range(len(marks) + 1), key=lambda i: sum(w > 0 for w in wishes[:i]) + sum(w < 0 for w in wishes[i:]))
    for i, (mark, spaces) in enumerate(marks):
        before, spaces_before = marks[i - 1] if i else (mark, (False, False))
        is_apart = spaces_before[1] and (i > at or before.kind == mark.kind == EMPTY) or spaces[0] and i < at
        written += [space if i == at else " " if is_apart else "", mark]
    return [*written, space if at == len(marks) else " " if spaces[1] else ""]


def _wish(mark, spaces):
    """The place of a mark: before the white space (-1), after it (1), or either (0)."""
    if spaces[0] != spaces[1]:
        return 1 if spaces[0] else -1
    return mark.kind or -int(not spaces[0])  # a superscript stays with the word before it
