"""A fragment: text with inline tags, the form that all formats share.

A fragment is a list of parts. A part is text, a str, or a `Mark`: the opening or closing tag of a pair, or a tag
without content. `Layout` is a fragment ready for translation: the text without tags, and the tags at their places.
"""

import html
import itertools
import re
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import regex

from keras_transformer.protection import ADDRESS
from keras_transformer.tools.words import CLOSING_SIGN
from keras_transformer.words import SPACED

OPEN, EMPTY, CLOSE = 1, 0, -1
SPACE = re.compile(r"[ \t\r\n\f\v]+")
VOID = {"br", "img", "wbr", "input"}  # tags of HTML without a closing one
RAISED = {"sup", "sub", "<sup", "<sub"}  # names of marks of superscripts and subscripts
_WORD_OF_SPACED = regex.compile(SPACED)
_PIECE = regex.compile(rf"(?:{SPACED})+|(?:(?!{SPACED}).)+", regex.DOTALL)  # a word, or all up to the next one
# Every element of HTML that can have text is in one of these three sets. In a page, every other name is a block, too.
INLINE = set(
    "a abbr acronym b bdi bdo big blink br cite data del dfn em font i img input ins label mark nobr q rb ruby s small "
    "span strike strong sub sup time tt u wbr".split()
)
OPAQUE_INLINE = set("code kbd samp var svg math canvas rp rt rtc".split())  # inline, with content that stays
OPAQUE = OPAQUE_INLINE | set("script style pre textarea iframe object noembed".split())
BLOCKS = set(  # tags between two texts
    "address article aside audio blockquote body button caption center colgroup datalist dd details dialog dir div dl "
    "dt fieldset figcaption figure footer form frameset h1 h2 h3 h4 h5 h6 head header hgroup hr html iframe legend li "
    "listing main map marquee menu meter nav noembed noframes noscript object ol optgroup option output p picture "
    "plaintext pre progress script search section select slot style summary table tbody td template textarea tfoot th "
    "thead title tr ul video xmp".split()
)
SIGN = "\ue000"  # stands for code in a tag
_NAME = rf"""[^\s"'<>/={SIGN}]"""
ATTRIBUTE = re.compile(rf"""(?s)(?<!{_NAME})({_NAME}+)\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s"'>](?:(?!/?>)\S)*))""")
UNQUOTED = 4  # the group of a value without quotes
# What stays as it is in every document: URLs, mail addresses, sites with a path, names such as @ann@a.org, and codes of
# emoji. A NUL stands around the key of a variable.
_SITE = rf"(?<!{SPACED}|[.\-/@])(?:[\p{{Ll}}\p{{Nd}}\-]++\.)++\p{{Ll}}{{2,}}+"
_OPAQUE = (
    rf"(?:mailto:)?(?:{ADDRESS})|{_SITE}/[^\s\0()<>\"]*(?<=[\p{{L}}\p{{N}}/])"
    rf"|(?<!{SPACED}|[.+\-%$@/&])@(?=[\p{{L}}_]){SPACED}+(?:[.\-]{SPACED}+)*(?:@{SPACED}+(?:[.\-]{SPACED}+)+)?"
    rf"|(?<!{SPACED}):[A-Za-z0-9_+\-]+:(?!{SPACED})"
)
_ADDRESS, _WORD, _SIGNS = regex.compile(_OPAQUE), re.compile(r"\S+"), ("@", "/", ":", "www.")
# What stays between two tags, such as those of a link. There, #tags, sites, and names and paths of files are no text.
_PATH = r"(?:\.{0,2}/)?(?:[^\s/]+/)+[^\s/]*\.[A-Za-z0-9]+"
_ADDRESS_IN_TAGS = regex.compile(rf"{_OPAQUE}|[A-Za-z][A-Za-z0-9+.\-]+://\S+|[#@]\S+|{_SITE}(?:[/?#:]\S*)?|{_PATH}")
MOST_IN_ADDRESS = 50  # tags and texts


