"""One server of the toy for all tests that leave it as it is."""

import pytest

from tests.serving import toy
from tests.serving.live import both


@pytest.fixture(scope="session")
def toys(tmp_path_factory):
    """Models, predictor, REST and gRPC of "toy", version 3, which has the label "stable": see `live.both`."""
    base_path = tmp_path_factory.mktemp("toy")
    toy.write(base_path, 3)
    with both({"toy": base_path}, labels={"stable": 3}) as server:
        yield server
