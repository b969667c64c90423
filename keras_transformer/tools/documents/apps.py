"""Texts of apps: resources of Android, .NET and Qt, strings of Apple, JSON, ARB, YAML, and properties of Java.

Values are translated, and everything else stays to the byte: keys, comments, indentation, numbers. Libraries that read
these formats write the whole file anew, and change more than its texts. So each format has a finder of its values.
"""

import functools
import itertools
import json
import re
from xml.sax.saxutils import escape

import regex
import yaml

from keras_transformer.errors import UserError
from keras_transformer.languages import locale_of
from keras_transformer.protection import VARIABLE
from keras_transformer.tools.documents import xml
from keras_transformer.tools.documents.catalogue import syntax_of
from keras_transformer.tools.documents.declared import CDATA, is_same_language
from keras_transformer.tools.documents.fragment import BLOCKS, CLOSE, EMPTY, OPEN, Mark, parts_of, stays
from keras_transformer.tools.documents.messages import FORM_OF, MARKUP, Syntax
from keras_transformer.tools.documents.units import Unit, joined
from keras_transformer.tools.documents.xliff import with_attribute
from keras_transformer.translation.lines import whole

INSIST = "`--format lines` translates all lines of a file"
# Android: text that names another resource, and what a backslash writes.
REFERENCE = re.compile(r"\s*[@?][^\s@?]*[:/][^\s]*\s*|\s*@(?:null|empty)\s*")
ANDROID_ESCAPE = re.compile(r"\\u[0-9A-Fa-f]{4}|\\.|\"", re.DOTALL)
PLURAL = ("zero", "one", "two", "few", "many", "other")
STRINGS = re.compile(
    r"/\*.*?\*/|//[^\n]*|(?:\"(?:[^\"\\]|\\.)*\"|(?<![A-Za-z0-9_$:./-])[A-Za-z0-9_$:./-]+)\s*=\s*(\"(?:[^\"\\]|\\.)*\")\s*;",
    re.DOTALL,
)
STRINGS_ESCAPE = re.compile(r"\\[Uu]([0-9A-Fa-f]{4})|\\(.)", re.DOTALL)
PROPERTY = regex.compile(
    r"^[ \t\f]*+(?![#!])(?:\\(?:\r\n|.)|[^ \t\f\r\n=:\\])++"
    r"(?:[ \t\f]*[=:][ \t\f]*|[ \t\f]+)((?:\\(?:\r\n|.)|[^\\\r\n])*)"
    r"|^[ \t\f]*[#!][^\r\n]*",
    regex.MULTILINE | regex.DOTALL,
)
PROPERTY_ESCAPE = re.compile(r"\\(?:(?:\r\n|\n|\r)[ \t\f]*|u([0-9A-Fa-f]{4})|(.))")
SIGNS = {"n": "\n", "t": "\t", "r": "\r", "f": "\f"}
JSON_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s"{}\[\],:]+')
NOTES = {"description", "context", "placeholders", "example"}  # keys beside "message" or "other"
PLURAL_KEY = re.compile(rf"(.*_|)({'|'.join(PLURAL)})", re.DOTALL)

IN_JSON = Syntax(rf"\$t\([^()]*\)|{VARIABLE}")  # $t(key) of i18next
IN_XML, IN_APPLE = Syntax(escape=escape), Syntax(can_number=True)
IN_QT = Syntax(r"%L?(?:[0-9]{1,2}|n)", escape=escape)
# The text around the forms of a plural of Apple, in which "%#@count@" stands for a form.
AROUND_FORMS = "NSStringLocalizedFormatKey"
IN_STRINGSDICT = Syntax(rf"{FORM_OF}|{VARIABLE}", escape=escape, can_number=True)
PROPERTIES, SYMBOL = (
    re.compile(r"(?:[&!]\S*\s+)*"),
    re.compile(r":[A-Za-z_][A-Za-z0-9_]*"),
)  # of a node of YAML, and of Ruby


def find_android(text, path):
    """The units of Android's resources: strings, items of arrays, and forms of plurals.

    Raises:
        UserError: as the other finders, if the document is not of its format.
    """
    units = []
    for node in _root(text, path, "resources", "Android resource").children:
        is_one = node.name == "string"
        for item in [node] if is_one else node.children if node.name in ("string-array", "plurals") else []:
            inside = "".join(child.text for child in item.walk())
            if node.attributes.get("translatable") != "false" and item.name in ("string", "item"):
                whole = None if is_one else (path, node.start)
                units += [] if REFERENCE.fullmatch(inside) else [_android_unit(text, item, whole)]
    return units


