"""Flags, files of settings, and the languages of an export."""

import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from grpc import StatusCode

from keras_transformer.config import Config
from keras_transformer.export.manifest import describe_run, write_manifest
from keras_transformer.export.parity import Loading, Parity
from keras_transformer.training.run_directory import RunDirectory
from serving import local_server, server
from serving.configuration import BatchingParameters, ModelConfig, VersionPolicy, read_files
from serving.configuration import read_batching_parameters as read_batching
from serving.configuration import read_model_config as read_models
from serving.errors import ServingError
from serving.languages import Languages, languages_of, newest_languages
from serving.local_server import run
from serving.server import FLAGS, WITHOUT_EFFECT, boolean, parse_settings

VALUES = {boolean: "true", str: "a=b"}


@pytest.fixture
def model(tmp_path):
    (tmp_path / "models" / "3").mkdir(parents=True)
    return ["--model_base_path", str(tmp_path / "models")]


def test_every_flag_of_tensorflow_serving_is_accepted_and_what_is_ignored_is_told(model):
    more = {"batching_parameters_file": ["--enable_batching"]}
    more |= {"source_lang": ["--target_lang=b"], "target_lang": ["--source_lang=b"]}
    for name in {*FLAGS, *WITHOUT_EFFECT}:
        value = model[1] if name == "model_base_path" else VALUES.get(FLAGS.get(name, (str,))[0], "3")
        settings, ignored = parse_settings([*model, *more.get(name, []), f"--{name}={value}"])
        assert ignored == [name] * (name in WITHOUT_EFFECT) and getattr(settings, name) not in (None, "")


def test_a_wrong_flag_is_one_line_that_names_it(model, capsys):
    for said, message in {
        "--port=65536": "--port must be between 0 and 65535. Received: 65536",
        "--port=8501": "--port must not be --rest_api_port. Received: 8501",
        "--prot=3": "--prot",
        "--enable_batching=maybe": "must be true or false. Received: maybe",
        "--model_name=a/b": "--model_name must be a word without / and :. Received: a/b",
        f"--batching_parameters_file={__file__}": "--batching_parameters_file is for --enable_batching",
        "--source_lang=en": "--source_lang and --target_lang belong together",
        "--drain_seconds=-1": "--drain_seconds must be at least 0. Received: -1.0",
        "--model_base_path=no": "must be a directory that exists. Received: no",
        f"--model_base_path={__file__.rpartition('/')[0]}": "must have directories of versions in it, such as 1/",
    }.items():
        found = pytest.raises((ValueError, SystemExit), parse_settings, [*model, said]).value
        line = f"{found}{capsys.readouterr().err}".removesuffix("\n")
        assert message in line and "\n" not in line
    needed = "one of --model_base_path DIR and --model_config_file FILE must be given"
    assert needed in str(pytest.raises(ValueError, parse_settings, []).value)
    assert parse_settings(["--model_config_file", __file__])[0].model_config_file


def test_help_names_every_flag_and_version_the_versions(capsys):
    flags = [f"--{name}" for name in (*FLAGS, *WITHOUT_EFFECT)]
    for flag, words in {"--help": flags, "--version": ["TensorFlow"]}.items():
        assert pytest.raises(SystemExit, parse_settings, [flag]).value.code == 0
        shown = capsys.readouterr().out
        assert [word for word in words if word not in shown] == []


@pytest.fixture
def read(tmp_path):
    """A function from a reader and a text to what the reader makes of a file with that text."""

    def read_file(reader, text):
        (tmp_path / "some.config").write_text(text, encoding="utf-8")
        return reader(tmp_path / "some.config")

    return read_file


def test_batching_parameters_of_tensorflow_serving_are_understood(read):
    text = """
        max_batch_size { value: 64 }  # a comment
        batch_timeout_micros { value: 2000 } max_enqueued_batches: { value: 100 }
        num_batch_threads { value: 3 } thread_pool_name { value: "translators" }
        enable_large_batch_splitting { value: true } max_execution_batch_size { value: 64 }
        allowed_batch_sizes: 8 allowed_batch_sizes: 64 pad_variable_length_inputs: true
    """
    assert read(read_batching, text) == BatchingParameters(64, 2000, 100, 3, "translators", True, 64)
    assert read(read_batching, "") == BatchingParameters()
    parameters = read(read_batching, "max_execution_batch_size { value: 5 }")
    assert (parameters.max_batch_size, parameters.max_enqueued_batches, parameters.most_rows) == (1000, 10, 1000)


def test_models_of_tensorflow_serving_are_understood(read):
    text = """
        model_config_list {
          config { name: "ende" base_path: "/models/ende" model_platform: "tensorflow"
                   model_version_policy { specific { versions: 1 versions: 2 } }
                   version_labels { key: "stable" value: 1 } version_labels { key: "canary" value: 2 } }
          config { name: "deen" base_path: "/models/deen" model_type: TENSORFLOW }
        }"""
    ende, deen = read(read_models, text)
    assert (ende.name, ende.base_path, ende.labels) == ("ende", "/models/ende", {"stable": 1, "canary": 2})
    assert list(ende.policy.specific.versions) == [1, 2] and read(read_models, "# later") == []
    assert (deen.name, deen.base_path, deen.labels) == ("deen", "/models/deen", {})


