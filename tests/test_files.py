import pytest

from keras_transformer.errors import UserError
from keras_transformer.files import find_saved_model


def test_the_latest_version_is_found_and_any_other_by_its_name(tmp_path):
    for version in ("9", "10", "drafts"):
        (tmp_path / version).mkdir()
        (tmp_path / version / "saved_model.pb").touch()
    assert find_saved_model(tmp_path) == tmp_path / "10"
    assert find_saved_model(str(tmp_path / "9")) == tmp_path / "9"
    with pytest.raises(UserError, match=r"no SavedModel at .*nowhere: `export\.py --format saved_model` writes one"):
        find_saved_model(tmp_path / "nowhere")
