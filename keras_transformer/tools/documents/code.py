"""Code inside text: PHP, ERB, Jinja, Handlebars and their like. It stays to the byte, wherever it stands.

The parsers of documents know no such code, and read it as tags and text. So it is hidden from them: a row of signs of
the same length stands in its place, and every other character keeps its place.
"""

from typing import NamedTuple

import regex

from keras_transformer.tools.documents.fragment import SIGN, Mark

SKIPPED = r"<!--.*?(?:-->|\Z)|<(?P<raw>script|style)\b.*?</(?P=raw)\s*>"  # the parsers know these
# A plural or a select of ICU is text with variables.
MESSAGE = (
    r"\{\s*[^\s{},]+\s*,\s*(?:plural|select|selectordinal)\s*,(?:[^{}]|(?P<branch>\{(?:[^{}]|(?&branch))*+\}))*+\}"
)
# What writes no text and has no other text in its range.
COMMENT = r"\{\#(?:(?!\{\#).)*?\#\}|\{\{(?:!--.*?--|--.*?--|!(?!!).*?)\}\}|<%(?:\#|--).*?%>|<\#--.*?-->"
# What writes a value into the text around it.
EXPRESSION = r"<\?=.*?(?:\?>|\Z)|<\?php\s+(?:echo|print)\b.*?(?:\?>|\Z)|<%=.*?%>|\{!!.*?!!\}"
BRACES = r"\{\{\{(?:(?!\}\}\}).)*\}\}\}|\{\{(?:(?!\{\{|\}\}|\n[ \t]*\r?\n).)*\}\}"
# Blocks of other code, and comments.
BLOCK = (
    r"\{%[-~]?\s*(?P<block>highlight|comment|doc|schema|javascript|stylesheet|style)\b(?:(?!%\}).)*%\}.*?"
    r"\{%[-~]?\s*end(?P=block)\s*[-~]?%\}"
    r"|\{\{<\s*(?P<short>highlight|mermaid|math|katex)\b(?:(?!>\}\}).)*>\}\}.*?\{\{<\s*/(?P=short)\s*>\}\}"
)
# What decides about the text after it. Handlebars and Go write it in the braces of an expression.
STATEMENT = (
    rf"{BLOCK}|"
    r"\{\{[-~]?\s*(?:[#/^]|(?:else|end|if|range|with|block|define)\b)(?:(?!\}\}).)*\}\}|\{%(?:(?!\{%).)*?%\}|\[%.*?%\]"
    r"|<\?(?:php\b|\s).*?(?:\?>|\Z)|<\?(?!xml)[a-z]+\b[^<>]*\?>|<%.*?%>|</?[\#@][A-Za-z][^<>]*>"
)
CODE = rf"(?P<inline>{COMMENT}|{EXPRESSION})|(?P<statement>{STATEMENT})|(?P<braces>{BRACES})"
# Directives of Blade, in pages only. Prose has names with @, too: what is in parentheses must look like PHP.
IN_PAREN = r"""[^()'"]|'(?:\\.|[^'\\]){0,500}+'|"(?:\\.|[^"\\]){0,500}+\""""
PAREN = "(?!)"
for _ in range(5):  # as deep as people write it: text without an end is read once
    PAREN = rf"\((?:{IN_PAREN}|{PAREN}){{0,1000}}+\)"
PHP = r"""(?=\s*+\((?:[^()]{0,500}(?:[$'"\[(]|::)|\s*(?:[0-9]+|true|false)?\s*\)))"""
BLADE_BLOCKS = (
    "auth|can|cannot|canany|component|context|each|empty|env|error|for|foreach|forelse|fragment|guest|if|isset|lang|once"
    "|persist|php|prepend|prependonce|production|push|pushif|pushonce|section|session|slot|switch|teleport|unless"
    "|verbatim|while"
)
BLADE_LINES = "auth|break|continue|default|empty|guest|once|production|show|stop|verbatim"
BLADE = (
    r"(?<![\p{L}\p{N}@])@(?:"
    r"php\b(?!\s*\().*?@endphp\b"
    rf"|(?:[a-z]+(?=\()|(?:if|elseif|unless|foreach|forelse|for|while|switch|case|isset|empty)\s*){PHP}{PAREN}"
    rf"|(?:else|end(?:{BLADE_BLOCKS})|csrf|parent)\b(?![/-])|(?:{BLADE_LINES})(?=[ \t]*\r?\n))"
)
VALUE = (
    r"(?<![\p{L}\p{N}@])@(?:lang|choice|json|js|yield|class|style|checked|selected|disabled|readonly|required)"
    rf"{PHP}{PAREN}"
)
PATTERN = regex.compile(rf"(?is){SKIPPED}|{MESSAGE}|(?P<inline>{VALUE})|(?P<statement>{BLADE})|{CODE}")


class Code(NamedTuple):
    """Code at its place in a text.

    Args:
        start, end: int.
        is_statement: bool, whether it decides about the text after it, as `{% if %}` does, or ends such a text.
    """

    start: int
    end: int
    is_statement: bool


def find_code(text, pattern=PATTERN):
    """The code in a text: list of `Code`, in order.

    Args:
        text: str.
        pattern: compiled regular expression with the groups `inline`, `statement` and `braces`. A match without these
            groups is no code, and has none inside.
    """
    groups = ("inline", "statement", "braces")
    return [
        Code(*match.span(), match["statement"] is not None)
        for match in pattern.finditer(text)
        if any(match[group] is not None for group in groups)
    ]


def hidden(text, code, sign=SIGN):
    """A text with a row of signs in the place of its code.

    Args:
        text: str.
        code: list of `Code`.
        sign: str, a character.
    """
    pieces, end = [], 0
    for span in code:
        pieces += [text[end : span.start], sign * (span.end - span.start)]
        end = span.end
    return "".join([*pieces, text[end:]])


def between_statements(start, end, code):
    """The texts that statements divide a text into: list of (start, end), without empty ones.

    Args:
        start, end: of the text.
        code: list of `Code` of the document.
    """
    inside = [span for span in code if span.is_statement and start <= span.start and span.end <= end]
    starts, ends = [start, *(span.end for span in inside)], [*(span.start for span in inside), end]
    return [text for text in zip(starts, ends, strict=True) if text[1] > text[0]]


def divided(text, start, end, code, read):
    """The parts of a text with code in it.

    Args:
        text: str, the document.
        start, end: of the text.
        code: list of `Code` of the document.
        read: function from the source of a text to the text.
    """
    parts = []
    for span in code:
        if start <= span.start and span.end <= end:
            parts += [read(text[start : span.start]), Mark(text[span.start : span.end], divides=span.is_statement)]
            start = span.end
    return [part for part in [*parts, read(text[start:end])] if part]
