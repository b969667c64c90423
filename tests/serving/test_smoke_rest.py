import pytest

from serving.smoke_checks import Shortfall
from serving.smoke_rest import Rest


@pytest.fixture
def rest(monkeypatch):
    """Function (status, document) -> the checks, asked of a server that answers everything with that."""

    def make(status, document):
        checks = Rest("http://localhost:1", "toy", 1.0, "/metrics")
        monkeypatch.setattr(checks, "_ask", lambda *_: (status, document))
        return checks

    return make


def versions(*states):
    return {"model_version_status": [{"version": str(9 - i), "state": state} for i, state in enumerate(states)]}


def test_one_version_must_be_available(rest):
    assert rest(200, versions("LOADING", "AVAILABLE")).status() == "version 8"
    for document in (versions("LOADING", "END"), versions()):
        with pytest.raises(Shortfall):
            rest(200, document).status()
    with pytest.raises(Shortfall, match="HTTP 404"):
        rest(404, {"error": "none"}).status()


def test_a_refusal_must_have_the_status_and_the_message(rest):
    asked = ("POST", "/v1/models/toy:predict", "{}", 400, "Missing 'inputs'")
    found = rest(400, {"error": "Missing 'inputs' or 'instances' key"}).refused(*asked)
    assert found == "400 Missing 'inputs'"
    for status, document in (
        (500, {"error": "Missing 'inputs'"}),
        (400, {"error": "no"}),
        (400, b"<h1>Missing 'inputs'</h1>"),
        (200, {"predictions": []}),
    ):
        with pytest.raises(Shortfall):
            rest(status, document).refused(*asked)


def test_every_row_must_have_a_text_and_a_number(rest):
    rows = [{"translation": "a", "score": -1.0}]
    assert rest(200, {"predictions": rows}).rows() == "'a'"
    for row in ({"translation": 5, "score": -1.0}, {"translation": "a", "score": "-1"}):
        with pytest.raises(Shortfall):
            rest(200, {"predictions": [row]}).rows()
