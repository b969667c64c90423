"""Marks of Markdown's dialects stay to the byte, and the text around them is translated."""

import random
import re

import pytest

from keras_transformer.tools.documents.dialects import hide
from keras_transformer.tools.documents.files import translate_bytes
from tests.tools.documents.fake import BACKWARDS, SAME, UPPER, Reorders

ROWS = [
    ("| a \\| b | c |\n|---|---|\n| `d|e` | f \\| `g\\|h` |", "| A \\| B | C |\n|---|---|\n| `d|e` | F \\| `g\\|h` |"),
    (
        "| [[p|one two]] | a |\n|---|---|\n| $x|y$ | [[q\\|b]] |",
        "| [[p|ONE TWO]] | A |\n|---|---|\n| $x|y$ | [[q\\|B]] |",
    ),
    (
        "see [[a page|the text]], [[Other page#part]] and ![[a.png|100]]",
        "SEE [[a page|THE TEXT]], [[Other page#part]] AND ![[a.png|100]]",
    ),
    ("a [[b]](c) and [[d]][e]\n\n[e]: f", "A [\\[B\\]](c) AND [\\[D\\]][e]\n\n[e]: f"),
    ("a $x_1 * y_2$ b $$z*w*v$$ costs $5 and $6", "A $x_1 * y_2$ B $$z*w*v$$ COSTS $5 AND $6"),
    ("a \\(x_i * y_i\\) b \\[ x = y \\] c \\[sic\\]", "A \\(x_i * y_i\\) B \\[ x = y \\] C \\[SIC\\]"),
    ("one\n\n$$\nx\n- y\n\n= z\n$$\n\n\\[\na\n\\]\n\ntwo", "ONE\n\n$$\nx\n- y\n\n= z\n$$\n\n\\[\na\n\\]\n\nTWO"),
    ("one :smile: two :+1: at 10:30:45, a:b:c", "ONE :smile: TWO :+1: AT 10:30:45, A:B:C"),
    (
        '{{< note title="a" >}}\none **two**\n{{< /note >}}\n\nthree',
        '{{< note title="a" >}}\nONE **TWO**\n{{< /note >}}\n\nTHREE',
    ),
    (
        'one {{< ref "a b" >}} two, [three]({{< ref "c d" >}}) {{% x %}}',
        'ONE {{< ref "a b" >}} TWO, [THREE]({{< ref "c d" >}}) {{% x %}}',
    ),
    ("{% if a < b %}\none\n{% else %}\ntwo\n{% endif %}", "{% if a < b %}\nONE\n{% else %}\nTWO\n{% endif %}"),
    ("a {{ b.c | d }} e <?= $f ?> g <%= h %> {# i #} j", "A {{ b.c | d }} E <?= $f ?> G <%= h %> {# i #} J"),
    (
        "see https://{{ host }}/a/:b:/$c$d and https://x.y/:e:/z.",
        "SEE https://{{ host }}/a/:b:/$c$d AND https://x.y/:e:/z.",
    ),
    (":::note\none\n:::", ":::note\nONE\n:::"),
    (
        "::::tip Some title\none\n\n:::note[Other *title*]{#id}\ntwo\n:::\n::::",
        "::::tip SOME TITLE\nONE\n\n:::note[OTHER *TITLE*]{#id}\nTWO\n:::\n::::",
    ),
    ("::: {.note #id}\none\n:::\n\n> :::tip\n> two\n> :::", "::: {.note #id}\nONE\n:::\n\n> :::tip\n> TWO\n> :::"),
    ("one :abbr[two three]{title=x} and ::video[four]", "ONE :abbr[TWO THREE]{title=x} AND ::video[FOUR]"),
    (
        '!!! note "A title"\n    one\n\n    two\n\n??? tip\n\n    three',
        '!!! note "A TITLE"\n    ONE\n\n    TWO\n\n??? tip\n\n    THREE',
    ),
    (
        "one[^a] two^[three *four*]\n\n[^a]: word\n[^b]: five six\n    seven\n\n    eight",
        "ONE[^a] TWO^[THREE *FOUR*]\n\n[^a]: WORD\n[^b]: FIVE SIX\n    SEVEN\n\n    EIGHT",
    ),
    ("---\ntitle: one\n# two\n---\n\n# three {#id}", "---\ntitle: one\n# two\n---\n\n# THREE {#id}"),
    (
        "import A, { b } from 'c'\nimport 'd'\n\nexport const e = {\n  f: 'g',\n}\n\none",
        "import A, { b } from 'c'\nimport 'd'\n\nexport const e = {\n  f: 'g',\n}\n\nONE",
    ),
    ("import one thing and export two", "IMPORT ONE THING AND EXPORT TWO"),
    ('<Tabs items={["a", "b"]}>\none\n</Tabs>', '<Tabs items={["a", "b"]}>\nONE\n</Tabs>'),
    (
        "<Card\n  title='a'\n  f={() => { b }}\n>\n\none <Em x={1}>two</Em> {a.b} <A.B /> four\n\n</Card>",
        "<Card\n  title='a'\n  f={() => { b }}\n>\n\nONE <Em x={1}>TWO</Em> {a.b} <A.B /> FOUR\n\n</Card>",
    ),
    (
        "import A from 'a'\n\n<A>\n  <B c={1}>\n    one\n    </B>\n</A>",
        "import A from 'a'\n\n<A>\n  <B c={1}>\n    ONE\n    </B>\n</A>",
    ),
    (
        "<>\none\n</>\n\n{/* a comment */}\n\n{a.map(b => (\n  <c>{b}</c>\n))}",
        "<>\nONE\n</>\n\n{/* a comment */}\n\n{a.map(b => (\n  <c>{b}</c>\n))}",
    ),
    (
        "one `$a` $b$ `{c}`\n\n```\n$d$ {{ e }}\n:::\n```\n\n    {% f %}\n    code",
        "ONE `$a` $b$ `{c}`\n\n```\n$d$ {{ e }}\n:::\n```\n\n    {% f %}\n    code",
    ),
    ("zero <!-- {{ a --> one }} <a href='$x$'>two</a> $y$", "ZERO <!-- {{ a --> ONE }} <a href='$x$'>TWO</a> $y$"),
    ("one term\n: two *three*\n\n: four", "ONE TERM\n: TWO *THREE*\n\n: FOUR"),
    ("one two\\\n: = three\n===\n\nfour\n[^a]: five", "ONE TWO\\\n: = THREE\n===\n\nFOUR\n[^a]: FIVE"),
    ("one [two three]{.cls} four\n\n*[HTML]: five six", "ONE [TWO THREE]{.cls} FOUR\n\n*[HTML]: FIVE SIX"),
    ("one\n\n\\begin{x}\na & b\n\n\\end{x}\n\ntwo", "ONE\n\n\\begin{x}\na & b\n\n\\end{x}\n\nTWO"),
    ("one\n<A/> two\n![three](x) four", "ONE\n<A/> TWO\n![THREE](x) FOUR"),
    ("[one {{ a }}]({{ b }}) two", "[ONE {{ a }}]({{ b }}) TWO"),
    ("a \\$5 and \\$6, \\{b\\}, ⎕ ⎏", "A $5 AND $6, {B}, ⎕ ⎏"),
]


