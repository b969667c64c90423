import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest
import tensorflow as tf

from keras_transformer import process
from keras_transformer.process import available_cores, share_cores

ROOT = Path(__file__).parents[1]


def test_cores_of_this_process_and_not_of_the_machine(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {3, 5, 7}, raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    assert available_cores() == 3
    monkeypatch.delattr(os, "sched_getaffinity")  # not on every system
    assert available_cores() == 64


def test_every_core_trains_a_replica_if_there_is_enough_for_each(monkeypatch):
    def shared(name, batch_tokens, cores, gpus=()):
        """What `share_cores` sets on such a machine: replicas and the two numbers of threads, or nothing."""
        found.clear()
        monkeypatch.setattr(tf.config, "list_physical_devices", {"CPU": ["cpu"], "GPU": gpus}.__getitem__)
        monkeypatch.setattr(process, "available_cores", lambda: cores)
        share_cores(name, batch_tokens)
        return [*found]

    found = []
    monkeypatch.setattr(tf.config, "set_logical_device_configuration", lambda cpu, devices: found.append(len(devices)))
    for kind in ("intra", "inter"):
        monkeypatch.setattr(tf.config.threading, f"set_{kind}_op_parallelism_threads", found.append)
    enough = {(2, 4096): [2, 1, 2], (16, 8192): [4, 4, 4], (16, 100_000): [16, 1, 16]}
    too_little = dict.fromkeys([(2, 2048), (1, 4096), (2, 50)], [])
    for (cores, batch_tokens), expected in (enough | too_little).items():
        assert shared("auto", batch_tokens, cores) == shared("mirrored", batch_tokens, cores) == expected
    # Cores are left alone beside a GPU, and where a process is one replica.
    assert shared("auto", 4096, 2, gpus=["gpu"]) == []
    assert shared("one_device", 4096, 2) == shared("multi_worker", 4096, 2) == []


COUNT_FAULTS = """
import ctypes, resource
from concurrent.futures import ThreadPoolExecutor
import numpy as np
from keras_transformer.process import keep_freed_memory
ctypes.CDLL(None).prctl(41, 1, 0, 0, 0)  # PR_SET_THP_DISABLE: a huge page is one fault, and 96 MiB are 48 of them
def count_faults():
    counts = [resource.getrusage(resource.RUSAGE_SELF).ru_minflt for _ in range(12) if np.ones(12 << 20).sum()]
    return counts[-1] - counts[1]  # each array has 96 MiB: more than the heap of a thread
given_back = count_faults()
keep_freed_memory()
with ThreadPoolExecutor(1) as thread:
    print(given_back, count_faults(), thread.submit(count_faults).result())
"""


@pytest.mark.slow
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc can be told to keep freed memory")
def test_freed_memory_is_used_again_without_asking_the_system():
    run = subprocess.run([sys.executable, "-c", COUNT_FAULTS], cwd=ROOT, capture_output=True, timeout=120, check=True)
    given_back, *kept = map(int, run.stdout.split())
    assert max(kept) < 200 < given_back


def test_devices_stay_as_they_are_once_tensorflow_has_started(monkeypatch, caplog):
    monkeypatch.setattr(process, "available_cores", lambda: 4)
    before = tf.config.list_logical_devices("CPU")  # TensorFlow starts
    with caplog.at_level("INFO", "keras_transformer"):
        share_cores("auto", 8192)
    assert tf.config.list_logical_devices("CPU") == before and "TensorFlow has started" in caplog.text
