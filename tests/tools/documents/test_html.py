import re

import pytest

from keras_transformer.protection import Protection
from keras_transformer.tools.documents.files import translate_bytes
from keras_transformer.tools.documents.fragment import layout_of
from keras_transformer.tools.documents.html import find_attributes, find_blocks, in_language
from tests.tools.documents.fake import BACKWARDS, SAME, UPPER, Backwards, Says, source_of


def test_words_that_must_not_change_keep_their_tags():
    page = '<p>the <b>apple</b> has <i>5 km<sup>2</sup></i> and ap<u>ple</u> tree at <a href="x">https://a.org</a></p>'
    translator = Backwards(Protection({"apple": "süßer Apfel", "apple tree": "Apfelbaum"}))
    right = 'AT <u>Apfelbaum</u> AND <i>5 km<sup>2</sup></i> HAS <b>süßer Apfel</b> THE <a href="x">https://a.org</a>'
    assert translate_bytes(translator, page.encode(), "html").decode() == f"<p>{right}</p>"


# A page, its translation backwards, and the texts that the model reads.
READ = [
    ("5 km<sup>2</sup> and CO<sub>2</sub> gas", "gas CO<sub>2</sub> and km<sup>2</sup> 5", "5 km and CO gas"),
    ('of 2026<sup><a href="#n">[1]</a></sup>', '2026<sup><a href="#n">[1]</a></sup> of', "of 2026"),
    ("one <b>two<sup>a</sup><sub>b</sub></b>", "<b>two<sup>a</sup><sub>b</sub></b> one", "one two"),
    ("my H<sub>2</sub>SO<sub>4</sub> is x<sup>2</sup>y", "H<sub>2</sub>SO<sub>4</sub> is my x<sup>2</sup>y", "my is"),
    ("<sup>one</sup> two", "two <sup>one</sup>", "one two"),  # a tag like others
    ("one<ruby>two<rt>three</rt></ruby>", "one<ruby>two<rt>three</rt></ruby>", "onetwo"),
    ("<div>a <b>b</b><p>c</p> d</div> e", "<div><b>b</b> a<p>c</p> d</div> e", "a b|c|d|e"),
    ("one <input></input> two<br></br>", "<input></input> two one<br></br>", "one two"),  # one tag each
    ("</br> one <b> two</b>", "</br> <b>two</b> one", "one two"),
    ("one<br>two\n  three", "three<br>two\n  one", "one two three"),
    ("see <kbd></kbd>.", "see <kbd></kbd>.", "see."),
]


@pytest.mark.parametrize(("page", "translated", "read"), READ)
def test_blocks_are_read_without_tags_ruby_and_what_is_raised_which_stays_behind_its_word(page, translated, read):
    assert translate_bytes(BACKWARDS, page.encode(), "html").decode() == translated
    assert [layout_of(unit.parts).text for unit in find_blocks(page)] == read.split("|")


LINK = (
    '<a href="https://www.a.org/x%20day?a=1&amp;b=2" rel="nofollow"><span class="invisible">https://www.</span>'
    '<span class="ellipsis">a.org/x%20day?a=1&amp;b=</span><span class="invisible">2</span></a>'
)
NAME = '<span class="h-card"><a href="https://m.org/@ann" class="u-url mention">@<span>ann</span></a></span>'
TAG_LINK = '<a href="https://m.org/tags/Open" class="mention hashtag" rel="tag">#<span>Open</span></a>'
# What a document has, its format, and the places of what is translated: the words in capitals.
OPAQUE = [
    ("html", f"<p>MARCH 3: {LINK}</p>"),
    ("html", f"<p>HELLO {NAME} SEE {TAG_LINK} AND {LINK}, NOW</p>"),
    ("html", '<p>SEE <a href="https://a.org">a.org</a> OR <a href="x">OUR PAGE</a> <b>#one</b></p>'),
    ("html", '<p>THIS PAGE: <a href="x">/text/guide/image_map.xhp</a> OR <b>src/a.b/Main.Cpp</b>, <i>AND/OR</i></p>'),
    ("html", "<p>ASK ann.b@c-d.org, mailto:x@y.de OR @bob@m.social (news.a.org/open/day). :open: AT 10:30:45 :+1:</p>"),
    ("html", '<img title="OPEN https://a.org/b?c=%s&amp;d NOW">'),
    ("markdown", "SEE [https://a.org/b](https://a.org/b), www.a.org/b_c_ OR @ann_b_ ON [@bob](x) :day: [#tag](y)\n"),
    ("srt", "1\n00:00:01,000 --> 00:00:02,000\nOPEN www.a.org/day NOW\n"),
]


@pytest.mark.parametrize(("format", "found"), OPAQUE)
def test_addresses_names_tags_of_links_and_codes_of_emoji_stay_with_their_tags(format, found):
    assert translate_bytes(UPPER, source_of(found).encode(), format).decode() == found
    moved = translate_bytes(BACKWARDS, found.encode(), format).decode()
    assert all(thing in moved for thing in (LINK, NAME, TAG_LINK) if thing in found)


