"""Words and tokens of a text, for tools: by the patterns of `keras_transformer/words.py`."""

import regex

from keras_transformer.words import (
    CLUSTER,
    FIRST,
    KATAKANA,
    LETTER_OR_DIGIT,
    LETTER_WITH_MARKS,
    SPACED,
    UNSPACED,
    WORD_CHARACTER,
)

SPACED_COMPOUND = rf"{FIRST}(?:{SPACED}|['’\-])+"
HUMP = r"(?<=\p{Ll}\p{M}*)(?=\p{Lu})"  # between the parts of "LibreOffice", or of two words that are written as one
TOKEN = rf"{CLUSTER}|\p{{Nd}}+\p{{M}}*|(?!\p{{Nd}}){SPACED}(?:(?!\p{{Nd}}|{HUMP}){SPACED})*|(?!\s)\X"
CLOSING_SIGN = regex.compile(r"[\p{Terminal_Punctuation}\p{Pe}\p{Pf}…]")  # no space stands before it, in most languages
_TOKEN = regex.compile(TOKEN)
_WORD = regex.compile(rf"[\p{{M}}\p{{Pc}}\u00ad\u200c\u200d]*{LETTER_OR_DIGIT}{WORD_CHARACTER}*")
_UNSPACED = regex.compile(UNSPACED)
_CLUSTER = regex.compile(CLUSTER)
_KATAKANA = regex.compile(KATAKANA)
_HUMP = regex.compile(HUMP)
_LETTER_OR_DIGIT = regex.compile(LETTER_OR_DIGIT)
_LETTER = regex.compile(LETTER_WITH_MARKS)


def tokens_of(text):
    """Finds the words, numbers and signs of a text, and the grapheme clusters of scripts without spaces.

    A capital behind a small letter begins a word: two words may be written as one.

    Args:
        text: str.

    Returns:
        list of (start, end). Together they are all characters but white space.
    """
    return [match.span() for match in _TOKEN.finditer(text)]


def words_of(text):
    """Finds the words of a text, a list of str. In scripts without spaces, a run of letters is one word."""
    return _WORD.findall(text)


def has_words(text):
    """Whether a text has a letter or a digit."""
    return _LETTER_OR_DIGIT.search(text) is not None


def is_sign(text):
    """Whether a token is neither a word nor a number."""
    return not has_words(text[:1])


def is_unspaced(text):
    """Whether a text begins with a letter of a script that writes no spaces between words."""
    return _UNSPACED.match(text) is not None


def is_hump(text, place):
    """Whether a place is inside a word, between a small letter and a capital."""
    return _HUMP.match(text, place) is not None


def is_katakana(text):
    """Whether a token is of Katakana alone: the tokens of a run of it are one word."""
    return _KATAKANA.fullmatch(text) is not None


def spaced_out(text):
    """A text with a space on both sides of each grapheme cluster of the scripts without spaces."""
    return _CLUSTER.sub(r" \g<0> ", text)


def letters(text):
    """Counts the letters of a text, with the marks on them."""
    return len("".join(_LETTER.findall(text)))
