"""Markdown: CommonMark with tables and strikethrough. Code, URLs and front matter stay as they are.

markdown-it-py finds blocks and inline marks. It gives lines, not characters, so its inline rules are wrapped to note
their places.
"""

import functools
import html
import itertools
import re

from keras_transformer.tools.documents import dialects
from keras_transformer.tools.documents import html as pages
from keras_transformer.tools.documents.fragment import (
    CLOSE,
    EMPTY,
    OPEN,
    RAISED,
    Mark,
    elements,
    parts_of,
    tag_of,
    with_addresses_apart,
)
from keras_transformer.tools.documents.markdown_text import Writer, in_html, is_block, load_markdown
from keras_transformer.tools.documents.units import Unit

QUOTED = re.compile(r"^[ \t]*>", re.MULTILINE)
LINE = re.compile(r"\r\n|\r|\n")
# Marks of other dialects: footnotes, alerts, the boxes of tasks, citations, contents, included files; white space.
KEPT = re.compile(
    rf"\[\^[^\s\[\]]+\]:?|\[![A-Za-z]+\][+-]?|\A\[[ xX]\](?=\s)|\[-?@[^\[\]\n]+\]|\A\[(?:TOC|toc)\]\Z|\A-+8<-+.*\Z"
    rf"|(?<!\\){pages.SPACE_ENTITY.pattern}"
)
ESCAPED = re.compile(r"\\([!-/:-@\[-`{-~])|&#?[0-9A-Za-z]+;")
LAST_BREAK = re.compile(r"(?<!\\)((?:\\\\)*)\\\Z")  # a hard break; the mark behind it has a line of its own
RULES = "newline escape backticks strikethrough emphasis link image autolink html_inline entity".split()


@functools.cache
def load_parser(is_mdx=False):
    """The parser. Its inline rules append (rule, start, end, place of "]", tokens) to env["found"].

    Args:
        is_mdx: bool, whether indented text is no code.

    Raises:
        UserError: without markdown-it-py.
    """
    parser = load_markdown().disable("code" if is_mdx else [])
    for name, rule in zip(parser.inline.ruler.get_active_rules(), parser.inline.ruler.getRules(""), strict=True):
        if name in RULES:
            parser.inline.ruler.at(name, functools.partial(_note, name, rule))
    return parser


def _note(name, rule, state, silent):
    """Runs an inline rule, and notes where it matched."""
    start, first, env = state.pos, len(state.tokens), state.env
    label_end = start
    if name in ("link", "image"):
        label_end = state.md.helpers.parseLinkLabel(state, start + (name == "image"), True)
    is_outer = env.setdefault("depth", 0) == 0
    env["depth"] += name == "image"  # the text of an image is parsed as a document of its own
    matched = rule(state, silent)
    env["depth"] -= name == "image"
    if matched and not silent and is_outer:
        env.setdefault("found", []).append((name, start, state.pos, label_end, state.tokens[first:]))
    return matched


class _Content:
    """The text of an inline token, and its place in the document.

    Args:
        text: str, the document.
        content: str, with stand-ins for the marks of dialects.
        starts: the place of each of its lines in the document.
        references: the definitions of links in the document.
        writer: `Writer` of its block.
    """

    def __init__(self, text, content, starts, references, writer):
        self.text, self.content, self.starts, self.references = text, content, starts, references
        self.writer = writer
        lines = zip(starts, content.split("\n"), strict=True)
        self.original = "\n".join(text[start : start + len(line)] for start, line in lines)

    def inside(self, start, end):
        """The `_Content` of the text of an image."""
        lines = [start, *(at + 1 for at in range(start, end) if self.content[at] == "\n")]
        writer = Writer("image", self.writer.is_nested)
        return _Content(self.text, self.content[start:end], list(map(self.place, lines)), self.references, writer)

    def parse(self):
        """The inline tokens, and the places that the rules noted: (rule, start, end, place of "]", tokens)."""
        env = {"references": dict(self.references), "found": []}
        return load_parser().parseInline(self.content, env)[0].children, env["found"]

    def source(self, start, end):
        """The text of the document from one place of the content to another."""
        return self.text[self.place(start) : self.place(end)]

    def place(self, at):
        """The place in the document of a place in the content."""
        line = self.content.count("\n", 0, at)
        return self.starts[line] + at - (self.content.rfind("\n", 0, at) + 1)

    def marks(self):
        """list of (start, end, kind, name, breaks) of the content: the marks in order."""
        tokens, noted = self.parse()
        found, tags, spans = [], [], []
        for match in dialects.STAND_IN.finditer(self.content):
            mark = dialects.mark_of(self.original[slice(*match.span())])
            found.append((*match.span(), mark.kind, mark.name, mark.breaks))
        for name, start, end, label_end, made in noted:
            if name == "link":
                found += [(start, start + 1, OPEN, "link", False), (label_end, end, CLOSE, "link", False)]
            elif name in ("emphasis", "strikethrough"):
                for token, place in _places(name, made, start, end):
                    token.meta["place"] = place
            elif name == "newline":  # with the spaces before it, of which two make it a hard one
                found.append((len(self.content[:start].rstrip(" ")), end, EMPTY, "", True))
            elif name == "escape" and self.content[start + 1 : start + 2] == "\n":
                found.append((start, end, EMPTY, "br", True))
            elif name in ("backticks", "image", "autolink"):
                if made[-1:] and made[-1].type != "text":
                    found.append((start, end, EMPTY, name, False))
            elif name == "html_inline":
                tags.append(tag_of(self.content[start:end]))
                spans.append((start, end))
        for first, last, kind in elements(tags):
            name = tags[first].name
            found.append((spans[first][0], spans[last][1], kind, f"<{name}", name == "br"))
        found = sorted(found + [mark for token in tokens if (mark := _emphasis(token))])
        return [*map(self._attached, found)]

    def _attached(self, mark):
        """A superscript or a subscript behind a word without a space is one mark, with its text. So it stays."""
        start, end, kind, name, breaks = mark
        if name in RAISED and kind == OPEN and not self.content[:start][-1:].isspace() and start:
            close = self.content.find(f"</{name[1:]}>", end)
            if close >= 0:
                return start, close + len(name) + 2, EMPTY, name, breaks
        return mark


