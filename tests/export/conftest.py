import pytest

from keras_transformer.translation.translator import Translator
from tests import tiny


@pytest.fixture(scope="session")
def known():
    """The `Translator` of a model that has learned for certain."""
    return Translator(tiny.trained_transformer(), tiny.tokenizer(), max_length=31)


@pytest.fixture(scope="session")
def litert_version(known, tmp_path_factory):
    """A proven version of an export for LiteRT, with beam search; for reading."""
    from keras_transformer.export.litert import LiteRTExport  # here, as other tests do without the engine
    from keras_transformer.export.versions import export_version

    sentences = [source for source, _ in tiny.learned_pairs()]
    return export_version(LiteRTExport(known), tmp_path_factory.mktemp("litert"), sentences=sentences)
