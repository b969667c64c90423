import json

import pytest

from keras_transformer.config import Config
from keras_transformer.export.manifest import describe_run, write_manifest
from keras_transformer.export.parity import Loading, Parity
from keras_transformer.training.run_directory import RunDirectory
from serving.languages import Languages, languages_of, newest_languages


def write(directory, manifest):
    directory.mkdir()
    (directory / "export.json").write_text(manifest)


def test_languages_are_those_that_an_export_writes(tmp_path):
    run = RunDirectory(tmp_path / "run")
    run.path.mkdir()
    Config(dataset="files:x", source_lang="en", target_lang="pt_BR").save(run.config)
    (tmp_path / "7").mkdir()
    write_manifest(tmp_path / "7", 7, {}, describe_run(run), Parity(1, 1, 1, 0.0), Loading(1.0, 1))
    assert languages_of(tmp_path / "7") == Languages("en", "pt-br") == newest_languages(tmp_path)


def test_a_model_of_many_languages_has_every_direction_but_those_of_a_language_to_itself(tmp_path):
    many = {"sources": {"de": "deu_Latn", "en": "eng"}, "targets": {"zh-Hant": "zt", "en": "eng", "de": "deu_Latn"}}
    write(tmp_path / "1", json.dumps({"run": {}, "languages": {**many, "default": ["en", "de"]}}))
    found = languages_of(tmp_path / "1")
    assert found.directions() == {"en": ["de", "zh-hant"], "de": ["zh-hant", "en"]}
    assert [*found.codes()] == ["en", "de", "zh-hant"] and Languages("en", "en").directions() == {"en": ["en"]}


@pytest.mark.parametrize(
    "manifest", ["", "{", "[]", '{"run": {}}', '{"run": null}', '{"run": {"source_lang": null, "target_lang": "de"}}']
)
def test_a_manifest_without_languages_names_none(tmp_path, manifest):
    write(tmp_path / "1", manifest)
    assert languages_of(tmp_path / "1") is None
    with pytest.raises(ValueError, match="--source_lang and --target_lang"):
        newest_languages(tmp_path)
