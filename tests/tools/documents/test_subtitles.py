import pytest

from keras_transformer.tools.documents.files import translate_bytes
from tests.tools.documents.fake import BACKWARDS, SAME, UPPER, source_of

SUBTITLES = """\ufeff1\r
00:00:01,000 --> 00:00:02,500 X1:40\r
HELLO <i>BIG</i>\r
WORLD AGAIN\r
\r
2
00:00:03,000 --> 00:00:04,500
- HI.
- {\\an8}HELLO YOU.

3
00:00:05,000 --> 00:00:06,000

"""
HEAD = "\ufeffWEBVTT - some file\nX-TIMESTAMP-MAP=LOCAL:00:00:00.000\n\nNOTE one comment\nof two lines\n\nSTYLE\n"
VTT = """::cue(v[voice="A b"]) { color: red }

Region
id:left

intro
00:01.000 --> 00:02.000 align:start position:0%
<v A b>HELLO <i>BIG</i> &amp; NEW</v>
WORLD\tAGAIN &lt;NOW&gt;

00:00:03.000 --> 00:00:04.500
- HI.
- <c.yellow.bg_blue>HELLO</c> YOU.

00:00:05.000 --> 00:00:06.500
<v A b>ONE DAY
<v C>TWO DAYS

00:00:07.000 --> 00:00:08.000
NEVER <00:00:07.300>DRINK <00:00:07.600>THIS

00:00:09.000 --> 00:00:10.000
"""
ASS = r"""[Script Info]
; Dialogue: 0,a comment

[Events]
Format: Layer, Start, End, Style, Name, MarginL, MarginR, MarginV, Effect, Text
Comment: 0,0:00:01.00,0:00:02.00,Default,,0,0,0,,a comment
Dialogue: 0,0:00:01.00,0:00:02.00,Default,Ann,0,0,0,,{\an8}one, {\i1}two{\i0}\Nthree\hfour
Dialogue: 0,0:00:01.00,0:00:02.00,Default,,0,0,0,,{\p1}m 0 0 l 100 0 b{\p0}
Dialogue: 0,0:00:01.00,0:00:02.00,Default,,0,0,0,,{\k20}ka {\k30}ra {\c&H0000FF&}red{\c}
"""


@pytest.mark.parametrize(("format", "found"), [("lines", "ONE  TWO\n\n \tTWO \r\nTHREE"), ("srt", SUBTITLES)])
def test_lines_and_subtitles_keep_their_times_numbers_and_line_breaks(format, found):
    source = source_of(found).encode()
    assert translate_bytes(UPPER, source, format).decode() == found
    assert translate_bytes(SAME, source, format) == source


def test_a_subtitle_ends_where_the_next_one_begins_and_text_behind_a_blank_line_is_of_it():
    for source, target in (
        ("1\nTIMES\none a\n\ntwo b\n\n2\nTIMES\nthree c\n", "1\nTIMES\na one\n\nb two\n\n2\nTIMES\nc three\n"),
        ("1\r\nTIMES\r\none a\r\n \r\n\r\n- two b\r\n- c", "1\r\nTIMES\r\na one\r\n \r\n\r\n- b two\r\n- c"),
        ("1\nTIMES\n\n2\nTIMES\none\n3xyz\n3\nTIMES\n", "1\nTIMES\n\n2\nTIMES\n3xyz\none\n3\nTIMES\n"),
        ("1\nTIMES\n\none a\n7\n\n2\nTIMES\nb", "1\nTIMES\n\n7 a\none\n\n2\nTIMES\nb"),
        ("1\nTIMES\na\n-\n-\none\n", "1\nTIMES\none\n-\n-\na\n"),  # without a blank line, which would end it
    ):
        source, target = (text.replace("TIMES", "00:00:01,000 --> 00:00:04,000") for text in (source, target))
        assert translate_bytes(BACKWARDS, source.encode(), "srt").decode() == target


def test_cues_keep_all_but_their_words_with_every_line_end():
    source, wanted = ((HEAD + text.replace("Region", "REGION")).encode() for text in (source_of(VTT), VTT))
    assert translate_bytes(SAME, source, "vtt") == source
    for end in (b"\r\n", b"\r"):
        assert translate_bytes(UPPER, source.replace(b"\n", end), "vtt") == wanted.replace(b"\n", end)
    assert translate_bytes(UPPER, source, "vtt").decode() == wanted.decode()
    found = translate_bytes(BACKWARDS, source, "vtt").decode()
    assert "<v A b>day one\n<v C>days two" in found  # each voice keeps its text
    assert "\n<00:00:07.300> this <00:00:07.600>drink never\n" in found  # times rise
    assert "\n- hi.\n- you. <c.yellow.bg_blue>hello</c>\n" in found


def test_dialogue_keeps_its_marks_and_drawings():
    assert translate_bytes(SAME, ASS.encode(), "ass") == ASS.encode()
    found = translate_bytes(UPPER, ASS.encode(), "ass").decode()
    wanted = ASS.replace("}one, ", "}ONE, ").replace("two{", "TWO{").replace(r"three\hfour", r"THREE\hFOUR")
    assert found == wanted.replace("}ka {", "}KA {").replace("}ra {", "}RA {").replace("}red{", "}RED{")
    found = translate_bytes(BACKWARDS, ASS.encode(), "ass").decode()
    assert r"{\an8}four" in found and r"{\i1}two{\i0}" in found and found.count(r"\N") == 1
    places = [found.index(mark) for mark in (r"{\k20}", r"{\k30}", r"{\c&", r"{\c}")]
    assert places == sorted(places)
