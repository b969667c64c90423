"""Keys of LibreTranslate's API, each with its most requests in a minute."""

import collections
import time

from grpc import StatusCode

from serving.errors import ServingError

MISSING = "Please contact the server operator to get an API key"
UNKNOWN = "Invalid API key"


class Keys:
    """Lets requests with a key pass. `limits` is a dict, key -> most requests in a minute."""

    def __init__(self, limits):
        self._limits = limits
        self._passed = {key: collections.deque() for key in limits}  # when, the oldest first

    def check(self, parameters):
        """Raises ServingError unless the parameters of a request have a key that may still ask in this minute."""
        key, now = parameters.get("api_key"), time.monotonic()
        if not key:
            raise ServingError(StatusCode.PERMISSION_DENIED, MISSING)
        if not isinstance(key, str) or key not in self._limits:
            raise ServingError(StatusCode.PERMISSION_DENIED, UNKNOWN)
        passed, most = self._passed[key], self._limits[key]
        while passed and passed[0] <= now - 60:
            passed.popleft()
        if len(passed) >= most:
            raise ServingError(StatusCode.RESOURCE_EXHAUSTED, f"Slowdown: {most} per 1 minute")
        passed.append(now)


def read_keys(path):
    """Reads a file of keys: a key, a space or tab, and its requests in a minute on every line. # lines do not count.

    Raises ValueError for a file that cannot be read, and for a line of another form, with its number.
    """
    try:
        with open(path, encoding="utf-8-sig", newline="\n") as file:
            lines = [line.rstrip("\r\n") for line in file]
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"cannot read the keys {path}: {getattr(error, 'strerror', None) or error}") from None
    limits = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip() or line.startswith("#"):
            continue
        key, *others = line.split()
        if len(others) != 1 or not others[0].isdecimal() or int(others[0]) < 1 or key in limits:
            # The line is not quoted: it has a secret.
            raise ValueError(
                f"{path}, line {number}: write a new key, a space and its requests in a minute, such as 80"
            )
        limits[key] = int(others[0])
    if not limits:
        raise ValueError(f"{path} must have at least one key")
    return Keys(limits)
