"""Phrases that Unicode CLDR can write in any locale: numbers, money, measures, names and lists of names.

A `Form` is one way to say one kind of thing, such as "3 kilometers per hour". The form draws a random value, and writes
the value in any locale. Two locales therefore give a phrase and its exact translation. Dates and times are in
`times.py`.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from random import Random
from typing import Any

import regex
from babel import Locale, dates, lists, localedata, numbers

from keras_transformer.private_api import unit_patterns
from keras_transformer.words import LETTER, LETTERS

# CLDR's codes of the territories, languages, currencies and units in the phrases, separated by spaces.
TERRITORIES = """
    AD AE AF AG AL AM AO AR AT AU AZ BA BB BD BE BF BG BH BI BJ BN BO BR BS BT BW BY BZ CA CD CF CG CH CI CL CM CN CO CR
    CU CV CY CZ DE DJ DK DM DO DZ EC EE EG ER ES ET FI FJ FM FR GA GB GD GE GH GL GM GN GQ GR GT GW GY HK HN HR HT HU ID
    IE IL IN IQ IR IS IT JM JO JP KE KG KH KI KM KN KP KR KW KZ LA LB LC LI LK LR LS LT LU LV LY MA MC MD ME MG MH MK ML
    MM MN MR MT MU MV MW MX MY MZ NA NE NG NI NL NO NP NR NZ OM PA PE PG PH PK PL PR PS PT PW PY QA RO RS RU RW SA SB SC
    SD SE SG SI SK SL SM SN SO SR SS ST SV SY SZ TD TG TH TJ TL TM TN TO TR TT TV TW TZ UA UG US UY UZ VA VC VE VN VU WS
    XK YE ZA ZM ZW
"""
NAMED_LANGUAGES = """
    af am ar az be bg bn br bs ca cs cy da de el en eo es et eu fa fi fil fo fr ga gl gu ha he hi hr ht hu hy id ig is
    it ja jv ka kk km kn ko ku ky la lb lo lt lv mg mi mk ml mn mr ms mt my nb ne nl nn pa pl ps pt qu rm ro ru sa sk sl
    sm so sq sr sv sw ta te th tk tr uk ur uz vi xh yi yo zh zu
"""
CURRENCIES = """
    AED ARS AUD BDT BGN BRL CAD CHF CLP CNY COP CRC CZK DKK DOP DZD EGP ETB EUR GBP GEL GHS HKD HUF IDR ILS INR IQD IRR
    ISK JMD JOD JPY KES KRW KWD KZT LKR MAD MXN MYR NGN NOK NPR NZD PEN PHP PKR PLN QAR RON RSD RUB SAR SEK SGD THB TND
    TRY TWD TZS UAH UGX USD UYU VND ZAR
"""
UNITS = """
    duration-second duration-minute duration-hour duration-day duration-week duration-month duration-year
    duration-millisecond duration-decade duration-century
    length-millimeter length-centimeter length-meter length-kilometer length-inch length-foot length-yard length-mile
    length-nautical-mile length-light-year
    mass-milligram mass-gram mass-kilogram mass-tonne mass-ounce mass-pound mass-carat
    volume-milliliter volume-centiliter volume-liter volume-cubic-meter volume-gallon volume-teaspoon volume-tablespoon
    area-square-meter area-square-kilometer area-hectare area-acre area-square-foot area-square-mile
    speed-kilometer-per-hour speed-meter-per-second speed-mile-per-hour speed-knot
    temperature-celsius temperature-fahrenheit temperature-kelvin angle-degree
    digital-bit digital-byte digital-kilobyte digital-megabyte digital-gigabyte digital-terabyte graphics-pixel
    energy-joule energy-kilojoule energy-calorie energy-kilocalorie energy-kilowatt-hour
    power-watt power-kilowatt power-horsepower electric-volt electric-ampere frequency-hertz frequency-megahertz
    pressure-bar pressure-hectopascal
