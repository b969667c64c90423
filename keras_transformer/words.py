"""Letters, words and grapheme clusters, told by the properties that Unicode gives to every character.

Most scripts write spaces between words. Some do not, such as Han, Kana, Thai, Khmer and Burmese. There, a grapheme
cluster takes the place of a word: a letter with its marks, which a reader sees as one character.

Patterns are for the module `regex`, because Python's `re` knows no properties: there, an accent, a vowel sign and a
virama end a word. `keras_transformer.protection` repeats two patterns, because that file stands alone.
"""

import regex

# Letters and marks of the scripts that write no spaces between words.
UNSPACED = (
    r"(?=[\p{L}\p{M}\p{Nl}])[\p{sc=Hani}\p{sc=Hira}\p{sc=Kana}\p{sc=Bopo}\p{sc=Yiii}\p{sc=Thai}\p{sc=Laoo}\p{sc=Khmr}"
    r"\p{sc=Mymr}\p{sc=Lana}\p{sc=Tale}\p{sc=Talu}\p{sc=Tavt}\p{sc=Ahom}\u3031-\u3035\u3099\u309a\u30fc\uff70\uff9e\uff9f]"
)
# The joiners of Persian and Indic words, and the soft hyphen, stand inside words.
WORD_CHARACTER = r"[\p{L}\p{M}\p{N}\p{Pc}\u00ad\u200c\u200d]"
SPACED = rf"(?!{UNSPACED}){WORD_CHARACTER}"
LETTER_OR_DIGIT = r"[\p{L}\p{N}]"
# A vowel that is written before its consonant, the consonant, its marks, and the consonants below it.
CLUSTER = rf"\p{{LOE}}?{UNSPACED}(?:\p{{InSC=Invisible_Stacker}}{UNSPACED}|[\p{{M}}\u0e33\u0eb3\u200c\u200d])*"

TOKEN = rf"{CLUSTER}|\p{{Nd}}+\p{{M}}*|(?:(?!\p{{Nd}}){SPACED})+|(?!\s)\X"

_TOKEN = regex.compile(TOKEN)
_WORD = regex.compile(rf"[\p{{M}}\p{{Pc}}\u00ad\u200c\u200d]*{LETTER_OR_DIGIT}{WORD_CHARACTER}*")
_UNSPACED = regex.compile(UNSPACED)
_CLUSTER = regex.compile(CLUSTER)
_LETTER_OR_DIGIT = regex.compile(LETTER_OR_DIGIT)
_LETTER = regex.compile(r"\p{L}\p{M}*")


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
