"""Where sentences end: a rule, the exceptions that a corpus knows, and the division of text in the graph.

A missed break costs little, because the model then reads two sentences as one. A wrong break tears a sentence. So white
space divides two sentences only

- with a line break in it, or
- between an end and a beginning. An end is a question or exclamation mark, one of the signs that end sentences in other
  scripts, or a full stop. The full stop must come after three small letters, after two letters of a script without case
  or three with marks, after the four digits of a year, or after a closing bracket or quote. Most abbreviations,
  initials and ordinals have less before their full stop. A beginning is a capital, or a letter of a script without
  case; quotes may precede it.

The corpus of a run knows the exceptions, see `FullStops`. Without a corpus, a few titles are known.

The stops of Chinese and Japanese end a sentence even without white space. The signs of other scripts do so, too, if a
letter follows.

The sentence breaker of tensorflow-text is not used: it breaks inside "14:35" and "1.5", and before a closing quote.
"""

import json
from collections import Counter
from itertools import chain, islice
from typing import NamedTuple

import regex
import tensorflow as tf

from keras_transformer.files import reading
from keras_transformer.tokenizer import PICTURES, SIGN, SYMBOL, Unknown, unknown_to, written
from keras_transformer.words import LETTERS_AND_DIGITS, WORD_CHARACTER

BLANK = r"[\pZ\pC]"  # separators, control and invisible formatting characters
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
WORD_BEFORE = r"(?:[\p{Ll}\p{M}]{3}|\p{Lo}{2}|(?:\p{Lo}\p{M}*){3}|\p{Nd}{4})"  # a full stop that ends a sentence
BEGINNING = r"[\pP\pS]*[\p{Lu}\p{Lt}\p{Lo}\p{Georgian}]"
# The stops of Armenian and Urdu stand inside times and abbreviations, too.
TIGHT_STOP = "[" + "".join(sign for sign in SIGNS if sign not in "։۔") + "]"

# Unicode reserves these code points for internal use: no text may contain them.
BORDER = "\uffff"  # between white space and a sentence
NO_SPACE = "\ufffe"  # in place of the white space between two sentences that have none
STOPPED = "\ufdd0"  # behind every stop before white space, until it is known whether it is an end
ENDED = "\ufdd1"  # behind an end, until the text after it is known
JOINING = r"\x{200c}\x{200d}\x{fe00}-\x{fe0f}\x{e0020}-\x{e007f}"  # in a sequence that makes one emoji
RESERVED = (f"[{BORDER}{NO_SPACE}{STOPPED}{ENDED}]", "\ufffd")

# Titles and a few abbreviations that the rule takes for words.
ABBREVIATIONS = "capt corp dept prof sept approx bspw bzw evtl inkl vgl dott sig ing mgr inż проф акад".split()
MOST_LINES = 1_000_000  # that are counted
LONGEST_TOKEN = 40  # characters between two spaces
MOST_WORDS, LONGEST_WORD = 400, 16  # words of each kind, and characters of one: the patterns stay small
LEAST_AT_END, LEAST_SEEN = 3, 10  # times, before a short word is known to end sentences
LEAST_ALONE = 10  # times that a symbol is a word of its own before a model knows it so
SIDES = ("source", "target")
MOST_BY_CHANCE = 0.05  # probability that a word that can end lines never did
_TOKEN = regex.compile(rf"(.*?)({WORD_CHARACTER}+)(\.?)((?:(?!\.)[\p{{P}}\p{{S}}])*)")
_NONE = regex.match("()()()()", "")
_BEGINNING = regex.compile(BEGINNING)
_ENDS_BY_RULE = regex.compile(rf".*{WORD_BEFORE}")


