"""How fast Apache Beam translates a file on this machine, next to `translate.py` without it.

    python -m benchmarks.bulk_translation --saved_model exports/mine --text data/mine/train.en --lines 100000

Both translate the first lines of the text, as processes, one after the other, from their start to their end. "CPU s"
counts the seconds that the processors work for a process and its workers: other processes change it less. The outputs
must be equal, byte by byte.
"""

import argparse
import itertools
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--saved_model", required=True, help="EXPORT_DIR or EXPORT_DIR/VERSION")
    parser.add_argument("--text", required=True, help="text file, one sentence a line")
    parser.add_argument("--lines", type=int, default=5000, help="lines to translate (default: 5000)")
    parser.add_argument("--workers", type=int, default=2, help="processes of Beam (default: 2)")
    return parser.parse_args()


def measure(*flags):
    """Runs translate.py with flags: (seconds, processor seconds)."""
    start, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "translate.py", *map(str, flags)], check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    worked = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return time.perf_counter() - start, worked


def main():
    arguments = parse_arguments()
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        source, plain = directory / "text", directory / "plain"
        with open(arguments.text, "rb") as text:
            lines = list(itertools.islice(text, arguments.lines))
        source.write_bytes(b"".join(lines))
        model = ("--saved_model", arguments.saved_model, "--input", source, "--output")
        beam = ("--engine", "beam", "--direct_num_workers", arguments.workers)
        seconds = {
            "translate.py": measure(*model, plain),
            f"Beam, {arguments.workers} processes": measure(*model, directory / "out", *beam),
        }
        if (directory / "out" / "text").read_bytes() != plain.read_bytes():
            sys.exit("the outputs differ")
    base_wall, base_worked = seconds["translate.py"]
    print(f"{len(lines):,} lines, equal outputs\n\n| | s | lines/s | rate | CPU s | lines per CPU s, rate |")
    print("|---|---|---|---|---|---|")
    for engine, (wall, worked) in seconds.items():
        rates = (
            f"{wall:.1f} | {len(lines) / wall:.1f} | {base_wall / wall:.2f} | {worked:.1f} | {base_worked / worked:.2f}"
        )
        print(f"| {engine} | {rates} |")


if __name__ == "__main__":
    main()
