"""Marks of Markdown's dialects: code of templates, mathematics, links of wikis, directives, footnotes and MDX.

The parser of CommonMark does not know them. So it reads a text of the same length, in which every mark has a stand-in:
a row of signs inside a line, and a rule, a heading or an item of a list for lines of their own.
"""

import re

import regex

from keras_transformer.tools.documents import code
from keras_transformer.tools.documents.fragment import CLOSE, EMPTY, OPEN, Mark
from keras_transformer.words import LETTER, LETTERS_AND_DIGITS

INLINE, BLOCK, REST = "⹎", "⸙", "⹏"  # stand-ins: the first sign of a mark, that of one that may be a block, and others
STATEMENT = "statement"  # the name of marks between two texts, such as `{% else %}`, and ":" before a definition
CODE_INDENT = 4  # spaces before code, to CommonMark
STAND_IN = re.compile(f"[{INLINE}{BLOCK}{REST}](?:{REST}|\n(?={REST}))*")
ALONE = re.compile(
    rf"^([ \t]*(?:>[ \t]?)*)((?:[ \t]*{BLOCK}(?:{REST}|\r?\n(?=[\r\n]*{REST}))*)+)(?=[ \t]*\r?$)", re.MULTILINE
)

SAME = r"(?:(?!\n[ \t>]*\r?\n).)"  # any character, but not the end of the paragraph
GAP = r"(?:[ \t]|\r?\n(?![ \t]*\r?\n))"  # white space in a paragraph
NAME = rf"{LETTER}[{LETTERS_AND_DIGITS}_.-]*"
BRACE = r"(?P<brace>\{(?:[^{}\n]|\n(?![ \t]*\r?\n)|(?&brace))*+\})"
VALUE = r"""(?:"[^"]*"|'[^']*'|(?&brace)|[^\s"'<>{}]+)"""
ATTRIBUTE = rf"""[A-Za-z_:@#.*][^\s"'<>/={{}}]*(?:\s*=\s*{VALUE})?|(?&brace)|<\?.*?\?>|<%.*?%>"""
# Each pattern is the group of its name. The first that matches at a place counts.
PATTERNS = {
    # Code of Markdown, and what the parser knows: no marks inside.
    "front": r"\A(?P<border>---|\+\+\+)[ \t]*\r?\n.*?^(?P=border)[ \t]*\r?$",
    "fence": r"^[ \t>]*+(?:(?:[-*+]|\d+[.)])[ \t]+)*(?P<ticks>`{3,}(?=[^`\n]*$)|~{3,})[^\n]*$"
    r"(?:.*?^[ \t>]*(?P=ticks)[`~]*[ \t]*\r?$|.*)",
    "span": rf"(?<!`)(?P<tick>`+)(?!`){SAME}*?(?<!`)(?P=tick)(?!`)",
    "known": rf"(?is:{code.SKIPPED})|\]\((?:[^()\s{{]|\([^()\s]*\))*+",
    # Lines.
    "module": r"(?:\A|(?<=\n\n)|(?<=\n\r\n)|(?<=---\n))(?:import\b[^\n;]*[\"'][^\n]*"
    r"|export[ \t]+(?:default|const|let|var|function|class|async|\*|\{)[^\n]*)(?:\n[ \t]*+(?![\r\n])[^\n]*)*",
    "directive": rf"^(?P<indent>[ \t]*(?:>[ \t]?)*)(?P<colons>:{{3,}}[ \t]*(?:{NAME}|(?&brace))?(?:\[|[ \t]*))"
    r"(?P<title>[^\n]*?)(?P<end>\](?:(?&brace))?)?(?=[ \t]*\r?$)",
    "admonition": rf"^(?P<deep>[ \t]*)"
    rf"(?P<signs>(?:!!!|\?\?\?\+?)[ \t]+{NAME}(?:[ \t]+{NAME})*(?:[ \t]+\")?|===[!+]?[ \t]+\")"
    r"(?P<words>[^\n\"]*)(?P<quote>\"?)(?=[ \t]*\r?$)",
    "included": r"^[ \t]*-+8<-+[ \t]*\r?\n.*?^[ \t]*-+8<-+[ \t]*\r?$",
    "target": r"^\([A-Za-z0-9_:.-]+\)=(?=[ \t]*\r?$)",
    "note": r"^ {0,3}(?:\[\^[^\]\s]+\]|\*\[[^\]\n]+\]):(?=[ \t]+\S)(?<=(?:\A|\n[ \t]*\r?\n)"
    r"(?:(?: {0,3}(?:\[\^|\*\[)|[ \t]{2,}\S)[^\n]*\r?\n)* {0,3}(?:\[\^|\*\[)[^\n]*:)",  # in no paragraph
    "definition": r"^ {0,3}:(?=[ \t]+\S)",
    # Marks around text, and marks inside of it.
    "code": rf"(?is:{code.CODE})",
    "labelled": r"(?P<before>(?<!!)\[\[[^\[\]\n]+\||\^\[|(?<![\[\]!])\[(?=[^\[\]\n]+\]\{)"
    r"|(?<![\p{L}\p{N}:]):{1,2}[A-Za-z][A-Za-z0-9_-]*\[)"
    r"(?P<label>(?:[^\[\]\n]|\[[^\[\]\n]*\])+)(?P<after>\]\]|\](?:(?&brace))?)(?![\[(])",
    "link": r"!?\[\[[^\[\]\n]+\]\](?![\[(:])",
    "math": rf"\\\((?:(?!\\\)){SAME})+\\\)|(?<!\$)\$(?![\s$])(?:\\.|(?![$\\]){SAME})*?(?<!\s)\$(?![\d$])",
    "formula": rf"\$\$(?:(?!\$\$){SAME})+\$\$|^[ \t>]*+\$\$[ \t]*$(?:(?!\$\$).)+\$\$|\\\[(?:(?!\\\]){SAME})+\\\]"
    r"|\\begin\{(?P<environment>[A-Za-z]+\*?)\}(?:(?!\\end\{).)*\\end\{(?P=environment)\}",
    "tag": rf"</?>|</?(?P<name>[A-Za-z][A-Za-z0-9.:_-]*)(?:{GAP}+(?:{ATTRIBUTE}))*+{GAP}*/?>",
    "url": r"(?<![<(])\bhttps?://(?:\{\{.*?\}\}|\{%.*?%\}|[^\s<>\"'])*[^\s<>\"'.,;:!?)\\]",
    "expression": BRACE,
    "emoji": r"(?<![\p{L}\p{N}:]):(?!-+:)[a-z0-9_+-]+:(?![\p{L}\p{N}:])",  # ":---:" is a column of a table
    "keys": r"(?<![\p{L}\p{N}+])\+\+(?:[a-z0-9-]{2,}|[a-z0-9-]+(?:\+[a-z0-9-]+)++)\+\+(?![\p{L}\p{N}+])",
    "pipe": r"\\\|",
    "escape": r"\\[!-/:-@\[-`{-~]",
}
PATTERN = regex.compile(
    "|".join(f"(?P<{name}>{pattern})" for name, pattern in PATTERNS.items()), regex.DOTALL | regex.MULTILINE
)
MATHEMATICAL = re.compile(r"[\\^_={}+<>\n]")  # \[a\] without one of them is text in brackets


