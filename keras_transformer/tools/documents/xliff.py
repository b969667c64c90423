"""XLIFF 1.2 and 2: each source without a translation gets a target. Targets with text stay as they are."""

import functools
import re
from xml.sax.saxutils import escape, quoteattr

from keras_transformer.errors import UserError
from keras_transformer.protection import VARIABLE
from keras_transformer.tools.documents import xml
from keras_transformer.tools.documents.declared import is_same_language
from keras_transformer.tools.documents.fragment import CLOSE, EMPTY, OPEN, Mark, parts_of
from keras_transformer.tools.documents.messages import FORM_OF, MARKUP, Syntax
from keras_transformer.tools.documents.units import Unit, joined

PAIRS = {"g", "pc", "mrk"}
# Elements that make pairs, and the attributes that name the partner.
OPENING = {"bx": ("rid", "id"), "bpt": ("rid", "id"), "sc": ("id",), "sm": ("id",)}
CLOSING = {"ex": ("rid", "id"), "ept": ("rid", "id"), "ec": ("startRef",), "em": ("startRef",)}
OF_ANGULAR = re.compile(r"(START|CLOSE)_([A-Z0-9_]+?)(?:_[0-9]+)?")  # identifiers of the tags of a pair
TO_TRANSLATE = {"new", "needs-translation", "initial"}  # states in which a copy of the source is no translation
CDATA, CDATA_END = "<![CDATA[", "]]>"
IN_XML, IN_CDATA = Syntax(f"{FORM_OF}|{VARIABLE}", escape=escape), Syntax()


def find_units(text, path):
    """The units of a document.

    Args:
        text: str.
        path: of the document, for errors.

    Raises:
        UserError: if it is not well-formed, or no XLIFF.
    """
    return list(_units(text, _parsed(text, path), True))


def _parsed(text, path):
    root = xml.parse(text, path)
    if root.find("xliff") is None:
        raise UserError(f"{path} is no XLIFF: it has no element `xliff`")
    return root


def _units(text, node, is_translated):
    is_translated = node.attributes.get("translate", "yes" if is_translated else "no") == "yes"
    source = node.find("source")
    if node.name in ("trans-unit", "segment") and source is not None:
        if is_translated and _has_text(source):
            yield from _units_of(text, node, source)
        return
    for child in node.children:
        yield from _units(text, child, is_translated)


def _units_of(text, node, source):
    """The unit of an element with a source, if it needs one."""
    target, segmented = node.find("target"), node.find("seg-source")
    segments = _segments(segmented) if segmented else {}
    done = {}
    if target is not None and _has_text(target):
        targets, is_open = _segments(target), _is_to_translate(node, target)
        if not segments or not targets or not targets.keys() <= segments.keys():
            segments = {}
            if not (is_open and _text(target) == _text(source)):
                return
        for name in segments.keys() & targets.keys():
            is_copy = is_open and _text(targets[name]) == _text(segments[name])
            if _has_text(targets[name]) and not is_copy:
                done[segments[name].start] = targets[name]
        if segments and len(done) == len(segments):
            return
    yield _unit(text, segmented if segments else source, source, target, segmented or source, done)


def _segments(node):
    """The segments inside an element of XLIFF 1.2: dict, the identifier of each -> its `Node`."""
    return {each.attributes.get("mid"): each for each in node.walk() if _is_segment(each)}


def _is_segment(node):
    return node.name == "mrk" and node.attributes.get("mtype") == "seg"


def _is_to_translate(node, target):
    states = {target.attributes.get("state"), node.attributes.get("state")}
    return not states.isdisjoint(TO_TRANSLATE) and node.attributes.get("approved") != "yes"


def _has_text(node):
    return bool(_text(node).strip())


def _text(node):
    return "".join(child.text for child in node.walk())


def _unit(text, content, source, target, before, done):
    """The unit of an element.

    Args:
        text: str, the document.
        content: `Node`, what is translated.
        source, target: `Node` of these; None for no target.
        before: `Node` that a new target stands behind.
        done: dict, the start of a segment -> the `Node` of its translation.
    """
    if target is not None:
        opening = re.sub(r"\s*/>\Z", ">", text[target.start : target.inner_start])
        name = re.match(r"<([^\s/>]+)", opening)[1]
        start, end = target.start, target.end
    else:
        name = re.match(r"<([^\s/>]+)", text[source.start :])[1].replace("source", "target")
        indentation = re.search(r"\s*\Z", text[: source.start])[0]
        opening = f"{indentation}<{name}>"
        start = end = before.end
    inside = text[content.inner_start : content.inner_end].strip()
    if inside.startswith(CDATA) and inside.find(CDATA_END) == len(inside) - len(CDATA_END):
        parts = parts_of(_text(content), MARKUP)
        return Unit(start, end, parts, functools.partial(_written_cdata, opening, f"</{name}>"), True, IN_CDATA)
    parts = list(_parts(text, content, done))
    return Unit(start, end, parts, functools.partial(_written, opening, f"</{name}>"), True, IN_XML)


