import dataclasses

import pytest

from keras_transformer.config import Config
from keras_transformer.presets import PRESETS


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_names_settings_only_that_it_changes(name):
    defaults = {field.name: field.default for field in dataclasses.fields(Config)}
    same = {setting for setting, value in PRESETS[name].items() if defaults[setting] == value}
    assert same <= {"d_model", "d_ff", "num_heads", "num_layers", "dropout_rate", "average_epochs"}  # said all the same


def test_the_recurrent_presets_differ_in_their_cells_only():
    rnn, lstm, gru = ({**PRESETS[name], "architecture": None} for name in ("rnn", "lstm", "gru"))
    assert rnn == lstm == gru
    assert [PRESETS[name]["architecture"] for name in ("rnn", "lstm", "gru")] == ["rnn", "lstm", "gru"]
