from dataclasses import fields

import pytest

from keras_transformer.errors import UserError
from keras_transformer.tools.cleaning.examination import STEPS
from keras_transformer.tools.cleaning.settings import HELP, CleaningSettings


def test_every_setting_is_a_step_and_described():
    names = {field.name for field in fields(CleaningSettings)}
    assert names == set(HELP) == {"normalize", *STEPS}


@pytest.mark.parametrize(
    ("name", "value", "limits"),
    [
        ("max_ratio", 0.9, "at least 1"),
        ("min_script", 1.1, "between 0 and 1"),
        ("near_duplicates", 0.5, "between 0.8 and 1"),
        ("near_held_out", -1, "between 0.5 and 1"),
        ("max_characters", -3, "at least 1"),
        ("language_odds", float("nan"), "at least 1"),
    ],
)
def test_a_number_out_of_its_range_is_refused_by_its_name(name, value, limits):
    with pytest.raises(UserError, match=f"^`{name}` must be {limits}, or 0 .* Received: {value}$"):
        CleaningSettings(**{name: value})


def test_0_switches_every_number_off_and_near_duplicates_are_not_found_without_exact_ones():
    numbers = {field.name: 0 for field in fields(CleaningSettings) if field.type is not bool}
    assert CleaningSettings(**numbers).near_duplicates == 0
    with pytest.raises(UserError, match="`near_duplicates` .* must be 0"):
        CleaningSettings(duplicates=False)
