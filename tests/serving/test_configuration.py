import pytest

from serving.configuration import (
    BatchingParameters,
    ModelConfig,
    VersionPolicy,
    read_batching_parameters,
    read_model_config,
)


@pytest.fixture
def file(tmp_path):
    """A function from text to the path of a file with that text."""

    def write(text):
        (tmp_path / "some.config").write_text(text, encoding="utf-8")
        return tmp_path / "some.config"

    return write


def test_batching_parameters_of_tensorflow_serving_are_understood(file):
    text = """
        max_batch_size { value: 64 }  # a comment
        batch_timeout_micros { value: 2000 }
        max_enqueued_batches: { value: 100 }
        num_batch_threads { value: 3 } thread_pool_name { value: "translators" }
        enable_large_batch_splitting { value: true } max_execution_batch_size { value: 64 }
        allowed_batch_sizes: 8 allowed_batch_sizes: 64 pad_variable_length_inputs: true
    """
    assert read_batching_parameters(file(text)) == BatchingParameters(64, 2000, 100, 3, "translators", True, 64)
    assert read_batching_parameters(file("")) == BatchingParameters()
    assert (BatchingParameters().max_batch_size, BatchingParameters().max_enqueued_batches) == (1000, 10)
    assert read_batching_parameters(file("max_execution_batch_size { value: 5 }")).most_rows == 1000


def test_models_of_tensorflow_serving_are_understood(file):
    text = """
        model_config_list {
          config { name: "ende" base_path: "/models/ende" model_platform: "tensorflow"
                   model_version_policy { specific { versions: 1 versions: 2 } }
                   version_labels { key: "stable" value: 1 } version_labels { key: "canary" value: 2 } }
          config { name: "deen" base_path: "/models/deen" model_type: TENSORFLOW }
        }"""
    ende, deen = read_model_config(file(text))
    assert (ende.name, ende.base_path, ende.labels) == ("ende", "/models/ende", {"stable": 1, "canary": 2})
    assert list(ende.policy.specific.versions) == [1, 2]
    assert (deen.name, deen.base_path, deen.labels) == ("deen", "/models/deen", {})
    assert read_model_config(file("# later")) == []


def models(*configs):
    return f"model_config_list {{ {' '.join(f'config {{ {config} }}' for config in configs)} }}"


AB = "name: 'a' base_path: '/b'"
SPLITTING = "max_batch_size {value: 3} enable_large_batch_splitting {value: true} max_execution_batch_size {value: 5}"
BATCHING, MODELS = read_batching_parameters, read_model_config


@pytest.mark.parametrize(
    "read, text, complaint",
    [
        (BATCHING, "\nmax_batch { value: 3 }", '2:1 : .*no field named "max_batch"'),
        (BATCHING, "max_batch_size { value: 0 }", "max_batch_size must be at least 1. Received: 0"),
        (BATCHING, "batch_timeout_micros { value: -1 }", "must be at least 0. Received: -1"),
        (BATCHING, SPLITTING, "at most max_batch_size. Received: 5"),
        (MODELS, "custom_model_config { type_url: 'a' }", "must have a model_config_list"),
        (MODELS, "model_config_list {\n  config { nam: 'x' } }", '2:12 : .*no field named "nam"'),
        (MODELS, models("name: 'a'"), "a must have an absolute base_path"),
        (MODELS, models(f"{AB} model_type: 1 model_platform: 'tensorflow'"), "a must have model_platform"),
        (MODELS, models(f"{AB} model_platform: 'torch'"), "a must have model_platform"),
        (MODELS, models(*[f"{AB} model_type: TENSORFLOW"] * 2), "must be listed once. Received: a"),
    ],
)
def test_a_mistake_is_told_with_the_file_and_its_place(file, read, text, complaint):
    with pytest.raises(ValueError, match=f"some.config.*{complaint}"):
        read(file(text))


@pytest.mark.parametrize(
    "policy, versions",
    [
        ({}, {10: "10"}),  # The largest number, not the last name.
        ({"latest": {"num_versions": 2}}, {9: "9", 10: "10"}),
        ({"all": {}}, {7: "007", 9: "9", 10: "10"}),
        ({"specific": {"versions": [7, 8]}}, {7: "007"}),
    ],
)
def test_versions_are_wanted_by_the_policy_where_they_exist(tmp_path, policy, versions):
    for name in ("9", "10", "007", "tmp-11", "12.partial", "-13"):
        (tmp_path / name).mkdir()
    (tmp_path / "14").write_text("a file")
    found = ModelConfig("m", str(tmp_path), VersionPolicy(**policy)).wanted()
    assert {number: path.name for number, path in found.items()} == versions
    assert ModelConfig("m", str(tmp_path / "9"), VersionPolicy(**policy)).wanted() == {}
