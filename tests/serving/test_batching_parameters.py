import pytest

from serving.batching_parameters import BatchingParameters, read_batching_parameters


@pytest.fixture
def read(tmp_path):
    """A function from text to what a file with that text says."""

    def read(text):
        (tmp_path / "batching.config").write_text(text, encoding="utf-8")
        return read_batching_parameters(tmp_path / "batching.config")

    return read


def test_a_file_of_tensorflow_serving_is_understood(read):
    text = """
        max_batch_size { value: 64 }  # a comment
        batch_timeout_micros { value: 2000 }
        max_enqueued_batches: { value: 100 }
        num_batch_threads { value: 3 } thread_pool_name { value: "translators" }
        enable_large_batch_splitting { value: true } max_execution_batch_size { value: 32 }
        allowed_batch_sizes: 8 allowed_batch_sizes: 32
    """
    assert read(text) == BatchingParameters(64, 2000, 100, 3, "translators", True, 32, (8, 32))


def test_an_empty_file_means_the_defaults_of_tensorflow_serving(read):
    assert read("") == BatchingParameters()
    assert (BatchingParameters().max_batch_size, BatchingParameters().max_enqueued_batches) == (1000, 10)


@pytest.mark.parametrize(
    "text, complaint",
    [
        ("\nmax_batch { value: 3 }", 'Line 2:1 : .*no field named "max_batch"'),
        ("max_batch_size: 3", "Line 1:17 "),
        ("max_batch_size { value: x }", "Line 1:25 .*integer: x"),
        ("max_batch_size { value: 0 }", "max_batch_size must be positive. Received: 0"),
        ("num_batch_threads { value: -1 }", "num_batch_threads must be positive. Received: -1"),
        ("batch_timeout_micros { value: -1 }", "batch_timeout_micros must not be negative. Received: -1"),
        ("max_execution_batch_size { value: 5 }", "only with enable_large_batch_splitting"),
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
def test_a_mistake_is_told_with_the_file_and_its_place(read, text, complaint):
    with pytest.raises(ValueError, match=f"batching.config.*{complaint}"):
        read(text)
