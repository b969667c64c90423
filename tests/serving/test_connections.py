import re

import pytest

from serving.client import Client, Translation
from tests.serving.fake import serve

TEXTS = ["the two of 5 km", "see http://a.b", "one", "⟦4⟧ two"]
WORDS = ["the DUO of 5 km", "see http://a.b", "one", "⟦4⟧ DUO"]


def echo(asked, pieces):
    """A model that gives back the text, and as a second best the text in brackets.

    A placeholder comes in the place of the word before it.
    """

    def answer(model, signature_name, inputs):
        asked.append((signature_name, [text.decode() for text in inputs["text"]]))
        texts = [re.sub(r"[^\W\d]+(?=⟦)", "", text.decode()).encode() for text in inputs["text"]]
        scores = [0.5] * len(texts)
        outputs = {
            "explain": {"source_pieces": [pieces], "pieces": [pieces]},
            "alternatives": {
                "translations": [[text, b"(" + text + b")"] for text in texts],
                "scores": [[1, 2]] * len(texts),
            },
            "score": {"score": scores, "token_scores": [[0.5]] * len(texts), "pieces": [[b"a"]] * len(texts)},
        }
        return outputs.get(signature_name, {"translation": texts, "score": scores})

    return answer


@pytest.fixture(params=["rest", "grpc"])
def api(request):
    return request.param


def test_placeholders_go_to_the_server_and_words_come_back(api, tmp_path):
    glossary, asked = tmp_path / "terms.tsv", []
    glossary.write_text("two\tDUO\n", encoding="utf-8")
    with (
        serve(api, echo(asked, ["▁".encode(), "⟦0⟧".encode()])) as where,
        Client(**where, glossary=glossary, protect=True) as client,
    ):
        assert client.translate(TEXTS) == [Translation(word, 0.5) for word in WORDS]
        assert [[found.text for found in row] for row in client.alternatives(TEXTS)] == [[w, f"({w})"] for w in WORDS]
        assert [row.text for row in client.sample(TEXTS, seed=1)] == WORDS
        assert client.score(["two"], ["DUO"])[0].score == 0.5
    signatures = [signature for signature, _ in asked]
    assert signatures == ["explain", "translate", "alternatives", "sample", "score"]  # the model is examined once
    assert sorted(asked[1][1]) == sorted(["the two⟦0⟧ of ⟦1⟧", "see ⟦0⟧", "one", "⟦0⟧ two⟦1⟧"])
    assert asked[-1][1] == ["two"]
