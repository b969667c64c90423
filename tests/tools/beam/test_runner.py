import sys
from types import SimpleNamespace

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import DirectOptions, PipelineOptions, StandardOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.runners.runner import create_runner

from keras_transformer.errors import UserError
from keras_transformer.process import available_cores
from keras_transformer.tools.beam import runner
from keras_transformer.tools.beam.cleaning import clean_on_beam
from keras_transformer.tools.beam.private_api import LOCAL_RUNNER, WORKER, runner_of_processes, work_for_beam
from keras_transformer.tools.beam.runner import counters, pipeline_options, run
from keras_transformer.tools.cleaning import processes
from keras_transformer.tools.cleaning.examination import Examiner
from keras_transformer.tools.cleaning.settings import CleaningSettings
from tests.tools.cleaning.test_processes import QUICK, decided, dirty_pairs


def chosen(*flags):
    """(runner, number of workers, running mode) of flags."""
    options = pipeline_options(list(flags))
    direct = options.view_as(DirectOptions)
    return options.view_as(StandardOptions).runner, direct.direct_num_workers, direct.direct_running_mode


def test_a_process_for_each_core_is_the_default_and_flags_are_stronger():
    """DirectRunner by its own name would download another runner."""
    assert chosen() == chosen("--runner", "DirectRunner") == ("FnApiRunner", available_cores(), "multi_processing")
    assert chosen("--runner=direct", "--direct_num_workers", "3") == ("FnApiRunner", 3, "multi_processing")
    assert chosen("--direct_num_workers=1") == ("FnApiRunner", 1, "multi_processing")
    assert chosen("--direct_running_mode", "in_memory")[2] == "in_memory"
    assert chosen("--runner", "FlinkRunner") == ("FlinkRunner", 1, "in_memory")


def test_a_flag_that_beam_does_not_know_is_refused_unless_a_remote_runner_may_know_it():
    with pytest.raises(UserError, match="has a flag --direct_workers"):
        pipeline_options(["--direct_workers", "3"])
    with pytest.raises(UserError, match="Apache Beam: .*--direct_num_workers: invalid int value: 'two'"):
        pipeline_options(["--direct_num_workers", "two"])
    assert pipeline_options(["--runner", "PortableRunner", "--of_the_job_server", "3"])


def test_runners_that_are_not_there_are_one_line():
    runners = {"NoRunner": "Unexpected pipeline runner: NoRunner", "DataflowRunner": "option: temp_location"}
    for name, said in runners.items():
        with pytest.raises(UserError, match=said) as caught:
            run(lambda pipeline: None, pipeline_options(["--runner", name]), "no.module")
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("error", [UserError("mend this"), ZeroDivisionError("mend that")])
def test_a_users_mistake_in_a_worker_is_one_line_and_a_bug_keeps_its_traceback(error, capfd):
    def fail(number):
        raise error

    options = pipeline_options(["--direct_running_mode", "in_memory", "--direct_num_workers", "1"])
    with pytest.raises(type(error), match="^mend this$" if isinstance(error, UserError) else "mend that"):
        run(lambda pipeline: pipeline | beam.Create([1]) | beam.Map(fail), options, "no.module")


def test_the_end_of_a_worker_is_one_line_that_says_how_to_go_on(monkeypatch):
    def lose(self, pipeline, options):
        raise RuntimeError("Channel closed prematurely.")

    monkeypatch.setattr(FnApiRunner, "run_pipeline", lose)
    options = pipeline_options(["--direct_running_mode", "in_memory"])  # the other mode changes the environment
    with pytest.raises(UserError, match="worker process was killed.*same command.*--direct_num_workers"):
        run(lambda pipeline: None, options, "no.module")


def test_worker_processes_share_the_cores_and_find_the_package(monkeypatch):
    for name in ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS", "PYTHONPATH"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.setattr(runner, "available_cores", lambda: 7)
    done = SimpleNamespace(wait_until_finish=lambda: None)
    monkeypatch.setattr(FnApiRunner, "run_pipeline", lambda self, pipeline, options: done)
    run(lambda pipeline: None, pipeline_options(["--direct_num_workers", "3"]), "no.module")
    assert runner.os.environ["TF_NUM_INTRAOP_THREADS"] == runner.os.environ["TF_NUM_INTEROP_THREADS"] == "2"
    assert runner.os.environ["PYTHONPATH"] == str(runner.PACKAGES)


def test_counters_are_those_of_the_namespace():
    def count(number):
        beam.metrics.Metrics.counter("ours", "things").inc(number)
        beam.metrics.Metrics.counter("others", "things").inc()
        return number

    options = pipeline_options(["--direct_running_mode", "in_memory", "--direct_num_workers", "1"])
    result = run(lambda pipeline: pipeline | beam.Create([2, 3]) | beam.Map(count), options, "no.module")
    assert counters(result, "ours") == {"things": 5}


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


def test_a_worker_is_told_by_the_environment_what_it_works_for_and_the_local_runner_has_its_name(monkeypatch):
    """The main function of Beam's worker gets the arguments of this process."""
    assert type(create_runner(LOCAL_RUNNER)).__name__ == LOCAL_RUNNER
    from apache_beam.runners.worker import sdk_worker_main

    monkeypatch.setattr(sdk_worker_main, "main", lambda arguments: arguments.append("was here"))
    monkeypatch.setattr(sys, "argv", ["worker"])
    work_for_beam()
    assert sys.argv == ["worker", "was here"]


WITHOUT_DUPLICATES = CleaningSettings(language_odds=0, max_ratio=0, near_duplicates=0, duplicates=False)


@pytest.mark.parametrize("settings", [QUICK, WITHOUT_DUPLICATES])
def test_beam_decides_as_one_process_does_whatever_the_order_of_the_input(tmp_path, monkeypatch, settings):
    monkeypatch.setattr(processes, "CHUNK", 23)
    (tmp_path / "work").mkdir()
    examiner = Examiner(settings, "en", "de", ["eight seven six"])
    found = list(clean_on_beam(dirty_pairs(seed=7), examiner, tmp_path / "work", []))
    assert found == decided(dirty_pairs(), tmp_path / "other", settings=settings)


def test_flags_that_beam_does_not_know_are_one_line_before_any_work(tmp_path):
    for flags, message in (
        (["--max_ration", "3"], "neither this program nor Apache Beam has a flag --max_ration"),
        (["--runner", "WalkingRunner"], "Apache Beam: .*WalkingRunner"),
    ):
        with pytest.raises(UserError, match=message):
            next(clean_on_beam(iter([]), None, tmp_path, flags))
        assert list(tmp_path.iterdir()) == []
