import pytest

from serving.model_config import ModelConfig, VersionPolicy, read_model_config


def directory_with(base_path, *names):
    base_path.mkdir(exist_ok=True)
    for name in names:
        (base_path / name).mkdir()
    return str(base_path)


@pytest.fixture
def read(tmp_path):
    """A function from text to what a file with that text says."""

    def read(text):
        (tmp_path / "models.config").write_text(text, encoding="utf-8")
        return read_model_config(tmp_path / "models.config")

    return read


def test_a_file_of_tensorflow_serving_is_understood(read):
    ende, deen = read("""
        model_config_list {
          config { name: "ende" base_path: "/models/ende" model_platform: "tensorflow"
                   model_version_policy { specific { versions: 1 versions: 2 } }
                   version_labels { key: "stable" value: 1 } version_labels { key: "canary" value: 2 } }
          config { name: "deen" base_path: "/models/deen" model_type: TENSORFLOW }
        }""")
    assert (ende.name, ende.base_path, ende.labels) == ("ende", "/models/ende", {"stable": 1, "canary": 2})
    assert list(ende.policy.specific.versions) == [1, 2]
    assert (deen.name, deen.base_path, deen.labels) == ("deen", "/models/deen", {})


@pytest.mark.parametrize(
    "text, complaint",
    [
        ("", "must have a model_config_list"),
        ("model_config_list {\n  config { nam: 'x' } }", 'Line 2:12 : .*no field named "nam"'),
        (
            "model_config_list { config { name: 'a' } }",
            "Expected model a to have an absolute path or URI; got base_path",
        ),
        ("model_config_list { config { base_path: '/b' } }", "must have a name. Received: base_path='/b'"),
        ("model_config_list { config { name:'a' base_path:'/b' } }", "Illegal setting neither .*, model name is a"),
        (
            "model_config_list { config { name:'a' base_path:'/b' model_type: 1 model_platform: 'tensorflow' } }",
            "Illegal setting both .* and .*, model name is a",
        ),
        (
            "model_config_list { config { name:'a' base_path:'/b' model_type: OTHER } }",
            "model_type choice 2 not supported",
        ),
        (
            "model_config_list { config { name:'a' base_path:'/b' model_platform: 'torch' } }",
            "Model a requests unsupported platform torch",
        ),
        (
            "model_config_list { config { name:'a' base_path:'/b' model_type: TENSORFLOW } "
            "config { name:'a' base_path:'/c' model_platform: 'tensorflow' } }",
            "Illegal to list model a multiple times",
        ),
    ],
)
def test_a_mistake_is_told_with_the_file_and_its_place(read, text, complaint):
    with pytest.raises(ValueError, match=f"models.config.*{complaint}"):
        read(text)


def test_the_latest_version_is_the_largest_number_not_the_last_name(tmp_path):
    base_path = directory_with(tmp_path, "9", "10", "007", "tmp-11", "12.partial", "-13")
    (tmp_path / "14").write_text("a file")
    assert set(ModelConfig("m", base_path).wanted()) == {10}
    assert set(ModelConfig("m", base_path, VersionPolicy(latest={"num_versions": 2})).wanted()) == {9, 10}


def test_all_or_specific_versions_are_wanted_where_they_exist(tmp_path):
    base_path = directory_with(tmp_path, "9", "10", "007")
    every = ModelConfig("m", base_path, VersionPolicy(all={})).wanted()
    assert {number: path.name for number, path in every.items()} == {7: "007", 9: "9", 10: "10"}
    assert set(ModelConfig("m", base_path, VersionPolicy(specific={"versions": [7, 8]})).wanted()) == {7}
    assert ModelConfig("m", directory_with(tmp_path / "empty")).wanted() == {}
