"""Markdown: text is translated; marks, code and dialects stay, and no block or line break comes or goes."""

import random
import re
import sys

import pytest

from keras_transformer.errors import UserError
from keras_transformer.tools.documents import markdown
from keras_transformer.tools.documents.files import translate_bytes
from tests.tools.documents.fake import BACKWARDS, SAME, UPPER, Reorders, source_of

PAGE = """# BIG *NEWS* HERE #

SOME **BOLD AND _NESTED_ WORDS**, `code here`, [OUR LINK](http://x.y/z "title") AND ![ALT TEXT](img.png).
SECOND LINE OF IT \\* OK <b>INLINE HTML</b> END, SEE https://a.b/c_d.

> QUOTED TEXT
> GOES *ON
> HERE*

- ITEM ONE
  - ITEM **TWO**
1. FIRST

<div>
<p>A BLOCK OF HTML</p>
</div>

LINE WITH BREAK\u0020\u0020
NEXT \\
LINE ~~GONE TEXT~~ ***BOTH*** [REF LINK][r] ![](empty.png)

[r]: http://ref.x "a title"
"""
KEPT = [
    PAGE,
    "\\# NO HEADING\n\n1\\. NO LIST",
    "![AA](b.png) <x@y.z>",
    "> <div>\n> a\n> </div>",
    "+++\ntitle = 1\n+++\n\nAA",
    "| AA \\| BB | *CC* |\n|---|---|\n| `d|e` | FF \\| `g\\|h` |",
    "| [[p|ONE TWO]] | AA |\n|---|---|\n| $x|y$ | [[q\\|BB]] |",
    "SEE [[a page|THE TEXT]], [[Other page#part]] AND ![[a.png|100]]",
    "AA $x_1 * y_2$ BB $$z*w*v$$ COSTS $5 AND $6",
    "AA \\(x_i * y_i\\) BB \\[ x = y \\] CC \\[SIC\\]",
    "ONE\n\n$$\nx\n- y\n\n= z\n$$\n\n\\[\na\n\\]\n\nTWO",
    "ONE :smile: TWO :+1: AT 10:30:45, AA:BB:CC\n\nIMPORT ONE THING AND EXPORT TWO",
    'ONE {{< ref "a b" >}} TWO, [THREE]({{< ref "c d" >}}) {{% x %}}',
    "{% if a < b %}\nONE\n{% else %}\nTWO\n{% endif %}",
    "AA {{ b.c | d }} EE <?= $f ?> GG <%= h %> {# i #} JJ",
    "SEE https://{{ host }}/a/:b:/$c$d AND https://x.y/:e:/z.",
    "::::tip SOME TITLE\nONE\n\n:::note[OTHER *TITLE*]{#id}\nTWO\n:::\n::::",
    "::: {.note #id}\nONE\n:::\n\n> :::tip\n> TWO\n> :::",
    "ONE :abbr[TWO THREE]{title=x} AND ::video[FOUR]",
    '!!! note "A TITLE"\n    ONE\n\n    TWO\n\n??? tip\n\n    THREE',
    "ONE[^a] TWO^[THREE *FOUR*]\n\n[^a]: WORD\n[^b]: FIVE SIX\n    SEVEN\n\n    EIGHT",
    "---\ntitle: one\n# two\n---\n\n# THREE {#id}",
    "import A, { b } from 'c'\nimport 'd'\n\nexport const e = {\n  f: 'g',\n}\n\nONE",
    '<Tabs items={["a", "b"]}>\nONE\n</Tabs>',
    "<Card\n  title='a'\n  f={() => { b }}\n>\n\nONE <Em x={1}>TWO</Em> {a.b} <A.B /> FOUR\n\n</Card>",
    "import A from 'a'\n\n<A>\n  <B c={1}>\n    ONE\n    </B>\n</A>",
    "<>\nONE\n</>\n\n{/* a comment */}\n\n{a.map(b => (\n  <c>{b}</c>\n))}",
    "ONE `$a` $b$ `{c}`\n\n```\n$d$ {{ e }}\n:::\n```\n\n    {% f %}\n    code",
    "ZERO <!-- {{ a --> ONE }} <a href='$x$'>TWO</a> $y$",
    "ONE TERM\n: TWO *THREE*\n\n: FOUR",
    "| NAME | KIND |\n|:----:|:-:|\n| LEFT \\| ONE | RIGHT TWO |",
    '[toc]\n\nAS [@smith, p. 33] SAYS: ++a+b++ ++f1++\n\n> [!note]- A TITLE\n\n--8<-- "a/b.md"\n\n(label-one)=\n# TWO',
    '=== "SOME TAB"\n\n    ONE\n\n    !!! tip "TWO"\n        AA\n\n===! "OTHER"\n\n    THREE',
    "{% highlight ruby %}\na b(c)\n\nd\n{% endhighlight %}\n\nONE {% comment %}e{% endcomment %} TWO",
    "ONE\n\n{{< mermaid >}}\na\n\n--> b\n{{< /mermaid >}}\n\nTWO",
    "ONE TWO\\\n: = THREE\n===\n\nFOUR\n[^a]: FIVE",
    "ONE [TWO THREE]{.cls} FOUR\n\n*[Html]: FIVE SIX",
    "-8<-\na/b.md\n-8<-\n\nONE\n\n\\begin{x}\na & b\n\n\\end{x}\n\nTWO",
    "ONE\n<A/> TWO\n![THREE](x) FOUR\n\n[ONE {{ a }}]({{ b }}) TWO",
]
PAIRS = [
    ("a * b_c \\_d\\_ [x]", "A \\* B_C \\_D\\_ \\[X\\]"),
    ("a [^1] b\n\n- [ ] c\n\n> [!NOTE]\n> d\n\n[^1]: e f", "A [^1] B\n\n- [ ] C\n\n> [!NOTE]\n> D\n\n[^1]: E F"),
    ("[a b][] [a b]\n\n[a b]: x", "[A B][a b] [A B][a b]\n\n[a b]: x"),
    ("a &amp;lt; \\&lt; b", "A \\&LT; \\&LT; B"),
    ("a [[b]](c) and [[d]][e]\n\n[e]: f", "A [\\[B\\]](c) AND [\\[D\\]][e]\n\n[e]: f"),
    ("a \\$5 and \\$6, \\{b\\}, ⎕ ⎏", "A $5 AND $6, {B}, ⎕ ⎏"),
]


