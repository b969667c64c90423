"""The decisions about each pair without the others: the first step of both engines, chunk by chunk.

The key of a pair is a hash of its text before mending. Every output is in the order of the keys, and of several copies,
the one with the smallest key stays. So the order of the input and the division of the work change nothing.
"""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import fields
from typing import NamedTuple

import numpy as np

from keras_transformer.data.corpora import Pair
from keras_transformer.normalization import mend
from keras_transformer.tools.cleaning.minhash import bands, shingles, signatures, similarity
from keras_transformer.tools.cleaning.rules import rules_of
from keras_transformer.tools.cleaning.settings import CleaningSettings
from keras_transformer.tools.cleaning.text import skeleton

KEY_BYTES = 16  # The chance that two of a billion pairs share a key is one in 10^20.
PAIR_ROWS, HELD_OUT_ROWS = 8, 4  # of a band: few comparisons among all pairs, and no held-out line overlooked
STEPS = [field.name for field in fields(CleaningSettings)][1:]
"""The steps that drop pairs, in their order. A pair is dropped by the first one that finds fault with it."""


class Examined(NamedTuple):
    """A pair with its findings.

    Args:
        received: (source, target) before mending.
        pair: (source, target) after mending.
        step: str, the step that drops the pair; "" for a pair that stays.
        detail: str, or a pair as a list: the language that was found, the similar held-out line or the similar pair.
    """

    received: Pair
    pair: Pair
    step: str = ""
    detail: str | list = ""

    @property
    def key(self) -> bytes:
        """The place of the pair in every order: bytes (16,)."""
        return digest(self.received)

    @property
    def sides(self) -> list[set[str]]:
        """The shingles of both sides, for `similarity`."""
        return [shingles(skeleton(text)) for text in self.pair]

    def to_line(self) -> bytes:
        """Writes the pair as a line of JSON."""
        return json.dumps(self, ensure_ascii=False).encode("utf-8", "surrogatepass") + b"\n"

    @classmethod
    def from_line(cls, line: bytes):
        """Reads what `to_line` wrote."""
        received, pair, step, detail = json.loads(line.decode("utf-8", "surrogatepass"))
        return cls(tuple(received), tuple(pair), step, detail)


def digest(pair: Pair) -> bytes:
    """Hashes a pair: bytes (16,)."""
    text = "\n".join([str(len(pair[0])), *pair]).encode("utf-8", "surrogatepass")
    return hashlib.blake2b(text, digest_size=KEY_BYTES).digest()


class HeldOut:
    """Finds the held-out line to which a text is similar.

    Args:
        lines: iterable of str.
        least: float, the smallest similarity (Jaccard) of a near duplicate.
    """

    def __init__(self, lines: Iterable[str], least: float):
        self._least = least
        self._lines = sorted({line for line in lines if skeleton(line)})
        self._shingles = [[shingles(skeleton(line))] for line in self._lines]
        self._places: dict[int, list[int]] = {}
        for line, keys in enumerate(self._bands([skeleton(line) for line in self._lines])):
            for key in keys.tolist():
                self._places.setdefault(key, []).append(line)

    @staticmethod
    def _bands(skeletons: list[str]) -> np.ndarray:
        return bands(signatures(skeletons), HELD_OUT_ROWS)

    def find(self, texts: list[str]) -> list[str]:
        """Finds for each skeleton the first similar line, or ""."""
        return [self._first(text, keys.tolist()) for text, keys in zip(texts, self._bands(texts), strict=True)]

    def _first(self, text: str, keys: list[int]) -> str:
        lines = sorted({line for key in keys for line in self._places.get(key, ())})
        of_text = [shingles(text)] if lines else []
        similar = (line for line in lines if similarity(of_text, self._shingles[line]) >= self._least)
        return next((self._lines[line] for line in similar), "")


class Examiner:
    """Examines pairs, each for itself.

    Args:
        settings: CleaningSettings.
        source_lang, target_lang: str, codes of the languages.
        held_out: iterable of str, the lines that must not stay in the text, on either side.
        usual: float, how many times as wide as a source the targets are, see `usual_ratio`.

    Raises:
        UserError: if a step does not know a language, or needs a package that is not installed.
    """

    def __init__(
        self,
        settings: CleaningSettings,
        source_lang: str,
        target_lang: str,
        held_out: Iterable[str] = (),
        usual: float = 1.0,
    ) -> None:
        self.settings = settings
        held_out = list(held_out)
        self.arguments = (settings, source_lang, target_lang, held_out, usual)  # to make another one in another process
        self._rules = rules_of(settings, source_lang, target_lang, usual)
        lines = map(self._text, held_out)
        self._held_out = HeldOut(lines, settings.near_held_out) if settings.near_held_out else None

    def examine(self, pairs: list[Pair]) -> tuple[list[Examined], np.ndarray]:
        """Mends pairs and applies all rules.

        Args:
            pairs: list of N pairs.

        Returns:
            (list of N `Examined`, uint64 (N, PAIR_BANDS), the bands of both sides together). The bands of a pair that
            is dropped mean nothing.
        """
        examined = [self._examine(pair) for pair in pairs]
        skeletons = [[skeleton(one.pair[side]) for one in examined] for side in (0, 1)]
        if self._held_out:
            lines = [source or target for source, target in zip(*map(self._held_out.find, skeletons), strict=True)]
            examined = [
                one._replace(step="near_held_out", detail=line) if line and not one.step else one
                for one, line in zip(examined, lines, strict=True)
            ]
        both = np.minimum(signatures(skeletons[0]), signatures(skeletons[1], side=1))
        return examined, bands(both, PAIR_ROWS)

    def _text(self, text: str) -> str:
        # Line ends inside a text would shift one file of the output against the other.
        return mend(text) if self.settings.normalize else text.replace("\r", " ").replace("\n", " ")

    def _examine(self, received: Pair) -> Examined:
        pair = (self._text(received[0]), self._text(received[1]))
        for name, rule in self._rules.items():
            if found := rule(*pair):
                return Examined(received, pair, name, "" if found is True else found)
        return Examined(received, pair)