class FullStops(NamedTuple):
    """The exceptions to the rule that a corpus of sentences knows. A 0 in a word stands for any digit.

    Args:
        abbreviations: tuple of str, words whose full stop ends no sentence, such as "vgl".
        ends: tuple of str, words and numbers whose full stop ends a sentence, such as "us".
    """

    abbreviations: tuple = ()
    ends: tuple = ()

    def extended(self, other):
        """The words of both. If both know a word, this one decides its kind."""
        known = {*self.abbreviations, *self.ends}
        added = ([word for word in words if word not in known] for words in other)
        return FullStops(*(tuple([*own, *new][:MOST_WORDS]) for own, new in zip(self, added, strict=True)))


class Known(NamedTuple):
    """What a corpus says about text.

    Args:
        source, target: `FullStops` of the two languages.
        copies_unknown: bool, whether training has enough characters without a piece, so that the model copies them.
        lone_symbols: str, the symbols that are words of their own in the source; None if they are not known.
    """

    source: FullStops = FullStops()
    target: FullStops = FullStops()
    copies_unknown: bool = True
    lone_symbols: str | None = None

    def extended(self, other):
        """What both corpora say. This one decides where they differ. Symbols are known if both know them."""
        stops = (self.source.extended(other.source), self.target.extended(other.target))
        symbols = (self.lone_symbols, other.lone_symbols)
        lone_symbols = None if None in symbols else "".join(sorted(set("".join(symbols))))
        return Known(*stops, self.copies_unknown or other.copies_unknown, lone_symbols)


UNKNOWN = Known()  # of a run without a corpus


class Division(NamedTuple):
    """How a text becomes white space and sentences: patterns of RE2.

    Args:
        breaks: tuple of (pattern, replacement), which put `BORDER` between sentences and the white space beside them.
        copied: pattern of a whole fragment that the model does not translate.
        unread: tuple of (pattern, replacement), which remove what the model does not read of a sentence.
    """

    breaks: tuple
    copied: str
    unread: tuple = ()


def divisions_of(source_tokenizer, target_tokenizer, split_sentences, known):
    """The two `Division`s of texts and of translations.

    Args:
        source_tokenizer, target_tokenizer: `Tokenizer`s of the two.
        split_sentences: whether the sentences of a text are apart, or only its lines.
        known: `Known` of the corpus.
    """
    sides = (([source_tokenizer], known.source), ([source_tokenizer, target_tokenizer], known.target))
    divisions = []
    for tokenizers, stops in sides:
        unknown = unknown_to(tokenizers, known.lone_symbols)
        around = Around.of(unknown)
        breaks = breaks_of(stops, around) if split_sentences else line_breaks(around)
        divisions.append(Division(breaks, _copied(unknown), () if known.copies_unknown else _unread(unknown)))
    return divisions[0], divisions[1]._replace(unread=())


class Around(NamedTuple):
    """Patterns of what may stand around a sentence.

    Args:
        space: one character.
        lead: any number of characters before a sentence, signs with white space behind them included.
        tail: any number of characters behind a sentence.
    """

    space: str
    lead: str
    tail: str

    @classmethod
    def of(cls, unknown):
        """The patterns for the characters of `Unknown`."""
        space = f"{SPACE[:-1]}{unknown.signs}]"
        if not unknown.alone:
            return cls(space, f"{space}*", f"{space}*")
        return cls(space, f"(?:{space}|[{unknown.alone}]+{BLANK})*", f"(?:{space}|{BLANK}[{unknown.alone}]+)*")


def _copied(unknown):
    """The pattern of a fragment that has no known letter or digit, but white space or unknown signs."""
    spaces = f"{SPACE[:-1]}{unknown.signs}{unknown.alone}]*|{NO_SPACE}"
    plain = rf"[^\p{{L}}\p{{N}}{unknown.signs}]*"
    return rf"{spaces}|{plain}(?:[{unknown.signs}]{plain})+" if unknown.signs else spaces


def _unread(unknown):
    """The replacements that remove unknown characters from a sentence, with the white space before them."""
    signs, marks, alone = unknown
    rules = []
    if alone:
        rules += [(rf"(?:{BLANK}+[{alone}]+)+({BLANK})", r"\1")]
    if signs:
        run = rf"[{signs}][{signs}{marks}{JOINING}]*"
        rules += [(rf"(?:{BLANK}+{run})+({BLANK}|\pP)", r"\1"), (run, "")]
    return (*rules, (f"[{marks}]+", "")) if marks else tuple(rules)