def test_a_mistake_is_told_with_the_file_and_its_place(read):
    def models(*configs):
        return f"model_config_list {{ {' '.join(f'config {{ {config} }}' for config in configs)} }}"

    ab, size = "name: 'a' base_path: '/b'", "max_batch_size {value: 3} max_execution_batch_size {value: 5}"
    for reader, text, complaint in (
        (read_batching, "\nmax_batch { value: 3 }", '2:1 : .*no field named "max_batch"'),
        (read_batching, "max_batch_size { value: 0 }", "max_batch_size must be at least 1. Received: 0"),
        (read_batching, "batch_timeout_micros { value: -1 }", "must be at least 0. Received: -1"),
        (read_batching, f"{size} enable_large_batch_splitting {{value: true}}", "at most max_batch_size. Received: 5"),
        (read_models, "custom_model_config { type_url: 'a' }", "must have a model_config_list"),
        (read_models, models("name: 'a'"), "a must have an absolute base_path"),
        (read_models, models(f"{ab} model_type: 1 model_platform: 'tensorflow'"), "a must have model_platform"),
        (read_models, models(*[f"{ab} model_type: TENSORFLOW"] * 2), "must be listed once. Received: a"),
    ):
        with pytest.raises(ValueError, match=f"some.config.*{complaint}"):
            read(reader, text)


def test_versions_are_wanted_by_the_policy_where_they_exist(tmp_path):
    for name in ("9", "10", "007", "tmp-11", "12.partial", "-13", "1²", "1٣", f"{2**63}"):
        (tmp_path / name).mkdir()
    (tmp_path / "14").write_text("a file")
    for policy, versions in (
        ({}, {10: "10"}),  # The largest number, not the last name.
        ({"latest": {"num_versions": 2}}, {9: "9", 10: "10"}),
        ({"all": {}}, {7: "007", 9: "9", 10: "10"}),
        ({"specific": {"versions": [7, 8]}}, {7: "007"}),
    ):
        found = ModelConfig("m", str(tmp_path), VersionPolicy(**policy)).wanted()
        assert {number: path.name for number, path in found.items()} == versions


def test_languages_are_those_that_an_export_writes_or_none(tmp_path):
    run = RunDirectory(tmp_path / "run")
    for directory in (run.path, tmp_path / "7"):
        directory.mkdir()
    Config(dataset="files:x", source_lang="en", target_lang="pt_BR").save(run.config)
    write_manifest(tmp_path / "7", 7, {}, describe_run(run), Parity(1, 1, 1, 0.0), Loading(1.0, 1))
    assert (
        languages_of(tmp_path / "7")
        == Languages("en", "pt-BR")
        == newest_languages(tmp_path)
        == newest_languages(tmp_path / "7")
    )
    many = {"sources": {"de": "deu_Latn", "en": "eng"}, "targets": {"zh-Hant": "zt", "en": "eng", "de": "deu_Latn"}}
    manifest = tmp_path / "7" / "export.json"
    manifest.write_text(json.dumps({"run": {}, "languages": {**many, "default": ["en", "de"]}}))
    found = languages_of(tmp_path / "7")
    assert found.directions() == {"en": ["de", "zh-Hant"], "de": ["zh-Hant", "en"]}
    assert [*found.codes()] == ["en", "de", "zh-Hant"] and Languages("en", "en").directions() == {"en": ["en"]}
    for text in ("", "{", "[]", '{"run": null}', '{"run": {"source_lang": null, "target_lang": "de"}}'):
        manifest.write_text(text)
        assert languages_of(tmp_path / "7") is None
        assert "--source_lang and --target_lang" in str(pytest.raises(ValueError, newest_languages, tmp_path).value)


def run_with(*flags):
    settings, _ = parse_settings(flags)
    run(settings, *read_files(settings))


def test_a_model_that_cannot_be_loaded_is_a_mistake_of_the_user(model):
    (Path(model[1]) / "3" / "saved_model.pb").write_bytes(b"nonsense")
    with pytest.raises(ValueError, match="model default .* version 3: DATA_LOSS"):
        run_with(*model, "--max_num_load_retries=0")


def test_a_session_is_that_of_the_kit_unless_a_file_is_given(model, monkeypatch):
    def told(has_warm_up, metrics, config):
        pytest.fail(config.experimental.executor_type)

    monkeypatch.setattr(local_server, "Loader", told)
    for given, executor in (("", "SINGLE_THREADED_EXECUTOR"), (os.devnull, "")):
        with pytest.raises(pytest.fail.Exception, match=f"^{executor}$"):
            run_with(*model, f"--tensorflow_session_config_file={given}")


def test_a_file_is_read_before_the_long_work_which_ctrl_c_ends_in_one_line(model, monkeypatch, capsys):
    monkeypatch.setattr(server, "import_tensorflow", Mock(side_effect=KeyboardInterrupt))
    monkeypatch.setattr(sys, "setswitchinterval", Mock())
    files = [f"--{n}_file={__file__}" for n in ("model_config", "tensorflow_session_config", "batching_parameters")]
    for flag in (*files, "--model_name=m"):
        monkeypatch.setattr(sys, "argv", ["", *model, "--port=0", "--rest_api_port=0", "--enable_batching", flag])
        status, told = server.main(), capsys.readouterr().err
        assert (status, told.count("\n")) == (2 if flag in files else 130, 1)
        assert told.startswith(f"error: {__file__} must be a " if flag in files else "interrupted\n")


def test_a_file_of_models_that_changed_while_they_were_loaded_is_followed_and_a_mistake_told_once(caplog):
    settings = SimpleNamespace(model_config_file=os.devnull, model_config_file_poll_wait_seconds=0.001)
    models = Mock(reload=Mock(side_effect=[*[ServingError(StatusCode.UNKNOWN, "gone")] * 2, KeyboardInterrupt]))
    pytest.raises(KeyboardInterrupt, local_server._follow, settings, models, [ModelConfig("m", "/m")])
    assert models.reload.call_args.args == ([],) and caplog.text.count("is not followed: gone") == 1