@pytest.mark.parametrize(("text", "found"), ROWS)
def test_marks_of_dialects_stay_and_text_is_translated(text, found):
    assert translate_bytes(UPPER, text.encode(), "markdown").decode() == found
    for end in ("\n", "\r\n"):
        own = text.replace("\n", end)
        assert translate_bytes(SAME, own.encode(), "markdown").decode() == own
        hidden, _ = hide(own)
        assert [len(line) for line in hidden.split("\n")] == [len(line) for line in own.split("\n")]


def test_no_word_goes_from_one_branch_to_another():
    text = b"one two {% if x %}three *four*{% else %}five six{% endif %} seven eight\n{% end %}\nnine ten"
    assert translate_bytes(BACKWARDS, text, "markdown").decode() == (
        "two one {% if x %}*four* three{% else %}six five{% endif %} eight seven\n{% end %}\nten nine"
    )


def test_in_mdx_indented_text_is_no_code():
    text = b"<A>\n    <B>\n        one *two*\n    </B>\n</A>\n"
    assert translate_bytes(UPPER, text, "markdown", "a.mdx") == text.replace(b"one *two*", b"ONE *TWO*")
    assert translate_bytes(UPPER, text, "markdown", "a.md") == text


MARKS = re.compile(
    r"\$\$[^$]+\$\$|\$[^\s$]+\$|\\\(.+?\\\)|\\\[.+?\\\]|\{\{.*?\}\}|\{%.*?%\}|:[a-z]+:|<[A-Z/].*?>|\[\[[^\[\]|]+(?:\||\]\])|"
    r"\^\[|:\w+\[|\{\w+\}|^:::\w*|^\[\^\w\]:"
)
PIECES = (
    "one two three four. $x_1$ $$y*z$$ \\(a_b\\) {{<&ref>}} {%&if&%} {%&else&%} {%&endif&%} "
    ":smile: <Em>five&six</Em> <Br&a={1}/> [[page|seven&eight]] [[page]] ^[nine&ten] :abbr[eleven] {name} "
    "**bold&$z$** `code|$x$`"
).split()


@pytest.mark.parametrize("number", [60, pytest.param(1009, marks=pytest.mark.slow)])
def test_every_translation_has_the_marks_of_its_source(number):
    rng = random.Random(number)
    shuffled = Reorders(lambda length: random.Random(length).sample(range(length), length))
    for _ in range(number):
        blocks = []
        for _ in range(rng.randint(1, 4)):
            words = [rng.choice(PIECES).replace("&", " ") for _ in range(rng.randint(1, 9))]
            text = "".join(word + rng.choice("   \n") for word in words).strip()
            blocks.append(
                rng.choice([text, f"# {' '.join(text.split())}", f":::note\n{text}\n:::", f"<Box>\n{text}\n</Box>"])
            )
        document = "\n\n".join(blocks)
        for translator in (BACKWARDS, shuffled):
            found = translate_bytes(translator, document.encode(), "markdown").decode()
            marks = MARKS.findall(document)
            assert sorted(MARKS.findall(found)) == sorted(marks), f"{document!r} became {found!r}"
            statements = [mark for mark in marks if mark.startswith(("{%", "{{"))]
            assert [mark for mark in MARKS.findall(found) if mark.startswith(("{%", "{{"))] == statements, found
            assert found.count("\n\n") == document.count("\n\n")