def learn_full_stops(lines):
    """Finds the exceptions in a corpus.

    An abbreviation stands with a full stop inside lines and hardly ever at their end. It seldom stands without a full
    stop, or no beginning follows it. Where lines have several sentences, every word can have a full stop inside a line;
    so an abbreviation must have more of them than chance gives. A short word or a number ends sentences if it does so
    in the corpus. So does a frequent short word that never has a full stop inside a line.

    Args:
        lines: iterable of str, one sentence each for the most part; the first `MOST_LINES` are counted.

    Returns:
        `FullStops`, the most frequent words first, at most `MOST_WORDS` of each kind.
    """
    inside, small, end, bare = _count(lines)

    def is_abbreviation(word):
        is_whole = bare[word] <= 10 * (inside[word] - 1) or 2 * small[word] > max(inside[word], 2)
        return is_whole and inside[word] > 9 * end[word] and share ** inside[word] <= MOST_BY_CHANCE

    def is_end(word):
        if end[word] >= max(LEAST_AT_END, 10 * inside[word]):
            return len(word) > 1 or not word.isupper()  # a capital is an initial
        return bare[word] >= LEAST_SEEN and not inside[word] and len(word) > 1 and not word.isdecimal()

    frequent = [word for word, _ in (inside + end + bare).most_common() if len(word) <= LONGEST_WORD]
    by_rule = set(filter(_ENDS_BY_RULE.fullmatch, frequent))
    stops = [(inside[word], end[word]) for word in by_rule if end[word]]  # of the words that end sentences
    share = sum(there for there, _ in stops) / max(1, sum(map(sum, stops)))
    abbreviations = [word for word, _ in inside.most_common() if word in by_rule and is_abbreviation(word)]
    ends = [word for word in frequent if word not in by_rule and is_end(word)]
    return FullStops(tuple(abbreviations[:MOST_WORDS]), tuple(ends[:MOST_WORDS]))


def find_lone_symbols(lines):
    """The symbols that are words of their own in lines, an iterable of str, or parts of such words: a str."""
    counts = Counter()
    for token, count in Counter(chain.from_iterable(map(str.split, islice(lines, MOST_LINES)))).items():
        if regex.fullmatch(f"{SIGN}+", token):
            counts.update(dict.fromkeys(regex.findall(SYMBOL, token), count))
    return "".join(sorted(symbol for symbol, count in counts.items() if count >= LEAST_ALONE))


def _count(lines):
    """Counts words in four `Counter`s.

    The words with a full stop inside a line; those of them that no beginning follows; the words with a full stop at the
    end of a line; the words without a full stop.
    """
    tokens = Counter()  # (token, whether it is the last one, whether a beginning follows)
    for line in islice(lines, MOST_LINES):
        row = line.split()
        for token, other in zip(row, [*row, ""][1:], strict=True):
            if len(token) <= LONGEST_TOKEN:  # a script without spaces has whole sentences
                has_stop = "." in token
                tokens[token, has_stop and not other, has_stop and _BEGINNING.match(other) is not None] += 1
    inside, small, end, bare = counters = [Counter() for _ in range(4)]
    for (token, is_last, is_before_beginning), count in tokens.items():
        before, word, stop, after = (_TOKEN.fullmatch(token) or _NONE).groups()
        word = regex.sub(r"\p{Nd}", "0", word)
        if not stop:
            bare[word] += count
        elif not is_last:
            inside[word] += count
            small[word] += 0 if is_before_beginning and not after.startswith((",", ";", ":")) else count
        elif not before.endswith("."):  # the end "p.m." says nothing about "m"
            end[word] += count
    return counters


