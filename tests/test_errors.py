import inspect

import pytest

from keras_transformer import errors
from keras_transformer.errors import UserError, check_positive, counted
from keras_transformer.tools import duration


def test_every_error_is_a_mistake_of_the_user_and_a_size_below_1_is_refused_by_its_name():
    classes = [found for _, found in inspect.getmembers(errors, inspect.isclass) if found.__module__ == errors.__name__]
    assert len(classes) > 5
    assert all(issubclass(found, UserError) for found in classes) and issubclass(UserError, ValueError)
    for value in (0, -7):
        with pytest.raises(UserError, match=f"^`batch_size` must be at least 1. Received: batch_size={value}$"):
            check_positive(n_best=1, batch_size=value)


def test_a_number_has_its_noun_and_a_duration_its_two_largest_units():
    assert [counted(1, "pair"), counted(0, "pair"), counted(1234, "epoch")] == ["1 pair", "0 pairs", "1,234 epochs"]
    assert counted(2, "batch", "batches") == "2 batches"
    texts = {7: "7 s", 29: "29 s", 60: "1 min", 3540: "59 min", 59.6 * 60: "1 h 0 min", 3720: "1 h 2 min"}
    assert {seconds: duration(seconds) for seconds in texts} == texts