"""
PARTS = (
    ("duration-year", "duration-month"),
    ("duration-week", "duration-day"),
    ("duration-day", "duration-hour"),
    ("duration-hour", "duration-minute"),
    ("duration-minute", "duration-second"),
    ("length-foot", "length-inch"),
    ("mass-pound", "mass-ounce"),
)

# People type ordinary spaces and no invisible marks. CLDR writes a narrow no-break space in "3:45 PM", and direction
# marks around Arabic and Hebrew numbers. The corpus must contain the characters that people type.
_PLAIN = str.maketrans({"\u00a0": " ", "\u202f": " ", "\u2009": " ", "\u200e": "", "\u200f": "", "\u061c": ""})


def isolated_locale(code: str) -> Locale:
    """Returns Babel's locale of a code, with tables of its own.

    Babel resolves an alias in place, in a table that several locales share. After a look-up of Japanese month names,
    the French month names are Japanese as well (python-babel issue 1234). A locale with its own tables avoids this bug.

    Raises:
        ValueError or UnknownLocaleError: if Babel does not know the code.
    """
    locale = Locale.parse(code)
    tables = localedata.load(str(locale))
    for name in tables:
        tables[name] = deepcopy(tables[name], {id(tables): tables})
    return locale


@dataclass(frozen=True)
class Form:
    """One way to say one kind of thing, in any locale.

    Attributes:
        family: str, the kind of thing, such as `units`.
        key: str, the name of the form. The key determines each word that the value does not, such as the unit.
        draw: function, `draw(rng)` returns a random value.
        write: function, `write(value, locale)` returns CLDR's text. Callers use `say` instead.
        probes: tuple of sample values. `unambiguous` compares two forms by the wordings of their probes.
    """

    family: str
    key: str
    draw: Callable[[Random], Any]
    write: Callable[[Any, Locale], str]
    probes: tuple[Any, ...]

    def say(self, value: Any, locale: Locale) -> str | None:
        """Returns `value` as people of the locale type it, or None if CLDR has no words for the value."""
        try:
            return self.write(value, locale).translate(_PLAIN).strip() or None
        except (LookupError, ValueError, AttributeError, RuntimeError):
            return None  # Babel raises any of these errors if the data of a locale are incomplete.


def unambiguous(forms: Iterable[Form], source: Locale, target: Locale) -> Iterator[Form]:
    """Keeps the forms that both locales can say, if each wording in `source` has one translation only.

    English writes "May 3, 2022" for both the full and the abbreviated form. If another locale writes two different
    texts, the source has two translations. Then only the first form stays. If both locales merge two forms, both forms
    stay.
    """
    meaning: dict[str, str] = {}
    for form in forms:
        wordings = {form.say(probe, source): form.say(probe, target) for probe in form.probes}
        if all(asked and answer and meaning.get(asked, answer) == answer for asked, answer in wordings.items()):
            meaning.update(wordings)
            yield form


# Numbers.


def _draw_number(rng: Random, digits: int, decimals: int) -> Decimal:
    return Decimal(rng.randint(10 ** (digits - 1), 10**digits - 1)).scaleb(-decimals)


def _draw_negative(rng: Random) -> Decimal:
    return -_draw_number(rng, rng.randint(1, 5), rng.randint(0, 1))


def _write_number(number: Decimal, locale: Locale) -> str:
    return numbers.format_decimal(number, locale=locale)


def _write_percent(number: Decimal, locale: Locale) -> str:
    return numbers.format_percent(number / 100, locale=locale, decimal_quantization=False)


def _draw_round(rng: Random, zeros: int) -> int:
    return rng.randint(10, 99) * 10**zeros  # With two digits, no locale's number words round a digit away.


def _write_round(number: int, locale: Locale) -> str:
    return numbers.format_compact_decimal(number, format_type="long", fraction_digits=1, locale=locale)


def number_forms() -> Iterator[Form]:
    """Yields forms of whole numbers, decimals, percentages, and round numbers in words: "1.2 million"."""
    for digits, decimals in ((4, 0), (5, 0), (6, 0), (3, 1), (4, 1), (5, 1), (4, 2), (5, 2), (6, 2)):
        draw = partial(_draw_number, digits=digits, decimals=decimals)
        yield Form("numbers", f"number {digits}.{decimals}", draw, _write_number, (Decimal(1234567).scaleb(-decimals),))
    yield Form("numbers", "negative", _draw_negative, _write_number, (Decimal("-1234.5"),))
    for digits, decimals in ((2, 0), (3, 1), (4, 1)):
        draw = partial(_draw_number, digits=digits, decimals=decimals)
        yield Form("numbers", f"percent {digits}.{decimals}", draw, _write_percent, (Decimal(1234).scaleb(-decimals),))
    for zeros in range(5, 11):
        probes = tuple(n * 10**zeros for n in (10, 12, 20))
        yield Form("numbers", f"round {zeros}", partial(_draw_round, zeros=zeros), _write_round, probes)


# Money and measures.

_COUNTS = tuple(map(Decimal, (1, 2, 3, 5, 11, 100)))  # At least one count for each plural form in CLDR.


def draw_count(rng: Random) -> int:
    """Returns 1 to 999. Small numbers are more frequent than in a uniform draw, because they select the plural form."""
    return rng.choice((rng.randint(1, 12), rng.randint(1, 99), rng.randint(100, 999)))


def _draw_price(rng: Random, cents: bool) -> Decimal:
    if cents and rng.random() < 0.4:
        return Decimal(f"{rng.randint(0, 9999)}.{rng.randint(1, 99):02}")
    return Decimal(rng.choice((draw_count(rng), rng.randint(1000, 999999))))


_LETTER_MEETS_FIGURE = regex.compile(rf"(?<=[{LETTERS}])(?=\p{{Nd}})|(?<=\p{{Nd}})(?={LETTER})")


def _write_symbol(price: Decimal, locale: Locale, currency: str) -> str:
    # CLDR puts a space between letters and digits ("NOK 5.00"). Babel leaves out the space.
    return _LETTER_MEETS_FIGURE.sub(" ", numbers.format_currency(price, currency, locale=locale))


def _write_currency(price: Decimal, locale: Locale, currency: str) -> str:
    # Whole sums have no ".00": Babel inflects the name for the number, not for the written digits ("1.00 euro").
    cents = price % 1 != 0
    return numbers.format_currency(
        price, currency, locale=locale, format_type="name", currency_digits=cents, decimal_quantization=cents
    )


def currency_forms() -> Iterator[Form]:
    """Yields forms of sums of money, with the currency's inflected name and with its symbol."""
    for style, write in (("name", _write_currency), ("symbol", _write_symbol)):
        for currency in CURRENCIES.split():
            draw = partial(_draw_price, cents=numbers.get_currency_precision(currency) > 0)
            yield Form("currencies", f"{style} {currency}", draw, partial(write, currency=currency), _COUNTS)


