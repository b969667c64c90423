import json

import numpy as np
import pytest

from serving.errors import ServingError
from serving.in_process import InProcess, InProcessClients
from serving.languages import Languages
from serving.predictor import ModelSpec
from tests.serving import toy
from tests.serving.live import backend


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    path = tmp_path_factory.mktemp("models")
    (toy.write(path / "b", 5) / "export.json").write_text(
        json.dumps({"run": {"source_lang": "en", "target_lang": "de"}})
    )
    toy.write(path / "a", 3)
    with backend({name: path / name for name in "ab"}) as found:
        yield found


def test_a_client_asks_the_model_in_this_process(server):
    clients = InProcessClients(server.predictor, server.models)
    ((languages, client),) = clients().items()
    assert languages == ("en", "de") and clients()[languages] is client
    assert [found.text for found in client.translate(["ü", "a"])] == ["5:Ü", "5:A"]


def test_the_languages_of_the_flags_are_for_models_that_name_none(server):
    clients = InProcessClients(server.predictor, server.models, Languages("fr", "it"))()
    assert {pair: client.translate(["x"])[0].text for pair, client in clients.items()} == {
        ("fr", "it"): "3:X",
        ("en", "de"): "5:X",
    }


def test_a_model_that_has_gone_or_takes_too_long_is_an_error(server):
    inputs = {"text": np.array([b"wait 1"], object)}
    with pytest.raises(ServingError, match="Servable not found"):
        InProcess(server.predictor, ModelSpec("gone")).predict("translate", inputs, 5)
    with pytest.raises(ServingError, match="no answer in time") as raised:
        InProcess(server.predictor, ModelSpec("a")).predict("translate", inputs, 0.1)
    assert raised.value.http_status == 504
