"""Where sentences end: a rule, with the exceptions that a corpus knows, as patterns for the graph.

A missed break costs little, because the model then reads two sentences as one. A wrong break tears a sentence. So white
space divides two sentences only

- with a line break in it, or
- between an end and a beginning. An end is a question or exclamation mark, one of the signs that end sentences in other
  scripts, or a full stop. The full stop must come after three small letters, after two letters of a script without case
  or three with marks, after the four digits of a year, or after a closing bracket or quote. Most abbreviations,
  initials and ordinals have less before their full stop. A beginning is a capital, or a letter of a script without
  case; quotes may precede it.

The corpus of a run knows the exceptions, see `data/full_stops.py`. Without a corpus, a few titles are known, and words
without a vowel, such as "Hrsg.". Other abbreviations are known by the text around them, see `NO_ENDS`.

The stops of Chinese and Japanese end a sentence even without white space. The signs of other scripts do so, too, if a
letter follows.

The sentence breaker of tensorflow-text is not used: it breaks inside "14:35" and "1.5", and before a closing quote.
"""

import functools
from typing import NamedTuple

import regex

from keras_transformer.data.full_stops import BEGINNING, WORD_BEFORE, FullStops
from keras_transformer.normalization import SIMILAR
from keras_transformer.tokenizer import PICTURES, PRIVATE_PLANES, ranges_of, without_piece, written
from keras_transformer.words import LETTERS_AND_DIGITS

BLANK = r"[\pZ\p{Cc}\p{Cf}]"  # separators, control and invisible formatting characters
SPACE = f"{BLANK[:-1]}{written(PICTURES)}]"
LINE_BREAK = r"[\n\v\f\r\x{85}\x{2028}\x{2029}]"
CLOSING = r"""["'\p{Pe}\p{Pf}\p{Pi}]"""
CLOSINGS = rf"{CLOSING}*(?:\pZ[»›])?"  # French writes a space before its quotes
WIDE_STOP = "[。！？｡]"
# Unicode's property Sentence_Terminal without ASCII, without full stops, and without the comma of Burmese. The signs of
# Tibetan do not have the property. A Greek question mark is a semicolon.
_ENDING = r"(?![\x00-\x7f\u104a\u2024\ufe52\uff0e])\p{STerm}|[\u0f0d\u0f0e]"
SIGNS = "".join(regex.findall(_ENDING, "".join(map(chr, [*range(0xD800), *range(0xE000, 0x20000)]))))
MARK = rf"(?:[!?{SIGNS}]|\p{{Greek}}\p{{M}}*[;\x{{37e}}])"
# The stops of Armenian and Urdu stand inside times and abbreviations, too.
TIGHT_STOP = "[" + "".join(sign for sign in SIGNS if sign not in "։۔") + "]"

# Unicode reserves these code points for internal use: no text may contain them.
BORDER = "\uffff"  # between white space and a sentence
NO_SPACE = "\ufffe"  # in place of the white space between two sentences that have none
STOPPED = "\ufdd0"  # behind every stop before white space, until it is known whether it is an end
ENDED = "\ufdd1"  # behind an end, until the text after it is known
JOINING = r"\x{200c}\x{200d}\x{fe00}-\x{fe0f}\x{e0020}-\x{e007f}"  # in a sequence that makes one emoji
RESERVED = (f"[{BORDER}{NO_SPACE}{STOPPED}{ENDED}]", "\ufffd")

COPIED = f"{SPACE}*|{NO_SPACE}"
# Titles and a few abbreviations that the rule takes for words.
ABBREVIATIONS = "capt corp dept prof sept approx evtl inkl dott sig ing inż проф акад".split()
WHOLE = rf"(?:\A|[^{LETTERS_AND_DIGITS}])"
CONSONANT = "[B-DF-HJ-NP-TV-XZb-df-hj-np-tv-xzБВГДЖЗК-НП-ТФ-Щбвгджзк-нп-тф-щ]"
_SHORT = r"\p{Lu}\p{Ll}{2,3}\."  # "Gen." and "Inc.", but "Mr." and "Dr." often begin a sentence
_RANK = (rf"{WHOLE}\p{{Lu}}\p{{Ll}}{{2}}{CONSONANT}\.", BLANK + _SHORT)  # Brig. Gen.
# Stops that end nothing, because of the text before them and behind them.
NO_ENDS = (
    (rf"{WHOLE}\p{{Lu}}\p{{Ll}}{{1,3}}\.(?:{STOPPED}{BLANK}[\p{{Ll}}\p{{M}}]{{1,5}}\.)+", ""),  # Dr. med.
    (r"\.", rf"{BLANK}(?:[IVX]{{2,}}|[VX])(?:[^{LETTERS_AND_DIGITS}]|\z)"),  # vol. II
    (r"\p{Lu}\p{L}*!", rf"{BLANK}{_SHORT}(?:{STOPPED}{BLANK}\p{{Ll}}|[,;:{BORDER}]|\z)"),  # Yahoo! Inc. is
    *(_RANK, _RANK),  # for three of them: a match takes the next one, too
)


class Division(NamedTuple):
    """How a text becomes white space and sentences: patterns of RE2.

    Args:
        breaks: tuple of (pattern, replacement), which put `BORDER` between sentences and the white space beside them.
        copied: pattern of a whole fragment that the model does not translate.
        respelled: tuple of (pattern, replacement), with which the model reads a sentence.
    """

    breaks: tuple
    copied: str
    respelled: tuple = ()


