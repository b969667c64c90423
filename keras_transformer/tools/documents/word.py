"""Word documents (.docx): a zip file whose parts are XML. Paragraphs are translated, everything else stays.

A paragraph is a row of runs, text of one format each. The format with the most text is the base. A run of another
format is a pair of tags: its opening tag ends a base run, and its closing tag starts a base run.
"""

import io
import itertools
import lzma
import posixpath
import re
import zipfile
import zlib
from collections import Counter
from dataclasses import dataclass, replace
from xml.sax.saxutils import escape, quoteattr

from keras_transformer.errors import UserError
from keras_transformer.tools.documents import xml
from keras_transformer.tools.documents.fragment import CLOSE, EMPTY, OPEN, Mark
from keras_transformer.tools.documents.units import Unit, joined, replaced
from keras_transformer.tools.documents.word_direction import in_direction

MAIN = "word/document.xml"  # if no relationship names another part
ROOT = re.compile(r"<(?:[^\s<>/:]+:)?document[\s>]")
BESIDE = {"header", "footer", "footnotes", "endnotes"}  # types of the relationships of the main part
NAMED_BESIDE = re.compile(r"word/(header\d*|footer\d*|footnotes|endnotes)\.xml")
CONTAINERS = {"hyperlink", "ins", "smartTag", "moveTo", "customXml", "bdo", "dir", "sdt"}
LEFT_OUT = {"proofErr", "lastRenderedPageBreak"}  # traces of an editor, which fit the old text only
BREAKS = {"br", "cr", "tab"}
HYPHENS = {"noBreakHyphen": "\u2011", "softHyphen": ""}  # inside a word: the text that a model reads
BREAK = re.compile(rf"<(?:[^\s<>/:]+:)?(?:{'|'.join(sorted(BREAKS))})\b")
IN_FIELDS = {"fldChar", "instrText", "delInstrText"}
LINK_FIELD = re.compile(r"\s*HYPERLINK\b")  # the one field whose result is text of the document

RAISED = ("superscript", "subscript")


@dataclass(frozen=True)
class _Run:
    """A run with text.

    Attributes:
        format: str, its opening tag and its properties in XML.
        content: list of (text, or the `Node` of another element).
    """

    format: str
    content: list

    @property
    def length(self):
        return sum(len(item) for item in self.content if isinstance(item, str))

    @property
    def ends_in_word(self):
        """Whether no space stands at its end."""
        return isinstance(self.content[-1], str) and self.content[-1][-1:].strip() != ""


@dataclass(frozen=True)
class _Piece:
    """A child of a paragraph or of a container. A run with the borders of fields and text is several pieces.

    Attributes:
        node: `Node`.
        text: str, its XML.
    """

    node: xml.Node
    text: str

    @property
    def borders(self):
        """The borders of fields in it: list of "begin", "separate" and "end". A container may have whole fields."""
        kinds = [_attribute(node, "fldCharType") for node in self.node.walk() if node.name == "fldChar"]
        is_whole = self.node.name in CONTAINERS and kinds.count("begin") == kinds.count("end")
        return [] if is_whole else kinds


@dataclass(frozen=True)
class _Container:
    """Pieces between XML that stays, such as a link.

    Attributes:
        name: str.
        first, last: str, the XML around the pieces.
        pieces: list of `_Piece`.
    """

    name: str
    first: str
    pieces: list
    last: str

    @property
    def text(self):
        return self.first + "".join(piece.text for piece in self.pieces) + self.last


class _Tags:
    """The tags of runs in a paragraph.

    Args:
        prefix: str, of the names of its elements, with the colon.
    """

    def __init__(self, prefix):
        self.plain = f"<{prefix}r>"  # the format of a run without properties
        self.text = f'<{prefix}t xml:space="preserve">'
        self.text_end = f"</{prefix}t>"
        self.end = f"</{prefix}t></{prefix}r>"
        run, text = re.escape(f"{prefix}r"), re.escape(f"{prefix}t")
        self.empty_run = re.compile(rf"<{run}(?: [^<>]*)?>(?:(?!</{run}>|<{text} ).)*?{self.text}{self.end}", re.DOTALL)

    def opening(self, format):
        """The tags before the text of a run."""
        return format + self.text

    def written(self, parts):
        """The XML of the parts of a paragraph, without empty runs."""
        return self.empty_run.sub("", joined(parts, escape))


