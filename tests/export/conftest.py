from types import SimpleNamespace

import pytest

from tests import tiny


@pytest.fixture(scope="session")
def saved_model():
    """An export with beam search, for reading: .translator, .version, and the SavedModel .plain and .compacted.

    `plain` is what TensorFlow has written, and `compacted` is the next stop on the way to the proven version.
    """
    path = tiny.saved_model()
    stops = {name: path / name for name in ("plain", "compacted")}
    return SimpleNamespace(translator=tiny.beam_translator(), version=path / "exports" / "1", **stops)