@dataclass(frozen=True)
class Mark:
    """A tag, or other text that is not translated.

    Args:
        text: str, as it stands in the document.
        kind: OPEN, CLOSE or EMPTY.
        name: str, equal for the two tags of a pair.
        breaks: bool, whether it divides words as white space does.
        divides: bool, whether the texts before it and after it are translated one by one.
        is_ordered: bool, whether it must stay between the ordered marks before and after it, such as a time of karaoke.
        inside: tuple of parts that it stands for, while they are translated: an address, and tags around no text.
    """

    text: str
    kind: int = EMPTY
    name: str = ""
    breaks: bool = False
    divides: bool = False
    is_ordered: bool = False
    inside: tuple = ()

    @property
    def is_space(self):
        """Whether it takes the place of a space, such as a line break with the indentation of the next line."""
        return self.breaks and not self.name


@dataclass
class Element:
    """A tag at its place in the text of a `Layout`.

    Attributes:
        opening: `Mark`; the only one of an empty tag.
        closing: `Mark`; None for an empty tag.
        start, end: the characters that it surrounds; equal for an empty tag.
        spaces: two bool, whether white space stands before and after each mark: (before, after) of the opening one.
        closing_spaces: the same of the closing one.
        children: list of `Element`.
    """

    opening: Mark | None
    closing: Mark | None = None
    start: int = 0
    end: int = 0
    spaces: tuple = (False, False)
    closing_spaces: tuple = (False, False)
    children: list = field(default_factory=list)


@dataclass
class Layout:
    """A fragment without the tags and the white space around the whole text.

    Attributes:
        before, after: lists of parts, around the whole text.
        text: str, without tags.
        root: `Element` without marks, which surrounds the text.
    """

    before: list
    after: list
    text: str
    root: Element

    @property
    def is_plain(self):
        """Whether no tag stands inside the text."""
        return not self.root.children


class Tag(NamedTuple):
    """A tag of HTML or XML in a message.

    Args:
        kind: OPEN, CLOSE or EMPTY. A comment, and other text that is no tag, is EMPTY.
        name: str, in small letters.
        stays: bool, whether it opens an element that is not translated.
        divides: bool, whether it ends a text.
    """

    kind: int = EMPTY
    name: str = ""
    stays: bool = False
    divides: bool = False


def tag_of(source):
    """The `Tag` of a str, with or without entities. `<Form>` is a component of a program, and no element of HTML."""
    tag = re.fullmatch(r"(?s)<(/?)([A-Za-z][^\s/>.]*)(.*?)(/?)>", html.unescape(source))
    if not tag:
        return Tag()
    name = tag[2].lower()
    of_html = name if tag[2] in (name, name.upper()) else ""
    kind = EMPTY if tag[4] or name in VOID else CLOSE if tag[1] else OPEN
    attributes = {match[1].lower(): match[match.lastindex] for match in ATTRIBUTE.finditer(tag[3])}
    return Tag(kind, name, kind == OPEN and stays(of_html, attributes), of_html in BLOCKS)


def stays(name, attributes):
    """Whether an element is not translated, by the name and the attributes of its opening tag."""
    is_of_vue = name == "i18n" and not {key.rpartition(":")[2] for key in attributes} & {
        "path",
        "keypath",
    }  # texts of apps, in JSON or YAML
    is_of_vue |= name == "template" and attributes.get("lang") in ("pug", "jade")
    return name in OPAQUE or is_of_vue or is_marked(attributes)


def is_marked(attributes):
    """Whether attributes say that an element is not translated."""
    classes = (attributes.get("class") or "").split()
    return (attributes.get("translate") or "").lower() == "no" or "notranslate" in classes


def closings(tags):
    """The places of closing tags by those of the opening ones: dict. A tag is a tuple (kind, name, ...)."""
    found, open_ones = {}, {}
    for place, (kind, name, *_) in enumerate(tags):
        if kind == OPEN:
            open_ones.setdefault(name, []).append(place)
        elif kind == CLOSE and open_ones.get(name):
            found[open_ones[name].pop()] = place
    return found


