import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

ROOT = Path(__file__).parents[2]
PARENT = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "from keras_transformer.cli.beam_worker import end_with_parent as end; "
                          "end(); print('ready', flush=True); import time; time.sleep(100)"], stdout=subprocess.PIPE)
child.stdout.readline()
print(child.pid, flush=True)
child.wait()
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the system call is of Linux")
def test_a_worker_ends_when_its_parent_is_killed():
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT], stdout=subprocess.PIPE, env=os.environ | {"PYTHONPATH": str(ROOT)}, text=True
    )
    child = psutil.Process(int(parent.stdout.readline()))
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    end = time.monotonic() + 10
    while child.is_running() and child.status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < end
        time.sleep(0.01)
