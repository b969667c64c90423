"""Words that a translation must not change: hidden behind numbered placeholders, and put back.

A placeholder is a digit between ⟦ and ⟧. A model that was trained with `protect` has every placeholder of a text
exactly once in the translation. So text -> `Protection.hide` -> model -> `Hidden.restore` keeps the words.

A term of one word stays in the text, and its placeholder stands behind it: "man⟦0⟧". So the model knows the gender, the
number and the sense of the word for which it writes ⟦0⟧. A longer term, a URL or a number leaves the text.

Placeholders are numbered 0, 1, ..., 9, 0, 1, ... through a text. Sentences keep their order. So the n-th ⟦3⟧ of a
translation is the n-th ⟦3⟧ of its text, however long the text is.

This file imports `regex` and `words` alone. `serving/protection.py` is a copy of it, which imports `serving.words`.
"""

from typing import NamedTuple
from unicodedata import normalize

import regex as re

from keras_transformer.words import (
    BEGIN,
    COMPOUND,
    END,
    LETTER,
    LETTER_OR_DIGIT,
    LETTERS,
    LETTERS_AND_DIGITS,
    NUMBER,
    SPACED,
    UNSPACED,
)

PLACEHOLDERS = tuple(f"⟦{number}⟧" for number in range(10))
NO_PLACEHOLDERS = "this model has no placeholders, so it cannot keep words: train one with `protect` 0.1"

_CODE = r"`[^`\n]+`"
_OUTSIDE = r"""\s\0()<>"\u3001-\u3003\u3008-\u3020\uff01-\uff65"""  # an address
_END = r"(?!(?=[^\x00-\x7f])\p{P})[^.,;:!?'\]}]"
_IN_ADDRESS = rf"\([^{_OUTSIDE}]*\)|(?!{UNSPACED})[^{_OUTSIDE}]"
_URL = rf"(?<!{SPACED})(?:https?://|ftp://|www\.)(?:{_IN_ADDRESS})*(?<={_END})"
_EMAIL = rf"(?<!{SPACED}|[.+\-])(?:{SPACED}|[.+\-])+@(?:{SPACED}|-)+(?:\.(?:{SPACED}|-)+)+"
_NAME, _NO_LETTER = rf"[{LETTER}_][{LETTERS_AND_DIGITS}_]*", rf"(?![{LETTERS_AND_DIGITS}])"
_INSIDE = r"(?:[^{}]|\{" * 4 + "[^{}]*" + r"\})*" * 4  # braces in braces: plurals of ICU, with their branches
_FORMAT = rf"(?:[0-9]+(?:,\s*-?[0-9]+)?:|[{LETTERS_AND_DIGITS}_.]+:(?=%))[^{{}}\n]*"  # {0:d MMM yyyy}, {day:%d %b}
_ARGUMENT = rf"\s*[$@]?[{LETTERS_AND_DIGITS}_.\-]+\s*(?:,{_INSIDE})?|{_FORMAT}"
BRACES = rf"\{{\{{\{{?[^{{}}\n]+\}}?\}}\}}|\{{[%#][^{{}}\n]*[%#]\}}|[$#%@]?\{{(?:[^{{}}\s]*|{_ARGUMENT})\}}"
DOLLAR = rf"(?<![{LETTERS_AND_DIGITS}$])\${_NAME}\$?"
_WIDTH = r"[\-+#0']*(?:\*|[0-9]+)?(?:\.(?:\*|[0-9]+))?(?:hh|h|ll|l|L|q|z|j|t)?"
# "%s" is one behind a letter, not behind a number: "100%sure". "% d" is one unless it can be "100 % der" or "% d'eau".
DIRECTIVE = (
    rf"%%|(?<!(?<!%)\p{{Nd}})%(?:\([^()\n]+\){_WIDTH}[A-Za-z]|(?:[0-9]+[$:])?{_WIDTH}(?:[sdiuoxXfFeEgGcraAp@]|[A-Za-z]"
    rf"{_NO_LETTER})|L?[1-9](?!\.?,?[0-9])|{_WIDTH}<{_NAME}>(?:{_WIDTH}[A-Za-z]{_NO_LETTER})?)"
    rf"|(?<!\p{{Nd}}\s?)% {_WIDTH}[dif](?![{LETTERS}'’])"
)
VARIABLE = f"{BRACES}|{DOLLAR}|{DIRECTIVE}"
_CURRENCY = "EUR|USD|GBP|CHF|JPY|CNY"
# Symbols that no language has as a word: with a vowel only beside a capital inside, or several letters without a vowel.
_SYMBOL = (
    r"k?m/[hs]|[kMGT]?(?:Hz|Wh)|[kMGT](?:W|B|b|bit|Pa|J)|[kM]V|[kcmµn]m[²³23]?|m[²³23]|[kmµ]g|m[lL]|[mµn]s|mph|mAh"
    rf"|px|ft|lbs?|{_CURRENCY}"
)
# Symbols that are words, too: Czech "3 s přáteli", Swedish "3 min". Behind a space they are units if no word follows.
_SYMBOL_OR_WORD = "[mghslLWVBbJ]|Pa|bit|min"
_WORD_FOLLOWS = rf"\s*[\"'(\[{{“”„‟«»‘’‚‹›¿¡]*(?:{LETTER_OR_DIGIT}|_)"
# A number is read once, from its first digit and to its last one: "1:1:1: ..." takes no longer than other text.
_QUANTITY = (
    rf"(?<!{SPACED}|[.,]|\p{{Nd}}:)[\-+−]?(?>{NUMBER})(?:\s?(?:[%‰€$£¥]|°[CF]?)"
    rf"|(?:[ap]m|[ \u00a0\u202f]?(?:{_SYMBOL})|[\u00a0\u202f]?(?:{_SYMBOL_OR_WORD}))(?!{SPACED})"
    rf"|[ ](?:{_SYMBOL_OR_WORD})(?!{SPACED}|{_WORD_FOLLOWS}))"
    rf"|(?:[€$£¥]|(?<!{SPACED})(?:{_CURRENCY}))\s?{NUMBER}(?!{SPACED})"
)
ADDRESS = f"{_URL}|{_EMAIL}"
_OPTION = rf"(?<!{SPACED}|-)--[a-z][a-z0-9]*(?:-[a-z0-9]+)*(?!{SPACED}|-)"  # of a program: --headless
_CELL = r"\$?[A-Z]{1,3}\$?[0-9]{1,7}"
_CELLS = rf"(?<!{SPACED}|[$:]){_CELL}:{_CELL}(?!{SPACED}|:)"  # of a spreadsheet: A1:B6
FIXED = f"{_CODE}|{ADDRESS}|{_OPTION}|{_CELLS}|{VARIABLE}"  # before a glossary: no term stands inside of these
_PLACEHOLDER = re.compile(r"⟦[0-9]⟧")


