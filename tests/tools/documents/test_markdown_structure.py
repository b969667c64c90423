"""No translation of Markdown makes or removes a block or a line break, wherever its words go."""

import random

import pytest

from keras_transformer.tools.documents import markdown
from keras_transformer.tools.documents.files import translate_bytes
from keras_transformer.tools.documents.fragment import CLOSE, OPEN, Mark
from keras_transformer.tools.documents.line_breaks import apart
from tests.tools.documents.fake import BACKWARDS, SAME, Reorders

DOCUMENTS = [60, pytest.param(307, marks=pytest.mark.slow)]
NEXT, HARD = Mark("\n", breaks=True), Mark("\\\n", name="br", breaks=True)
OPENING, CLOSING = Mark("*", OPEN, "*"), Mark("*", CLOSE, "*")
WORDS = "one two three four Fünf 六 семь eight! nine, break ten. (no) it's 3 a_b ~".split()
SIGNS = (
    "# ## - + > >x 1. 2) 19. 1) | === = --- -- - - :- |-| --|-- ~~~ ~~ \\*\\*\\* \\* \\` \\~~~ ! \\_\\_\\_ : \\[a]: "
    "+++ < & &#124; &#10;&#10; &#32; &gt; &lt;div&gt; \\# \\- \\1. \\> ### a|b"
).split()
MARKED = (
    "`code`",
    "`` a`b ``",
    "```c d```",
    "```c\nd```",
    "`e\nf`",
    "[link text](http://x.y)",
    "[link\ntext here](<u v> 'title')",
    "[ref]",
    "[ref][]",
    "[some ref\ntext][ref]",
    "![an image](i.png)",
    "![an image\nof two lines \\* 1. here](i.png)",
    "*some emphasis*",
    "**strong\nwords here**",
    "***both of them***",
    "_under score_",
    "~~gone now~~",
    "<b>bold tag</b>",
    "<div>",
    "<!-- note -->",
    "<br>",
    "<i>",
    "<x@y.z>",
    "https://a.b/c_d",
    "[^1]",
)


def document_of(rng):
    """A random document of one to five blocks."""
    return "\n\n".join(_block(rng, 2) for _ in range(rng.randint(1, 5))) + rng.choice(["", "\n\n[ref]: http://r.s"])


def _block(rng, depth):
    kind = rng.randrange(10 if depth else 7)
    if kind < 4:
        return _text(rng, rng.randint(1, 16))
    if kind == 4:
        return f"{'#' * rng.randint(1, 6)} {_line(rng)}{rng.choice(['', ' #', ' ##'])}"
    if kind == 5:
        return f"{_text(rng, 5)}\n{rng.choice(['===', '---'])}"
    if kind == 6:
        return _rare_block(rng)
    inner = "\n".join(_block(rng, depth - 1) for _ in range(rng.randint(1, 2)))
    if kind == 7:
        return "\n".join(f"{'' if rng.random() < 0.2 else '> '}{line}" for line in inner.split("\n"))
    marker = rng.choice(["- ", "* ", "+ ", "1. ", "12) "])
    space = "" if rng.random() < 0.1 else " " * len(marker)  # without it, lines of a paragraph still belong to the item
    items = [inner] + [_text(rng, 4) for _ in range(rng.randint(0, 2))]
    return "\n".join(marker + item.replace("\n", f"\n{space}") for item in items)


def _rare_block(rng):
    kind = rng.randrange(4)
    if kind == 0:
        edge = rng.choice(["", "| "])
        rows = [edge + " | ".join(_line(rng) for _ in range(2)) for _ in range(rng.randint(1, 3))]
        return "\n".join([rows[0], "--- | ---", *rows[1:]])
    if kind == 1:
        return f"```\n{_text(rng, 4)}\n```"
    if kind == 2:
        return f"<div>\n{_text(rng, 6)}\n<p>{_text(rng, 6)}</p></div>"
    return rng.choice(["---", "* * *", "    code here"])


def _word(rng):
    return rng.choice(rng.choices([WORDS, SIGNS, MARKED], [6, 3, 2])[0])


def _line(rng):
    return " ".join(_word(rng).replace("\n", " ") for _ in range(rng.randint(1, 6)))


def _text(rng, length):
    breaks = rng.choices(
        [" ", "\n", "  \n", "\\\n", " \\\n", "\n  ", "   \n    ", "  "], [14, 4, 1, 1, 1, 1, 1, 1], k=length
    )
    return "".join(_word(rng) + space for space in breaks).strip().rstrip("\\")


def _shuffled(length):
    return random.Random(length).sample(range(length), length)


