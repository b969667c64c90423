"""The engine for one machine: examines chunks in several processes, then finds duplicates among all pairs.

A pair takes 130 bytes of memory, whatever its length: its key, the hash of its text, its bands and the place of its
text in a file.
"""

import functools
import itertools
import mmap
import multiprocessing
import signal
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import NamedTuple

import numpy as np
from tqdm import tqdm

from keras_transformer.data.corpora import Pair
from keras_transformer.errors import UserError
from keras_transformer.tools.cleaning.duplicates import near_duplicates, repeated
from keras_transformer.tools.cleaning.examination import Examined, Examiner, digest
from keras_transformer.tools.cleaning.settings import CleaningSettings

CHUNK = 2000  # pairs
AHEAD = 4  # chunks for each process that are read before they are needed
CACHED = 1 << 12  # pairs whose shingles are kept while duplicates are found
_HASH = np.dtype(">u8")  # two of them sort as the 16 bytes do


def clean_in_processes(pairs: Iterable[Pair], examiner: Examiner, processes: int, scratch: Path) -> Iterator[Examined]:
    """Decides about all pairs of a corpus.

    Args:
        pairs: iterable of pairs.
        examiner: Examiner.
        processes: int; 1 works in the process that calls.
        scratch: Path of a directory for the examined text.

    Yields:
        `Examined` of every pair, in the order of their keys.

    Raises:
        UserError: if a process is killed.
    """
    path = scratch / "examined"
    tables = []
    with open(path, "wb") as file, tqdm(desc="examining", unit=" pairs", unit_scale=True, disable=None) as progress:
        for lines, table in _examined(in_chunks(pairs), examiner, processes):
            file.write(b"".join(lines))
            tables.append(table)
            progress.update(len(lines))
    if tables:
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
            table = _Table(*map(np.concatenate, zip(*tables, strict=True)))
            tables.clear()
            yield from _decided(table, text, examiner.settings)


class _Table(NamedTuple):
    """Arrays with a row for each pair, in the order of the input; `bands` has rows only for the pairs that stay.

    Args:
        lengths: int64 (N,), bytes of each line of the file.
        keys, texts: (N, 2), hashes of the pair before and after mending.
        stays: bool (N,), whether no rule drops the pair.
        bands: uint64 (number of pairs that stay, B).
    """

    lengths: np.ndarray
    keys: np.ndarray
    texts: np.ndarray
    stays: np.ndarray
    bands: np.ndarray


def in_chunks(pairs: Iterable[Pair]) -> Iterator[list[Pair]]:
    """Divides pairs into lists of `CHUNK`."""
    rest = iter(pairs)
    while chunk := list(itertools.islice(rest, CHUNK)):
        yield chunk


def _examine(examiner: Examiner, pairs: list[Pair]) -> tuple[list[bytes], _Table]:
    examined, bands = examiner.examine(pairs)
    lines = [one.to_line() for one in examined]
    stays = np.array([not one.step for one in examined])
    lengths = np.fromiter(map(len, lines), np.int64, len(lines))
    keys, texts = (_hashes(hashes) for hashes in zip(*((one.key, digest(one.pair)) for one in examined), strict=True))
    return lines, _Table(lengths, keys, texts, stays, bands[stays])


def _hashes(hashes: Iterable[bytes]) -> np.ndarray:
    return np.frombuffer(b"".join(hashes), _HASH).reshape(-1, 2)


def _examined(chunks: Iterator[list[Pair]], examiner: Examiner, processes: int) -> Iterator[tuple[list[bytes], _Table]]:
    """Yields the result of `_examine` for every chunk, in the order of the chunks."""
    if processes == 1:
        yield from map(functools.partial(_examine, examiner), chunks)
        return
    context = multiprocessing.get_context("spawn")  # a fork of a process with threads can hang
    pool = ProcessPoolExecutor(processes, context, _start, (examiner.arguments,))
    try:
        waiting = deque(pool.submit(_examine_here, chunk) for chunk in itertools.islice(chunks, AHEAD * processes))
        while waiting:
            yield waiting.popleft().result()
            waiting.extend(pool.submit(_examine_here, chunk) for chunk in itertools.islice(chunks, 1))
    except BrokenProcessPool as error:
        raise UserError(
            "a process that examined text was killed, perhaps for lack of memory: try `workers` 1"
        ) from error
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


_of_process: list[Examiner] = []


def _start(arguments: tuple) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which then ends its processes
    _of_process.append(Examiner(*arguments))


def _examine_here(pairs: list[Pair]) -> tuple[list[bytes], _Table]:
    return _examine(_of_process[0], pairs)


def _decided(table: _Table, text: mmap.mmap, settings: CleaningSettings) -> Iterator[Examined]:
    ends = np.cumsum(table.lengths)

    def read(row: int) -> Examined:
        return Examined.from_line(text[ends[row] - table.lengths[row] : ends[row]])

    again, similar = _duplicates(table, read, settings)
    for row in tqdm(_in_order(table.keys).tolist(), "writing", unit=" pairs", unit_scale=True, disable=None):
        one = read(row)
        if again[row]:
            one = one._replace(step="duplicates")
        elif row in similar:
            one = one._replace(step="near_duplicates", detail=list(read(similar[row]).received))
        yield one


def _in_order(keys: np.ndarray) -> np.ndarray:
    return np.lexsort((keys[:, 1], keys[:, 0]))


def _duplicates(table: _Table, read, settings: CleaningSettings) -> tuple[np.ndarray, dict[int, int]]:
    """Finds the exact duplicates, bool (N,), and the near ones: row -> row of the similar one."""
    again = np.zeros(len(table.stays), bool)
    rows = np.flatnonzero(table.stays)
    if settings.duplicates:
        again[rows] = repeated(table.keys[rows], table.texts[rows])
    if not settings.near_duplicates:
        return again, {}
    place = np.cumsum(table.stays) - 1  # of a row in `bands`
    different = np.flatnonzero(table.stays & ~again)
    different = different[_in_order(table.keys[different])]
    rows = different.tolist()

    @functools.lru_cache(CACHED)
    def sides_of(number: int) -> list[set[str]]:
        return read(rows[number]).sides

    found = near_duplicates(table.bands[place[different]], sides_of, settings.near_duplicates)
    return again, {rows[later]: rows[earlier] for later, earlier in found}