SHUFFLED = Reorders(lambda length: random.Random(length).sample(range(length), length))
TRANSLATORS = [BACKWARDS, SHUFFLED, Reorders(BACKWARDS.order, is_aligned=False)]
MARKS = re.compile(
    r"<!--.*?-->|\$\$[^$]+\$\$|\$[^\s$]+\$|\\\(.+?\\\)|\\\[.+?\\\]|\{\{.*?\}\}|\{%.*?%\}|:[a-z]+:|<[A-Z/].*?>|"
    r"\[\[[^\[\]|]+(?:\||\]\])|\^\[|:\w+\[|\{\w+\}|^:::\w*|^\[\^\w\]:"
)


@pytest.mark.parametrize(("text", "found"), [(source_of(found), found) for found in KEPT] + PAIRS)
def test_marks_stay_in_every_dialect_text_is_translated_and_never_becomes_a_mark(text, found):
    assert translate_bytes(UPPER, text.encode(), "markdown").decode() == found
    for end in ("\n", "\r\n"):
        assert translate_bytes(SAME, own := text.replace("\n", end).encode(), "markdown") == own


@pytest.mark.parametrize("text", KEPT)
def test_marks_stay_when_words_change_places(text):
    marks = MARKS.findall(text)
    for translator in TRANSLATORS[:2]:
        kept = MARKS.findall(found := translate_bytes(translator, text.encode(), "markdown").decode())
        assert sorted(kept) == sorted(marks) and found.count("\n\n") == text.count("\n\n")
        statements = [[mark for mark in each if mark.startswith(("{%", "{{"))] for each in (marks, kept)]
        assert statements[0] == statements[1]


def test_no_word_goes_from_one_branch_to_another_or_into_code():
    text = b"one two {% if x %}three *four*{% else %}five six{% endif %} seven eight\n{% end %}\nnine ten"
    assert translate_bytes(BACKWARDS, text, "markdown").decode() == (
        "two one {% if x %}*four* three{% else %}six five{% endif %} eight seven\n{% end %}\nten nine"
    )
    codes = "{{ if .a }}¦{{- end }}¦{{ a }}¦{{> a}}¦{{!-- a --}}¦<?php echo $a ?>¦<?php if ($a): ?>¦<?= $a ?>¦<%# a %>¦"
    codes += "<%= a %>¦<% a %>¦{# a #}¦{% a %}¦<#if a>¦</#if>¦<#-- a -->¦{!! $a !!}¦[% a %]¦{{{ a }}}¦{{^a}}¦{{~else}}"
    for code in codes.split("¦"):  # a page has the same branches
        found = [translate_bytes(BACKWARDS, f"a b {code} c".encode(), format) for format in ("markdown", "html")]
        assert found[0] == found[1]
    # In MDX, indented text is no code.
    text = b"<A>\n    <B>\n        one *two*\n    </B>\n</A>\n"
    assert translate_bytes(UPPER, text, "markdown", "a.mdx") == text.replace(b"one *two*", b"ONE *TWO*")
    assert translate_bytes(UPPER, text, "markdown", "a.md") == text


