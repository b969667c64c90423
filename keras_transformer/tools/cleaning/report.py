"""The report of a preparation: one HTML file that needs no network."""

import math
from collections import Counter

from keras_transformer.errors import counted
from keras_transformer.tools import page_of
from keras_transformer.tools.cleaning.examination import STEPS, Examined
from keras_transformer.tools.cleaning.settings import HELP

EXAMPLES = 10  # of each step
LENGTH_STEP, LONGEST = 10, 300  # characters; the last bar has all longer texts
RATIO_STEPS, RATIO_LIMIT = 4, 3  # bars for each doubling, and doublings
MENDED = "normalize"


class Tally:
    """Counts of all pairs, examples of each step, and distributions before and after.

    Attributes:
        read, kept: int, numbers of pairs.
        mended: int, number of kept pairs whose text was changed.
        dropped: Counter, from a step to the number of pairs that it drops.
        examples: dict, from a step to the first `Examined` that it drops. "normalize" has the first pairs that it
            mends.
        lengths, ratios: dicts, from (side or None, whether only pairs that stay are counted) to Counter of bars.
    """

    def __init__(self):
        self.read = self.kept = self.mended = 0
        self.dropped = Counter()
        self.examples: dict[str, list[Examined]] = {}
        self.lengths = {(side, after): Counter() for side in (0, 1) for after in (False, True)}
        self.ratios = {after: Counter() for after in (False, True)}

    def count(self, one: Examined) -> None:
        """Counts a pair."""
        self.read += 1
        self._distribute(one.received, after=False)
        if one.step:
            self.dropped[one.step] += 1
            self._show(one.step, one)
            return
        self.kept += 1
        self._distribute(one.pair, after=True)
        if one.pair != one.received:
            self.mended += 1
            self._show(MENDED, one)

    def describe(self) -> str:
        """Says how many pairs each step drops."""
        return ", ".join(f"{step} {self.dropped[step]:,}" for step in STEPS if self.dropped[step]) or "none dropped"

    def _show(self, step: str, one: Examined) -> None:
        shown = self.examples.setdefault(step, [])
        if len(shown) < EXAMPLES:
            shown.append(one)

    def _distribute(self, pair: tuple[str, str], after: bool) -> None:
        lengths = [len(text) for text in pair]
        for side, length in enumerate(lengths):
            self.lengths[side, after][min(length, LONGEST) // LENGTH_STEP] += 1
        if all(lengths):
            doublings = math.log2(lengths[1] / lengths[0])
            self.ratios[after][round(max(-RATIO_LIMIT, min(RATIO_LIMIT, doublings)) * RATIO_STEPS)] += 1


def report_page(about: dict, tally: Tally) -> str:
    """Makes the page.

    Args:
        about: dict, the content of clean.json.
        tally: Tally.

    Returns:
        str of HTML. No text of the corpus can end the HTML element around it.
    """
    pairs = about["pairs"]
    data = {
        "title": f"{about['corpus']}, {about['source_lang']} to {about['target_lang']}",
        "about": f"{counted(pairs['kept'], 'pair')} of {pairs['read']:,} stay. "
        f"The text of {pairs['mended']:,} of these was mended.",
        "steps": [_step(name, about, tally) for name in (MENDED, *STEPS)],
        "charts": [
            _chart(f"Characters of the {side}", [tally.lengths[number, after] for after in (False, True)], _length_name)
            for number, side in enumerate(("source", "target"))
        ]
        + [_chart("Characters of the target for one of the source", list(tally.ratios.values()), _ratio_name)],
    }
    return page_of(__package__, data)


def _step(name: str, about: dict, tally: Tally) -> dict:
    return {
        "name": name,
        "help": HELP[name],
        "setting": about["settings"][name],
        "count": tally.mended if name == MENDED else tally.dropped[name],
        "share": (tally.mended if name == MENDED else tally.dropped[name]) / max(1, tally.read),
        "examples": [_example(one) for one in tally.examples.get(name, [])],
    }


def _example(one: Examined) -> dict:
    detail = "" if one.pair == one.received or one.step else " | ".join(one.pair)
    found = one.detail if isinstance(one.detail, str) else " | ".join(one.detail)
    return {"source": _visible(one.received[0]), "target": _visible(one.received[1]), "detail": found or detail}


def _visible(text: str) -> str:
    """Writes invisible characters as their numbers."""
    return "".join(c if c.isprintable() else f"[U+{ord(c):04X}]" for c in text)


def _chart(name: str, counts: list[Counter], name_of) -> dict:
    bars = range(min(map(min, filter(None, counts)), default=0), max(map(max, filter(None, counts)), default=0) + 1)
    return {"name": name, "bars": [[name_of(bar), *(count[bar] for count in counts)] for bar in bars]}


def _length_name(bar: int) -> str:
    start = bar * LENGTH_STEP
    return f"{start} or more" if start == LONGEST else f"{start} to {start + LENGTH_STEP - 1}"


def _ratio_name(bar: int) -> str:
    return f"{2 ** (bar / RATIO_STEPS):.2g}"