def _places(name, made, start, end):
    """The tokens that a run of `*`, `_` or `~` made, each with its place. The text before the run may have made a
    token, too."""
    width = 2 if name == "strikethrough" else 1
    for back, token in enumerate(made[::-1][: -(-(end - start) // width)]):
        yield token, max(start, end - width * (back + 1))


def _emphasis(token):
    """The mark of a token of emphasis; None for another token."""
    place = token.meta.get("place")
    if place is None or not token.nesting:
        return None
    start = place - (token.type == "strong_open")
    return start, start + len(token.markup), OPEN if token.nesting == 1 else CLOSE, token.markup, False


def find_images(text, path=""):
    """The units of the texts of images, in a document of this path."""
    units = []
    for content in _contents(text, path):
        for name, start, _, label_end, _ in content.parse()[1]:
            if name == "image" and content.content[start + 2 : label_end].strip():
                units.append(_unit(content.inside(start + 2, label_end)))
    return sorted(units, key=lambda unit: unit.start)


def find_blocks(text, path=""):
    """The units of paragraphs, headings, cells and items, and those of blocks of HTML, in a document of this path."""
    units = []
    for content in _contents(text, path):
        units.append(_unit(content))
    lines = _line_starts(text)
    for token in _parse(text, path)[1]:
        if token.type == "html_block":
            start, end = (lines[line] for line in token.map)
            if token.level and QUOTED.search(text, start, end):
                continue  # the signs of the quotation are between its lines
            start = text.index("<", start)  # behind the sign of an item
            block = text[start:end]
            units += [in_html(unit, start, block) for unit in pages.find_blocks(block)]
    return sorted(units, key=lambda unit: unit.start)


def _unit(content):
    return Unit(content.place(0), content.place(len(content.content)), _parts(content), content.writer)


def _parts(content):
    parts, last, opening = [], 0, 0
    for start, end, kind, name, breaks in [*content.marks(), (len(content.content),) * 2 + (EMPTY, "", False)]:
        if start < last:  # inside a mark
            continue
        parts += [
            part if isinstance(part, Mark) else _read(part)
            for part in with_addresses_apart(parts_of(content.original[last:start], KEPT), Mark)
        ]
        source = content.source(start, end)
        if name == "link" and kind == CLOSE and source in ("]", "][]"):  # the text names the link's target, and changes
            source = f"][{content.source(opening, start)}]"
        opening = end if name == "link" and kind == OPEN else opening
        parts += [Mark(source, kind, name, breaks, divides=name == dialects.STATEMENT)] if end > start else []
        last = end
    return parts


def _read(text):
    """Text without the backslashes of Markdown and the entities of HTML."""
    return ESCAPED.sub(lambda match: match[1] or html.unescape(match[0]), text)


def _line_starts(text):
    return [0, *(match.end() for match in LINE.finditer(text)), len(text)]


def _parse(text, path):
    """The text that the parser sees, its tokens, and the definitions of its links."""
    hidden, is_mdx = dialects.hide(text, str(path).lower().removesuffix(".gz").endswith(".mdx"))
    env = {}
    return hidden, load_parser(is_mdx).parse(hidden, env), env.get("references", {})


def _block_of(token):
    """The kind of block that a token opens, as `Writer` names it."""
    if token.type == "heading_open":
        return "heading" if token.markup.startswith("#") else token.markup
    return "paragraph" if token.type == "paragraph_open" else "cell"


def _contents(text, path):
    """Yields the `_Content` of every inline token of a document. One that is not found again is left out."""
    lines, row, cursor = _line_starts(text), None, 0
    hidden, tokens, references = _parse(text, path)
    for before, token in itertools.pairwise(tokens):
        if token.type == "tr_open":
            row, cursor = token.map[0], lines[token.map[0]]
        elif token.type == "table_close":
            row = None
        if token.type != "inline" or not token.content.strip():
            continue
        starts = []
        for number, line in enumerate(token.content.split("\n"), token.map[0] if row is None else row):
            line_end = lines[number + 1]
            find, start = (hidden.rfind, lines[number]) if row is None else (hidden.find, cursor)
            place = find(line, start, line_end)
            starts.append(place)
            cursor = max(cursor, place + len(line))
        begins_line = row is not None and "|" not in text[lines[row] : starts[0]]
        if min(starts) < 0:
            continue
        inner = LAST_BREAK.sub(r"\1", token.content)
        content = _Content(text, inner, starts, references, Writer(_block_of(before), token.level > 1))
        if not begins_line or is_block(content.original):  # else the sign that begins the cell may end the block before
            yield content