def hide(text, is_mdx=False):
    """A document of Markdown as the parser of CommonMark must see it.

    Args:
        text: str.
        is_mdx: bool, whether the document is MDX, in which no code is indented. A document with `import` is.

    Returns:
        (str of the same length and lines, is_mdx).
    """
    text = re.sub(f"[{INLINE}{BLOCK}{REST}]", ",", text)
    is_mdx = is_mdx or any(match["module"] for match in PATTERN.finditer(text))

    def rules(match):
        is_indented = is_mdx and match[1].startswith(
            (" " * CODE_INDENT, "\t")
        )  # to CommonMark, a line of the paragraph
        return _rules(match[0]) if is_indented else match[1] + _rules(match[2])

    return ALONE.sub(rules, _hidden(text)), is_mdx


def _hidden(text):
    pieces, end = [], 0
    for match in PATTERN.finditer(text):
        kind = next(name for name in PATTERNS if match[name] is not None)
        pieces += [text[end : match.start()], _stand_in(kind, match)]
        end = match.end()
    return "".join([*pieces, text[end:]])


def _stand_in(kind, match):
    """What stands in the place of a match, of the same length."""
    whole = match[0]
    if kind in ("front", "module", "target"):
        return _rules(whole)
    if kind == "included":
        return re.sub(r"\S[^\r\n]*", lambda line: _rules(line[0]), whole)
    if kind == "directive":
        return match["indent"] + _titled(match["colons"], match["title"], match["end"] or "")
    if kind == "admonition":
        return match["deep"] + "-   " + _titled(match["signs"][4:], match["words"], match["quote"])
    if kind == "note":
        return "-   " + _row(INLINE, whole[4:])
    if kind == "definition":
        return whole[:-1] + INLINE
    if kind == "labelled":
        return _row(INLINE, match["before"]) + _hidden(match["label"]) + _row(INLINE, match["after"])
    if kind == "pipe":
        return ",,"
    if (
        kind in ("link", "math", "emoji", "keys")
        or (kind == "span" and "|" in whole)
        or (kind == "url" and "{" in whole)
    ):
        return _row(INLINE, whole)
    if kind == "code":
        return _row(INLINE if match["braces"] and whole[2] not in "<%" else BLOCK, whole)
    if kind == "expression" or (kind == "tag" and _is_component(match)) or (kind == "formula" and _is_formula(match)):
        return _row(BLOCK, whole)
    return whole