def elements(tags):
    """Yields (first, last, kind) for each tag, and once for an element that stays: the places of its tags, and EMPTY.

    Without a closing tag, the opening one is a tag like others: `git show <object>`.
    """
    partners, end = closings(tags), 0
    for place, tag in enumerate(tags):
        if place >= end:
            last = partners.get(place, place) if tag.stays else place
            yield place, last, EMPTY if last > place else tag.kind
            end = last + 1


def parts_of(text, pattern, escape=str):
    """A fragment of text with tags that a pattern finds. `<b>` and `</b>` are a pair; other matches are empty tags.

    An element that stays is an empty tag, with its text, see `elements`.

    Args:
        text: str.
        pattern: compiled regular expression.
        escape: function from a tag to its form in the document.
    """
    matches = list(pattern.finditer(text))
    tags, parts, end = [tag_of(match[0]) for match in matches], [], 0
    for first, last, kind in elements(tags):
        start, name = matches[first].start(), tags[first].name
        source = text[start : matches[last].end()]
        divides = tags[first].divides and not (tags[first].stays and kind == OPEN)  # that one is no element
        parts += [text[end:start], Mark(escape(source), kind, name, name == "br", divides)]
        end = matches[last].end()
    return [part for part in [*parts, text[end:]] if part]


def merged(parts):
    """The parts with neighbouring texts as one."""
    joined = []
    for part in parts:
        if isinstance(part, str) and joined and isinstance(joined[-1], str):
            joined[-1] += part
        else:
            joined.append(part)
    return [part for part in joined if part]


def expanded(parts):
    """The parts, with those that a mark stands for in its place."""
    found = [expanded(part.inside) if getattr(part, "inside", ()) else [part] for part in parts]
    return merged(itertools.chain.from_iterable(found))


def layout_of(parts):
    """The `Layout` of a fragment. Its marks may stand for other parts, see `expanded`.

    Tags without a partner count as empty ones. So do an address, a formula, and a pair around an address or no text.
    """
    parts = _with_formulas_apart(with_addresses_apart(parts))
    parts = _with_empty_pairs_joined(with_partners(_with_spaces_apart(parts)))
    before, after = [], []
    while parts:
        partners = _partners(parts)
        if _is_outside(parts[0]):
            before.append(parts.pop(0))
        elif _is_outside(parts[-1]) and not _ends_raised(parts):
            after.insert(0, parts.pop())
        elif partners.get(0) == len(parts) - 1:
            before.append(parts.pop(0))
            after.insert(0, parts.pop())
        else:
            break
    return Layout(before, after, *_flat(parts))


def _is_outside(part):
    return part.kind == EMPTY if isinstance(part, Mark) else not part.strip()


def _ends_raised(parts):
    """Whether the last part is a superscript or a subscript. It stays with the word before it, which may move."""
    word = parts[-2] if len(parts) > 1 else ""
    return isinstance(word, str) and word[-1:].strip() != "" and _is_raised(parts[-1])


def _is_raised(part):
    return isinstance(part, Mark) and part.kind == EMPTY and part.name in RAISED


def _with_formulas_apart(parts):
    """The parts, with one mark for each word that a superscript or a subscript divides: H<sub>2</sub>O."""
    if not any(map(_is_raised, parts)):
        return parts
    pieces = [piece for part in parts for piece in ([part] if isinstance(part, Mark) else _PIECE.findall(part))]
    apart = []
    for is_word, group in itertools.groupby(pieces, _is_of_word):
        inside = [*group]
        is_formula = is_word and sum(isinstance(piece, str) for piece in inside) > 1
        apart += [Mark("", inside=tuple(inside))] if is_formula else inside
    return merged(apart)


def _is_of_word(piece):
    return _is_raised(piece) if isinstance(piece, Mark) else _WORD_OF_SPACED.match(piece) is not None


def _with_spaces_apart(parts):
    """The parts, with a mark for each run of white space but a single space, and with spaces at their ends apart."""
    apart = []
    for part in parts:
        if isinstance(part, Mark):
            apart.append(part)
            continue
        for piece in re.split(r"([ \t\r\n\f\v]{2,}|[\t\r\n\f\v]|^ | $)", part):
            is_mark = piece != " " and SPACE.fullmatch(piece)
            apart += [Mark(piece, breaks=True) if is_mark else piece] if piece else []
    return apart


