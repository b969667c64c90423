"""The SavedModel of a model of many languages translates as the run does, in all directions."""

import numpy as np
import pytest

from keras_transformer.errors import UserError
from keras_transformer.export.manifest import read_manifest
from keras_transformer.export.saved_model import SavedModelExport
from keras_transformer.export.versions import export_version
from keras_transformer.export.warmup import read_warm_up
from keras_transformer.tools.saved_models import SavedModelTranslator
from tests import tiny

TEXTS = ["one two", "one two", "seven", "ten\nnine"]
SOURCES, TARGETS = ["en", "de", "fr", "zh_Hans"], ["de", "fr", "zh-CN", "en"]
LISTED = {"de": "de", "en": "en", "fr": "fr", "zh": "zh_Hans"}


@pytest.fixture(scope="module")
def of_many():
    return tiny.many_languages("both")


@pytest.mark.slow
def test_a_saved_model_takes_the_languages_of_every_row(of_many, tmp_path):
    path = export_version(SavedModelExport(of_many.between("de", "fr")), tmp_path, sentences=TEXTS)
    manifest = read_manifest(path)
    assert manifest["languages"] == {"sources": LISTED, "targets": LISTED, "default": ["de", "fr"]}
    for signature in manifest["signatures"].values():
        inputs = signature["inputs"]
        assert inputs["source_lang"] == inputs["target_lang"] == {"dtype": "string", "shape": [None]}
    for request in read_warm_up(path):
        values = [request.inputs[name].string_val[0] for name in ("source_lang", "target_lang")]
        assert values == [b"de", b"fr"]
    loaded = SavedModelTranslator(path)
    expected = of_many.translate_scored(TEXTS, source_lang=SOURCES, target_lang=TARGETS)
    found = loaded.translate_scored(TEXTS, source_lang=SOURCES, target_lang=TARGETS)
    assert [row.text for row in found] == [row.text for row in expected]
    np.testing.assert_allclose([row.score for row in found], [row.score for row in expected], atol=1e-4)
    assert loaded.translate("one two") == found[1].text == loaded.translate(">>fra<< one two", target_lang="en")
    with pytest.raises(UserError, match="the model has no `target_lang` it, only de, en, fr, zh"):
        loaded.translate("one", target_lang="it")