def translate_archive(data, path, translate, language=None):
    """Translates a document.

    Args:
        data: bytes.
        path: of the document, for errors.
        translate: function from a list of fragments to the same, translated.
        language: code of the language of the translation, whose direction it has; None if it is unknown.

    Returns:
        bytes; those of `data` if nothing has changed.

    Raises:
        UserError: if it is no Word document.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            entries = [(info, archive.read(info)) for info in archive.infolist()]
            comment = archive.comment
    except (zipfile.BadZipFile, RuntimeError, ValueError, OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        raise UserError(f"{path} is no Word document: {error}") from error
    contents = {info.filename: content for info, content in entries}
    names = _names(contents, path)
    texts = {name: _text(contents[name], path) for name in names}
    units = {name: find_paragraphs(text, f"{path}, {name}") for name, text in texts.items()}
    if not ROOT.search(texts[names[0]]):
        raise UserError(f"{path} is no Word document: its main part is {names[0]}, which is no document")
    translated = iter(translate([unit.parts for found in units.values() for unit in found]))
    changed = {name: replaced(texts[name], found, [next(translated) for _ in found]) for name, found in units.items()}
    if language:
        styles = [name for name in _related(contents, names[0], {"styles"}, path) if name in contents]
        changed |= {name: _text(contents[name], path) for name in styles}
        roots = {name: _word_nodes(xml.parse(text, f"{path}, {name}")) for name, text in changed.items()}
        changed = {name: in_direction(text, roots[name], language) for name, text in changed.items()}
    changed = {name: text.encode("utf-8") for name, text in changed.items()}
    if all(changed.get(info.filename, content) == content for info, content in entries):
        return data
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        archive.comment = comment
        for info, content in entries:
            archive.writestr(info, changed.get(info.filename, content), info.compress_type)
    return target.getvalue()


def _text(content, path):
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"{path} has a part that is not UTF-8: {error}") from error


def _names(contents, path):
    """The names of the parts with text: the main one, which the package names, and those beside it."""
    main = next(iter(_related(contents, "", {"officeDocument"}, path)), MAIN)
    if main not in contents:
        raise UserError(f"{path} is no Word document: it has no {main}")
    beside = [*_related(contents, main, BESIDE, path), *filter(NAMED_BESIDE.fullmatch, contents)]
    return [main, *(name for name in dict.fromkeys(beside) if name in contents and name != main)]


def _related(contents, name, kinds, path):
    """The names of the parts to which a part has relationships of these kinds; "" is the package itself."""
    directory, _, file = name.rpartition("/")
    relationships = posixpath.join(directory, "_rels", f"{file}.rels")
    if relationships not in contents:
        return []
    found = []
    for node in xml.parse(_text(contents[relationships], path), f"{path}, {relationships}").walk():
        kind = node.attributes.get("Type", "").rpartition("/")[2]
        if kind in kinds and node.attributes.get("TargetMode") != "External":
            target = posixpath.join("/", directory, node.attributes.get("Target", ""))
            found.append(posixpath.normpath(target).lstrip("/"))
    return found


def find_paragraphs(text, path):
    """The units of a part of the archive: the content of each paragraph with text.

    Raises:
        UserError: if it is not well-formed.
    """
    units = []
    for paragraph in _paragraphs(_word_nodes(xml.parse(text, path))):
        content = [child for child in paragraph.children if child.name not in ("pPr", *LEFT_OUT)]
        tags = _Tags(paragraph.prefix)
        parts = _parts(tags, text, list(_pieces(text, content)))
        if any(isinstance(part, str) and part.strip() for part in parts):
            units.append(Unit(content[0].start, content[-1].end, parts, tags.written))
    return units


def _word_nodes(root):
    """The root, where elements of other namespaces, such as formulas, have the namespace in their names."""
    space = next(child.space for child in root.children if child.name)
    for node in root.walk():
        if node.name and node.space != space:
            node.name = f"{node.space} {node.name}"
    return root


def _attribute(node, name):
    """The value of an attribute, whatever its prefix; None if there is none."""
    return next((value for key, value in node.attributes.items() if key.rpartition(":")[2] == name), None)


def _paragraphs(node):
    """The paragraphs of a document. Paragraphs inside other paragraphs, as in text boxes, are left out."""
    for child in node.children:
        if child.name == "p":
            yield child
        else:
            yield from _paragraphs(child)


def _pieces(text, nodes):
    """Yields the `_Piece`s of a paragraph or of a container."""
    for node in nodes:
        if node.name in LEFT_OUT or not node.name:
            continue
        names = {child.name for child in node.children}
        if node.name != "r" or "fldChar" not in names or "t" not in names:
            yield _Piece(node, text[node.start : node.end])
            continue
        properties = node.find("rPr")
        first = text[node.start : properties.end if properties else node.inner_start]
        last = text[node.inner_end : node.end]
        children = (child for child in node.children if child.name and child is not properties)
        for _, group in itertools.groupby(children, lambda child: child.name in IN_FIELDS):
            inside = list(group)
            part = replace(node, children=[*filter(None, [properties]), *inside])
            yield _Piece(part, first + text[inside[0].start : inside[-1].end] + last)


def _parts(tags, text, pieces):
    """The parts of the pieces of a paragraph or of a container."""
    items = list(_items(tags, text, pieces))
    lengths, base = Counter(), tags.plain
    for item in items:
        if isinstance(item, _Run):
            lengths[item.format] += item.length
    if lengths:
        base = lengths.most_common(1)[0][0]
    opening = tags.opening(base)
    parts = [Mark(opening, OPEN, "base")]
    for number, item in enumerate(items):
        if isinstance(item, _Run):
            content = list(_content(tags, text, item))
            is_base = item.format == base
            pair = [
                Mark(tags.end + tags.opening(item.format), OPEN, f"run {number}"),
                Mark(tags.end + opening, CLOSE, f"run {number}"),
            ]
            parts += content if is_base else [pair[0], *content, pair[1]]
        elif isinstance(item, Mark):
            parts.append(replace(item, text=tags.end + item.text + opening))
        elif isinstance(item, str):
            divides = BREAK.search(item) is not None  # such as a run of a tab alone
            parts.append(Mark(tags.end + item + opening, EMPTY, "other", divides))
        else:
            parts += _inside(tags, text, item, opening)
    if not any(isinstance(part, str) for part in parts):
        return [Mark("".join(item if isinstance(item, str) else item.text for item in items if item))]
    return [*parts, Mark(tags.end, CLOSE, "base")]


def _inside(tags, text, container, opening):
    """The parts of a container between runs of the base; one mark if it has no text."""
    inside = _parts(tags, text, container.pieces)
    if len(inside) == 1:
        return [Mark(tags.end + container.text + opening, EMPTY, "other")]
    first, last = inside[0].text, inside[-1].text
    return [
        Mark(tags.end + container.first + first, OPEN, container.name),
        *inside[1:-1],
        Mark(last + container.last + opening, CLOSE, container.name),
    ]


def _content(tags, text, run):
    for item in run.content:
        if isinstance(item, str):
            yield item
        else:
            mark = f"{tags.text_end}{text[item.start : item.end]}{tags.text}"
            yield Mark(mark, EMPTY, item.name, item.name in BREAKS)


def _items(tags, text, pieces):
    """`_Run`s with text, equal neighbours joined; `_Container`s; XML that stays, str; and `Mark`s of what is raised."""
    last, place, is_raised = None, 0, False
    while place < len(pieces):
        piece, end = pieces[place], place + 1
        is_raised = is_raised and _is_raised(piece.node)
        if "begin" in piece.borders:
            item, end = _field(pieces, place)
        elif piece.borders:  # the end of a field that another paragraph begins
            item = piece.text
        elif _is_raised(piece.node) and (is_raised or isinstance(last, _Run) and last.ends_in_word):
            item, is_raised = Mark(piece.text, EMPTY, "sup"), True
        elif piece.node.name == "r" and _is_text(piece.node):
            item = _run(tags, text, piece.node)
            if isinstance(last, _Run) and last.format == item.format:
                last.content.extend(item.content)
                place = end
                continue
        else:
            item = _container(text, piece) or piece.text
        yield item
        last, place = item, end


def _field(pieces, place):
    """The field that begins at a place, and the place behind it.

    A field stays, such as a page number. The text of a link is its own. A field that ends in another paragraph, such as
    a table of contents, stays up to its result.

    Returns:
        (str or `_Container`, int).
    """
    depth, separate, end = 0, None, None
    for at, piece in enumerate(pieces[place:], place):
        depth += piece.borders.count("begin") - piece.borders.count("end")
        if separate is None and "separate" in piece.borders and depth <= 1:
            separate = at
        if depth <= 0:
            end = at
            break
    if end is None:
        end = len(pieces) - 1 if separate is None else separate
    elif separate is not None and place <= separate < end and _is_link(pieces[place : separate + 1]):
        first, last = (_joined(pieces[i:j]) for i, j in ((place, separate + 1), (end, end + 1)))
        return _Container(f"field {place}", first, pieces[separate + 1 : end], last), end + 1
    return _joined(pieces[place : end + 1]), end + 1


def _joined(pieces):
    return "".join(piece.text for piece in pieces)


def _is_link(pieces):
    """Whether the instruction of a field makes its result a link."""
    nodes = (node for piece in pieces for node in piece.node.walk() if node.name == "instrText")
    return LINK_FIELD.match("".join(child.text for node in nodes for child in node.children)) is not None


def _container(text, piece):
    """The `_Container` of an element with runs inside; None for another element."""
    node = piece.node
    is_link = node.name == "fldSimple" and LINK_FIELD.match(_attribute(node, "instr") or "")
    around = node.find("sdtContent") if node.name == "sdt" else node
    if around is None or not (is_link or node.name in CONTAINERS):
        return None
    properties = [child for child in around.children if child.name.endswith("Pr")]
    start = properties[-1].end if properties else around.inner_start
    inside = [child for child in around.children if child.start >= start]
    pieces = list(_pieces(text, inside))
    return _Container(node.name, text[node.start : start], pieces, text[around.inner_end : node.end])


def _is_raised(run):
    """Whether a run is a superscript or a subscript. Behind a word without a space, it stays as it is."""
    return any(node.name == "vertAlign" and _attribute(node, "val") in RAISED for node in run.walk())


def _is_text(run):
    """Whether a run has text, and no other element with text."""
    names = {child.name for child in run.children}
    return not names.isdisjoint({"t", *HYPHENS}) and not any(node.name == "p" for node in run.walk())


def _run(tags, text, node):
    properties = node.find("rPr")
    content = []
    for child in node.children:
        if child.name == "t":
            content.append("".join(inner.text for inner in child.children))
        elif child.name in HYPHENS:
            content.append(HYPHENS[child.name])
        elif child.name and child.name != "rPr" and child.name not in LEFT_OUT:
            content.append(child)
    declared = [f" {key}={quoteattr(value)}" for key, value in node.attributes.items() if key.startswith("xmlns")]
    format = tags.plain.replace(">", "".join(declared) + ">")
    return _Run(format + (text[properties.start : properties.end] if properties else ""), content)