def divisions_of(source_tokenizer, target_tokenizer, split_sentences, known):
    """The two `Division`s of texts and of translations.

    A character that a model can neither read nor write stays where it is. The text before it and the text behind it are
    translated apart. Quotes and dashes are read as those of ASCII instead. A model that has learned to copy such
    characters reads them.

    Args:
        source_tokenizer, target_tokenizer: `Tokenizer`s of the two.
        split_sentences: whether the sentences of a text are apart, or only its lines.
        known: `Known` of the corpus.
    """
    sides = (([source_tokenizer], known.source), ([source_tokenizer, target_tokenizer], known.target))
    divisions = []
    for tokenizers, stops in sides:
        unread, opaque, similar = _classes(without_piece(tokenizers))
        space = f"{SPACE[:-1]}{unread}]"
        breaks = breaks_of(stops, space) if split_sentences else line_breaks(space)
        nothing, copied = rf"(?:[^\p{{L}}\p{{N}}{NO_SPACE}]|[{opaque}])*", COPIED
        if opaque:
            copied = rf"{nothing}[{opaque}]{nothing}|{COPIED}" if known.copies_unknown else f"{nothing}|{NO_SPACE}"
        if opaque and not known.copies_unknown:
            run = f"{BLANK}*[{opaque}](?:[{opaque}{JOINING}]|{BLANK}+[{opaque}])*{BLANK}*"
            breaks += ((f"({run})", rf"{BORDER}\1{BORDER}"),)
        respelled = () if known.copies_unknown else similar
        divisions.append(Division(breaks, copied, respelled))
    return divisions[0], divisions[1]._replace(respelled=())


@functools.lru_cache(maxsize=32)  # half a second for a tokenizer
def _classes(unread):
    """The ranges of characters without a piece, those of them that nothing replaces, and the replacements of others."""
    similar = {c: other for c, other in SIMILAR.items() if c in unread and other not in unread}
    read_as = {other: [c for c in similar if similar[c] == other] for other in sorted({*similar.values()})}
    rules = tuple((f"[{ranges_of(characters)}]", other) for other, characters in read_as.items())
    private = written(PRIVATE_PLANES) if unread else ""
    return ranges_of(unread) + private, ranges_of(unread - similar.keys()) + private, rules


def _either_case(word):
    first = word[0]
    forms = sorted({first, first.lower(), first.upper()})
    return f"[{''.join(forms)}]{word[1:]}" if len(forms) > 1 and max(map(len, forms)) == 1 else word


def _pattern(words):
    return "|".join(words).replace("0", r"\p{Nd}")


def line_breaks(space=SPACE):
    """The replacements that put `BORDER` between lines and the white space beside them.

    Args:
        space: pattern of one character that may stand around a sentence.

    Returns:
        tuple of (pattern of RE2, replacement).
    """
    edges = rf"(\A{space}*|{space}*{LINE_BREAK}{space}*|{space}*\z)"
    return ((edges, rf"{BORDER}\1{BORDER}"), (f"{BORDER}{BORDER}", ""))


def breaks_of(full_stops, space=SPACE):
    """As `line_breaks`, between sentences, too; full_stops: `FullStops`."""
    known = map(_either_case, dict.fromkeys([*ABBREVIATIONS, *full_stops.abbreviations]))
    ends = ((rf"((?:\A|[^{LETTERS_AND_DIGITS}.])(?:{_pattern(full_stops.ends)})\.{CLOSINGS}){STOPPED}", rf"\1{ENDED}"),)
    return (
        *line_breaks(space),
        (rf"((?:\.|{MARK}){CLOSINGS})({BLANK})", rf"\1{STOPPED}\2"),
        *((f"({before}){STOPPED}({behind})", r"\1\2") for before, behind in NO_ENDS),
        (rf"((?:(?:{WORD_BEFORE}|{CLOSING})\.|{MARK}){CLOSINGS}){STOPPED}", rf"\1{ENDED}"),
        (rf"({WHOLE}{CONSONANT}+\.{CLOSINGS}){ENDED}", r"\1"),
        *(ends if full_stops.ends else ()),
        (rf"((?:{WHOLE}(?:{_pattern(known)})|\p{{Thai}})\.{CLOSINGS}){ENDED}", r"\1"),
        (rf"{ENDED}({BLANK}{space}*)({BEGINNING})", rf"{BORDER}\1{BORDER}\2"),
        (f"[{STOPPED}{ENDED}]", ""),
        (rf"({WIDE_STOP})([^\pP\pZ\pC{BORDER}]|[\p{{Ps}}\p{{Pi}}])", rf"\1{BORDER}{NO_SPACE}{BORDER}\2"),
        (rf"({TIGHT_STOP})([\p{{L}}\p{{Ps}}\p{{Pi}}])", rf"\1{BORDER}{NO_SPACE}{BORDER}\2"),
        (rf"({space}*){BORDER}({space}*){BORDER}", rf"{BORDER}\1\2{BORDER}"),
        (rf"({BORDER}{space}*){BORDER}({space}*)", rf"\1\2{BORDER}"),
    )


DIVISION = Division(breaks_of(FullStops()), COPIED)  # where no tokenizer is known
