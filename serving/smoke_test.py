"""A smoke test of a server: checks the behaviour that operators rely on, and prints a table."""

import argparse
import os
import sys

import grpc
import urllib3

from serving.smoke_checks import Shortfall
from serving.smoke_grpc import Grpc
from serving.smoke_rest import Rest

LONGEST_CONNECTING = 5.0  # Seconds.

DESCRIPTION = """Check a server of an exported model, stock or local, and print one line per promise.

  python -m serving.smoke_test --url http://localhost:8501 --grpc localhost:8500
      the model called translator
  python -m serving.smoke_test --url http://localhost:8501 --model_name ende
      the model called ende, over REST only

Exit status 0 if all checks pass, 1 if a check fails, 2 if no server answers.
For metrics, TensorFlow Serving needs a --monitoring_config_file."""


def parse_arguments(arguments=None):
    """Parses the flags."""
    parser = argparse.ArgumentParser(
        prog="python -m serving.smoke_test",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--url", help="REST API of the server, http://HOST:PORT")
    parser.add_argument("--grpc", help="gRPC API of the server, HOST:PORT")
    parser.add_argument("--model_name", default="translator", help="(default: translator)")
    parser.add_argument("--timeout", type=float, default=60.0, help="most seconds for a request (default: 60)")
    parser.add_argument(
        "--metrics_path",
        default="/monitoring/prometheus/metrics",
        help="path of the REST API's page for Prometheus (default: %(default)s)",
    )
    found = parser.parse_args(arguments)
    if not found.url and not found.grpc:
        parser.error("what to check must be given: --url, --grpc or both")
    return found


def check_reached(arguments):
    """Raises ValueError if no server answers at an address."""
    if arguments.url:
        try:
            urllib3.request("GET", arguments.url, retries=False, timeout=arguments.timeout)
        except urllib3.exceptions.HTTPError as error:
            raise ValueError(f"nothing answers at --url {arguments.url}: {error}") from None
    if arguments.grpc:
        with grpc.insecure_channel(arguments.grpc) as channel:
            try:
                grpc.channel_ready_future(channel).result(min(arguments.timeout, LONGEST_CONNECTING))
            except grpc.FutureTimeoutError:
                raise ValueError(f"nothing answers at --grpc {arguments.grpc}") from None


def checks_of(arguments):
    """Returns the `Check`s of the chosen APIs: list."""
    checks = []
    if arguments.url:
        checks += Rest(arguments.url, arguments.model_name, arguments.timeout, arguments.metrics_path).checks()
    if arguments.grpc:
        checks += Grpc(arguments.grpc, arguments.model_name, arguments.timeout).checks()
    return checks


def outcome(check):
    """Runs a check: (whether it has passed, its finding)."""
    try:
        return True, check.run()
    except Shortfall as shortfall:
        return False, str(shortfall)
    except grpc.RpcError as error:
        return False, f"found {error.code().name}: {error.details()}"
    except urllib3.exceptions.HTTPError as error:
        return False, f"found no answer: {error}"
    except Exception as error:  # An unexpected reply can raise any exception.
        return False, f"found an unexpected reply: {error!r}"


def run(checks):
    """Runs checks and prints a line for each. Returns the number of failures."""
    width = max(len(check.promise) for check in checks)
    failed = 0
    for check in checks:
        has_passed, found = outcome(check)
        failed += not has_passed
        found = found.encode("unicode_escape").decode("ascii")
        print(f"{'ok  ' if has_passed else 'FAIL'}  {check.api}  {check.promise:{width}}  {found}".rstrip(), flush=True)
    print(f"{len(checks) - failed} of {len(checks)} as TensorFlow Serving")
    return failed


def main():
    """Prints the table, and returns the exit status of `DESCRIPTION`."""
    try:
        arguments = parse_arguments()
        check_reached(arguments)
        failed = run(checks_of(arguments))
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr, flush=True)
        os._exit(130)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
