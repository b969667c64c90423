"""Catalogues of gettext (.po, .pot): messages between lines that stay. The flags of a message name its variables."""

import gettext
import re
from collections import Counter
from dataclasses import dataclass, field

import regex
from babel.messages.plurals import get_plural
from babel.messages.pofile import denormalize, escape

from keras_transformer.errors import UserError
from keras_transformer.languages import locale_of
from keras_transformer.protection import BRACES, DIRECTIVE, DOLLAR
from keras_transformer.tools.documents.declared import is_same_language
from keras_transformer.tools.documents.fragment import parts_of
from keras_transformer.tools.documents.messages import MARKUP, Syntax, variables_of
from keras_transformer.tools.documents.units import Unit, joined

# An entry of a catalogue: keywords, each with strings on one or more lines.
KEYWORD = re.compile(
    r'^[ \t]*(msgctxt|msgid_plural|msgid|msgstr(?:\[\d+\])?)[ \t]*((?:"(?:[^"\\\r\n]|\\.)*"\s*)+)', re.MULTILINE
)
OTHER = re.compile(r"^[ \t]*(?!#|msg|\")\S.*|^[ \t]*(?:msg\S*|\").*$", re.MULTILINE)
FLAGS = re.compile(r"^[ \t]*#[,=](.*)", re.MULTILINE)
PLURAL_FORMS = re.compile(r"Plural-Forms:\s*nplurals\s*=\s*([0-9]+)\s*;\s*plural\s*=\s*([^;\n]+)")
FEW = 5  # gettext lets a form leave out the number if fewer numbers have it
NUMBERS = range(1000)

# The variables of each format, as gettext reads them.
_WIDTH = r"[\-+ #0'I]*(?:\*(?:[0-9]+\$)?|[0-9]+)?(?:\.(?:\*(?:[0-9]+\$)?|[0-9]+)?)?(?:hh|ll|[hlLqjztZ])?"
_PERCENT = (
    rf"%%|%(?:\([^()]+\)|<[^<>%\s]+>|[0-9]+[$:])?{_WIDTH}(?:[diouxXeEfFgGaAcCsSpnmrbqv@]|<(?:PRI|SCN)[A-Za-z0-9]+>)"
)
_BRACED = r"\{[^{}\n]*(?:\{[^{}\n]*\}[^{}\n]*)*\}"
_DOUBLED_PERCENT, _DOUBLED_BRACES = {"%%": "%"}, {"{{": "{", "}}": "}"}
FORMATS = {
    **dict.fromkeys(
        "c objc python php perl ruby awk lua elisp librep tcl d go javascript gcc-internal gfc-internal java-printf "
        "sh-printf modula2 ocaml object-pascal".split(),
        (_PERCENT, _DOUBLED_PERCENT),
    ),
    **dict.fromkeys("qt kde kde-kuit ycp smalltalk".split(), (r"%L?[0-9]{1,2}", {})),
    "qt-plural": ("%L?n", {}),
    "boost": (rf"%[0-9]+%|%\|[^|\n]*\||{_PERCENT}", _DOUBLED_PERCENT),
    **dict.fromkeys("python-brace csharp c++ rust".split(), (rf"\{{\{{|\}}\}}|{_BRACED}", _DOUBLED_BRACES)),
    "java": (rf"''|'[^']+(?:'|\Z)|{_BRACED}|[{{}}]", {"''": "'"}),
    **dict.fromkeys("lisp scheme".split(), (r"~[^A-Za-z~%\n]*[A-Za-z~%&|\[\]{}<>()^;*?]", {})),
}

NUMBERED = {"c", "objc", "php", "perl", "java-printf"}  # formats in which "%2$s" takes the second value


