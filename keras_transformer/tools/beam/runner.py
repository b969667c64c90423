"""Runs a pipeline: the options that flags choose, on one machine a process for each core, and errors in one line."""

import argparse
import contextlib
import os
import re
import sys
import threading
from pathlib import Path

import apache_beam as beam
from apache_beam.io.filesystems import FileSystems
from apache_beam.metrics import MetricsFilter
from apache_beam.options.pipeline_options import DirectOptions, PipelineOptions, StandardOptions

from keras_transformer.errors import UserError
from keras_transformer.process import available_cores
from keras_transformer.tools.beam.private_api import LOCAL_RUNNER, runner_of_processes

PACKAGES = Path(__file__).parents[3]
LOCAL = ("direct", "fnapi")  # names of the runner of this machine, without "runner"
LOST_WORKER = "Channel closed prematurely"  # what DirectRunner says
PLACE = re.compile(r" \[while running '.*'\]$")  # Beam adds it to the message of an exception
MISTAKE = re.compile(r"^keras_transformer\.errors\.\w+: (.*?)(?: \[while running '.*'\])?$", re.MULTILINE)


def pipeline_options(flags):
    """The options of a pipeline that flags choose; Beam's file systems use them, too.

    The runner is DirectRunner by default, with a process for each core of this machine.

    Args:
        flags: list of str, such as `["--runner", "FlinkRunner", "--flink_master", "host:8081"]`.

    Returns:
        `PipelineOptions`.

    Raises:
        UserError: for a value that is not possible; and for a flag that Beam does not know, unless the runner is
            remote: it may have flags of its own.
    """
    unknown = []

    def find_unknown(parser):
        parser.exit_on_error = False
        unknown.extend(parser.parse_known_args(flags)[1])

    options = PipelineOptions(flags)
    try:
        chosen = options.get_all_options(add_extra_args_fn=find_unknown, retain_unknown_options=True)
    except argparse.ArgumentError as error:
        raise UserError(f"Apache Beam: {error}") from error
    if (chosen["runner"] or "direct").lower().removesuffix("runner") in LOCAL:
        if unknown:
            raise UserError(f"neither this program nor Apache Beam has a flag {unknown[0]}: see --help")
        options = PipelineOptions(flags, **_on_this_machine(flags, chosen))
    FileSystems.set_options(options)
    return options


def _on_this_machine(flags, chosen):
    """Options of DirectRunner, under the name of `LOCAL_RUNNER`."""
    given = {flag.partition("=")[0] for flag in flags}
    workers = chosen["direct_num_workers"] if "--direct_num_workers" in given else available_cores()
    mode = chosen["direct_running_mode"] if "--direct_running_mode" in given else "multi_processing"
    return {"runner": LOCAL_RUNNER, "direct_num_workers": workers, "direct_running_mode": mode}


def run(build, options, worker):
    """Builds a pipeline, runs it, and waits for its end.

    Args:
        build: function of a `beam.Pipeline`.
        options: those of `pipeline_options`.
        worker: name of the module that is a worker process on this machine, such as `WORKER`.

    Returns:
        `PipelineResult`.

    Raises:
        UserError: for a runner that is not installed, for a `UserError` in a worker, and if a worker is killed.
    """
    try:
        pipeline = beam.Pipeline(_local_runner(options, worker), options)
    except (ValueError, ImportError) as error:  # such as an unknown runner, or one without its package
        raise UserError(f"Apache Beam: {' '.join(str(error).split())}") from error
    build(pipeline)
    try:
        with _silent_threads():
            result = pipeline.run()
            result.wait_until_finish()
    except Exception as error:
        if isinstance(error, UserError):  # of this process
            raise UserError(PLACE.sub("", str(error))) from error
        if mistakes := MISTAKE.findall(str(error)):
            raise UserError(mistakes[-1]) from error
        if LOST_WORKER in str(error):
            raise UserError(
                "a worker process was killed, perhaps for lack of memory: start the same command again, if need be "
                "with a smaller --direct_num_workers"
            ) from error
        raise
    return result


@contextlib.contextmanager
def _silent_threads():
    """A context in which no thread prints a traceback. When a worker dies, Beam's threads would, and `run` raises
    anyway."""
    before, threading.excepthook = threading.excepthook, lambda arguments: None
    try:
        yield
    finally:
        threading.excepthook = before


def _local_runner(options, worker):
    """The runner of this machine if it has worker processes; None for all others, which Beam makes by their names.

    The environment tells each process its number of threads. Together the processes have one thread for each core,
    because more threads would slow each other down.
    """
    direct = options.view_as(DirectOptions)
    is_local = options.view_as(StandardOptions).runner == LOCAL_RUNNER
    if not (is_local and direct.direct_running_mode == "multi_processing"):
        return None
    direct.direct_running_mode = "in_memory"  # otherwise the runner takes Beam's worker in place of `worker`
    threads = max(1, available_cores() // direct.direct_num_workers)
    for name in ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS"):
        os.environ.setdefault(name, str(threads))
    os.environ["PYTHONPATH"] = os.pathsep.join([str(PACKAGES), *filter(None, [os.environ.get("PYTHONPATH")])])
    return runner_of_processes(f"exec '{sys.executable}' -m {worker}", options)


def counters(result, namespace):
    """The counters of a finished pipeline.

    Args:
        result: `PipelineResult`.
        namespace: of the counters.

    Returns:
        dict: name -> int.
    """
    found = result.metrics().query(MetricsFilter().with_namespace(namespace))["counters"]
    return {counter.key.metric.name: counter.result for counter in found}
