"""Many texts: one or a list, and batches of similar length, two at a time."""

import functools
from concurrent.futures import ThreadPoolExecutor

from keras_transformer.errors import UserError, check_positive, listed

BATCH_SIZE = 128  # texts at a time. 32 take a quarter to a half more processor time: docs/figures/decoding.md
USUAL = 128  # characters of a text. A batch of longer texts has fewer of them, and needs no more memory
BATCHES_AT_ONCE = 2  # on few cores two batches side by side are faster than two threads for one


def of_one_or_many(method):
    """Lets a method of a translator, or a function of one, that takes a list of texts also take one str.

    For one str, it returns one result. It raises UserError for a text that is no str.
    """

    @functools.wraps(method)
    def either(translator, texts, *arguments, **keywords):
        if isinstance(texts, (str, bytes)):
            return method(translator, [texts], *arguments, **keywords)[0]
        texts = listed("texts", texts)
        for i, text in enumerate(texts):
            if not isinstance(text, (str, bytes)):
                raise UserError(f"every text must be a str. Received: {text!r} as text {i + 1} of {len(texts)}")
        return method(translator, texts, *arguments, **keywords)

    return either


def whole(value):
    """The value; in a text, U+FFFD stands for half of a pair of surrogates, which JSON's escapes can leave."""
    return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace") if isinstance(value, str) else value


def run_sorted(run_batch, rows, batch_size, on_progress=None, size=len, most=None):
    """Runs a function over batches of rows sorted by size, largest first, and restores their order.

    Args:
        run_batch: function from a list of rows to a list of as many results; it is called from two threads.
        rows: list.
        batch_size: most rows of a batch.
        on_progress: called with the number of rows done since its last call.
        size: function from a row to its size.
        most: the most that the rows of a batch may have in all, if each has the size of the largest. A batch has one
            row in any case. None for no bound.

    Returns:
        list of results, in the order of `rows`.

    Raises:
        UserError: for a batch size that is not positive.
    """
    check_positive(batch_size=batch_size)
    order = sorted(range(len(rows)), key=lambda i: -size(rows[i]))
    batches, start = [], 0
    while start < len(order):
        fitting = most // max(1, size(rows[order[start]])) if most else batch_size
        batches.append(order[start : start + max(1, min(batch_size, fitting))])
        start += len(batches[-1])
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