def test_an_address_touches_no_other_word_after_it_has_moved():
    page = "one/two three https://a.org/b @ann @bob four mailto:a@b.org five six seven/eight"
    assert sorted(translate_bytes(BACKWARDS, page.encode(), "html").decode().split()) == sorted(page.split())


def test_a_page_declares_the_language_of_its_translation_and_its_direction():
    page = '<!-- <html lang="en"> --><script>"<html lang=en>"</script>{}<p lang="en">a</p><a hreflang="en">b</a></html>'
    for tag, language, right in (
        ('<html lang="en" dir="auto">', "ar", '<html lang="ar" dir="rtl">'),
        ("<html lang=en>", "fa_IR", '<html lang=fa_IR dir="rtl">'),
        ('<html lang="ur" dir="rtl">', "de", '<html lang="de" dir="ltr">'),
        ("<HTML class=x LANG=en>", "de", "<HTML class=x LANG=de>"),
        ('<html xml:lang="en" lang="en">', "de", '<html xml:lang="de" lang="de">'),
        ('<html hreflang="en" lang="de-AT">', "de", '<html hreflang="en" lang="de-AT">'),  # a kind of German
        ('<html lang="zh-Hans">', "zh-TW", '<html lang="zh-TW">'),
        ("<html lang=en/>", "he", '<html lang=he dir="rtl"/>'),
        ('<html {% if a>1 %}dir="rtl"{% end %} lang=en>', "de", '<html {% if a>1 %}dir="ltr"{% end %} lang=de>'),
        ("<html <?php f(); ?> lang={{ a }}>", "ar", '<html <?php f(); ?> lang={{ a }} dir="rtl">'),
        ("<html lang=\"{{ a('_')->b }}\" dir='<?= $c ?>'>", "ar", "<html lang=\"{{ a('_')->b }}\" dir='<?= $c ?>'>"),
        ("<html translate=no lang=en>", "ar", "<html translate=no lang=en>"),
        ('<html lang="en" dir="ltr">', None, '<html lang="en" dir="ltr">'),
    ):
        assert in_language(page.format(tag), "", language) == page.format(right)


NO_HTML = "|a < b|x <b>a <i>c</b> d</i> e|<b|&amp|<p|<!-- open|<a title=>x|</>|<script>a|<![x|<![x>a".split("|")
NO_HTML += ["<![if b]>a", "\0", "\x001\0", "\x007\0 <b>a</b> {b}", '<b class="\x007\0">a</b> {b}']


@pytest.mark.parametrize("text", NO_HTML)
def test_html_that_is_none_is_read_all_the_same(text):
    assert find_attributes(text) == [] and translate_bytes(SAME, text.encode(), "html") == text.encode()


CODE_WORDS = re.compile(
    r"(?s)<!--.*?-->|href=\"(?:\{\{.*?\}\}|[^\"])*\"|<script.*?</script>|<\?.*?(?:\?>|\Z)|<%.*?%>|\{%.*?%\}"
    r"|\{#.*?#\}|\{\{\{?.*?\}?\}\}|\{!!.*?!!\}"
    r"|@[a-z]+(?:\s*\([^()]*(?:\(.*?\)[^()]*)*\))?|\[%.*?%\]|</?#[^>]*>|class=['\"][^'\"]*['\"]|&\w+;|</?\w+|(?:alt|title|placeholder)="
)
STATEMENTS = re.compile(
    r"(?s)\{%.*?%\}|<%(?!=).*?%>|<\?(?!=).*?(?:\?>|\Z)|\{\{[#/e].*?\}\}|</?#[^>]*>|\[%.*?%\]|@(?:if|e)\w+"
)


