"""Word documents (.docx): a zip file whose parts are XML. Paragraphs are translated, everything else stays.

A paragraph is a row of runs, text of one format each. The format with the most text is the base. A run of another
format is a pair of tags: its opening tag ends a base run, and its closing tag starts a base run.
"""

import io
import re
import zipfile
import zlib
from collections import Counter
from dataclasses import dataclass
from xml.sax.saxutils import escape

from keras_transformer.errors import UserError
from keras_transformer.tools.documents import xml
from keras_transformer.tools.documents.fragment import CLOSE, EMPTY, OPEN, Mark
from keras_transformer.tools.documents.units import Unit, joined, replaced

PARTS = re.compile(r"word/(document|header\d*|footer\d*|footnotes|endnotes)\.xml")
CONTAINERS = {"hyperlink", "ins", "smartTag", "moveTo"}
LEFT_OUT = {"proofErr", "lastRenderedPageBreak"}  # traces of an editor, which fit the old text only
BREAKS = {"br", "cr", "tab"}
BREAK = re.compile(rf"<w:(?:{'|'.join(sorted(BREAKS))})\b")
RUN_END = "</w:t></w:r>"


@dataclass(frozen=True)
class _Run:
    """A run with text.

    Attributes:
        format: str, its properties in XML.
        content: list of (text, or the `Node` of another element).
    """

    format: str
    content: list

    @property
    def length(self):
        return sum(len(item) for item in self.content if isinstance(item, str))


def _opening(format):
    return f'<w:r>{format}<w:t xml:space="preserve">'


def translate_archive(data, path, translate):
    """Translates a document.

    Args:
        data: bytes.
        path: of the document, for errors.
        translate: function from a list of fragments to the same, translated.

    Returns:
        bytes; those of `data` if no paragraph has changed.

    Raises:
        UserError: if it is no Word document.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            entries = [(info, archive.read(info)) for info in archive.infolist()]
            comment = archive.comment
    except (zipfile.BadZipFile, RuntimeError, zlib.error) as error:
        raise UserError(f"{path} is no Word document: {error}") from error
    texts = {info.filename: _text(content, path) for info, content in entries if PARTS.fullmatch(info.filename)}
    if "word/document.xml" not in texts:
        raise UserError(f"{path} is no Word document: it has no word/document.xml")
    units = {name: find_paragraphs(text, f"{path}, {name}") for name, text in texts.items()}
    translated = iter(translate([unit.parts for found in units.values() for unit in found]))
    changed = {
        name: replaced(texts[name], found, [next(translated) for _ in found]).encode("utf-8")
        for name, found in units.items()
    }
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


def find_paragraphs(text, path):
    """The units of a part of the archive: the content of each paragraph with text.

    Raises:
        UserError: if it is not well-formed.
    """
    units = []
    for paragraph in _paragraphs(xml.parse(text, path)):
        content = [child for child in paragraph.children if child.name not in ("pPr", *LEFT_OUT)]
        parts = _parts(text, content)
        if any(isinstance(part, str) and part.strip() for part in parts):
            units.append(Unit(content[0].start, content[-1].end, parts, _written))
    return units


def _paragraphs(node):
    """The paragraphs of a document. Paragraphs inside other paragraphs, as in text boxes, are left out."""
    for child in node.children:
        if child.name == "p":
            yield child
        else:
            yield from _paragraphs(child)


def _written(parts):
    text = joined(parts, escape)
    return re.sub(rf'<w:r>(?:(?!</w:r>|<w:t ).)*?<w:t xml:space="preserve">{RUN_END}', "", text, flags=re.DOTALL)


def _parts(text, nodes):
    """The parts of the content of a paragraph or of a container such as a link."""
    items = list(_items(text, nodes))
    lengths = Counter()
    for item in items:
        if isinstance(item, _Run):
            lengths[item.format] += item.length
    if not lengths:
        return [Mark("".join(item if isinstance(item, str) else text[item.start : item.end] for item in items))]
    base = lengths.most_common(1)[0][0]
    parts = [Mark(_opening(base), OPEN, "base")]
    for number, item in enumerate(items):
        if isinstance(item, _Run):
            content = list(_content(text, item))
            is_base = item.format == base
            pair = [
                Mark(RUN_END + _opening(item.format), OPEN, f"run {number}"),
                Mark(RUN_END + _opening(base), CLOSE, f"run {number}"),
            ]
            parts += content if is_base else [pair[0], *content, pair[1]]
        elif isinstance(item, str):
            divides = BREAK.search(item) is not None  # such as a run of a tab alone
            parts.append(Mark(RUN_END + item + _opening(base), EMPTY, "other", divides))
        else:
            inside = _parts(text, item.children)
            if len(inside) == 1:
                parts.append(Mark(RUN_END + text[item.start : item.end] + _opening(base), EMPTY, "other"))
                continue
            first, last = text[item.start : item.inner_start], text[item.inner_end : item.end]
            parts.append(Mark(RUN_END + first + inside[0].text, OPEN, item.name))
            parts += [*inside[1:-1], Mark(inside[-1].text + last + _opening(base), CLOSE, item.name)]
    return [*parts, Mark(RUN_END, CLOSE, "base")]


def _content(text, run):
    for item in run.content:
        if isinstance(item, str):
            yield item
        else:
            mark = f'</w:t>{text[item.start : item.end]}<w:t xml:space="preserve">'
            yield Mark(mark, EMPTY, item.name, item.name in BREAKS)


def _items(text, nodes):
    """`_Run`s with text, equal neighbours joined; nodes of containers; and XML that stays, str."""
    last, depth, field = None, 0, ""
    for node in nodes:
        if node.name in LEFT_OUT or not node.name:
            continue
        whole = text[node.start : node.end]
        kinds = [n.attributes.get("w:fldCharType") for n in node.walk() if n.name == "fldChar"]
        if kinds or depth:  # a field, such as a page number, from its beginning to its end
            depth += kinds.count("begin") - kinds.count("end")
            field += whole
            if depth == 0:
                yield field
                field, last = "", None
        elif node.name == "r" and _is_text(node):
            run = _run(text, node)
            if last is not None and last.format == run.format:
                last.content.extend(run.content)
                continue
            last = run
            yield run
        else:
            last = None
            yield node if node.name in CONTAINERS else whole
    if field:
        yield field


def _is_text(run):
    """Whether a run has text, and no other element with text."""
    names = {child.name for child in run.children}
    return "t" in names and not any(node.name == "p" for node in run.walk())


def _run(text, node):
    properties = node.find("rPr")
    content = []
    for child in node.children:
        if child.name == "t":
            content.append("".join(inner.text for inner in child.children))
        elif child.name and child.name != "rPr" and child.name not in LEFT_OUT:
            content.append(child)
    return _Run(text[properties.start : properties.end] if properties else "", content)