@dataclass
class _Entry:
    """A message.

    Attributes:
        flags: set of str.
        texts: dict, keyword -> str, the strings together.
        spans: dict, keyword -> (start, end) of its strings in the catalogue.
    """

    flags: set
    texts: dict = field(default_factory=dict)
    spans: dict = field(default_factory=dict)

    @property
    def is_header(self):
        return self.texts.get("msgid") == "" and "msgctxt" not in self.texts

    @property
    def forms(self):
        """The keywords of its translations."""
        return [keyword for keyword in self.texts if keyword.startswith("msgstr")]


def find_messages(text, path):
    """The units of a catalogue: each message without a translation. Variables such as %s are tags.

    Raises:
        UserError: for a line that belongs to no message, with its number.
    """
    entries = _entries(text, path)
    header = next((entry.texts.get("msgstr", "") for entry in entries if entry.is_header), "")
    is_singular = _singular_forms(header)
    units = []
    for entry in entries:
        for form in entry.forms:
            if entry.texts["msgid"] and not entry.texts[form]:
                units.append(_unit(entry, form, is_singular))
    return units


def _entries(text, path):
    entries, last, keyword = [], 0, "msgstr"
    for match in KEYWORD.finditer(text):
        _check_between(text, last, match.start(), path)
        if keyword.startswith("msgstr") and not match[1].startswith("msgstr"):
            flags = ",".join(FLAGS.findall(text, last, match.start()))
            entries.append(_Entry({flag.strip() for flag in flags.split(",")}))
        last, keyword = match.end(), match[1]
        if entries:
            strings = [line.strip() for line in match[2].split("\n") if line.strip()]
            entries[-1].texts[keyword] = denormalize("\n".join(strings))
            entries[-1].spans[keyword] = match.start(2), match.start(2) + len(match[2].rstrip())
    _check_between(text, last, len(text), path)
    return [entry for entry in entries if "msgid" in entry.texts]


def _check_between(text, start, end, path):
    """Raises UserError for a line between two strings that is neither blank nor a comment."""
    wrong = OTHER.search(text, start, end)
    if wrong:
        line = text.count("\n", 0, wrong.start()) + 1
        raise UserError(f"{path} is no gettext catalogue: line {line} belongs to no message: {wrong[0].strip()[:60]}")


def _unit(entry, form, is_singular):
    singular, plural = (entry.texts.get(name, entry.texts["msgid"]) for name in ("msgid", "msgid_plural"))
    syntax = syntax_of(frozenset(entry.flags), singular + plural)
    of_singular, of_plural = (variables_of(text, syntax.variable, syntax.literals) for text in (singular, plural))
    source = singular if is_singular(form, of_singular == of_plural) else plural
    return Unit(*entry.spans[form], parts_of(source, MARKUP), _written, True, syntax, whole=id(entry))


def _singular_forms(header):
    """A function that tells whether a form is translated from the singular.

    Args:
        header: str, of the catalogue; its plural forms say which numbers each form is for.
    """
    match = PLURAL_FORMS.search(header)
    try:
        form_of = gettext.c2py(match[2].strip())
        numbers = Counter(map(form_of, NUMBERS))
        of_one = form_of(1)
    except (TypeError, ValueError, ZeroDivisionError):  # no header, or one without a rule
        return lambda form, has_same_variables: form in ("msgstr", "msgstr[0]")
    return lambda form, has_same_variables: (
        form == "msgstr"
        or (form == f"msgstr[{of_one}]" and len(numbers) > 1 and (numbers[of_one] < FEW or has_same_variables))
    )


def syntax_of(flags, source):
    """The `Syntax` of a message.

    Args:
        flags: set of str, such as "c-format". Without one for its format, all variables count that no prose looks like.
        source: str. If it breaks the rules of its format, such as by a single percent sign, a sign is a sign.
    """
    named = {flag.removesuffix("-format") for flag in flags if flag.endswith("-format")}
    formats = [FORMATS[name] for name in sorted(named & FORMATS.keys())]
    refused = [name for name in named if name.startswith("no-")]
    patterns = [pattern for pattern, _ in formats]
    patterns += [] if formats or refused else [DIRECTIVE]
    patterns += [] if any("brace" in name for name in refused) else [BRACES]
    variable = "|".join([*patterns, DOLLAR])
    literals = {literal: sign for _, pairs in formats for literal, sign in pairs.items()}
    others = regex.sub(variable, "", source)
    literals = {} if any(sign in others for sign in literals.values()) else literals
    return Syntax(variable, literals, can_number=bool(named) and named <= NUMBERED)