def _android_unit(text, node, whole):
    cdata = CDATA.search(text, node.inner_start, node.inner_end)
    is_raw = cdata is not None and not text[node.inner_start : cdata.start()].strip()
    if is_raw:
        start, end, escaped = cdata.start() + len("<![CDATA["), cdata.end() - len("]]>"), str
        found = parts_of(text[start:end], MARKUP)
    else:
        start, end = node.inner_start, node.inner_end
        escaped = escape if "&gt;" in text[start:end] else _open_escape
        found = _xml_parts(text, node, escaped)

    def write(value):
        return escaped(_android(value))

    parts = [piece for part in found for piece in _android_parts(part)]
    syntax = Syntax(escape=write, can_number=True)
    return Unit(start, end, parts, lambda parts: joined(parts, write), syntax=syntax, whole=whole)


def _open_escape(value):
    return escape(value).replace("&gt;", ">")


def _android_parts(part):
    """The parts of a text with Android's escapes. Those of white space and the quotes around a text are marks."""
    if isinstance(part, Mark):
        return [part]
    parts, end = [], 0
    for match in ANDROID_ESCAPE.finditer(part):
        sign = chr(int(match[0][2:], 16)) if match[0][:2] == "\\u" else SIGNS.get(match[0][1:], match[0][1:])
        is_mark = not sign.isprintable() or sign.isspace() or not sign
        parts += [part[end : match.start()], Mark(match[0], breaks=sign.isspace()) if is_mark else sign]
        end = match.end()
    merged = itertools.groupby([*parts, part[end:]], lambda piece: id(piece) if isinstance(piece, Mark) else 0)
    pieces = (list(group) for _, group in merged)
    return [piece[0] if isinstance(piece[0], Mark) else "".join(piece) for piece in pieces if piece != [""]]


def _android(text):
    """Text with Android's escapes."""
    return re.sub(r"\A\s*[@?]|[\\'\"]", lambda match: f"{match[0][:-1]}\\{match[0][-1]}", text)


def android_in_language(text, path, language):
    """The document with the plural forms of a language: a new one has the text of "other" until it is translated."""
    groups = []
    for node in _root(text, path, "resources", "Android resource").children:
        if node.name == "plurals" and node.attributes.get("translatable") != "false":
            groups.append({item.attributes.get("quantity"): (item.start, item.end) for item in node.children})
    new = r"""(?s)(quantity\s*=\s*["'])other(.*)"""
    return _with_forms(text, groups, language, lambda form, item: re.sub(new, rf"\g<1>{form}\g<2>", item))


def _with_forms(text, groups, language, written):
    """A text with the plural forms of a language.

    Args:
        text: str.
        groups: list of dict, form -> (start, end), in their order.
        language: code; None: no form is new.
        written: function (form, the source of "other") -> the source of a new form.
    """
    forms = {*locale_of(language).plural_form.tags, "other"} if locale_of(language) else set()
    for group in reversed([group for group in groups if "other" in group]):
        start, end = group["other"]
        space = text[len(text[:start].rstrip()) : start]
        missing = [form for form in PLURAL if form in forms - group.keys()]
        text = text[:start] + "".join(written(form, text[start:end]) + space for form in missing) + text[start:]
    return text


def find_resx(text, path):
    """The units of resources of .NET: texts. Pictures, files and the names of controls stay."""
    units = []
    for node in _root(text, path, "root", "resource of .NET").children:
        value, kept = node.find("value"), "mimetype" in node.attributes
        kept = kept or not node.attributes.get("type", "System.String").startswith("System.String")
        if node.name == "data" and value is not None and not kept and node.attributes.get("name", "")[:2] != ">>":
            written = functools.partial(joined, escape=escape)
            units.append(
                Unit(value.inner_start, value.inner_end, list(_xml_parts(text, value)), written, syntax=IN_XML)
            )
    return units


def find_qt(text, path):
    """The units of Qt's translations: each form without a text, of a message that programs still have."""
    units = []
    for node in _root(text, path, "TS", "translation of Qt").walk():
        source, translation = node.find("source"), node.find("translation")
        if node.name != "message" or source is None or translation is None:
            continue
        if translation.attributes.get("type") in ("obsolete", "vanished"):
            continue
        forms = [form for form in translation.children if form.name == "numerusform"] or [translation]
        for form in forms:
            if not "".join(child.text for child in form.walk()).strip():
                opening = re.sub(r"\s*/>\Z", ">", text[form.start : form.inner_start])
                written = functools.partial(_in_element, opening, f"</{form.name}>")
                parts = list(_xml_parts(text, source))
                units.append(Unit(form.start, form.end, parts, written, True, IN_QT, (path, node.start)))
    return units


