from pathlib import Path

import pytest

from serving.gateway import connected, parse_arguments
from tests.serving.fake import serve

SERVING = Path(__file__).parents[2] / "serving"
BACKEND = ["--backend", "grpc://localhost:8500"]
EN_DE = ["--source_lang=en", "--target_lang=de"]


@pytest.mark.parametrize(
    ("arguments", "wish"),
    [
        (EN_DE, "--backend"),
        (["--backend=localhost:8500", *EN_DE], "must be grpc://HOST:PORT or http://HOST:PORT"),
        (BACKEND, "both --source_lang and --target_lang, or --model_base_path"),
        ([*BACKEND, "--source_lang=en"], "both --source_lang and --target_lang, or --model_base_path"),
        ([*BACKEND, *EN_DE, "--model_base_path=x"], "both --source_lang and --target_lang, or --model_base_path"),
        ([*BACKEND, *EN_DE, "--port=70000"], "--port must be between 0 and 65535. Received: 70000"),
    ],
)
def test_a_wrong_flag_is_told_in_one_line(capsys, arguments, wish):
    with pytest.raises(SystemExit, match="2"):
        parse_arguments(arguments)
    assert wish in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize("api", ["rest", "grpc"])
def test_the_model_and_the_label_of_the_flags_are_asked(api, tmp_path):
    def answer(model, signature_name, inputs):
        asked.append(model)
        return {"translation": [b"b"], "score": [0.5]}

    (tmp_path / "3").mkdir()
    (tmp_path / "3" / "export.json").write_text('{"run": {"source_lang": "en", "target_lang": "de"}}')
    asked, where = [], ["--model_base_path", str(tmp_path), "--model_name=m", "--label=stable"]
    with serve(api, answer) as address:
        backend = address["url"] if api == "rest" else f"grpc://{address['grpc']}"
        ((languages, client),) = connected(parse_arguments(["--backend", backend, *where])).items()
        with client:
            assert [found.text for found in client.translate(["a"])] == ["b"]
    assert languages == ("en", "de") and asked == [("m", None, "stable")]