def _written(parts):
    text = joined(parts)
    if "\n" not in text.rstrip("\n"):
        return escape(text)
    return "\n".join(['""', *(escape(line) for line in text.splitlines(keepends=True))])


def in_language(text, path, language):
    """The catalogue with a language and its plural forms in the header, and a place for each form of each message.

    Args:
        text: str.
        path: of the catalogue, for errors.
        language: code; None: the forms of the header count.
    """
    entries = _entries(text, path)
    header = next((entry for entry in entries if entry.is_header and "msgstr" in entry.texts), None)
    if header is None:
        return text
    plurals = [entry for entry in entries if "msgid_plural" in entry.texts]
    fields = _fields(header.texts["msgstr"], language, plurals) if language else {}
    forms = PLURAL_FORMS.search("Plural-Forms: " + fields.get("Plural-Forms", "")) or PLURAL_FORMS.search(
        header.texts["msgstr"]
    )
    start, end = header.spans["msgstr"]
    edits = [(start, end, _with_fields(text[start:end], fields))] if fields else []
    for entry in entries if forms else []:
        edits += _edits_of_forms(entry, int(forms[1]))
    for start, end, new in sorted(edits, reverse=True):
        text = text[:start] + new + text[end:]
    return text


def _fields(header, language, plurals):
    """The fields of the header that must change: dict, name -> value.

    Args:
        header: str.
        language: code.
        plurals: list of `_Entry`, the messages with plural forms.
    """
    fields, known = {}, re.search(r"^Language:[ \t]*(.*)", header, re.MULTILINE)
    if not known or not is_same_language(known[1], language):
        fields["Language"] = language.replace("-", "_")
    if PLURAL_FORMS.search(header):
        # It is of another language; but a translation has the forms of the rule that it was made for.
        is_done = any(entry.texts[form] for entry in plurals for form in entry.forms)
        is_wrong = bool(fields and known and known[1].strip() and not is_done)
    else:
        is_wrong = bool(plurals)
    if is_wrong and (locale := locale_of(language)):
        fields["Plural-Forms"] = str(get_plural(locale))
    return fields


def _with_fields(strings, fields):
    """The strings of a header as they stand in the catalogue, with other values of fields.

    A field begins a string, or stands behind a line break inside it. Its value may go on in the next string.
    """
    for name, value in fields.items():
        pattern = rf'(?:(?<=(?<!\\)")|(?<=\\n)){name}:(?:[^"\\]|"\s*")*(?:\\n)?'
        new = f"{name}: {value}\\n"
        strings, number = re.subn(pattern, lambda _, new=new: new, strings)
        if not number:
            ended = re.sub(r'(?<!\\n)(?<!")"\Z', lambda _: '\\n"', strings)
            strings = f'{ended}\n"{new}"'
    return strings


def _edits_of_forms(entry, number):
    """What gives a message `number` forms: list of (start, end, new text). A form with a translation stays."""
    forms = entry.forms
    if "msgid_plural" not in entry.texts or not forms:
        return []
    end = entry.spans[forms[-1]][1]
    edits = [(end, end, "".join(f'\nmsgstr[{i}] ""' for i in range(len(forms), number)))]
    for before, form in zip(forms[number - 1 :], forms[number:], strict=False):
        if not entry.texts[form]:
            edits.append((entry.spans[before][1], entry.spans[form][1], ""))
    return [edit for edit in edits if edit[2] or edit[1] > edit[0]]
