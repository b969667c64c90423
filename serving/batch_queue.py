"""What waits to be computed together: parts of requests, in the order of their arrival."""

import collections
import time


class BatchQueue:
    """A queue of parts. Not for several threads: the batcher has a lock.

    Args:
        key: what its parts have in common.

    Attributes:
        key: the same.
        parts: deque of `Part`.
        size: int, rows of all parts.
    """

    def __init__(self, key):
        self.key = key
        self.parts = collections.deque()
        self.size = 0

    def has_room(self, size, room):
        """Whether so many rows more would be at most `room`; requests of no rows count as well."""
        return self.size + size <= room and len(self.parts) < room

    def extend(self, parts):
        """Appends parts."""
        self.parts.extend(parts)
        self.size += rows_of(parts)

    def take(self, most):
        """Removes, from the beginning, (parts of at most so many rows, parts that nobody wants any more)."""
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
        """Removes and returns the parts that nobody wants any more, list."""
        now, kept, unwanted = time.monotonic(), collections.deque(), []
        for part in self.parts:
            (unwanted if part.request.is_unwanted(now) else kept).append(part)
        self.parts, self.size = kept, rows_of(kept)
        return unwanted


def rows_of(parts):
    """Rows of all parts together, int."""
    return sum(part.size for part in parts)
