import dataclasses
import re

import pytest

from serving.settings import DEFAULT_MONITORING_PATH, LEAST, Settings, SettingsError, parse_settings, read_monitoring


@pytest.fixture
def model(tmp_path):
    (tmp_path / "models" / "3").mkdir(parents=True)
    return ["--model_base_path", str(tmp_path / "models")]


def test_without_flags_everything_is_as_documented(model):
    settings = parse_settings(model)
    assert dataclasses.replace(settings, model_base_path=None) == Settings()
    assert (settings.host, settings.port, settings.rest_api_port) == ("127.0.0.1", 8500, 8501)
    assert settings.model_name == "default"


@pytest.mark.parametrize("said", [["--enable_batching"], ["--enable_batching=true"], ["--enable_batching", "True"]])
def test_a_switch_is_set_as_tensorflow_serving_does(model, said):
    assert parse_settings([*said, *model]).enable_batching
    assert parse_settings([*model, *said]).enable_batching


@pytest.mark.parametrize("said", [["--enable_model_warmup=false"], ["--enable_model_warmup", "False"]])
def test_a_switch_is_unset_likewise(model, said):
    assert not parse_settings([*model, *said]).enable_model_warmup


def test_a_value_is_no_switch(model):
    settings = parse_settings([*model, "--model_name=true", "--rest_api_port=0", "--port", "0"])
    assert (settings.model_name, settings.rest_api_port, settings.port) == ("true", 0, 0)


@pytest.mark.parametrize(
    ("said", "message"),
    [
        (["--port", "x"], "--port: invalid literal for int() with base 10: 'x'"),
        (["--port", "65536"], "--port must be between 0 and 65535. Received: 65536"),
        (["--rest_api_port=-1"], "--rest_api_port must be between 0 and 65535. Received: -1"),
        (["--port=8501"], "--port and --rest_api_port must differ. Received: both are 8501"),
        (["--prot", "3"], "--prot"),
        (["stray"], "stray"),
        (["--enable_batching", "maybe"], "maybe"),
        (["--host"], "--host"),
        (["--model_name", "a/b"], "--model_name must be a word without / and :. Received: a/b"),
        (["--batching_parameters_file", __file__], "--batching_parameters_file is for --enable_batching"),
        (["--monitoring_config_file", "/nowhere"], "must be a file that exists. Received: /nowhere"),
        (["--model_config_file", __file__], "one of --model_base_path DIR and --model_config_file FILE must be given"),
        *[
            ([f"--{name}", f"{least - 1}"], f"--{name} must be at least {least}. Received: {least - 1}")
            for name, least in LEAST.items()
        ],
    ],
)
def test_a_wrong_flag_is_one_line_that_names_it(model, said, message):
    with pytest.raises(SettingsError, match=re.escape(message)) as caught:
        parse_settings([*model, *said])
    assert "\n" not in str(caught.value) and "│" not in str(caught.value)


def test_a_model_must_be_there(tmp_path, model):
    for said, message in (
        ([], "one of --model_base_path DIR and --model_config_file FILE must be given"),
        (["--model_base_path", str(tmp_path / "no")], f"must be a directory that exists. Received: {tmp_path / 'no'}"),
        (["--model_base_path", str(tmp_path / "models" / "3")], "must have directories of versions in it, such as 1/"),
    ):
        with pytest.raises(SettingsError, match=re.escape(message)):
            parse_settings(said)


def test_help_names_every_flag(capsys):
    with pytest.raises(SystemExit) as caught:
        parse_settings(["--help"])
    assert caught.value.code == 0
    shown = capsys.readouterr().out
    assert [field.name for field in dataclasses.fields(Settings) if f"--{field.name}" not in shown] == []


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ('prometheus_config { enable: true, path: "/metrics" }', "/metrics"),
        ("prometheus_config {\n  enable: true  # yes\n}\n", DEFAULT_MONITORING_PATH),
        ('prometheus_config: { enable: false path: "/metrics" }', None),
    ],
)
def test_the_monitoring_file_says_where_the_metrics_are(tmp_path, text, path):
    file = tmp_path / "monitoring.config"
    file.write_text(text)
    assert read_monitoring(file) == path
    assert read_monitoring(None) == DEFAULT_MONITORING_PATH


@pytest.mark.parametrize(
    "text",
    ["", "x", "prometheus_config { }", "prometheus_config { enable: 1 }", 'prometheus_config { enable: true pth: "/" }',
     'prometheus_config { enable: true path: "metrics" }'],
)  # fmt: skip
def test_another_monitoring_file_is_refused(tmp_path, text):
    file = tmp_path / "monitoring.config"
    file.write_text(text)
    with pytest.raises(SettingsError, match=r"must be prometheus_config \{ enable: true path: "):
        read_monitoring(file)