def _draw_amount(rng: Random) -> Decimal:
    fraction = Decimal(f"{rng.randint(0, 999)}.{rng.randint(1, 9)}")
    return Decimal(rng.choice((draw_count(rng), draw_count(rng), rng.randint(1000, 99999), fraction)))


def _write_unit(amount: Decimal, locale: Locale, unit: str, length: str) -> str:
    # `format_unit` writes "1 Yards" in German: Babel 2.18 omits CLDR's fallbacks from a plural to "other" and from the
    # long length to the short length.
    patterns = unit_patterns(locale, unit)
    for said in (patterns.get(length, {}), patterns["short"]):
        for plural in (locale.plural_form(amount), "other"):
            if plural in said:
                return said[plural].format(_write_number(amount, locale))
    raise LookupError(unit)


def _draw_parts(rng: Random) -> tuple[int, int]:
    return rng.randint(1, 30), rng.randint(1, 59)


def _write_parts(counts: tuple[int, int], locale: Locale, parts: tuple[str, str]) -> str:
    said = [_write_unit(Decimal(n), locale, part, "long") for n, part in zip(counts, parts, strict=True)]
    return lists.format_list(said, "unit", locale)


def unit_forms() -> Iterator[Form]:
    """Yields forms of measures: in full, abbreviated, and with two parts ("3 hours, 5 minutes")."""
    for length in ("long", "short"):
        for unit in UNITS.split():
            write = partial(_write_unit, unit=unit, length=length)
            yield Form("units", f"{length} {unit}", _draw_amount, write, (*_COUNTS, Decimal("1.5")))
    for parts in PARTS:
        yield Form("units", " + ".join(parts), _draw_parts, partial(_write_parts, parts=parts), ((1, 2), (3, 11)))


# Names.

_NAMES: dict[str, tuple[Iterable[Any], Callable[[Locale], Any]]] = {
    "territories": (TERRITORIES.split(), lambda locale: locale.territories),
    "languages": (NAMED_LANGUAGES.split(), lambda locale: locale.languages),
    "weekdays": (range(7), lambda locale: dates.get_day_names("wide", "stand-alone", locale)),
    "months": (range(1, 13), lambda locale: dates.get_month_names("wide", "stand-alone", locale)),
}


def name_forms() -> Iterator[Form]:
    """Yields forms of bare names: territories, languages, weekdays and months. The only value of a form is None."""
    for family, (codes, table) in _NAMES.items():
        for code in codes:
            write = partial(lambda _, locale, table, code: table(locale)[code], table=table, code=code)
            yield Form(family, f"{family} {code}", lambda rng: None, write, (None,))


def _draw_list(rng: Random, first: Form, others: list[Form]) -> tuple[str, list[Form]]:
    return rng.choice(("standard", "or")), [first, *rng.sample(others, min(rng.choice((1, 2, 2)), len(others)))]


def _write_list(value: tuple[str, list[Form]], locale: Locale) -> str:
    style, names = value
    return lists.format_list([name.write(None, locale) for name in names], style, locale)


def list_forms(names: Iterable[Form]) -> Iterator[Form]:
    """Yields forms of two or three names of a family, joined by "and" or "or". Every name begins one form."""
    families: dict[str, list[Form]] = defaultdict(list)
    for name in names:
        families[name.family].append(name)
    for members in families.values():
        for name in members if len(members) > 1 else ():
            others = [other for other in members if other is not name]
            draw = partial(_draw_list, first=name, others=others)
            yield Form("lists", f"list of {name.key}", draw, _write_list, (("or", [name, others[0]]),))
