import pytest

from serving.text_config import DEFAULT_MONITORING_PATH, BatchingParameters, read_batching_parameters, read_monitoring


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
        enable_large_batch_splitting { value: true } max_execution_batch_size { value: 32 }
        allowed_batch_sizes: 8 allowed_batch_sizes: 32 pad_variable_length_inputs: true
    """
    expected = BatchingParameters(64, 2000, 100, 3, "translators", True, 32, (8, 32), True)
    assert read_batching_parameters(file(text)) == expected and expected.most_rows == 32


def test_missing_parameters_have_the_defaults_of_tensorflow_serving(file):
    assert read_batching_parameters(file("")) == BatchingParameters()
    assert (BatchingParameters().max_batch_size, BatchingParameters().max_enqueued_batches) == (1000, 10)
    assert read_batching_parameters(file("max_execution_batch_size { value: 5 }")).most_rows == 1000


@pytest.mark.parametrize(
    "text, complaint",
    [
        ("\nmax_batch { value: 3 }", 'Line 2:1 : .*no field named "max_batch"'),
        ("max_batch_size: 3", "Line 1:17 "),
        ("max_batch_size { value: x }", "Line 1:25 .*integer: x"),
        ("max_batch_size { value: 0 }", "max_batch_size must be positive. Received: 0"),
        ("num_batch_threads { value: -1 }", "num_batch_threads must be positive. Received: -1"),
        ("batch_timeout_micros { value: -1 }", "batch_timeout_micros must not be negative. Received: -1"),
        (
            "max_batch_size {value: 3} enable_large_batch_splitting {value: true} max_execution_batch_size {value: 5}",
            "at most max_batch_size. Received: 5, 3",
        ),
        (
            "max_batch_size { value: 8 } allowed_batch_sizes: [2, 4]",
            r"ascend to the most rows .* 8. Received: \[2, 4\]",
        ),
    ],
)
def test_a_mistake_in_batching_parameters_is_told_with_the_file_and_its_place(file, text, complaint):
    with pytest.raises(ValueError, match=f"some.config.*{complaint}"):
        read_batching_parameters(file(text))


@pytest.mark.parametrize(
    "text, path",
    [
        ('prometheus_config { enable: true, path: "/metrics" }', "/metrics"),
        ("prometheus_config <\n  enable: 1;  # yes\n  path: '/a' 'b' >\n", "/ab"),
        ("prometheus_config: { enable: t }", DEFAULT_MONITORING_PATH),
        ('prometheus_config: { enable: false path: "/metrics" }', None),
        ("", None),
        ("prometheus_config {}", None),
    ],
)
def test_the_monitoring_file_says_where_the_metrics_are(file, text, path):
    assert read_monitoring(file(text)) == path
    assert read_monitoring(None) == DEFAULT_MONITORING_PATH


@pytest.mark.parametrize(
    "text, complaint",
    [
        ("x", "Error parsing text-format tensorflow.serving.MonitoringConfig: .* Line 1:1 "),
        ('prometheus_config { enable: true pth: "/" }', 'no field named "pth"'),
        ('prometheus_config { enable: true path: "metrics" }', "must begin with /. Received: metrics"),
    ],
)
def test_a_mistake_in_the_monitoring_file_is_told(file, text, complaint):
    with pytest.raises(ValueError, match=complaint):
        read_monitoring(file(text))
