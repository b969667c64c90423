"""Numbers in digits, in the notation of any language: whether two texts can have the same ones.

    "1,250" = "1.250" = "१,२५०"   "1.50" = "1,5"   "10,000" = "１万"   "1.5 lakh" = "150,000"   "the 1990s" = "die 90er"

A number has several readings, and two numbers are equal if they share one. A number on one side alone is no mistake:
the other side can spell it out. So two texts differ only if each of them has a number that the other one lacks.
"""

import functools
import itertools
import math
import re
import unicodedata
from collections.abc import Iterable, Iterator
from fractions import Fraction
from typing import NamedTuple

import regex
from babel import Locale

from keras_transformer.languages import likely_territory, locale_of
from keras_transformer.words import LETTERS_AND_DIGITS

_SPACES = " \u00a0\u2009\u202f"
_DIGITS = re.compile(r"\d+")
_DIGITS_WITH_MARKS = rf"\d+(?:[.,'’·٫٬．，/⁄]\d+|(?<=(?<!\d)\d{{1,3}}(?:[{_SPACES}]\d{{3}})*)[{_SPACES}]\d{{3}}(?!\d))*"
_DECIMAL_MARKS, _FRACTION_MARKS = ".,·٫．，", "/⁄"
_MOST_DIGITS = 100  # of a number; Python reads no integer of many thousands
_HAN = {chr(code): unicodedata.numeric(chr(code), 0) for code in range(0x4E00, 0xA000)}
_HAN_SCALES = {sign: int(value) for sign, value in _HAN.items() if value in (10, 100, 1000, 10**4, 10**8, 10**12)}
_LONG_WORD = 4  # letters of a word of scale that may have an ending
_FEWEST_ZEROS = 1000  # of a number whose scale can be a word that is not known
# Years of other calendars less those of ours: Persian, Indian and Hebrew; then Buddhist, of the Republic of China, and
# of the Japanese eras Meiji, Showa, Heisei and Reiwa.
_OTHER_MONTHS = (-621, -622, -78, -79, 3760, 3761)
_CALENDARS = (*_OTHER_MONTHS, 543, -1911, -1867, -1925, -1988, -2018)
_YEARS, _DAYS = range(1000, 6000), set(range(1, 32))
_HALF_A_DAY = 12  # hours


class Number(NamedTuple):
    """A number of a text.

    Args:
        values: frozenset of Fraction, what it can mean by its notation. It is empty if no notation fits.
        others: frozenset of Fraction, what it can mean as a year or an hour.
        parts: tuple of int, its runs of digits.
    """

    values: frozenset[Fraction]
    others: frozenset[Fraction]
    parts: tuple[int, ...]


def _folded(word):
    """A word without case. "İ" is "i", as the pattern has it: `casefold` makes "i" and a dot above of it."""
    return word.casefold().replace("\u0307", "")


