import pytest

from keras_transformer.errors import UserError
from keras_transformer.tools.documents.files import translate_bytes
from keras_transformer.tools.documents.lines import find_subtitles
from tests.tools.documents.fake import SAME, UPPER

SUBTITLES = """\ufeff1\r
00:00:01,000 --> 00:00:02,500 X1:40\r
Hello <i>big</i>\r
world again\r
\r
2
00:00:03,000 --> 00:00:04,500
- Hi.
- {\\an8}Hello you.

3
00:00:05,000 --> 00:00:06,000

"""


def test_lines_are_translated_and_blank_ones_stay():
    text = b"one  two\n\n \ttwo \r\nthree"
    assert translate_bytes(UPPER, text, "lines") == b"ONE  TWO\n\n \tTWO \r\nTHREE"
    assert translate_bytes(SAME, text, "lines") == text


def test_subtitles_keep_their_times_numbers_and_line_breaks():
    found = translate_bytes(UPPER, SUBTITLES.encode(), "srt").decode()
    wanted = SUBTITLES.replace("Hello <i>big</i>", "HELLO <i>BIG</i>").replace("world again", "WORLD AGAIN")
    assert found == wanted.replace("- Hi.", "- HI.").replace("}Hello you", "}HELLO YOU")
    assert translate_bytes(SAME, SUBTITLES.encode(), "srt") == SUBTITLES.encode()


def test_a_subtitle_ends_where_the_next_one_begins():
    times = "00:00:0{0},000 --> 00:00:0{0},900\n"
    text = f"1\n{times.format(1)}\n2\n{times.format(2)}one\n3x{{}}\n3\n{times.format(3)}"
    units = find_subtitles(text, "a.srt")
    assert [text[unit.start : unit.end] for unit in units] == ["one\n3x{}"]


def test_text_without_times_is_no_subtitles():
    with pytest.raises(UserError, match="the document has no subtitles: a line such as 00:00:01,000 -->"):
        translate_bytes(SAME, b"one\n", "srt")
