import shutil
from types import SimpleNamespace

import pytest

from keras_transformer.translation.translator import Translator
from tests import tiny


@pytest.fixture(scope="session")
def known():
    """The `Translator` of a model that has learned for certain."""
    return Translator(tiny.trained_transformer(), tiny.tokenizer(), max_length=31)


@pytest.fixture(scope="session")
def saved_model(tmp_path_factory):
    """An export with beam search, for reading: .translator, .version, and the SavedModel .plain and .compacted.

    `plain` is what TensorFlow has written, and `compacted` is the next stop on the way to the proven version.
    """
    from keras_transformer.export import saved_model as module  # here, as other tests do without it
    from keras_transformer.export.versions import export_version

    translator = Translator(tiny.trained_transformer(), tiny.tokenizer(), beam_size=3, max_length=31)
    kept, compact = tmp_path_factory.mktemp("stops"), module.compact_saved_model

    def keep_and_compact(directory):
        shutil.copytree(directory, kept / "plain")
        compact(directory)
        shutil.copytree(directory, kept / "compacted")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "compact_saved_model", keep_and_compact)
        texts = ["one two three", "ten", "five five zero nine"]
        directory = tmp_path_factory.mktemp("export")
        version = export_version(module.SavedModelExport(translator), directory, sentences=texts)
    stops = {name: kept / name for name in ("plain", "compacted")}
    return SimpleNamespace(translator=translator, version=version, **stops)


@pytest.fixture(scope="session")
def litert_version(known, tmp_path_factory):
    """A proven version of an export for LiteRT, with beam search; for reading."""
    from keras_transformer.export.litert import LiteRTExport  # here, as other tests do without the engine
    from keras_transformer.export.versions import export_version

    sentences = [source for source, _ in tiny.learned_pairs()]
    return export_version(LiteRTExport(known), tmp_path_factory.mktemp("litert"), sentences=sentences)