class NumberForms:
    """The forms of numbers in two languages, by CLDR and Unicode.

    Args:
        languages: iterable of str, codes. A language that CLDR does not know adds nothing.
    """

    def __init__(self, languages: Iterable[str]):
        locales = [locale for locale in map(locale_of, languages) if locale]
        locales += [found for one in locales for other in locales if (found := _as_written_with(one, other))]
        words = {_folded(word): scale for locale in locales for word, scale in _scales_of(locale)}
        self._scales = words | _HAN_SCALES
        self._months = {name: month for locale in locales for name, month in _months_of(locale)}
        self._hours = {_plain(name) for locale in locales for name in _periods_of(locale)}
        self._scale = _any_of(self._scales, regex.IGNORECASE)
        self._month = _any_of(self._months)
        self._term = regex.compile(
            rf"(?P<digits>{_DIGITS_WITH_MARKS})(?P<fraction>\p{{No}})?(?P<scales>(?:[\s-]?{self._scale.pattern})*)",
            regex.IGNORECASE,
        )

    def differ(self, source: str, target: str) -> bool:
        """Whether each text has a number in digits that the other text lacks."""
        runs = [_DIGITS.findall(text) for text in (source, target)]
        if sorted(runs[0]) == sorted(runs[1]) or "".join(runs[0]) == "".join(runs[1]):
            return False
        every = self.numbers(source), self.numbers(target)
        ones, others = _unmatched(*every)
        ones, others = _unmatched(self._runs(ones, source), self._runs(others, target))
        ours, theirs = ({self._months[name] for name in self._month.findall(text)} for text in (source, target))
        ones = [one for one in ones if one.values.isdisjoint(theirs - ours)]  # May 22 = 5/22
        others = [other for other in others if other.values.isdisjoint(ours - theirs)]
        if _have_other_months(*every):
            ones, others = ([number for number in left if not number.values & _DAYS] for left in (ones, others))
        return bool(ones and others)

    def numbers(self, text: str) -> list[Number]:
        """Finds the numbers of a text. Terms that follow each other are one number: "3万5千" is 35000."""
        found, scale, end = [], 1, -1
        has_hours = self._has_hours(text)
        for term in self._term.finditer(text):
            runs = _DIGITS.findall(term["digits"])
            if max(map(len, runs)) > _MOST_DIGITS:
                continue
            of_term = math.prod(self._scales[_folded(word)] for word in self._scale.findall(term["scales"]))
            values = {(value + _numeric(term["fraction"])) * of_term for value in _values(term["digits"])}
            parts = tuple(map(int, runs))
            between = text[end : term.start()]
            if of_term < scale and (not between or between in _SPACES and of_term > 1):
                values = {one + value for one in found[-1].values for value in values}
                found[-1] = Number(frozenset(values), frozenset(), found[-1].parts + parts)
            else:
                found.append(Number(frozenset(values), _others(values, has_hours), parts))
            scale, end = of_term, term.end()
        return found

    def _runs(self, numbers: list[Number], text: str) -> list[Number]:
        """The runs of digits of some numbers, each as a number."""
        has_hours = self._has_hours(text)
        runs = [Fraction(part) for number in numbers for part in number.parts]
        return [Number(frozenset({run}), _others({run}, has_hours), ()) for run in runs]

    def _has_hours(self, text: str) -> bool:
        plain = _plain(text)
        return any(name in plain for name in self._hours)


def _unmatched(ones: list[Number], others: list[Number]) -> tuple[list[Number], list[Number]]:
    """What is left of both lists without the numbers that can be equal."""
    for same in (_are_equal, _can_be_equal):
        left, others = [], list(others)
        for one in ones:
            found = next((place for place, other in enumerate(others) if same(one, other)), None)
            if found is None:
                left.append(one)
            else:
                del others[found]
        ones = left
    return ones, others


def _have_other_months(ones: list[Number], others: list[Number]) -> bool:
    """Whether the sides name the same year in calendars whose months start on other days."""
    years, theirs = ({year for number in side for year in number.values if year in _YEARS} for side in (ones, others))
    return any(year + calendar in theirs or year - calendar in theirs for year in years for calendar in _OTHER_MONTHS)


def _are_equal(one: Number, other: Number) -> bool:
    return not one.values.isdisjoint(other.values)


def _can_be_equal(one: Number, other: Number) -> bool:
    is_other = not (one.values.isdisjoint(other.others) and one.others.isdisjoint(other.values))
    return is_other or any(_is_scaled(a, b) for a in one.values for b in other.values)


def _is_scaled(one: Fraction, other: Fraction) -> bool:
    """Whether the greater number is the smaller one with a word of scale that is not known, such as "crore"."""
    smaller, greater = sorted((one, other))
    times = greater / smaller if 0 < smaller < _FEWEST_ZEROS else Fraction(0)
    return times >= _FEWEST_ZEROS and times.denominator == 1 and not str(times.numerator).strip("0")[1:]


