from types import SimpleNamespace

import pytest

from keras_transformer.data.full_stops import Known
from keras_transformer.translation.translator import Translator
from tests import tiny


@pytest.fixture(scope="session")
def known():
    """The `Translator` of a model that has learned for certain. It does not read unknown characters."""
    facts = Known(copies_unknown=False, lone_symbols="")
    return Translator(tiny.trained_transformer(), tiny.tokenizer(), max_length=31, known=facts)


@pytest.fixture(scope="session")
def saved_model():
    """An export with beam search, for reading: .translator, .version, and the SavedModel .plain and .compacted.

    `plain` is what TensorFlow has written, and `compacted` is the next stop on the way to the proven version.
    """
    path = tiny.saved_model()
    stops = {name: path / name for name in ("plain", "compacted")}
    return SimpleNamespace(translator=tiny.beam_translator(), version=path / "exports" / "1", **stops)


@pytest.fixture(scope="session")
def litert_version(known):
    """A proven version of an export for LiteRT, with beam search; for reading."""
    from keras_transformer.export.litert import LiteRTExport  # here, as other tests do without the engine
    from keras_transformer.export.versions import export_version

    sentences = [source for source, _ in tiny.learned_pairs()]
    return tiny.once("litert", lambda path: export_version(LiteRTExport(known), path, sentences=sentences)) / "1"
