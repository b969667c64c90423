"""Letters, words, numbers and grapheme clusters, told by the properties that Unicode gives to every character.

Most scripts write spaces between words. Some do not, such as Han, Kana, Thai, Khmer and Burmese. There, a grapheme
cluster takes the place of a word: a letter with its marks, which a reader sees as one character.

Patterns are for the module `regex`, because Python's `re` knows no properties: there, an accent, a vowel sign and a
virama end a word. RE2, the language of TensorFlow, reads the first group of patterns, too.

This file imports `regex` alone. `serving/words.py` is a copy of it, byte for byte.
"""

import regex

# For `regex` and for RE2. A plural is the inside of a class [...].
LETTER = r"\p{L}"
LETTERS = r"\p{L}\p{M}"  # and the marks on them
LETTERS_AND_DIGITS = rf"{LETTERS}\p{{N}}"
WORD_CHARACTERS = rf"{LETTERS_AND_DIGITS}\p{{Pc}}" + "\u00ad\u200c\u200d"  # a soft hyphen, the joiners of Persian words
LETTER_WITH_MARKS = r"\p{L}\p{M}*"
LETTER_OR_DIGIT = r"[\p{L}\p{N}]"
WORD_CHARACTER = f"[{WORD_CHARACTERS}]"
NUMBER = r"\p{Nd}+(?:[.,:]\p{Nd}+)*"  # 1,000.5 and 14:35

# For `regex` alone.
# Letters and marks of the scripts that write no spaces between words.
UNSPACED = (
    r"(?=[\p{L}\p{M}\p{Nl}])[\p{sc=Hani}\p{sc=Hira}\p{sc=Kana}\p{sc=Bopo}\p{sc=Yiii}\p{sc=Thai}\p{sc=Laoo}\p{sc=Khmr}"
    r"\p{sc=Mymr}\p{sc=Lana}\p{sc=Tale}\p{sc=Talu}\p{sc=Tavt}\p{sc=Ahom}\u3031-\u3035\u3099\u309a\u30fc\uff70\uff9e\uff9f]"
)
SPACED = rf"(?!{UNSPACED}){WORD_CHARACTER}"
_BEFORE_CONSONANT, _STACKER, _ON_LETTER = r"\p{LOE}", r"\p{InSC=Invisible_Stacker}", r"[\p{M}\u0e33\u0eb3\u200c\u200d]"
# A vowel that is written before its consonant, the consonant, its marks, and the consonants below it.
CLUSTER = rf"{_BEFORE_CONSONANT}?{UNSPACED}(?:{_STACKER}{UNSPACED}|{_ON_LETTER})*"
# The edges of a word, and those of a cluster.
BEGIN = rf"(?:(?={SPACED})(?<!{SPACED})|(?!{SPACED})(?<!{_BEFORE_CONSONANT}|{_STACKER}))"
END = rf"(?:(?<={SPACED})(?!{SPACED})|(?<!{SPACED})(?!{_ON_LETTER}))"
# Words that apostrophes and hyphens join, such as Ann's and T-shirt. A decimal digit begins a number.
_FIRST = r"(?=[\p{L}\p{Nl}\p{No}])"
COMPOUND = rf"{_FIRST}[{WORD_CHARACTERS}'’\-]+"
SPACED_COMPOUND = rf"{_FIRST}(?:{SPACED}|['’\-])+"
TOKEN = rf"{CLUSTER}|\p{{Nd}}+\p{{M}}*|(?:(?!\p{{Nd}}){SPACED})+|(?!\s)\X"

CLOSING_SIGN = regex.compile(r"[\p{Terminal_Punctuation}\p{Pe}\p{Pf}…]")  # no space stands before it, in most languages
_TOKEN = regex.compile(TOKEN)
_WORD = regex.compile(rf"[\p{{M}}\p{{Pc}}\u00ad\u200c\u200d]*{LETTER_OR_DIGIT}{WORD_CHARACTER}*")
_COUNTED = regex.compile(
    rf"(?:\p{{WB=Katakana}}\p{{M}}*)+|{CLUSTER}|(?={LETTER_OR_DIGIT})(?:{SPACED}|[.'’](?={LETTER_OR_DIGIT}))+"
)
_UNSPACED = regex.compile(UNSPACED)
_CLUSTER = regex.compile(CLUSTER)
_LETTER_OR_DIGIT = regex.compile(LETTER_OR_DIGIT)
_LETTER = regex.compile(LETTER_WITH_MARKS)


def tokens_of(text):
    """Finds the words, numbers and signs of a text, and the grapheme clusters of scripts without spaces.

    Args:
        text: str.

    Returns:
        list of (start, end). Together they are all characters but white space.
    """
    return [match.span() for match in _TOKEN.finditer(text)]


def words_of(text):
    """Finds the words of a text, a list of str. In scripts without spaces, a run of letters is one word."""
    return _WORD.findall(text)


def count_words(text):
    """Counts the words of a text, as Unicode divides it (UAX 29): "it's" is one word, and so is a run of Katakana.

    In other scripts without spaces, each grapheme cluster counts.
    """
    return len(_COUNTED.findall(text))


def has_words(text):
    """Whether a text has a letter or a digit."""
    return _LETTER_OR_DIGIT.search(text) is not None


def is_sign(text):
    """Whether a token is neither a word nor a number."""
    return not has_words(text[:1])


def is_unspaced(text):
    """Whether a text begins with a letter of a script that writes no spaces between words."""
    return _UNSPACED.match(text) is not None


def spaced_out(text):
    """A text with a space on both sides of each grapheme cluster of the scripts without spaces."""
    return _CLUSTER.sub(r" \g<0> ", text)


def letters(text):
    """Counts the letters of a text, with the marks on them."""
    return len("".join(_LETTER.findall(text)))