SIGNS = (
    "# ## - + > >x 1. 2) 19. 1) | === = --- -- - - :- |-| --|-- ~~~ ~~ \\*\\*\\* \\* \\` \\~~~ ! \\_\\_\\_ : \\[a]: "
    "+++ < & &#124; &#10;&#10; &#32; &gt; &lt;div&gt; \\# \\- \\1. \\> ### a|b"
).split()
MARKED = (
    "`code` ¦ `` a`b `` ¦ ```c d``` ¦ ```c\nd``` ¦ `e\nf` ¦ [link text](http://x.y) ¦ [link\ntext here](<u v> 'title') "
    "¦ [ref] ¦ [ref][] ¦ [some ref\ntext][ref] ¦ ![an image](i.png) ¦ ![an image\nof two lines \\* 1. here](i.png) "
    "¦ *some emphasis* ¦ **strong\nwords here** ¦ ***both of them*** ¦ _under score_ ¦ ~~gone now~~ ¦ <b>bold tag</b> "
    "¦ <div> ¦ <!-- note --> ¦ <br> ¦ <i> ¦ <x@y.z> ¦ https://a.b/c_d ¦ [^1]"
).split(" ¦ ")
# What stands before the first line of a text, and before the others.
FRAMES = [("", ""), ("> ", "> "), ("> ", ""), ("- ", "  "), ("12) ", "    "), ("* ", ""), ("- > ", "  > ")]
FRAMES += [("> 1. ", ">    ")]


def structure_of(text):
    """The blocks of a document with the line breaks of each text: hard ones, soft ones."""
    return [
        _breaks(token)
        if token.type == "inline"
        else (token.type, token.level, token.markup, token.content * (token.type in ("fence", "code_block")))
        for token in markdown.load_parser().parse(text)
    ]


def _breaks(token):
    inner = [_breaks(child) for child in token.children or []]
    kinds = ("hardbreak", "softbreak")
    return tuple(sum(one[i] for one in inner) + (token.type == name) for i, name in enumerate(kinds))


def test_blocks_and_line_breaks_stay_in_every_translation():
    texts = [f"one {mark} two  \nthree four\\\n{mark} five\nsix {mark}" for mark in SIGNS + MARKED]
    framed = [first + text.replace("\n", f"\n{rest}") + "\n\n[ref]: x" for text in texts for first, rest in FRAMES]
    for number, text in enumerate([source_of(PAGE), *framed]):
        found = translate_bytes(TRANSLATORS[number % 3], text.encode(), "markdown").decode()
        assert structure_of(found) == structure_of(text), f"{text!r} became {found!r}"
        assert translate_bytes(SAME, text.encode(), "markdown").decode() == text


def test_what_comes_to_the_start_of_a_line_begins_no_block():
    for text, found in (
        ("break\nhere 1.", "1\\.\nhere break"),
        ("a >b", "\\>b a"),
        ("a ==\nb\nc d", "d c b\n\\==\na"),
        ("# \\# a b", "# b a \\#"),
        ("- a &#124;\n  ---", "- &#124; a\n  ---"),
        ("* a\n  b --", "* \\--\n  b a"),
        ("a ```x\ny``` b ~~~", "\\~\\~\\~ ```x\ny``` b a"),
        ("> ![1. a\n> b](d)", "> ![b a\n> 1\\.](d)"),
        ("a &#10;&#10; b", "&#10; b a &#10;"),
        ("- <i>\n  a b", "- <i>\n  b a"),
        ("- \\\n  three\n  two", "- \\\n  two\n  three"),
        ("a\n**b**\n*c*\nd", "d\n*c*\n**b**\na"),
        ("- a b\\\n  {{< ref >}}", "- b a\\\n  {{< ref >}}"),
    ):
        written = translate_bytes(BACKWARDS, text.encode(), "markdown").decode()
        assert (written, structure_of(written)) == (found, structure_of(text))


def test_without_its_package_markdown_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "markdown_it", None)
    markdown.load_parser.cache_clear()
    with pytest.raises(UserError, match="pip install 'markdown-it-py>=3,<5'"):
        translate_bytes(SAME, b"a", "markdown")
