import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests import tiny

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]


def started(tmp_path, *flags):
    command = [sys.executable, "-m", "keras_transformer.data.clean", "--input", f"files:{tmp_path}/raw"]
    command += ["--output", str(tmp_path / "clean"), "--language_odds", "0", *flags]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_the_program_starts_by_its_name_and_works_in_several_processes(tmp_path):
    tiny.write_corpus(tmp_path / "raw")
    out, err = started(tmp_path, "--workers", "2").communicate(timeout=300)
    assert err == "" and out.splitlines()[-1] == f"report           {tmp_path}/clean/report.html"


def test_ctrl_c_ends_all_processes_with_one_line_and_leaves_nothing(tmp_path):
    (tmp_path / "raw").mkdir()
    tiny.write_pairs(tmp_path / "raw", "train", tiny.pairs(5000) * 40)
    program = started(tmp_path, "--workers", "2")
    examined = tmp_path / "clean.unfinished/scratch/examined"
    while not (examined.exists() and examined.stat().st_size) and program.poll() is None:
        time.sleep(0.1)
    os.kill(program.pid, signal.SIGINT)
    out, err = program.communicate(timeout=300)
    assert (program.returncode, out, err) == (130, "", "interrupted\n")
    assert [path.name for path in tmp_path.iterdir()] == ["raw"]
