"""Every internal of Beam still does its work."""

import re
import sys

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.runner import create_runner

from keras_transformer.tools.beam.private_api import LOCAL_RUNNER, WORKER, runner_of_processes, work_for_beam


def test_the_local_runner_has_the_name_by_which_beam_makes_it():
    assert type(create_runner(LOCAL_RUNNER)).__name__ == LOCAL_RUNNER


@pytest.mark.slow
def test_a_process_of_the_command_works_and_knows_the_options(tmp_path):
    """By Beam's own worker, and by one that notes that it was started and then works."""
    note = "import pathlib, sys; pathlib.Path(sys.argv.pop()).touch(); "
    note += "from keras_transformer.tools.beam.private_api import work_for_beam; work_for_beam()"
    commands = [f"exec '{sys.executable}' -m {WORKER}", f"exec '{sys.executable}' -c '{note}' '{tmp_path}/started'"]
    for number, command in enumerate(commands):
        options = PipelineOptions(["--direct_num_workers", "1", "--direct_running_mode", "in_memory"])
        with beam.Pipeline(runner_of_processes(command, options), options) as pipeline:
            squares = pipeline | beam.Create([2, 3]) | beam.Map(lambda n: str(n * n))
            squares | beam.io.WriteToText(str(tmp_path / str(number)), num_shards=1)
        (path,) = tmp_path.glob(f"{number}-*")
        assert sorted(path.read_text().split()) == ["4", "9"]
    assert (tmp_path / "started").exists()


def test_the_runner_has_the_command_and_the_options():
    options = PipelineOptions(["--job_name", "named"])
    runner = runner_of_processes("exec some command", options)
    assert runner._default_environment.command_string == "exec some command"
    fields = runner._provision_info.provision_info.pipeline_options.fields
    assert [value.string_value for name, value in fields.items() if re.search("job_name", name)] == ["named"]


def test_a_worker_is_told_by_the_environment_what_it_works_for(monkeypatch):
    """The main function of Beam's worker gets the arguments of this process."""
    from apache_beam.runners.worker import sdk_worker_main

    monkeypatch.setattr(sdk_worker_main, "main", lambda arguments: arguments.append("was here"))
    monkeypatch.setattr(sys, "argv", ["worker"])
    work_for_beam()
    assert sys.argv == ["worker", "was here"]
