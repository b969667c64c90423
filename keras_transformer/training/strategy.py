"""Where training runs: devices, and the precision that they are fast in."""

from pathlib import Path

import tensorflow as tf

POLICIES = {"float32": "float32", "bfloat16": "mixed_bfloat16", "float16": "mixed_float16"}


def make_strategy(name):
    """The distribution strategy that the config names.

    Args:
        name: "mirrored": MirroredStrategy over all GPUs, or over all logical CPU devices where there is no GPU;
            "one_device": TensorFlow's default, the first of them; "auto": "mirrored" if there are several, else
            "one_device", which spares the bookkeeping.

    Returns:
        tf.distribute.Strategy.
    """
    devices = tf.config.list_logical_devices("GPU") or tf.config.list_logical_devices("CPU")
    if name == "one_device" or (name == "auto" and len(devices) == 1):
        return tf.distribute.get_strategy()
    return tf.distribute.MirroredStrategy([device.name for device in devices])


def resolve_precision(name):
    """What "auto" stands for on this machine: bfloat16 where the hardware multiplies it, else float32."""
    if name != "auto":
        return name
    return "bfloat16" if _multiplies_bfloat16() else "float32"


def _multiplies_bfloat16():
    gpus = tf.config.list_physical_devices("GPU")
    if gpus:
        capability = tf.config.experimental.get_device_details(gpus[0]).get("compute_capability", (0, 0))
        return capability[0] >= 8
    cpu = Path("/proc/cpuinfo")
    return cpu.exists() and bool({"avx512_bf16", "amx_bf16"} & set(cpu.read_text().split()))
