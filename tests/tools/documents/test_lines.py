from keras_transformer.tools.documents.files import translate_bytes
from tests.tools.documents.fake import SAME, UPPER


def test_lines_are_translated_and_blank_ones_stay():
    text = b"one  two\n\n \ttwo \r\nthree"
    assert translate_bytes(UPPER, text, "lines") == b"ONE  TWO\n\n \tTWO \r\nTHREE"
    assert translate_bytes(SAME, text, "lines") == text
