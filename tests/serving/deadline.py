"""Waiting in tests: for a condition, not for a time."""

import time


def wait_for(condition, seconds=30):
    """Returns as soon as the condition holds; fails if it does not within so many seconds."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it has not come true"
        time.sleep(0.002)
