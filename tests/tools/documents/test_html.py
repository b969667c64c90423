import pytest

from keras_transformer.protection import Protection
from keras_transformer.tools.documents.files import translate_bytes
from keras_transformer.tools.documents.html import find_attributes, find_blocks
from tests.tools.documents.fake import SAME, UPPER, Backwards

PAGE = """<!DOCTYPE html>\r
<html lang="en"><head><title>A title &amp; more</title>
<meta name="description" content='some "words"'><meta name="viewport" content="width=1">
<style>p { color: red }</style><script>var words = "a < b";</script></head>
<body class="x y"><!-- a comment --><h1 title="the tip">Big <em>news</em></h1>
<p>Run <code>pip install</code> to see the <a href="x.html?a=1&b=2">new <b>red</b> thing</a><br/>
  or <img src="u" alt="a cat"> not&nbsp;&lt;here&gt;
<p translate="no">Stay <b>as</b> is</p>
<ul><li>one<li>two <b>three
</ul><pre>no  change</pre>after <span class="notranslate">Brand <i>Name</i></span> end
<img translate="no" alt="stay"><table><tr><td>cell</td><td>12</td></tr></table></p></i></body></html>
"""


def test_a_page_with_equal_translations_is_the_same_to_the_byte():
    assert translate_bytes(SAME, PAGE.encode(), "html") == PAGE.encode()


def test_text_is_translated_and_code_scripts_and_all_that_is_marked_so_stay():
    found = translate_bytes(UPPER, PAGE.encode(), "html").decode()
    assert "<title>A TITLE &amp; MORE</title>" in found
    assert '<h1 title="THE TIP">BIG <em>NEWS</em></h1>' in found
    assert "RUN <code>pip install</code> TO SEE" in found
    assert 'THE <a href="x.html?a=1&b=2">NEW <b>RED</b> THING</a><br/>\n  OR <img src="u" alt="A CAT"> NOT' in found
    assert "&lt;HERE&gt;" in found
    assert "<li>ONE<li>TWO <b>THREE\n</ul>" in found
    assert 'AFTER <span class="notranslate">Brand <i>Name</i></span> END' in found
    same = (
        '<img translate="no" alt="stay">',
        "<style>p { color: red }</style><script>var words = ",
        '<body class="x y"><!-- a comment -->',
        '<p translate="no">Stay <b>as</b> is</p>',
        "<pre>no  change</pre>",
        "<td>12</td></tr></table></p></i></body></html>\n",
        '<meta name="viewport" content="width=1">',
    )
    assert [part for part in same if part not in found] == []
    assert "content='SOME &quot;WORDS&quot;'" in found


def test_words_that_must_not_change_keep_their_tags():
    page = '<p>the <b>apple</b> has <i>5 m<sup>2</sup></i> and ap<u>ple</u> tree at <a href="x">https://a.org</a></p>'
    translator = Backwards(Protection({"apple": "süßer Apfel", "apple tree": "Apfelbaum"}))
    assert translate_bytes(translator, page.encode(), "html").decode() == (
        '<p><a href="x">https://a.org</a> AT <u>Apfelbaum</u> AND <i>5 m<sup>2</sup></i> HAS <b>süßer Apfel</b> THE</p>'
    )


def test_a_void_tag_with_its_closing_one_is_one_tag():
    (unit,) = find_blocks("one <input></input> two<br></br>")
    assert [part.text for part in unit.parts if not isinstance(part, str)] == ["<input></input>", "<br></br>"]
    assert translate_bytes(UPPER, b"</br> one", "html") == b"</br> ONE"


def test_blocks_are_the_units():
    units = find_blocks("<div>a <b>b</b><p>c</p> d</div> e")
    assert ["".join(getattr(part, "text", part) for part in unit.parts) for unit in units] == [
        *["a <b>b</b>", "c", " d", " e"]
    ]


@pytest.mark.parametrize("text", ["", "a < b", "<b", "&amp", "<p", "<!-- open", "<a title=>x", "</>", "<script>a"])
def test_html_that_is_none_is_read_all_the_same(text):
    assert find_attributes(text) == []
    assert translate_bytes(SAME, text.encode(), "html") == text.encode()
