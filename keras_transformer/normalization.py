"""Text whose form does not matter: characters that a reader cannot see or tell apart become one form.

`mend` says what is done. `tools/mending.py` writes the same as tables, which SentencePiece compiles into a tokenizer.
So training, exports for every engine, and Beam mend text alike. `clean` mends corpora with `mend`, and needs no
TensorFlow.

- Canonically equivalent text has one form, NFC. With `nfkc`, full-width and other compatibility characters, too.
- A run of white space of any kind is one space, U+0020. White space at the ends disappears.
- Control characters, soft hyphens, marks of direction, word joiners and byte order marks disappear.
- Zero-width spaces disappear, but not behind letters of scripts that divide words by them, such as Khmer and Thai.
- Zero-width joiners and non-joiners, variation selectors, and the tags of flags stay: they change what a reader sees.

The sets are those of Unicode's properties; no language has a list of its own.
"""

import unicodedata

import regex

ZERO_WIDTH_SPACE = "\u200b"
SPACE = regex.compile(r"\p{White_Space}")
# Mongolian's vowel separator and the tags of flags are ignorable by default, too, and change what a reader sees.
INVISIBLE = regex.compile(
    r"(?V1)[[\p{Default_Ignorable_Code_Point}&&[\p{Cf}\u034f]]--[\u180e\u200b-\u200d\U000e0020-\U000e007f]]"
    r"|[\ufff9-\ufffb]|[\p{Cc}--\p{White_Space}]"
)
# Scripts with a complex context (class SA of UAX #14) write no space between words; nor does Tibetan.
COMPLEX = r"[\p{Line_Break=SA}\p{Script=Tibetan}]"
# Quotes and dashes, and the characters of ASCII that a model reads in their place if it has no piece for them.
_OTHERS = "".join(map(chr, range(0x80, 0xD800)))
SIMILAR = {
    **{c: "'" if "SINGLE" in unicodedata.name(c) else '"' for c in regex.findall(r"\p{Quotation_Mark}", _OTHERS)},
    **dict.fromkeys(regex.findall(r"\p{Dash_Punctuation}", _OTHERS), "-"),
}
_NEEDLESS_SPACE = regex.compile(rf"(?<!{COMPLEX})\u200b")
_RUN = regex.compile(r"\p{White_Space}+")


def mend(text, nfkc=False):
    """Gives a text its one form.

    Args:
        text: str.
        nfkc: bool, whether compatibility characters become ordinary ones.

    Returns:
        str, without line breaks.
    """
    form = "NFKC" if nfkc else "NFC"
    # What this does to no text: most texts end here, in a tenth of the time.
    if text.isprintable() and "  " not in text and "\u034f" not in text and unicodedata.is_normalized(form, text):
        return text.strip()
    text = unicodedata.normalize(form, _NEEDLESS_SPACE.sub("", INVISIBLE.sub("", text)))
    return _RUN.sub(" ", text).strip()
