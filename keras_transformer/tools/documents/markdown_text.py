"""Writes translated text as Markdown: the translation of one block is one block, with the line breaks of its source.

A translation moves words. A word that stood inside a line can come to its start, where "#" makes a heading and "-" an
item of a list. So `Writer` asks the parser, line by line, whether the text is still one block.
"""

import functools

import regex as re

from keras_transformer.errors import UserError
from keras_transformer.tools.documents.fragment import CLOSE, Mark
from keras_transformer.tools.documents.line_breaks import LINE_BREAK, SPACE, apart, is_line_break
from keras_transformer.tools.documents.units import Unit
from keras_transformer.words import LETTERS_AND_DIGITS

IN_WORD = rf"[{LETTERS_AND_DIGITS}_]"  # beside "_", which then is no sign of emphasis
SPECIAL = re.compile(rf"[\\`*\[\]]|<(?=[A-Za-z/!?])|&(?=#?[0-9A-Za-z]+;)|(?<!{IN_WORD})_|_(?!{IN_WORD})|(?<=~)~|~(?=~)")
START = re.compile(r"[0-9]+|(?=[!-/:-@\[-`{-~])|")  # a backslash behind it, and the line begins no block
# A line of these signs makes the line above a table, and behind the sign of an item it is a rule: "- --".
ROW = re.compile(r"[|:*_-][|:*_ \t-]*")
SPACE_ENTITY = "&#32;"  # a space that begins no block; browsers show nothing of it at the start of a line


def load_markdown():
    """A parser of CommonMark with tables and strikethrough.

    Raises:
        UserError: without markdown-it-py.
    """
    try:
        from markdown_it import MarkdownIt
    except ImportError as error:
        raise UserError("Markdown needs a package that is not installed: pip install 'markdown-it-py>=3,<5'") from error
    return MarkdownIt("commonmark").enable(["table", "strikethrough"])


_parser = functools.cache(load_markdown)


class Writer:
    """Writes the parts of a unit, so that they are one block where the source has one.

    Args:
        block: "paragraph", and "heading" for one that begins with "#"; "=" or "-" for a heading with a line of these
            under it; "cell" of a table; "image" for the text of an image, which begins inside a line.
        is_nested: bool, whether the block stands in a list or a quotation. There more lines end a paragraph.
    """

    def __init__(self, block, is_nested=False):
        self.block, self.is_nested = block, is_nested

    def __call__(self, parts):
        """list of parts -> str."""
        lines, breaks = [[]], []
        for part in apart(parts):
            if is_line_break(part):
                breaks.append(part.text)
                lines.append([])
            else:
                lines[-1].append(part)
        written = [
            self._line(line).lstrip(SPACE) if follows.startswith("\\") else self._line(line).strip(SPACE)
            for line, follows in zip(lines, [*breaks, ""], strict=True)
        ]
        if self.block == "heading":
            written = [_with_end_escaped(written[0])]
        else:
            written = self._with_starts_escaped(list(map(_seen, lines, written)), lines, written, breaks)
        return written[0] + "".join(map("".join, zip(breaks, written[1:], strict=True)))

    def _line(self, line):
        """A line of parts, text escaped."""
        written = ""
        for place, part in enumerate(line):
            following = line[place + 1] if place + 1 < len(line) else None
            if isinstance(part, Mark):
                is_code = written.endswith("`") and part.text.startswith("`")  # two spans side by side would be one
                written += " " * is_code + part.text
                continue
            text = SPECIAL.sub(r"\\\g<0>", LINE_BREAK.sub(" ", part))
            if self.block == "cell":
                text = text.replace("|", "\\|")
            if text.endswith("!") and isinstance(following, Mark) and following.text.startswith("["):
                text = text[:-1] + "\\!"
            if place and line[place - 1].kind != CLOSE and written.endswith("]") and text[0] in "(:":
                text = "\\" + text
            written += text
        return written

    def _with_starts_escaped(self, seen, lines, written, breaks):
        """The lines, where each that would begin or end a block has a backslash or a space entity at its start."""
        if self._is_one_block(seen, breaks):
            return written
        escaped, seen = [], []
        for line, text in zip(lines, written, strict=True):
            ways = [
                start(form)
                for start in _starts(line)
                for form in (text, re.sub(r"\A\||\|\Z", "&#124;", text))  # a line with "|" above "---" is a table
            ]
            views = [_seen(line, way) for way in ways]
            fits = (i for i, view in enumerate(views) if self._is_one_block([*seen, view], breaks))
            best = next(fits, len(ways) - 1)
            escaped.append(ways[best])
            seen.append(views[best])
        return escaped

    def _is_one_block(self, lines, breaks):
        """Whether the first lines of the text, with what stands around them, are one block."""
        hard = [LINE_BREAK.split(text)[0] + "\n" for text in breaks]
        content = lines[0] + "".join(map("".join, zip(hard, lines[1:], strict=False)))
        if self.block == "image":
            content = f"x{content}"
        if not content:
            return True
        is_heading = self.block in ("-", "=") and len(lines) > len(breaks)
        if not is_block(content, under=self.block if is_heading else ""):
            return False
        if not self.is_nested:
            return True
        return all(map(is_block, filter(None, lines[1:]))) and not any(map(ROW.fullmatch, lines))


def _starts(line):
    """Ways to write the start of a line of parts, the plainest first: functions from str to str."""
    yield str
    first = next((part for part in line if not isinstance(part, str) or part.strip(SPACE)), None)
    if isinstance(first, str):
        yield lambda text: START.sub(lambda match: match[0] + "\\", text, count=1)
    yield SPACE_ENTITY.__add__


def is_block(content, under=""):
    """Whether text alone is one paragraph, or with a line under it one heading."""
    tokens = _parser().parse(f"{content}\n{under * 3}")
    block = "heading" if under else "paragraph"
    return [token.type for token in tokens] == [f"{block}_open", "inline", f"{block}_close"] and (
        tokens[1].content == content
    )


def _seen(line, written):
    """What the parser is shown of a line: the lines inside of its marks without the signs of quotes and lists."""
    for part in line:
        if isinstance(part, Mark) and LINE_BREAK.search(part.text):
            written = written.replace(part.text, re.sub(r"(\r\n|\r|\n)[ \t>]*", "\nx", part.text))
    return written


def _with_end_escaped(text):
    """The text of a heading: "#" at its end is no mark that closes it."""
    return re.sub(r"(?:(?<=[ \t])|\A)#+\Z", lambda match: "\\" + match[0], text)


def in_html(unit, start, source):
    """A unit of a block of HTML, which a blank line would end. What would be no such block stays as it is.

    Args:
        unit: `Unit`, its place that in the block.
        start: of the block in the document.
        source: str, the block.
    """

    def written(parts):
        text = re.sub(r"(\r\n|\r|\n)(?:[ \t]*(?:\r\n|\r|\n))+", r"\1", unit.written(parts))
        is_block = unit.start or all(token.type == "html_block" for token in _parser().parse(text))
        return text if is_block else source[: unit.end]

    return Unit(unit.start + start, unit.end + start, unit.parts, written)