def _written(opening, closing, parts):
    return opening + joined(parts, escape) + closing


def _written_cdata(opening, closing, parts):
    content = joined(parts).replace(CDATA_END, f"]]{CDATA_END}{CDATA}>")
    return f"{opening}{CDATA}{content}{CDATA_END}{closing}"


def _parts(text, node, done):
    waiting = ""  # text that the parser has found in several pieces
    for child in node.children:
        if not child.name:
            waiting += child.text
            continue
        yield from parts_of(waiting, MARKUP, escape)
        waiting = ""
        yield from _parts_of_element(text, node, child, done)
    yield from parts_of(waiting, MARKUP, escape)


def _parts_of_element(text, node, child, done):
    whole, name = text[child.start : child.end], f"{child.name} {child.start}"
    is_kept = child.attributes.get("translate") == "no" or child.attributes.get("mtype") == "protected"
    if child.start in done:
        yield Mark(text[done[child.start].start : done[child.start].end], divides=True)
    elif child.name in PAIRS and not is_kept and child.inner_end > child.inner_start:
        divides = _is_segment(child)
        yield Mark(text[child.start : child.inner_start], OPEN, name, divides=divides)
        yield from _parts(text, child, done)
        yield Mark(text[child.inner_end : child.end], CLOSE, name, divides=divides)
    elif child.name in OPENING:
        yield Mark(whole, OPEN, _partner(child, OPENING, node))
    elif child.name in CLOSING:
        yield Mark(whole, CLOSE, _partner(child, CLOSING, node))
    elif child.name == "x" and (pair := OF_ANGULAR.fullmatch(child.attributes.get("id", ""))):
        kind, is_block = (OPEN if pair[1] == "START" else CLOSE), pair[2].startswith("BLOCK_")
        yield Mark(whole, kind, f"x {node.start} {pair[2]}", divides=is_block)
    else:
        yield Mark(whole, EMPTY, name, child.attributes.get("ctype") == "lb")


def _partner(node, attributes, around):
    names = attributes[node.name]  # only in the same element: a pair across its border would tear it
    return f"partner {around.start} " + next((node.attributes[name] for name in names if name in node.attributes), "")


def in_language(text, path, language):
    """The document with the language of its targets: `target-language` of each file, or `trgLang`.

    Args:
        text: str.
        path: of the document, for errors.
        language: code; None if it is unknown. XLIFF 2 with targets must have one: "und" then, for undetermined.
    """
    root = _parsed(text, path)
    xliff = root.find("xliff")
    is_new = "srcLang" in xliff.attributes or xliff.attributes.get("version", "").startswith("2")
    name, source = ("trgLang", "srcLang") if is_new else ("target-language", "source-language")
    has_targets = any(node.name == "target" for node in xliff.walk()) or any(_units(text, root, True))
    for node in [xliff] if is_new else reversed(xliff.children):
        known = node.attributes.get(name, "")
        wanted = language or ("und" if is_new and has_targets and not known else None)
        if (is_new or node.name == "file") and wanted and not is_same_language(known, wanted):
            opening = with_attribute(text[node.start : node.inner_start], name, wanted, source)
            text = text[: node.start] + opening + text[node.inner_start :]
    return text


def with_attribute(tag, name, value, before):
    """An opening tag with an attribute, in the place of the one of its name, or else behind the one named `before`."""
    attribute = rf"(\s{name}\s*=\s*)(?:\"[^\"]*\"|'[^']*')"
    if re.search(attribute, tag):
        return re.sub(attribute, lambda match: match[1] + quoteattr(value), tag)
    place = re.search(rf"\s{before}\s*=\s*(?:\"[^\"]*\"|'[^']*')", tag) or re.match(r"<[^\s/>]+", tag)
    return f"{tag[: place.end()]} {name}={quoteattr(value)}{tag[place.end() :]}"