def qt_in_language(text, path, language):
    """The document with a language, in place of the one that it declares."""
    root = _root(text, path, "TS", "translation of Qt")
    known = root.attributes.get("language", "")
    if not language or is_same_language(known, language):
        return text
    opening = with_attribute(text[root.start : root.inner_start], "language", language.replace("-", "_"), "version")
    return text[: root.start] + opening + text[root.inner_start :]


def _in_element(opening, closing, parts):
    return opening + joined(parts, escape) + closing


def _root(text, path, name, kind):
    """The `Node` of the first element, which must have a name."""
    try:
        document = xml.parse(text, path)
    except UserError as error:
        raise UserError(f"{error}. {INSIST}") from None
    root = next((node for node in document.children if node.name), None)
    if root is None or root.name != name:
        found = f"its first element is `{root.name}`" if root else "it has no element"
        raise UserError(f"{path} is no {kind}: {found}, not `{name}`. {INSIST}")
    return root


def _xml_parts(text, node, escape=escape):
    """The parts of an element. Those inside it are pairs; one of another namespace, such as `xliff:g`, stays."""
    for is_text, group in itertools.groupby(node.children, lambda child: not child.name):
        children = list(group)
        if is_text:
            yield from parts_of("".join(child.text for child in children), MARKUP, escape)
            continue
        for child in children:
            name, divides = f"{child.name} {child.start}", child.name in BLOCKS and not child.prefix
            if child.prefix or child.inner_end == child.inner_start or stays(child.name, child.attributes):
                yield Mark(text[child.start : child.end], EMPTY, child.name, child.name == "br", divides)
                continue
            yield Mark(text[child.start : child.inner_start], OPEN, name, divides=divides)
            yield from _xml_parts(text, child, escape)
            yield Mark(text[child.inner_end : child.end], CLOSE, name, divides=divides)


def _unit(span, value, write, syntax):
    """The unit of a value. Its marks are in the form of the value, and `write` gives all of it the form of the file."""
    return Unit(*span, parts_of(whole(value), MARKUP), lambda parts: write(joined(parts)), syntax=syntax)


def find_strings(text, path):
    """The units of Apple's strings: the values."""
    units, end = [], 0
    for match in STRINGS.finditer(text):
        _check_rest(text, end, match.start(), path, "file of Apple's strings")
        end = match.end()
        if match[1]:
            units.append(_unit(match.span(1), _unescaped(STRINGS_ESCAPE, match[1][1:-1]), _apple, IN_APPLE))
    _check_rest(text, end, len(text), path, "file of Apple's strings")
    return units


def find_stringsdict(text, path):
    """The units of Apple's plurals: the forms, and the text around them if it has words of its own."""
    units = []
    for group in _stringsdict_groups(text, path):
        start = next(iter(group.values()))[0].start
        for name, (_, value) in group.items():
            inside = "".join(child.text for child in value.walk())
            if name in PLURAL or (name == AROUND_FORMS and re.sub(FORM_OF, "", inside).strip()):
                written, parts = functools.partial(joined, escape=escape), list(_xml_parts(text, value))
                whole = (path, start)
                units.append(
                    Unit(value.inner_start, value.inner_end, parts, written, syntax=IN_STRINGSDICT, whole=whole)
                )
    return sorted(units, key=lambda unit: unit.start)


def stringsdict_in_language(text, path, language):
    """The document with the plural forms of a language."""
    groups = [
        {name: (key.start, value.end) for name, (key, value) in group.items() if name in PLURAL}
        for group in _stringsdict_groups(text, path)
    ]
    new = r"(?s)(<key>\s*)other(.*)"
    return _with_forms(text, groups, language, lambda form, item: re.sub(new, rf"\g<1>{form}\g<2>", item, count=1))


def _stringsdict_groups(text, path):
    """The dictionaries of a .stringsdict: list of dict, key -> (`Node` of the key, `Node` of its string)."""
    groups = []
    for node in _root(text, path, "plist", "property list of Apple").walk():
        children = [child for child in node.children if child.name] if node.name == "dict" else []
        pairs = [pair for pair in zip(children[::2], children[1::2], strict=False) if pair[1].name == "string"]
        if pairs:
            groups.append({"".join(child.text for child in key.walk()).strip(): (key, value) for key, value in pairs})
    return groups


