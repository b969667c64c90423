"""The machine that a process runs on."""

import os


def available_cores():
    """The number of CPU cores that this process may use: int."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