def _is_component(match):
    """Whether a tag is none of HTML: a component of MDX, or a tag with code inside."""
    name = match["name"]
    return not name or "{" in match[0] or "<" in match[0][1:] or "." in name or name[0].isupper()


def _is_formula(match):
    r"""Whether a match is mathematics. \[text\] in a line with other text is text in brackets."""
    line = match.string[match.string.rfind("\n", 0, match.start()) + 1 : match.start()]
    return match[0][0] != "\\" or not line.strip(" \t>") or MATHEMATICAL.search(match[0][2:-2]) is not None


def _row(first, text):
    """The stand-in for a mark inside a line."""
    return first + re.sub(r"[^\r\n]", REST, text[1:])


def _rules(text):
    """The stand-in for lines: rules, or headings without text where a line is too short."""
    return re.sub(r"[^\r\n]+", lambda line: ("*" if len(line[0]) > 2 else "#") * len(line[0]), text)


def _titled(before, title, after):
    """The stand-in for a line with a title: a heading, or a rule if the title is missing."""
    if not title.strip():
        return _rules(before + title + after)
    return "#" + " " * (len(before) - 1) + _hidden(title) + " " * len(after)


def mark_of(source):
    """The `Mark` that a translation moves.

    Args:
        source: str, the mark as it stands in the document.
    """
    if source == "^[":
        return Mark(source, OPEN, "label", breaks=True)  # a note divides words: one^[two]
    if re.match(r"\[\[[^\]]*\|\Z|(?::[^\[\]]*)?\[\Z", source):
        return Mark(source, OPEN, "label")
    if source.startswith("]"):
        return Mark(source, CLOSE, "label")
    written = code.PATTERN.fullmatch(source)
    tag = re.fullmatch(r"(?s)<(/?)([^\s/>]*).*?(/?)>", source)
    if tag and not written:
        return Mark(source, EMPTY if tag[3] else CLOSE if tag[1] else OPEN, f"<{tag[2].lower()}")
    is_statement = re.match(r":\Z|\{\{[<%]", source) is not None or bool(written and written["statement"])
    return Mark(source, EMPTY, STATEMENT if is_statement else "code", divides=is_statement)