def _check_rest(text, start, end, path, kind):
    if rest := text[start:end].strip():
        line = text.count("\n", 0, text.index(rest, start)) + 1
        raise UserError(f"{path} is no {kind}: line {line} cannot be read: {rest.splitlines()[0][:60]}. {INSIST}")


def _apple(value):
    signs = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r"}
    return '"' + "".join(signs.get(sign, sign) for sign in value) + '"'


def _unescaped(pattern, raw):
    """The value of a text with escapes."""
    return pattern.sub(lambda match: chr(int(match[1], 16)) if match[1] else SIGNS.get(match[2], match[2] or ""), raw)


def find_properties(text, path):
    """The units of Java's properties: the values. In one with {0}, a message of MessageFormat, '' is an apostrophe."""
    units, write = [], functools.partial(_property, text.isascii())
    for match in PROPERTY.finditer(text):
        if match[1]:
            value = _unescaped(PROPERTY_ESCAPE, match[1])
            is_message = re.search(r"\{[0-9]+[,}]", value)
            syntax = syntax_of(frozenset({"java-format"}), value) if is_message else Syntax()
            units.append(_unit(match.span(1), value, write, syntax))
    return units


def _property(is_ascii, value):
    names = {sign: f"\\{name}" for name, sign in SIGNS.items()} | {"\\": "\\\\"}
    written = re.sub(r"\A ", r"\\ ", "".join(names.get(sign, sign) for sign in value))
    return re.sub(r"[^\0-\x7f]", lambda sign: json.dumps(sign[0])[1:-1], written) if is_ascii else written


def find_json(text, path):
    """The units of JSON: strings. Keys stay, and in ARB and its like all that belongs to a key with "@" or "$"."""
    return [_json_unit(text, token) for _, token, _ in _json_values(text, path)]


def json_in_language(text, path, language):
    """The document with the plural forms of a language, where it has some: "day_one" and "day_other"."""
    groups = {}
    for key, token, place in _json_values(text, path):
        name = PLURAL_KEY.fullmatch(json.loads(key[0])) if key else None
        if name and not name[1].endswith("ordinal_"):
            groups.setdefault((place, name[1]), {})[name[2]] = key.start(), token.end()
    several = sorted((group for group in groups.values() if len(group) > 1), key=lambda group: group.get("other", ()))
    new = r"(?s)other(\"\s*:.*)"
    return _with_forms(text, several, language, lambda form, item: re.sub(new, rf"{form}\g<1>,", item, count=1))


def arb_in_language(text, path, language):
    """The document with a language, if it declares one."""

    def declare(match):
        is_same = not language or is_same_language(match[2], language)
        return match[0] if is_same else f"{match[1]}{language.replace('-', '_')}"

    return re.sub(r'("@@locale"\s*:\s*")([^"]*)', declare, text)


def _json_values(text, path):
    try:
        data = json.loads(text, object_pairs_hook=_Pairs)
        notes = NOTES if isinstance(data, _Pairs) and data and all(map(_has_message, data)) else set()
        return list(_json_strings(data, JSON_TOKEN.finditer(text), notes))
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is no JSON: {error}. {INSIST}") from None


class _Pairs(list):
    """An object of JSON: list of (key, value)."""


def _has_message(pair):
    """Whether a value has its text under "message" or "other", as each one of an extension of a browser has."""
    return isinstance(pair[1], _Pairs) and any(key in ("message", "other") for key, _ in pair[1])


def _json_strings(value, tokens, notes, key=None, place=None):
    """Yields (match of the key or None, match of the string, place of the object) of the strings to translate.

    Args:
        value: of JSON.
        tokens: iterator of the matches of `JSON_TOKEN`, from the value on.
        notes: set of str, the keys of values that stay; None if all stay.
        key: match of the key of the value; None in a list.
        place: of the object or list around the value; None around the whole.
    """
    token = next(tokens)
    if isinstance(value, str) and notes is not None:
        yield key, token, place
    for item in value if isinstance(value, list) else ():
        name, own = None, notes
        if isinstance(value, _Pairs):
            name, item = next(tokens), item[1]
            next(tokens)
            word = json.loads(name[0])
            is_id = word == "id" and "translation" in dict(value) and key is None is not place  # of go-i18n
            own = None if notes is None or word[:1] in ("@", "$") or word in notes or is_id else notes
        yield from _json_strings(item, tokens, own, name, token.start())
        next(tokens)
    if value in ([], _Pairs()):
        next(tokens)


