"""The direction of a Word document: a translation into Arabic, Hebrew, Persian or Urdu runs from right to left."""

from keras_transformer.tools.documents.declared import direction_of

# Elements that have a direction: the element of their properties, None for the element itself; the property; and the
# properties that the schema wants behind it.
PROPERTIES = {
    "p": (
        "pPr",
        "bidi",
        "adjustRightInd snapToGrid spacing ind contextualSpacing mirrorIndents suppressOverlap jc textDirection "
        "textAlignment textboxTightWrap outlineLvl divId cnfStyle rPr sectPr pPrChange",
    ),
    "r": ("rPr", "rtl", "cs em lang eastAsianLayout specVanish oMath rPrChange"),
    "tbl": (
        "tblPr",
        "bidiVisual",
        "tblStyleRowBandSize tblStyleColBandSize tblW jc tblCellSpacing tblInd tblBorders shd tblLayout tblCellMar "
        "tblLook tblCaption tblDescription tblPrChange",
    ),
    "sectPr": (None, "bidi", "rtlGutter docGrid printerSettings sectPrChange"),
}
OFF = {"0", "false", "off"}
FORMATS = ("b", "i", "sz")  # those of a run from right to left have the names bCs, iCs and szCs


def in_direction(text, root, language):
    """A part of a Word document in the direction of a language.

    Args:
        text: str, the XML of the part.
        root: `Node` of it.
        language: code.

    Returns:
        str, with the properties of direction in every paragraph, run with text, table and section, or without any.
    """
    if direction_of(language) == "rtl":
        edits = [edit for node in root.walk() if node.name in PROPERTIES for edit in _turned(text, node)]
    else:
        names = {name for _, name, _ in PROPERTIES.values()}
        edits = [(node.start, node.end, "") for node in root.walk() if node.name in names]
    for start, end, new in reversed(sorted(edits, key=lambda edit: edit[0])):  # of one place, in their order
        text = text[:start] + new + text[end:]
    return text


def _turned(text, node):
    """What gives an element its direction: list of (start, end, new text)."""
    inside, name, after = PROPERTIES[node.name]
    flag = f"<{node.prefix}{name}/>"
    if node.name == "r" and node.find("t") is None or node.inner_start == node.end:
        return []
    properties = node.find(inside) if inside else node
    whole = f"<{node.prefix}{inside}>{flag}</{node.prefix}{inside}>"
    if properties is None:
        return [(node.inner_start, node.inner_start, whole)]
    if properties.inner_start == properties.end:
        return [(properties.start, properties.end, whole)]
    edits, known = [], properties.find(name)
    for child in properties.children if node.name == "r" else ():
        if child.name in FORMATS and properties.find(f"{child.name}Cs") is None:
            tag = text[child.start : child.end].replace(
                f"<{child.prefix}{child.name}", f"<{child.prefix}{child.name}Cs", 1
            )
            edits.append((child.end, child.end, tag))
    if known is not None:
        is_off = any(key.endswith("val") and value in OFF for key, value in known.attributes.items())
        return [*edits, (known.start, known.end, flag)] if is_off else edits
    behind = (child.start for child in properties.children if child.name in after.split())
    place = next(behind, properties.inner_end)
    return [*edits, (place, place, flag)]
