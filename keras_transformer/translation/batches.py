"""Any number of rows in batches of similar size, two batches at a time."""

from concurrent.futures import ThreadPoolExecutor

from keras_transformer.errors import check_positive

BATCHES_AT_ONCE = 2  # on few cores two batches side by side are faster than two threads for one


def run_sorted(run_batch, rows, batch_size, on_progress=None, size=len):
    """Runs a function over batches of rows sorted by size, largest first, and restores their order.

    Args:
        run_batch: function from a list of rows to a list of as many results; it is called from two threads.
        rows: list.
        batch_size: most rows of a batch.
        on_progress: called with the number of rows done since its last call.
        size: function from a row to its size.

    Returns:
        list of results, in the order of `rows`.

    Raises:
        UserError: for a batch size that is not positive.
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