def _json_unit(text, token):
    is_ascii = "\\u" in token[0] and token[0].isascii()
    return _unit(token.span(), json.loads(token[0]), lambda value: json.dumps(value, ensure_ascii=is_ascii), IN_JSON)


def find_yaml(text, path):
    """The units of YAML: values that are text, in their own style if the translation can have it."""
    return [_yaml_unit(text, *pair) for pair in _yaml_nodes(text, path) if isinstance(pair[0], yaml.ScalarNode)]


def yaml_in_language(text, path, language):
    """The document with the plural forms of a language, where it has some: the keys "one" and "other"."""
    groups = []
    for node, is_flow in _yaml_nodes(text, path):
        if isinstance(node, yaml.MappingNode) and not (is_flow or node.flow_style):
            pairs = [(key, value) for key, value in node.value if isinstance(value, yaml.ScalarNode)]
            groups.append({key.value: (key.start_mark.index, value.end_mark.index) for key, value in pairs})
    several = [group for group in groups if {"one", "other"} <= group.keys() <= {*PLURAL}]

    def written(form, item):
        return re.sub(r"(['\"]?)other\1", rf"\g<1>{form}\g<1>", item.rstrip(), count=1)

    return _with_forms(text, several, language, written)


def _yaml_nodes(text, path):
    """The scalars that are text, and the collections: list of (node, whether it is in brackets), in their order."""
    try:
        found = {}
        for document in yaml.compose_all(text, yaml.SafeLoader):
            _add_scalars(document, False, False, found)
    except (yaml.YAMLError, RecursionError) as error:
        reason = " ".join(str(error).split())
        raise UserError(f"{path} is no YAML: {reason}. {INSIST}") from None
    return [found[place] for place in sorted(found)]


def _add_scalars(node, is_flow, is_item, found):
    """Adds the scalars of a node that are text, and the collections: dict, place -> (node, whether it is in brackets).

    Keys add nothing, and an alias leads to a node that is there. A symbol of Ruby (:year) is no text, nor is the `id`
    of a `translation` in a list.
    """
    if isinstance(node, yaml.ScalarNode) and node.tag == "tag:yaml.org,2002:str":
        if node.style is not None or not SYMBOL.fullmatch(node.value):
            found[node.start_mark.index] = node, is_flow
    elif isinstance(node, yaml.CollectionNode) and found.setdefault(node.start_mark.index, (node, is_flow))[0] is node:
        values = node.value
        if isinstance(node, yaml.MappingNode):
            ids = {"id"} if is_item and any(key.value == "translation" for key, _ in values) else set()
            values = [value for key, value in values if not (isinstance(key.value, str) and key.value in ids)]
        for value in values:
            _add_scalars(value, is_flow or node.flow_style, isinstance(node, yaml.SequenceNode), found)


def _yaml_unit(text, node, is_flow):
    start, end = node.start_mark.index, node.end_mark.index
    start += PROPERTIES.match(text[start:end]).end()
    raw = text[start:end]
    return _unit((start, end), node.value, functools.partial(_yaml, node.style, raw, is_flow), IN_JSON)


def _yaml(style, raw, is_flow, value):
    """A value in the style of its source, str."""
    lines = raw.splitlines()
    if style == ">" and re.search(r"^[ \t]", value, re.MULTILINE):  # lines of their own in folded text
        return json.dumps(value, ensure_ascii=False) + raw[len(raw.rstrip()) :]
    if style in ("|", ">"):
        first = next(line for line in lines[1:] if line.strip())
        indentation = first[: len(first) - len(first.lstrip()) - len(value) + len(value.lstrip(" \t"))]
        body = value.rstrip("\n") if style == "|" else re.sub(r"\n+", r"\g<0>\n", value.rstrip("\n"))
        body = "\n".join(indentation + line if line else "" for line in body.split("\n"))
        return f"{lines[0]}\n{body}{raw[len(raw.rstrip()) :]}"
    plain = value if style is None else "'" + value.replace("'", "''") + "'"
    if style != '"' and "\n" not in value and _is_value(f"[{plain}]" if is_flow else f"a: {plain}", value):
        return plain
    return json.dumps(value, ensure_ascii="\\u" in raw and raw.isascii())


def _is_value(document, value):
    """Whether a document of one entry has this value, a text."""
    try:
        node = yaml.compose(document, yaml.SafeLoader).value[0]
    except yaml.YAMLError:
        return False
    node = node[1] if isinstance(node, tuple) else node
    return isinstance(node, yaml.ScalarNode) and (node.tag, node.value) == ("tag:yaml.org,2002:str", value)
