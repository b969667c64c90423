"""The memory that a training can have: of a GPU, of this machine, or what a container leaves of it."""

from pathlib import Path

import psutil
import tensorflow as tf

MIB = 2**20


def available_memory() -> tuple[int | None, str]:
    """The bytes that there are for a training: of each GPU if TensorFlow has a limit for it, else of this machine.

    Returns:
        (int or None where TensorFlow does not know, what it is for people).
    """
    gpus = tf.config.list_physical_devices("GPU")
    if not gpus:
        free, left = psutil.virtual_memory().available, container_memory()
        return (free, "free memory") if left is None or free < left else (left, "memory that this container has left")
    devices = tf.config.get_logical_device_configuration(gpus[0]) or []
    limits = [device.memory_limit for device in devices if device.memory_limit]
    return (min(limits) * MIB if limits else None), "memory of a GPU"


def container_memory(groups: Path = Path("/proc/self/cgroup"), root: Path = Path("/sys/fs/cgroup")) -> int | None:
    """The bytes that the control groups of this process leave it: those of a container, a service or a batch job.

    Args:
        groups: the file that names the groups, of version 1 or 2.
        root: the directory of all groups.

    Returns:
        int; None where no group has a limit, and on systems without control groups.
    """
    left = []
    for line in groups.read_text().splitlines() if groups.exists() else []:
        _, controllers, name = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        top = root / "memory" if controllers else root
        files = ("limit_in_bytes", "usage_in_bytes") if controllers else ("max", "current")
        group = top / name.strip("/")
        for directory in (group, *group.parents):  # in a container, the group may be at the top under its full name
            if directory.is_relative_to(top):
                left += _left_in(directory, *files)
    return min(left, default=None)


def _left_in(directory, limit, usage):
    """The bytes that one group leaves, in a list; [] without a limit. The cache of files gives way and is no usage."""
    try:
        limit, used = ((directory / f"memory.{name}").read_text().strip() for name in (limit, usage))
        statistics = dict(line.split() for line in (directory / "memory.stat").read_text().splitlines())
    except OSError:
        return []
    cache = int(statistics.get("total_inactive_file", statistics.get("inactive_file", 0)))
    return [max(0, int(limit) - int(used) + cache)] if limit.isdigit() else []