@functools.lru_cache(1 << 10)
def _values(number: str) -> frozenset[Fraction]:
    """What digits with marks between them can mean: "1,250" is 1250 or 1.25, "1.250,5" is 1250.5, "1.2" is 1.2."""
    runs = _DIGITS.findall(number)
    marks = [mark for mark in number if not mark.isdecimal()]
    if not marks:
        return frozenset({Fraction(number)})
    found = set()
    if _are_groups(runs, marks):
        found.add(Fraction("".join(runs)))
    if marks[-1] in _DECIMAL_MARKS and marks[-1] not in marks[:-1] and _are_groups(runs[:-1], marks[:-1]):
        found.add(Fraction(f"{''.join(runs[:-1])}.{runs[-1]}"))
    if len(marks) == 1 and marks[0] in _FRACTION_MARKS and int(runs[1]):
        found.add(Fraction(int(runs[0]), int(runs[1])))
    return frozenset(found)


def _are_groups(runs: list[str], marks: list[str]) -> bool:
    """Whether the marks divide groups of digits: of three, or of two before the last three as in India."""
    first, *middle = map(len, runs)
    if not middle:
        return True
    is_one_mark = len(set(marks)) == 1 and marks[0] not in _FRACTION_MARKS
    return is_one_mark and middle.pop() == 3 and (first <= 3 and {*middle} <= {3} or first <= 2 and {*middle} <= {2})


def _others(values: set[Fraction], has_hours: bool) -> frozenset[Fraction]:
    """What a number can mean as a year, a decade or a century, and as an hour of the first or second half day."""
    found = []
    for number in values:
        if 1000 <= number < 3000:
            found += [number % 100, *(year for calendar in _CALENDARS if (year := number + calendar) > 0)]
            found += [number / 100 + 1] if number % 100 == 0 else []
        elif has_hours and 0 < number <= _HALF_A_DAY:
            found += [number % _HALF_A_DAY, number % _HALF_A_DAY + _HALF_A_DAY]
    return frozenset(found)


def _numeric(fraction: str | None) -> Fraction:
    """The value of a sign such as "½"; 0 for a digit that is raised, as in "10²"."""
    is_digit = not fraction or fraction.isdigit()
    return Fraction(0) if is_digit else Fraction(unicodedata.numeric(fraction)).limit_denominator(1000)


def _plain(text: str) -> str:
    """A text without case and full stops: "p.m." and "PM" are equal."""
    return text.casefold().replace(".", "").replace("\u202f", " ")


def _as_written_with(one: Locale, other: Locale) -> Locale | None:
    """The language of one locale in the country of another one: English in India counts as the country does."""
    return locale_of(f"{one.language}_{likely_territory(str(other))}")


def _scales_of(locale: Locale) -> Iterator[tuple[str, int]]:
    """CLDR's words for powers of ten: ("million", 10**6)."""
    for style in locale.compact_decimal_formats.values():
        for by_power in style.values():
            for power, pattern in by_power.items():
                zeros, word = re.fullmatch(r"[^0]*(0*)(.*)", pattern.pattern.replace("'", "")).groups()
                if zeros and (word := regex.sub(rf"^[^{LETTERS_AND_DIGITS}]+|[\s.\u061c\u200e\u200f]+$", "", word)):
                    yield word, int(power) // 10 ** (len(zeros) - 1)


def _periods_of(locale: Locale) -> set[str]:
    """CLDR's names of the parts of a day, such as "PM" and "in the evening"."""
    periods = locale.day_periods.get("format", {})
    return {name for width in ("wide", "abbreviated") for name in periods.get(width, {}).values()}


def _months_of(locale: Locale) -> Iterator[tuple[str, int]]:
    """CLDR's names of months in words, with their numbers."""
    for form, width in itertools.product(("format", "stand-alone"), ("wide", "abbreviated")):
        names = locale.months[form][width].items()
        yield from ((name.removesuffix("."), month) for month, name in names if not _DIGITS.search(name))


def _any_of(words: Iterable[str], flags: int = 0) -> regex.Pattern:
    """Finds words. A short word of a script with case must be whole: "5 m" is no million, and "market" is no month."""

    def pattern(word):
        is_short = word.upper() != word.lower() and len(word) < _LONG_WORD
        return rf"(?<!\p{{L}}){regex.escape(word)}(?!\p{{L}})" if is_short else regex.escape(word)

    return regex.compile(f"(?:{'|'.join(map(pattern, sorted(words, key=len, reverse=True))) or '(?!)'})", flags)
