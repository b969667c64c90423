import re

import pytest

from serving.server import FLAGS, WITHOUT_EFFECT, boolean, parse_settings

VALUES = {boolean: "true", str: "a=b"}


@pytest.fixture
def model(tmp_path):
    (tmp_path / "models" / "3").mkdir(parents=True)
    return ["--model_base_path", str(tmp_path / "models")]


@pytest.mark.parametrize("name", sorted({*FLAGS, *WITHOUT_EFFECT}))
def test_every_flag_of_tensorflow_serving_is_accepted_and_what_is_ignored_is_told(model, name):
    kind = FLAGS.get(name, (str,))[0]
    value = model[1] if name == "model_base_path" else VALUES.get(kind, "3")
    more = {"batching_parameters_file": ["--enable_batching"], "source_lang": ["--target_lang=b"]}
    more["target_lang"] = ["--source_lang=b"]
    settings, ignored = parse_settings([*model, *more.get(name, []), f"--{name}={value}"])
    assert ignored == [name] * (name in WITHOUT_EFFECT) and getattr(settings, name) not in (None, "")


MISTAKES = {
    "--port=65536": "--port must be between 0 and 65535. Received: 65536",
    "--port=8501": "--port must not be --rest_api_port. Received: 8501",
    "--prot=3": "--prot",
    "--enable_batching=maybe": "must be true or false. Received: maybe",
    "--model_name=a/b": "--model_name must be a word without / and :. Received: a/b",
    f"--batching_parameters_file={__file__}": "--batching_parameters_file is for --enable_batching",
    "--source_lang=en": "--source_lang and --target_lang belong together",
    "--tensorflow_inter_op_parallelism=-2": "--tensorflow_inter_op_parallelism must be at least -1. Received: -2",
    "--drain_seconds=-1": "--drain_seconds must be at least 0. Received: -1.0",
}


@pytest.mark.parametrize("said", MISTAKES)
def test_a_wrong_flag_is_one_line_that_names_it(model, said):
    with pytest.raises(ValueError, match=re.escape(MISTAKES[said])) as caught:
        parse_settings([*model, said])
    assert "\n" not in str(caught.value)


def test_a_model_or_a_file_of_models_must_be_there(tmp_path, model):
    assert parse_settings(["--model_config_file", __file__])[0].model_config_file
    for said, message in (
        ([], "one of --model_base_path DIR and --model_config_file FILE must be given"),
        (["--model_base_path", str(tmp_path / "no")], f"must be a directory that exists. Received: {tmp_path / 'no'}"),
        (["--model_base_path", str(tmp_path / "models" / "3")], "must have directories of versions in it, such as 1/"),
    ):
        with pytest.raises(ValueError, match=re.escape(message)):
            parse_settings(said)


@pytest.mark.parametrize(
    "flag, words", [("--help", [f"--{name}" for name in (*FLAGS, *WITHOUT_EFFECT)]), ("--version", ["TensorFlow"])]
)
def test_help_names_every_flag_and_version_the_versions(capsys, flag, words):
    with pytest.raises(SystemExit) as caught:
        parse_settings([flag])
    assert caught.value.code == 0
    shown = capsys.readouterr().out
    assert [word for word in words if word not in shown] == []