def find_addresses(text):
    """Yields the matches of addresses and codes in a text. Only words with their signs are looked at, for speed."""
    for word in _WORD.finditer(text) if any(sign in text for sign in _SIGNS) else ():
        if any(sign in word[0] for sign in _SIGNS):
            yield from _ADDRESS.finditer(text, *word.span())


def with_addresses_apart(parts, mark=lambda text: Mark("", inside=(text,))):
    """The parts, with a mark for each address, which the function `mark` makes of a str."""
    apart = []
    for part in parts:
        end = 0
        for match in () if isinstance(part, Mark) else find_addresses(part):
            apart += [part[end : match.start()], mark(match[0])]
            end = match.end()
        apart.append(part[end:] if end else part)
    return [part for part in apart if part]


def _partners(parts):
    """The places of the pairs: opening -> closing. A closing tag ends the open tags inside it."""
    partners, open_ones = {}, []
    for place, part in enumerate(parts):
        if not isinstance(part, Mark) or part.kind == EMPTY:
            continue
        if part.kind == OPEN:
            open_ones.append(place)
        elif part.name in (names := [parts[i].name for i in open_ones]):
            last = len(names) - 1 - names[::-1].index(part.name)
            partners[open_ones[last]] = place
            del open_ones[last:]
    return partners


def with_partners(parts):
    """The parts, where a tag without a partner is an empty one, which stays between those before and after it."""
    partners = _partners(parts)
    paired = {*partners, *partners.values()}
    return [
        replace(part, kind=EMPTY, is_ordered=True)
        if isinstance(part, Mark) and part.kind and place not in paired
        else part
        for place, part in enumerate(parts)
    ]


def _with_empty_pairs_joined(parts):
    """The parts, with one empty mark for each pair that surrounds no text, or nothing but an address."""
    joined, place, partners = [], 0, _partners(parts)
    while place < len(parts):
        end = partners.get(place, place)
        inside = parts[place : end + 1]
        if end > place and _is_without_text(inside):
            joined.append(Mark("", name=parts[place].name, inside=tuple(inside)))
            place = end
        else:
            joined.append(parts[place])
        place += 1
    return joined


def _is_without_text(parts):
    """Whether parts have no text, or nothing but an address. A variable may be in it: a mark without a name."""
    if all(isinstance(part, Mark) or not part.strip() for part in parts):
        return True
    if len(parts) > MOST_IN_ADDRESS:
        return False
    texts = (
        part if isinstance(part, str) else "x" * (part.kind == EMPTY and not part.name) for part in expanded(parts)
    )
    return _ADDRESS_IN_TAGS.fullmatch("".join(texts).strip()) is not None


def _has_space(parts, place):
    if not 0 <= place < len(parts):
        return False
    part = parts[place]
    return part.is_space if isinstance(part, Mark) else part == " "


def _flat(parts):
    """The text without tags, and the tree of the tags."""
    text, root = "", Element(None)
    open_ones = [root]
    for place, part in enumerate(parts):
        if not isinstance(part, Mark):
            is_after_tag = place and isinstance(parts[place - 1], Mark) and parts[place - 1].kind == EMPTY
            if is_after_tag and CLOSING_SIGN.match(part) and text.endswith(" "):  # "Press <kbd>x</kbd>.": not "Press ."
                text = text[:-1]
                for child in open_ones[-1].children:  # all that stood behind the space
                    child.start, child.end = min(child.start, len(text)), min(child.end, len(text))
            text += part.lstrip(" ") if part[0] == " " and text.endswith(" ") else part
            continue
        spaces = _has_space(parts, place - 1), _has_space(parts, place + 1)
        if part.kind == CLOSE:
            element = open_ones.pop()
            element.closing, element.end, element.closing_spaces = part, len(text), spaces
            continue
        if part.breaks and not text.endswith(" "):
            text += " "
        element = Element(part, None, len(text), len(text), spaces)
        open_ones[-1].children.append(element)
        if part.kind == OPEN:
            open_ones.append(element)
    root.end = len(text)
    return text, root
