"""Many texts: sorted by length into batches, so that little is padded, two at a time, and back in order."""

from concurrent.futures import ThreadPoolExecutor

BATCHES_AT_ONCE = 2


def run_sorted(run_batch, rows, batch_size, on_progress=None, size=len):
    """Runs a function over batches of rows sorted by size, largest first, and restores their order.

    Two batches are under way at a time: on few cores that is faster than more threads for one.

    Args:
        run_batch: function from a list of rows to a list of as many results.
        rows: list.
        batch_size: most rows of a batch.
        on_progress: called with the number of rows that have been done since the last call.
        size: function from a row to what it is sorted by.

    Returns:
        list of results, in the order of `rows`.

    Raises:
        ValueError: for a batch size that is not positive.
    """
    check_positive(batch_size=batch_size)
    order = sorted(range(len(rows)), key=lambda i: -size(rows[i]))
    batches = [order[start : start + batch_size] for start in range(0, len(order), batch_size)]
    results = [None] * len(rows)
    threads = ThreadPoolExecutor(BATCHES_AT_ONCE)
    try:
        of_batches = threads.map(lambda batch: run_batch([rows[i] for i in batch]), batches)
        for batch, of_batch in zip(batches, of_batches, strict=True):
            for i, result in zip(batch, of_batch, strict=True):
                results[i] = result
            if on_progress:
                on_progress(len(batch))
    finally:
        threads.shutdown(cancel_futures=True)  # Ctrl-C waits for two batches, not for all
    return results


def check_positive(**sizes):
    """Raises ValueError for a size that is less than 1, by its name."""
    for name, value in sizes.items():
        if value < 1:
            raise ValueError(f"`{name}` must be at least 1. Received: {name}={value}")
