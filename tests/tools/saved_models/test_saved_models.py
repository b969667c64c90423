"""An export from Python. tests/export proves that it translates as its run does."""

import pytest
import tensorflow as tf

from keras_transformer.errors import FileError, UserError
from keras_transformer.protection import NO_PLACEHOLDERS
from keras_transformer.tools.saved_models import SavedModelTranslator


def test_a_saved_model_that_is_missing_or_damaged_is_one_line(tmp_path):
    (tmp_path / "here").mkdir()
    for name in ("here", "here/7", "nowhere"):
        with pytest.raises(UserError, match=r"no SavedModel.*export\.py"):
            SavedModelTranslator(tmp_path / name)
    (tmp_path / "saved_model.pb").write_bytes(b"\x12\xff")
    with pytest.raises(FileError, match=r"^\S+/saved_model.pb is damaged: export the run again$"):
        SavedModelTranslator(tmp_path)


@pytest.mark.parametrize("how", [{"protect": True}, {"glossary": {"two": "DUO"}}])
def test_an_export_without_placeholders_protects_nothing_and_says_so(how, tmp_path, monkeypatch):
    class Export:
        def __init__(self, pieces):
            self.signatures = {"explain": lambda text: {"source_pieces": tf.constant([pieces])}}

    (tmp_path / "saved_model.pb").touch()
    for pieces, has_some in ((["▁", "⟦0⟧"], True), (["▁", "<0xE2>"], False)):
        monkeypatch.setattr(tf.saved_model, "load", lambda path, pieces=pieces: Export(pieces))
        if has_some:
            SavedModelTranslator(tmp_path, **how)
        else:
            with pytest.raises(UserError) as refused:
                SavedModelTranslator(tmp_path, **how)
            assert str(refused.value) == NO_PLACEHOLDERS
    SavedModelTranslator(tmp_path)