def save_known(path, known):
    """Writes a `Known`."""
    facts = known._asdict() | {side: getattr(known, side)._asdict() for side in SIDES}
    path.write_text(json.dumps(facts, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


def load_known(path):
    """Reads the `Known` of `save_known`. `UNKNOWN` if there is no such file, as in old runs.

    Raises:
        FileError: if the file cannot be read or is damaged.
    """
    if not path.exists():
        return UNKNOWN
    with reading(path, "put a copy of it back, or remove it"):
        facts = json.loads(path.read_text(encoding="utf-8"))
        sides = (FullStops(**{kind: tuple(words) for kind, words in facts[side].items()}) for side in SIDES)
        return Known(*sides, **{fact: facts[fact] for fact in ("copies_unknown", "lone_symbols") if fact in facts})


def _either_case(word):
    first = word[0]
    forms = sorted({first, first.lower(), first.upper()})
    return f"[{''.join(forms)}]{word[1:]}" if len(forms) > 1 and max(map(len, forms)) == 1 else word


def _pattern(words):
    return "|".join(words).replace("0", r"\p{Nd}")


def line_breaks(around):
    """The replacements that put `BORDER` between lines and the white space beside them.

    Args:
        around: `Around`.

    Returns:
        tuple of (pattern of RE2, replacement).
    """
    _, lead, tail = around
    edges = rf"(\A{lead}|{tail}{LINE_BREAK}{lead}|{tail}\z)"
    return ((edges, rf"{BORDER}\1{BORDER}"), (f"{BORDER}{BORDER}", ""))


def breaks_of(full_stops, around):
    """As `line_breaks`, between sentences, too; full_stops: `FullStops`."""
    known = map(_either_case, dict.fromkeys([*ABBREVIATIONS, *full_stops.abbreviations]))
    whole = rf"(?:\A|[^{LETTERS_AND_DIGITS}])"
    ends = ((rf"((?:\A|[^{LETTERS_AND_DIGITS}.])(?:{_pattern(full_stops.ends)})\.{CLOSINGS}){STOPPED}", rf"\1{ENDED}"),)
    return (
        *line_breaks(around),
        (rf"((?:\.|{MARK}){CLOSINGS})({BLANK})", rf"\1{STOPPED}\2"),
        (rf"((?:(?:{WORD_BEFORE}|{CLOSING})\.|{MARK}){CLOSINGS}){STOPPED}", rf"\1{ENDED}"),
        *(ends if full_stops.ends else ()),
        (rf"((?:{whole}(?:{_pattern(known)})|\p{{Thai}})\.{CLOSINGS}){ENDED}", r"\1"),
        (rf"{ENDED}({BLANK}{around.lead})({BEGINNING})", rf"{BORDER}\1{BORDER}\2"),
        (f"[{STOPPED}{ENDED}]", ""),
        (rf"({WIDE_STOP})([^\pP\pZ\pC{BORDER}]|[\p{{Ps}}\p{{Pi}}])", rf"\1{BORDER}{NO_SPACE}{BORDER}\2"),
        (rf"({TIGHT_STOP})([\p{{L}}\p{{Ps}}\p{{Pi}}])", rf"\1{BORDER}{NO_SPACE}{BORDER}\2"),
        (rf"({around.tail}){BORDER}({around.space}*){BORDER}", rf"{BORDER}\1\2{BORDER}"),
        (rf"({BORDER}{around.space}*){BORDER}({around.lead})", rf"\1\2{BORDER}"),
    )


AROUND = Around.of(Unknown())  # where no tokenizer is known
DIVISION = Division(breaks_of(FullStops(), AROUND), _copied(Unknown()))


def split_at(breaks, text):
    """text string (B,) -> its white space and sentences in their order, RaggedTensor string (B, None)."""
    text = tf.strings.unicode_transcode(text, "UTF-8", "UTF-8", errors="replace")
    text = tf.where(tf.strings.regex_full_match(text, f"{BLANK}*"), "", text)
    for pattern, rewrite in (RESERVED, *breaks):
        text = tf.strings.regex_replace(text, pattern, rewrite)
    return tf.strings.split(text, BORDER)
