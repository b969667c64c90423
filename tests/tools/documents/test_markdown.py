import sys

import pytest

from keras_transformer.errors import UserError
from keras_transformer.tools.documents import markdown
from keras_transformer.tools.documents.files import translate_bytes
from tests.tools.documents.fake import SAME, UPPER

PAGE = """---
title: front matter
---
# Big *news* here #

Some **bold and _nested_ words**, `code here`, [a link](http://x.y/z "title") and ![alt text](img.png).\r
Second line of it \\* ok &amp; fine <b>inline html</b> end, see https://a.b/c_d.

> quoted text
> goes *on
> here*

- item one
  - item **two**
1. first

| a head | b *head* |
|---|---|
| cell one | `x` cell two |

```python
print("no")
```

    indented code

<div>
<p>a block of html</p>
</div>

Line with break\u0020\u0020
next \\
line ~~gone text~~ ***both*** [ref link][r] ![](empty.png)

[r]: http://ref.x "a title"
"""


def test_a_page_with_equal_translations_is_the_same_to_the_byte():
    assert translate_bytes(SAME, PAGE.encode(), "markdown") == PAGE.encode()


def test_text_is_translated_and_code_urls_and_front_matter_stay():
    wanted = PAGE.upper()
    for text in (
        *("title: front matter", "`code here`", "(http://x.y/z ", '"title"', "(img.png)", "https://a.b/c_d"),
        *("<b>", "</b>", "`x`", 'python\nprint("no")', "indented code", "<div>\n<p>", "</p>\n</div>", "(empty.png)"),
        *('[r]: http://ref.x "a title"', "[r] "),
    ):
        wanted = wanted.replace(text.upper(), text)
    found = translate_bytes(UPPER, PAGE.encode(), "markdown").decode()
    assert found == wanted.replace("&AMP;", "&")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a * b_c \\_d\\_ [x]", "A \\* B_C \\_D\\_ \\[X\\]"),
        ("\\# no heading", "\\# NO HEADING"),
        ("1\\. no list", "1\\. NO LIST"),
        ("*a **b** c*", "*A **B** C*"),
        ("a ~~~b~~~ c", "A ~~~B~~~ C"),
        ("![a](b.png) <x@y.z>", "![A](b.png) <x@y.z>"),
        ("some a\n\n| x \\| y | a |\n|---|---|\n| b | c |", "SOME A\n\n| X \\| Y | A |\n|---|---|\n| B | C |"),
        ("a [^1] b\n\n- [ ] c\n\n> [!NOTE]\n> d\n\n[^1]: e f", "A [^1] B\n\n- [ ] C\n\n> [!NOTE]\n> D\n\n[^1]: E F"),
        ("[a b][] [a b]\n\n[a b]: x", "[A B][a b] [A B][a b]\n\n[a b]: x"),
        ("a &amp;lt; \\&lt; b", "A \\&LT; \\&LT; B"),
        ("> <div>\n> a\n> </div>", "> <div>\n> a\n> </div>"),
        ("+++\ntitle = 1\n+++\n\na", "+++\ntitle = 1\n+++\n\nA"),
    ],
)
def test_signs_of_text_never_become_marks(text, found):
    assert translate_bytes(UPPER, text.encode(), "markdown").decode() == found
    assert translate_bytes(SAME, text.encode(), "markdown").decode() == text


def test_without_its_package_markdown_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "markdown_it", None)
    markdown.load_parser.cache_clear()
    with pytest.raises(UserError, match="pip install 'markdown-it-py>=3,<5'"):
        translate_bytes(SAME, b"a", "markdown")