class Hidden(NamedTuple):
    """A text whose protected words are placeholders.

    Args:
        text: str.
        words: tuple of str, for each placeholder of the text what stands there in a translation.
        spans: tuple of (start, stop), the characters that each placeholder stands for.
        is_kept: tuple of bool, whether those characters stand before the placeholder, too.
    """

    text: str
    words: tuple
    spans: tuple
    is_kept: tuple

    def restore(self, translation):
        """Puts the words into a translation. A placeholder that the text does not have stays as it is."""
        left = {}
        for placeholder, word in zip(_PLACEHOLDER.findall(self.text), self.words, strict=True):
            left.setdefault(placeholder, []).append(word)
        words = {placeholder: iter(several) for placeholder, several in left.items()}
        return _PLACEHOLDER.sub(lambda found: next(words.get(found[0], iter(())), found[0]), translation)


class Protection:
    """Decides which words of a text a translation must keep.

    Args:
        glossary: dict, source form -> target form, see `read_glossary`. A source form is found as it is written, as
            whole words; in scripts without spaces, as whole characters. The longer one of two at the same place wins.
        patterns: whether URLs, e-mail addresses, numbers with units, options such as --headless, ranges of cells such
            as A1:B6, variables such as {x} and %s, and `code` stay.

    Raises:
        ValueError: for a term without a source form.

    Example:

    ```python
    hidden = Protection({"apple": "Apfel"}).hide("The apple costs 5 € at https://a.org.")
    hidden.text  # "The apple⟦0⟧ costs ⟦1⟧ at ⟦2⟧."
    hidden.restore("Der ⟦0⟧ kostet bei ⟦2⟧ ⟦1⟧.")  # "Der Apfel kostet bei https://a.org 5 €."
    ```
    """

    def __init__(self, glossary=None, patterns=True):
        terms = dict(glossary or {})  # and the same words with other code points for their accents
        self.glossary = {normalize(form, term): terms[term] for form in ("NFD", "NFC") for term in terms} | terms
        if "" in self.glossary:
            raise ValueError("every term of a glossary must have a source form. Received: ''")
        longest_first = "|".join(map(re.escape, sorted(self.glossary, key=len, reverse=True)))
        parts = [f"{BEGIN}(?:{longest_first}){END}"] if longest_first else []
        parts = [_PLACEHOLDER.pattern, *([FIXED, *parts, _QUANTITY] if patterns else parts)]
        self._spans = re.compile("|".join(parts))

    def hide(self, text):
        """A text with placeholders: str -> `Hidden`. Placeholders that the text itself has are protected as well."""
        words, spans, is_kept = [], [], []

        def placeholder(found):
            words.append(self.glossary.get(found[0], found[0]))
            spans.append(found.span())
            is_kept.append(found[0] in self.glossary and re.fullmatch(COMPOUND, found[0]) is not None)
            return (found[0] if is_kept[-1] else "") + PLACEHOLDERS[(len(words) - 1) % len(PLACEHOLDERS)]

        return Hidden(self._spans.sub(placeholder, text), *map(tuple, (words, spans, is_kept)))


def read_glossary(path):
    """Reads a file of terms: a source form, a tab and its target form on every line. Blank and # lines do not count.

    Returns:
        dict, source form -> target form.

    Raises:
        ValueError: for a file that cannot be read, and for a line of another form, with its number.
    """
    try:
        with open(path, encoding="utf-8-sig", newline="\n") as file:
            lines = [line.rstrip("\r\n") for line in file]
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"cannot read the glossary {path}: {getattr(error, 'strerror', None) or error}") from None
    terms, numbers = {}, {}
    for number, line in enumerate(lines, start=1):
        if not line.strip() or line.startswith("#"):
            continue
        source, *targets = (form.strip() for form in line.split("\t"))
        where = f"{path}, line {number}"
        if len(targets) != 1 or not source or not targets[0]:
            raise ValueError(f"{where}: write a source form, a tab and its target form. Received: {line!r}")
        if terms.setdefault(source, targets[0]) != targets[0]:
            other = f"{terms[source]!r} in line {numbers[source]}"
            raise ValueError(f"{where}: {source!r} is {targets[0]!r} here and {other}: keep one of the two lines")
        numbers.setdefault(source, number)
    return terms
