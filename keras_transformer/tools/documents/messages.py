"""Messages of programs: text with variables, and with branches for plurals and selects, as ICU writes them.

A message is divided into texts that are translated one by one: each branch, and each block of markup. In a text, a
variable is a tag. A translation counts if it has all variables of its message, each as often.
"""

import html
import itertools
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import regex

from keras_transformer.protection import VARIABLE
from keras_transformer.tools.documents.fragment import Mark, find_addresses, merged
from keras_transformer.tools.documents.units import joined

# Tags and comments in the text of a message. `<PRIu64>` and `%<name>` are variables.
MARKUP = regex.compile(
    r"""(?<!%)</?(?!PRI|SCN)[A-Za-z](?:[^<>"']|"[^"]*"|'[^']*')*>|<!--.*?-->|&lt;/?[A-Za-z].*?&gt;""", regex.DOTALL
)
FORM_OF = r"%(?:[0-9]+\$)?#@[^@]*@"  # Apple: a form of a plural
_ENTITY = regex.compile(r"&(?:[A-Za-z][A-Za-z0-9]*|#[0-9]+|#[xX][0-9A-Fa-f]+);")
# {n, plural, offset:1 =0 {branch} other {branch}}
_OPENING = regex.compile(
    r"\{\s*[^\s{},\0]+\s*,\s*(?:(plural|selectordinal)|select)\s*,\s*(?:offset\s*:\s*[0-9]+\s*)?(?=[^\s{}])"
)
_SELECTOR, _CLOSING = regex.compile(r"\s*[^\s{},\0]+\s*\{"), regex.compile(r"\s*\}")
_BRACE = regex.compile(r"'[{}]'|[{}]")
_KEY = regex.compile(r"\0([0-9]+)\0")
# Variables that take their values in the order in which they stand.
_UNNUMBERED = regex.compile(r"%(?![%({]|[0-9]+[$:%]|L?[0-9]+$|L?n$|\||<(?!PRI|SCN)).+|\{(?:[:!].*)?\}|~.+|[^%{~].*%.*")
# Those of them that may become "%2$d".
_NUMBERABLE = regex.compile(r"%[\-+ #0']*[0-9]*(?:\.[0-9]+)?(?:hh|ll|[hlLqjztZ])?[diouxXeEfFgGaAcCsSp@]")
_OF_BRANCH = r"|'[{}#]'|'\{[^']*\}'|[{}]"  # quoted text, and braces that belong to nothing
_OF_PLURAL = "|#"  # its number


@dataclass(frozen=True)
class Syntax:
    """What is no text in the messages of a format.

    Attributes:
        variable: str, pattern of the variables.
        literals: dict, what stands for a sign of the pattern itself -> the sign, such as {"%%": "%"}.
        escape: function from a variable to its form in the document.
        can_number: bool, whether "%2$d" takes the second value, so that a translation may change the order.
    """

    variable: str = VARIABLE
    literals: dict = field(default_factory=dict)
    escape: Callable = str
    can_number: bool = False


def variables_of(text, variable, literals):
    """How often each variable stands in a text: `Counter`. `variable` and `literals` are those of a `Syntax`."""
    return Counter(match[0] for match in regex.finditer(variable, text) if match[0] not in literals)


def translate_units(units, translate, on_left=None):
    """Translates units.

    Args:
        units: list of `Unit`.
        translate: function from a list of fragments to the same, translated. Its attribute `remembered`, if it has one,
            knows whole messages: a function (str, whether a translation fits) -> str, or None.
        on_left: called with the text of each unit that stays as it is, because its translation lost a variable.

    Returns:
        list of lists of parts, for `replaced`; None for a unit that stays as it is.
    """
    remember = getattr(translate, "remembered", None)
    found = {i: parts for i, unit in enumerate(units) if remember and (parts := _remembered(unit, remember))}
    messages = {i: _Message(unit.parts, unit.syntax) for i, unit in enumerate(units) if i not in found}
    translated = iter(translate(list(itertools.chain.from_iterable(m.fragments for m in messages.values()))))
    for i, message in messages.items():
        found[i] = message.with_texts(list(itertools.islice(translated, len(message.fragments))))
    found = [found[i] for i in range(len(units))]
    torn = {unit.whole for unit, parts in zip(units, found, strict=True) if parts is None} - {None}
    found = [None if unit.whole in torn else parts for unit, parts in zip(units, found, strict=True)]
    for unit, parts in zip(units, found, strict=True):
        if parts is None and on_left:
            on_left(" ".join(joined(unit.parts).split()))
    return found