TRANSLATORS = {
    "backwards": BACKWARDS,
    "backwards, not aligned": Reorders(BACKWARDS.order, is_aligned=False),
    "shuffled": Reorders(_shuffled),
}


def structure_of(text):
    """The blocks of a document with the line breaks of each text: hard ones, soft ones."""
    return [
        _breaks(token)
        if token.type == "inline"
        else (token.type, token.level, token.markup, token.content * _stays(token))
        for token in markdown.load_parser().parse(text)
    ]


def _stays(token):
    return token.type in ("fence", "code_block")


def _breaks(token):
    inner = [_breaks(child) for child in token.children or []]
    return tuple(
        sum(one[i] for one in inner) + (token.type == name) for i, name in enumerate(("hardbreak", "softbreak"))
    )


@pytest.mark.parametrize("number", DOCUMENTS)
@pytest.mark.parametrize("name", TRANSLATORS)
def test_blocks_and_line_breaks_stay_in_every_translation(name, number):
    rng = random.Random(number)
    for _ in range(number):
        text = document_of(rng)
        found = translate_bytes(TRANSLATORS[name], text.encode(), "markdown").decode()
        assert structure_of(found) == structure_of(text), f"{text!r} became {found!r}"


@pytest.mark.parametrize("number", DOCUMENTS)
def test_random_documents_with_equal_translations_are_the_same_to_the_byte(number):
    rng = random.Random(number)
    for _ in range(number):
        text = document_of(rng).replace("\n", rng.choice(["\n", "\r\n"]))
        assert translate_bytes(SAME, text.encode(), "markdown").decode() == text


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("break #", "\\# break"),
        ("break\nhere 1.", "1\\.\nhere break"),
        ("a >b", "\\>b a"),
        ("a\nb ---", "\\---\nb a"),
        ("a ==\nb\nc d", "d c b\n\\==\na"),
        ("# \\# a b", "# b a \\#"),
        ("- a &#124;\n  ---", "- &#124; a\n  ---"),
        ("* a\n  b --", "* \\--\n  b a"),
        ("a ```x\ny``` b ~~~", "\\~\\~\\~ ```x\ny``` b a"),
        ("> ![a\n> b c](d)", "> ![c\n> b a](d)"),
        ("> ![1. a\n> b](d)", "> ![b a\n> 1\\.](d)"),
        ("a &#10;&#10; b", "&#10; b a &#10;"),
        ("- <i>\n  a b", "- <i>\n  b a"),
        ("a **b\nc** d", "d **c\nb** a"),
        ("- \\\n  three\n  two", "- \\\n  two\n  three"),
        ("a\n**b**\n*c*\nd", "d\n*c*\n**b**\na"),
    ],
)
def test_what_comes_to_the_start_of_a_line_begins_no_block(text, found):
    written = translate_bytes(TRANSLATORS["backwards"], text.encode(), "markdown").decode()
    assert (written, structure_of(written)) == (found, structure_of(text))


@pytest.mark.parametrize(
    ("parts", "found"),
    [
        ([NEXT, "a b c"], "a|b c"),
        (["a", NEXT, NEXT, "b c"], "a|b|c"),
        (["a b", NEXT], "a|b"),
        (["a", NEXT], "a"),
        (["a ", NEXT, "b", NEXT, " c"], "a |b| c"),
        (["a", NEXT, OPENING, NEXT, CLOSING, "b c"], "a|**b|c"),
        (["六七", NEXT], "六|七"),
        ([HARD, "a", NEXT, "b"], "/a|b"),
    ],
)
def test_each_line_break_is_between_other_words(parts, found):
    signs = {NEXT: "|", HARD: "/", OPENING: "*", CLOSING: "*"}
    assert "".join(signs.get(part, part) for part in apart(parts)) == found


@pytest.mark.parametrize("name", TRANSLATORS)
def test_no_translation_ends_a_subtitle_with_a_blank_line(name):
    rng = random.Random(7)
    for _ in range(211):
        times = "00:00:01,000 --> 00:00:02,500"
        words = [rng.choice(["one", "<i>two</i>", "three!", "<b>four five</b>", "-"]) for _ in range(rng.randint(2, 7))]
        text = "".join(word + rng.choice([" ", "\n", "\n"]) for word in ["a", *words]).strip()
        document = f"1\n{times}\n{text}\n\n2\n{times}\nend here\n"
        found = translate_bytes(TRANSLATORS[name], document.encode(), "srt").decode()
        assert [len(part.splitlines()) for part in found.split("\n\n")] == [text.count("\n") + 3, 3], found
