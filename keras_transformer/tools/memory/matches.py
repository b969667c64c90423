"""A translation memory: the entries that are equal to a text, or similar."""

import functools
import itertools
import os
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from keras_transformer.errors import UserError
from keras_transformer.languages import parts_of, plain
from keras_transformer.normalization import mend
from keras_transformer.tools.lines import refuse_pipe
from keras_transformer.tools.memory.tmx import read_units
from keras_transformer.tools.words import tokens_of
from keras_transformer.translation.lines import of_one_or_many

INSTALL = "pip install 'rapidfuzz>=3,<4'"  # the extra [memory] of pyproject.toml
EXACT = 100  # percent
MOST_SIMILAR = 3  # entries that are shown for a text
TINY = 1e-9  # more than the error of a similarity


class Match(NamedTuple):
    """An entry of a translation memory that is equal or similar to a text.

    Args:
        source: str, the source of the entry.
        translation: str.
        match: int, the similarity to the text in percent, rounded down; 100 for an equal one.
    """

    source: str
    translation: str
    match: int


class Memory:
    """Sources and their translations. The last one of equal sources counts.

    Texts are compared in the form that the model reads, see `keras_transformer.normalization.mend`. So neither the
    number of spaces matters nor the way in which an accent is written. Capitals and signs matter.

    The similarity of two texts is 1 - d / n: d is their Levenshtein distance in characters, and n is the length of the
    longer text.

    Args:
        pairs: iterable of (source, translation), two str. Behind them may stand what `spans_of` needs: a list of
            ((start, end), (start, end)), characters of the source and of the translation that come from each other.
            There, white space does not count.
        threshold: int, 1 to 100, percent: less similar entries are not found. 100 finds equal ones only. Other numbers
            need the package rapidfuzz.

    Raises:
        UserError: for a threshold out of range, and without the package.

    Example:

    ```python
    memory = Memory([("one two", "eins zwei"), ("three", "drei")])
    memory.find("one  two")  # [Match(source='one two', translation='eins zwei', match=100)]
    memory.find(["three", "four"])  # [[Match(source='three', translation='drei', match=100)], []]
    ```
    """

    def __init__(self, pairs: Iterable[tuple[str, str]], threshold: int = EXACT):
        self.threshold = threshold
        self._most_similar = _scorer(threshold)
        mended = ((mend(source), source, translation, *spans) for source, translation, *spans in pairs)
        self._entries = {key: pair for key, *pair in mended if key and mend(pair[1])}
        self._sources = [*self._entries] if threshold < EXACT else []

    @classmethod
    def open(cls, paths, source_lang: str, target_lang: str, threshold: int = EXACT) -> "Memory":
        """Reads files in TMX.

        Languages are compared by their language and their usual script: `en-US` serves `en`, and `zh-TW` does not serve
        `zh`. The codes themselves come first if a file has them. The direction of a file does not matter.

        Of equal sources, that in the last file counts, and in a file the one that was changed last.

        Args:
            paths: path of a file, or a list of them. With .gz at its end, a file is packed.
            source_lang, target_lang: codes of the languages, such as "en" or "pt-BR".
            threshold: see `Memory`.

        Raises:
            FileError: if a file cannot be read.
            UserError: as `Memory` and `read_units`, and if no unit has both languages. It lists the languages.

        Example:

        ```python
        Memory.open("memory.tmx", "en", "de").find("one two")
        ```
        """
        paths = [paths] if isinstance(paths, (str, os.PathLike)) else [*paths]
        languages = set()
        pairs = sorted(_pairs(paths, source_lang, target_lang, languages), key=lambda pair: pair[0])
        memory = cls([pair[1:] for pair in pairs], threshold)
        if not memory:
            raise UserError(
                f"{', '.join(map(str, paths))} has no text in {source_lang} with a translation into {target_lang}. Its "
                f"languages are {', '.join(sorted(languages)) or 'not given'}"
            )
        return memory

    def __len__(self):
        return len(self._entries)

    @of_one_or_many
    def find(self, texts):
        """Finds texts.

        Args:
            texts: list of str, or one str.

        Returns:
            For each text, a list of `Match`: the equal entry alone, or else the most similar ones, best first.

        Raises:
            UserError: for a text that is no str.
        """
        return [self._find(text) for text in texts]

    def equal(self, text):
        """The `Match` of the entry that is equal to a text, a str; None if there is none."""
        entry = self._entries.get(mend(text))
        return Match(*entry[:2], EXACT) if entry else None

    def spans_of(self, text):
        """The parts of an equal entry that its codes surround: list of (tokens of the source, tokens of the
        translation), two lists of int. The tokens are those of `tokens_of`. [] without codes, and without an entry.
        """
        source, translation, spans = (*self._entries.get(mend(text), ("", "")), [])[:3]
        tokens, others = tokens_of(source), tokens_of(translation)
        if len(tokens) != len(tokens_of(text)):
            return []
        return [(_inside(tokens, span), _inside(others, other)) for span, other in spans]

    def _find(self, text):
        if match := self.equal(text):
            return [match]
        key = mend(text)
        if not key or self.threshold == EXACT:
            return []
        found = self._most_similar(key, self._sources, score_cutoff=self.threshold / 100 - TINY)
        return [Match(*self._entries[source][:2], int(100 * (score + TINY))) for source, score, _ in found]