def _remembered(unit, remember):
    """The parts of a message with variables and without markup that is remembered as a whole; None for another one.

    Its translation must have the same variables, and those that take their values in order in the same order.
    """
    if unit.syntax is None or len(unit.parts) != 1 or isinstance(unit.parts[0], Mark):
        return None
    (text,) = unit.parts
    variables = _sorted_variables(text, unit.syntax)
    if not variables or "\n" in text.strip():
        return None
    translation = remember(text, lambda translation: _sorted_variables(translation, unit.syntax) == variables)
    return None if translation is None else [translation]


def _sorted_variables(text, syntax):
    """The variables of a text, a list: sorted, but for those that take their values in order."""
    found = [match[0] for match in regex.finditer(syntax.variable, text) if match[0] not in syntax.literals]
    return sorted(found, key=lambda variable: "" if _UNNUMBERED.fullmatch(variable) else variable)


class _Message:
    """The parts of a unit, divided.

    Attributes:
        fragments: list of fragments that are translated one by one. In a fragment, the text of the `Mark` of a
            variable or a plural is a key: its number in `kept`, between two NUL characters.
        kept: list of variables, str, and of the pieces of plurals and selects.
    """

    def __init__(self, parts, syntax):
        self.parts, self.syntax, self.fragments, self.kept = parts, syntax, [], []
        self._patterns = []  # of the variables, one for each fragment
        if "\0" in joined(parts):  # it would look like a key
            self.syntax = None
        if self.syntax is None:
            self.fragments, self._pieces = [parts], [0]
        else:
            text = "".join(part if isinstance(part, str) else self._hidden(part) for part in parts)
            entities = _entities(text)
            self._literals = entities | syntax.literals
            self._pieces = self._divided(text, "|".join([*entities, syntax.variable]))

    def with_texts(self, texts):
        """The parts with translated fragments; None if one of them has other variables than before."""
        if all(after is before for after, before in zip(texts, self.fragments, strict=True)):
            return self.parts
        if self.syntax is None:
            return texts[0]
        texts = [_with_plain_apostrophes(*each) for each in zip(texts, self._patterns, strict=True)]
        if all(map(self._keeps_variables, self.fragments, texts, self._patterns)):
            return self._assembled(self._pieces, list(map(self._numbered, texts)))
        return None

    def _hidden(self, kept):
        self.kept.append(kept)
        return f"\0{len(self.kept) - 1}\0"

    def _divided(self, text, variable):
        """The pieces of a text: marks, and numbers of fragments.

        Args:
            text: str, in which keys stand for marks.
            variable: str, pattern of the variables.
        """
        text, has_branches = self._without_branches(text, variable)
        variable += _OF_BRANCH if has_branches and _OF_BRANCH not in variable else ""
        pieces, start = [], 0
        for key in _KEY.finditer(text):
            mark = self.kept[int(key[1])]
            if isinstance(mark, Mark) and mark.divides:
                pieces += [*self._fragment(text[start : key.start()], variable), mark]
                start = key.end()
        return pieces + self._fragment(text[start:], variable)

    def _without_branches(self, text, variable):
        """The text with a key for each plural and select, and whether it has any."""
        written, end = "", 0
        for opening in _OPENING.finditer(text):
            found = self._branches(text, opening, variable) if opening.start() >= end else None
            if found:
                written += text[end : opening.start()] + self._hidden(found[0])
                end = found[1]
        return written + text[end:], end > 0

    def _branches(self, text, opening, variable):
        """The pieces of a plural or select, and the place of its end; None if its braces do not match."""
        variable += "" if _OF_BRANCH in variable else _OF_BRANCH
        variable += _OF_PLURAL if opening[1] and not variable.endswith(_OF_PLURAL) else ""
        pieces, start, place = [], opening.start(), opening.end()
        while selector := _SELECTOR.match(text, place):
            end = _end_of_branch(text, selector.end())
            if end is None:
                return None
            branch = self._divided(text[selector.end() : end], variable)
            pieces += [Mark(self.syntax.escape(text[start : selector.end()])), *branch]
            start, place = end, end + 1
        closing = _CLOSING.match(text, place)
        if not pieces or not closing:
            return None
        return [*pieces, Mark(self.syntax.escape(text[start : closing.end()]))], closing.end()

    def _fragment(self, text, variable):
        """Makes a text a fragment: list of its number, empty if there is no text."""
        parts, end = [], 0
        # An address with a variable is one variable. One without stays in the text.
        addresses = [address for address in find_addresses(text) if regex.search(variable, address[0])]
        found = [*addresses, *regex.finditer(f"{_KEY.pattern}|{variable}", text)]
        for match in sorted(found, key=lambda match: (match.start(), -match.end())):
            if match.start() < end:
                continue
            key = _KEY.fullmatch(match[0])
            kept = self.kept[int(key[1])] if key else self._literals.get(match[0])
            if kept is None:
                kept = Mark(self._hidden(match[0]))
            parts += [text[end : match.start()], kept if isinstance(kept, (Mark, str)) else Mark(match[0])]
            end = match.end()
        parts = merged([*parts, text[end:]])
        if not parts:
            return []
        self.fragments.append(parts)
        self._patterns.append(variable)
        return [len(self.fragments) - 1]

    def _keeps_variables(self, before, after, variable):
        keys, found = ([int(key) for key in _KEY.findall(joined(parts))] for parts in (before, after))
        ordered = [key for key in found if self._is_unnumbered(key)]
        if sorted(found) != sorted(keys) or ordered != sorted(ordered) and not self._can_be_numbered():
            return False
        return self._variables(before, variable) == self._variables(after, variable)

    def _is_unnumbered(self, key):
        return isinstance(self.kept[key], str) and _UNNUMBERED.fullmatch(self.kept[key]) is not None

    def _can_be_numbered(self):
        """Whether all variables with a percent sign may get a number: all or none must have one."""
        named = (kept for kept in self.kept if isinstance(kept, str) and "%" in kept)
        return self.syntax.can_number and len(self.fragments) == 1 and all(map(_NUMBERABLE.fullmatch, named))

    def _numbered(self, parts):
        """The parts of a translation, with numbers in its variables if they come in another order."""
        places = [i for i, part in enumerate(parts) if isinstance(part, Mark) and _KEY.fullmatch(part.text)]
        keys = {i: key for i in places if self._is_unnumbered(key := int(parts[i].text[1:-1]))}
        in_order = sorted(keys.values())
        if list(keys.values()) == in_order:
            return parts
        parts = list(parts)
        for i, key in keys.items():
            parts[i] = Mark(self._hidden(self.kept[key].replace("%", f"%{in_order.index(key) + 1}$")))
        return parts

    def _variables(self, parts, variable):
        """How often each variable stands in the text of a fragment: a `Counter`."""
        text = joined(parts, self._with_literals)
        text = _KEY.sub(lambda key: kept if isinstance(kept := self.kept[int(key[1])], str) else key[0], text)
        return variables_of(text, variable, self._literals)

    def _with_literals(self, text):
        for literal, sign in self._literals.items():
            text = text.replace(sign, literal)
        return text

    def _assembled(self, pieces, texts):
        """The parts of pieces, with the translated texts."""
        parts = []
        for piece in pieces:
            for part in [piece] if isinstance(piece, Mark) else texts[piece]:
                if isinstance(part, str):
                    parts.append(self._with_literals(part))
                else:
                    parts += self._shown(part.text, texts) if _KEY.search(part.text) else [part]
        return parts

    def _shown(self, text, texts, escape=str):
        """The parts of a text with keys. `escape` is for the text around the keys."""
        parts = []
        for place, piece in enumerate(_KEY.split(text)):
            kept = self.kept[int(piece)] if place % 2 else Mark(escape(piece))
            if isinstance(kept, str):
                parts += self._shown(kept, texts, self.syntax.escape)
            else:
                parts += self._assembled(kept if isinstance(kept, list) else [kept], texts)
        return parts


def _with_plain_apostrophes(parts, variable):
    """In a branch, an apostrophe before a variable would quote the variable: a typographic one does not."""
    if _OF_BRANCH not in variable:
        return parts
    return [
        part[:-1] + "’" if isinstance(part, str) and part.endswith("'") and isinstance(after, Mark) else part
        for part, after in itertools.zip_longest(parts, parts[1:])
    ]


def _entities(text):
    """The entities of a text that stand for a sign: dict, entity -> sign. The one of "&" comes first."""
    found = {entity: html.unescape(entity) for entity in _ENTITY.findall(text)}
    if "&" in _ENTITY.sub("", text):  # some stand for themselves
        found.pop("&amp;", None)
    signs = {
        entity: sign for entity, sign in found.items() if len(sign) == 1 and (sign.isprintable() or sign == "\u00a0")
    }
    return dict(sorted(signs.items(), key=lambda pair: pair[1] != "&"))


def _end_of_branch(text, place):
    """The place of the brace that closes a branch; None if there is none."""
    depth = 0
    for brace in _BRACE.finditer(text, place):
        depth += {"{": 1, "}": -1}.get(brace[0], 0)
        if depth < 0:
            return brace.start()
    return None
