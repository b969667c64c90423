"""The queue of a batch: parts of requests, in the order of arrival."""

import collections
import time


class BatchQueue:
    """A queue of parts. Not thread-safe; the batcher holds a lock.

    Args:
        key: the common key of the parts.

    Attributes:
        key: the common key of the parts.
        parts: deque of `Part`.
        size: int, the rows of all parts.
    """

    def __init__(self, key):
        self.key = key
        self.parts = collections.deque()
        self.size = 0

    def has_room(self, size, room):
        """Returns whether the queue has room for `size` more rows. An empty part counts as one row."""
        return self.size + size <= room and len(self.parts) < room

    def extend(self, parts):
        """Appends parts."""
        self.parts.extend(parts)
        self.size += rows_of(parts)

    def take(self, most):
        """Removes the first parts: (parts of at most `most` rows, unwanted parts)."""
        now, taken, unwanted, size = time.monotonic(), [], [], 0
        while self.parts:
            part = self.parts[0]
            if part.request.is_unwanted(now):
                unwanted.append(part)
            elif size + part.size <= most:
                taken.append(part)
                size += part.size
            else:
                break
            self.parts.popleft()
            self.size -= part.size
        return taken, unwanted

    def drop_unwanted(self):
        """Removes and returns the unwanted parts: list."""
        now, kept, unwanted = time.monotonic(), collections.deque(), []
        for part in self.parts:
            (unwanted if part.request.is_unwanted(now) else kept).append(part)
        self.parts, self.size = kept, rows_of(kept)
        return unwanted


def rows_of(parts):
    """Returns the rows of all parts together: int."""
    return sum(part.size for part in parts)
