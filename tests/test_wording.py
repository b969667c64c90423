import pytest

from keras_transformer.wording import counted, duration


@pytest.mark.parametrize(
    ("number", "noun", "text"),
    [(1, "pair", "1 pair"), (0, "pair", "0 pairs"), (1234, "epoch", "1,234 epochs"), (2, "batch", "2 batches")],
)
def test_a_number_has_its_noun(number, noun, text):
    assert counted(number, noun, "batches" if noun == "batch" else None) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(7, "7 s"), (29, "29 s"), (60, "1 min"), (3540, "59 min"), (59.6 * 60, "1 h 0 min"), (3720, "1 h 2 min")],
)
def test_a_duration_has_its_two_largest_units(seconds, text):
    assert duration(seconds) == text
