"""XLIFF 1.2 and 2.0: each source without a translation gets a target. Targets with text stay as they are."""

import functools
import re
from xml.sax.saxutils import escape

from keras_transformer.errors import UserError
from keras_transformer.tools.documents import xml
from keras_transformer.tools.documents.fragment import CLOSE, EMPTY, OPEN, Mark
from keras_transformer.tools.documents.units import Unit, joined

PAIRS = {"g", "pc", "mrk"}
# Elements that make pairs, and the attributes that name the partner.
OPENING = {"bx": ("rid", "id"), "bpt": ("rid", "id"), "sc": ("id",), "sm": ("id",)}
CLOSING = {"ex": ("rid", "id"), "ept": ("rid", "id"), "ec": ("startRef",), "em": ("startRef",)}


def find_units(text, path):
    """The units of a document.

    Args:
        text: str.
        path: of the document, for errors.

    Raises:
        UserError: if it is not well-formed, or no XLIFF.
    """
    root = xml.parse(text, path)
    if root.find("xliff") is None:
        raise UserError(f"{path} is no XLIFF: it has no element `xliff`")
    return list(_units(text, root, True))


def _units(text, node, is_translated):
    is_translated = node.attributes.get("translate", "yes" if is_translated else "no") == "yes"
    source, target = node.find("source"), node.find("target")
    if node.name in ("trans-unit", "segment") and source is not None:
        if is_translated and not (target and _has_text(target)) and _has_text(source):
            yield _unit(text, node, source, target)
        return
    for child in node.children:
        yield from _units(text, child, is_translated)


def _has_text(node):
    return any(child.text.strip() for child in node.walk())


def _unit(text, node, source, target):
    if target is not None:
        opening = re.sub(r"\s*/>\Z", ">", text[target.start : target.inner_start])
        name = re.match(r"<([^\s/>]+)", opening)[1]
        start, end = target.start, target.end
    else:
        name = re.match(r"<([^\s/>]+)", text[source.start :])[1].replace("source", "target")
        indentation = re.search(r"\s*\Z", text[: source.start])[0]
        opening = f"{indentation}<{name}>"
        start = end = (node.find("seg-source") or source).end
    written = functools.partial(_written, opening, f"</{name}>")
    return Unit(start, end, list(_parts(text, source)), written, is_apart=True)


def _written(opening, closing, parts):
    return opening + joined(parts, escape) + closing


def _parts(text, node):
    for child in node.children:
        whole, name = text[child.start : child.end], f"{child.name} {child.start}"
        if not child.name:
            yield child.text
        elif child.name in PAIRS and child.attributes.get("translate") != "no" and child.inner_end > child.inner_start:
            yield Mark(text[child.start : child.inner_start], OPEN, name)
            yield from _parts(text, child)
            yield Mark(text[child.inner_end : child.end], CLOSE, name)
        elif child.name in OPENING:
            yield Mark(whole, OPEN, _partner(child, OPENING, node))
        elif child.name in CLOSING:
            yield Mark(whole, CLOSE, _partner(child, CLOSING, node))
        else:
            yield Mark(whole, EMPTY, name, child.attributes.get("ctype") == "lb")


def _partner(node, attributes, around):
    names = attributes[node.name]  # only in the same element: a pair across its border would tear it
    return f"partner {around.start} " + next((node.attributes[name] for name in names if name in node.attributes), "")
