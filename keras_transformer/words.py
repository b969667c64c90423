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
FIRST = r"(?=[\p{L}\p{Nl}\p{No}])"
COMPOUND = rf"{FIRST}[{WORD_CHARACTERS}'’\-]+"

KATAKANA = r"(?:\p{WB=Katakana}\p{M}*)+"  # a run of it is one word (UAX 29)

_COUNTED = regex.compile(rf"{KATAKANA}|{CLUSTER}|(?={LETTER_OR_DIGIT})(?:{SPACED}|[.'’](?={LETTER_OR_DIGIT}))+")


def count_words(text):
    """Counts the words of a text, as Unicode divides it (UAX 29): "it's" is one word, and so is a run of Katakana.

    In other scripts without spaces, each grapheme cluster counts.
    """
    return len(_COUNTED.findall(text))
