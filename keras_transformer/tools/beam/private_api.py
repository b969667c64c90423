"""The internals of Apache Beam that the package uses: worker processes on this machine have no public name.

Beam calls the modules of these names "for internal use only". Each is known to work with Apache Beam 2.69 to 2.77. A
test of each fails when a new version differs.
"""

import sys

from apache_beam.portability.api import beam_provision_api_pb2
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.runners.portability.fn_api_runner.fn_runner import ExtendedProvisionInfo
from apache_beam.runners.portability.portable_runner import JobServiceHandle
from apache_beam.transforms.environments import SubprocessSDKEnvironment

WORKER = "apache_beam.runners.worker.sdk_worker_main"  # the module that Beam's own worker processes run
LOCAL_RUNNER = FnApiRunner.__name__  # as DirectRunner, but it never tries to download another runner


def runner_of_processes(command, options):
    """A runner that starts its worker processes on this machine by a command.

    Args:
        command: str, for a shell. The process must end by `work_for_beam`, or be that of `WORKER`.
        options: `PipelineOptions`, which the workers get, too.

    Returns:
        `apache_beam.runners.PipelineRunner`.
    """
    encoded = JobServiceHandle.encode_pipeline_options(options.get_all_options())
    provision = ExtendedProvisionInfo(beam_provision_api_pb2.ProvisionInfo(pipeline_options=encoded))
    return FnApiRunner(SubprocessSDKEnvironment.from_command_string(command), provision_info=provision)


def work_for_beam():
    """Works as a process of `runner_of_processes` until Beam says that all is done."""
    from apache_beam.runners.worker import sdk_worker_main  # here: it starts threads

    sdk_worker_main.main(sys.argv)
