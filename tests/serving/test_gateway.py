import pytest

from serving.gateway import connected, parse_arguments
from tests.serving.fake import serve


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
        ((languages, client),) = connected(parse_arguments(["--backend", backend, *where])).values()
        with client:
            assert [found.text for found in client.translate(["a"])] == ["b"]
    assert languages[:2] == ("en", "de") and asked == [("m", None, "stable")]


@pytest.mark.parametrize("flags", [[], ["--source_lang=en"], ["--source_lang=", "--target_lang=de"]])
def test_one_language_alone_is_refused(flags, capsys):
    with pytest.raises(SystemExit):
        parse_arguments(["--backend=grpc://localhost:8500", *flags])
    assert "give either both --source_lang and --target_lang, or --model_base_path" in capsys.readouterr().err