def check(paths, threshold: int = EXACT):
    """Checks before long work what `Memory.open` needs: the first unit of each file. Raises as `Memory.open`."""
    _scorer(threshold)
    for path in paths:
        refuse_pipe(path)
        if next(read_units(path), None) is None:
            raise UserError(f"{path} has no unit, the element `tu` of TMX")


def _scorer(threshold):
    """The function that finds the most similar texts; None if only equal texts are to be found."""
    if not 1 <= threshold <= EXACT:
        raise UserError(f"`threshold` must be between 1 and {EXACT}. Received: threshold={threshold}")
    if threshold == EXACT:
        return None
    try:
        from rapidfuzz import process
        from rapidfuzz.distance import Levenshtein
    except ModuleNotFoundError as error:
        raise UserError(
            f"matches below {EXACT} % need the package {error.name}, which is not installed: {INSTALL}"
        ) from error
    return functools.partial(process.extract, scorer=Levenshtein.normalized_similarity, limit=MOST_SIMILAR)


def _pairs(paths, source_lang, target_lang, languages) -> Iterator[tuple]:
    """Yields (how well it fits, source, translation, spans) of each unit, and adds all codes to `languages`.

    A unit with code is two entries: without the code, and with it as it is written, such as "Hello %s".

    A unit fits by the codes of its languages. Of two with the same codes, one without code of other programs is better.
    Then the last file counts, and in a file the last change.
    """
    for number, path in enumerate(paths):
        for unit in read_units(path):
            languages.update(segment.language for segment in unit)
            (fit, source), (other, target) = (_closest(unit, wanted) for wanted in (source_lang, target_lang))
            if fit and other:
                changed = max(source.changed, target.changed)
                common = sorted(source.places.keys() & target.places.keys())  # pairs before others
                spans = [(source.places[name], target.places[name]) for name in common]
                rank = fit + other, source.is_plain and target.is_plain, number, changed
                yield rank, source.asked, target.text, spans
                if source.written and target.written and source.codes == target.codes:
                    yield rank, source.written, target.written


def _inside(tokens, span):
    lengths = [end - start for start, end in tokens]
    ends = itertools.accumulate(lengths)
    return [i for i, (end, length) in enumerate(zip(ends, lengths, strict=True)) if span[0] < end < span[1] + length]


def _closest(unit, wanted):
    """(how well its language fits, `Segment`), the first of the best ones of a unit; (0, None) for an empty one."""
    fits = [(_fit(segment.language, wanted), segment) for segment in unit]
    return max(fits, key=lambda each: each[0], default=(0, None))


@functools.cache
def _fit(code, wanted):
    """2 for the same code, 1 for the same language in the same script, 0 for another one."""
    if plain(code) == plain(wanted):
        return 2
    return int(parts_of(code)[:2] == parts_of(wanted)[:2])
