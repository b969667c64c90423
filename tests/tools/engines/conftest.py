import pytest

from keras_transformer.data.full_stops import Known
from keras_transformer.export.versions import export_version
from keras_transformer.translation.translator import Translator
from tests import tiny


@pytest.fixture(scope="session")
def known():
    """The `Translator` of a model that has learned for certain. It does not read unknown characters."""
    facts = Known(copies_unknown=False)
    return Translator(tiny.trained_transformer(), tiny.tokenizer(), max_length=31, known=facts)


@pytest.fixture(scope="session")
def litert_version(known):
    """A proven version of an export for LiteRT, with beam search; for reading."""
    from keras_transformer.tools.engines.litert import LiteRTExport  # here, as other tests do without the engine

    sentences = [source for source, _ in tiny.learned_pairs()]
    return tiny.once("litert", lambda path: export_version(LiteRTExport(known), path, sentences=sentences)) / "1"