@pytest.mark.parametrize(
    "found",
    [
        "<p>HELLO {{ user.name }}, {% if n > 1 %}{{ n }} NEW DAYS{% else %}ONE <b>NEW</b> DAY{% endif %}.</p>",
        '<p>ON <?php echo $a->b > 1 ? "x" : "y"; ?> THE DAY</p>',
        "<?php\n$a = '<p>one</p>';\nif ($b): ?>\n<p>TWO <?= $a->b ?></p>",
        "<p>ONE</p>\n<?php foreach ($a as $b => $c) { echo '<p>two</p>'; }",
        '<ul><% days.each do |d| %><li class="<%= d > 1 %>">DAY <%= d %> OF IT</li><% end %></ul>',
        "<div <?php if ($a > 1) echo 'class=\"x\"'; ?>>ONE</div>",
        '<a href="{{ url("a b") }}" {% if x %}class="one"{% endif %}>TWO</a> {# a < b "c" #} THREE',
        "<{{ tag }} class='x'>ONE</{{ tag }}> <h{{ n }}>TWO</h{{ n }}>",
        "{{#if a}}<p>ONE {{!-- note --}} TWO</p>{{else}}THREE{{/if}} {{> part}} FOUR {{{raw}}}",
        '<img alt="ONE {{ a["b"] }}" title=\'{% if x %}ONE{% else %}TWO{% endif %}\' {{ c }}placeholder="AA">',
        "<#if a gt 1>ONE<#else>TWO</#if> [% If x %]THREE[% End %] {!! $a !!}<p>AA &lt; {{ b }} &amp; {{ c | d }}</p>",
        "<!-- {{ one --> <p>TWO }}</p> <script>if (a < b) {{ c() }}</script>",
        '<?xml version="1.0"?>\n<?xml-stylesheet href="a"?><html>ONE</html>',
        "@extends('a.b')\n@if (d(')') > 1)\n<p @class([b => 1])>ONE @lang('d') OF</p>@else TEN @endif @php $e @endphp",
    ],
)
def test_code_in_a_page_stays_to_the_byte(found):
    source = source_of(found)
    assert translate_bytes(UPPER, source.encode(), "html").decode() == found
    assert translate_bytes(SAME, source.encode(), "html").decode() == source
    moved = translate_bytes(BACKWARDS, source.encode(), "html").decode()
    assert sorted(CODE_WORDS.findall(moved)) == sorted(CODE_WORDS.findall(source))
    assert STATEMENTS.findall(moved) == STATEMENTS.findall(source)


def test_attributes_that_a_reader_sees_are_translated():
    for found, *source in (
        ('<input type=reset value="TWO"><img src=x alt="ONE"/>', "<input type=reset value=two><img src=x alt=one/>"),
        ("<a onclick=\"show( title='one')\" href=x?title=one>TWO</a>",),
        ('<input type="Submit" value="ONE"><input type="text" value="one" placeholder="TWO"><input value=one>',),
        ("<button value=two>THREE</button><textarea placeholder='ONE'>two</textarea>",),
        ('<meta property="og:title" content="ONE"><meta content="ONE" property=\'og:description\'>',),
        ('<meta property="og:type" content="one"><meta name="robots" content="two">',),
        ("<template><p title='ONE'>TWO</p></template><template translate='no'><p title='one'>two</p></template>",),
        ('<iframe title="ONE" srcdoc="two"></iframe><code title="one" translate="no">two</code>',),
        ('<optgroup label="ONE"><option label="TWO" value="three">FOUR',),
        ("<b data-title=\"one\" ARIA-LABEL = 'TWO'>X</b>", "<b data-title=\"one\" ARIA-LABEL = 'two'>x</b>"),
        ('<p title="AA &quot;BB&quot; &amp; CC">@a(SHE HER)',),
        ('<i18n>{"one": "two"}</i18n><i18n :path="a">ONE</i18n><template lang="pug">p one</template>',),
    ):
        source = source[0] if source else source_of(found)
        assert translate_bytes(UPPER, source.encode(), "html").decode() == found
        assert translate_bytes(SAME, source.encode(), "html").decode() == source


def test_tags_whose_partner_stands_behind_code_are_nested_as_before():
    source = "<p>one <b>two <i>three {% if x %} four</i> five</b> <u>six seven</u>{% endif %}</p>"
    found = translate_bytes(BACKWARDS, source.encode(), "html").decode()
    assert re.findall(r"</?[bi]>|\{%.*?%\}", found) == re.findall(r"</?[bi]>|\{%.*?%\}", source)
    assert re.fullmatch(r".*<u>(?:(?!<).)*</u>.*", found)


PAGE = """<!doctype html>\r
<html lang="en"><head><title>SOME TITLE &amp; MORE</title><meta name="viewport" content="width=1">
<style>p { color: red }</style><script>var words = "a < b";</script></head>
<body class="x y"><!-- a comment --><h1 title="THE TIP">BIG <em>NEWS</em></h1>
<p>RUN <code>pip install</code> TO SEE THE <a href="x.html?a=1&b=2">NEW <b>RED</b> THING</a><br/>
  OR <img src="u" alt="OUR CAT"> NOT&nbsp;&lt;HERE&gt;
<p translate="no">Stay <b>as</b> is</p>
<ul><li>ONE<li>TWO <b>THREE
</ul><pre>no  change</pre>AFTER <span class="notranslate">Brand <i>Name</i></span> END
<img translate="no" alt="stay"><table><tr><td>CELL</td><td>12</td></tr></table></p></i></body></html>
"""


def test_text_is_translated_and_code_scripts_and_all_that_is_marked_so_stay_to_the_byte():
    source = source_of(PAGE)
    assert translate_bytes(UPPER, source.encode(), "html").decode() == PAGE.replace("&nbsp;", " ")
    assert translate_bytes(SAME, source.encode(), "html") == source.encode()
    assert translate_bytes(Says('a "b"'), b"<img alt='one'>", "html") == b"<img alt='a &quot;b&quot;'>"
