"""The engine for more than one machine: the steps of a preparation as a pipeline of Apache Beam.

    lines of the input -> examine -> one of each group of equal texts -> bands -> comparisons -> lines in order

`keras_transformer.tools.cleaning` makes all decisions. So both engines give the same result, to the byte.
"""

import json
import uuid
from collections.abc import Iterable, Iterator
from operator import attrgetter
from pathlib import Path

import apache_beam as beam
from tqdm import tqdm

from keras_transformer.data.corpora import Pair
from keras_transformer.tools.beam.private_api import WORKER
from keras_transformer.tools.beam.runner import pipeline_options, run
from keras_transformer.tools.cleaning.duplicates import MOST_COMPARED
from keras_transformer.tools.cleaning.examination import Examined, Examiner, digest
from keras_transformer.tools.cleaning.minhash import similarity
from keras_transformer.tools.cleaning.processes import in_chunks

FILES_AT_ONCE = 10  # chunks in a file of input
# For processes on one machine, there is the engine without Beam.
IN_PROCESS = ["--direct_running_mode", "in_memory", "--direct_num_workers", "1"]


def clean_on_beam(pairs: Iterable[Pair], examiner: Examiner, scratch: Path, flags: list[str]) -> Iterator[Examined]:
    """Decides about all pairs of a corpus.

    Args:
        pairs: iterable of pairs.
        examiner: Examiner.
        scratch: Path of a directory for files, which all workers must reach.
        flags: list of str, flags of Beam and its runner.

    Yields:
        `Examined` of every pair, in the order of their keys.

    Raises:
        UserError: for a flag that Beam does not know, and a runner that is not there.
    """
    inputs, shards = scratch / "input", scratch / "decided"

    def build(pipeline):
        inputs.mkdir()
        shards.mkdir()
        names = _hand_out(pairs, inputs)
        examined = pipeline | beam.Create(names) | beam.Reshuffle() | beam.ParDo(Examine(examiner.arguments))
        decided = examined | Decide(examiner.settings.duplicates, examiner.settings.near_duplicates)
        _ = decided | beam.GroupByKey() | beam.Map(write_shard, str(shards))

    run(build, pipeline_options([*IN_PROCESS, *flags]), WORKER)
    for path in tqdm(sorted(shards.iterdir()), "writing", unit=" shards", disable=None):
        with open(path, "rb") as lines:
            yield from map(Examined.from_line, lines)


def _hand_out(pairs: Iterable[Pair], directory: Path) -> list[str]:
    """Writes the input as files of JSON lines, a chunk a line, which workers can read side by side."""
    names = []
    for number, chunk in enumerate(tqdm(in_chunks(pairs), "handing out", unit=" chunks", disable=None)):
        path = directory / f"{number // FILES_AT_ONCE:08}"
        if number % FILES_AT_ONCE == 0:
            names.append(str(path))
        with open(path, "a", encoding="utf-8") as file:
            file.write(json.dumps(chunk) + "\n")
    return names


class Examine(beam.DoFn):
    """Path of a file of chunks -> (`Examined` as a line, its bands) of every pair.

    Args:
        arguments: those of `Examiner`, which each worker makes once.
    """

    def __init__(self, arguments):
        self._arguments = arguments

    def setup(self):
        self._examiner = Examiner(*self._arguments)

    def process(self, name):
        with open(name, encoding="utf-8") as lines:
            for line in lines:
                examined, bands = self._examiner.examine([tuple(pair) for pair in json.loads(line)])
                for one, of_one in zip(examined, bands.tolist(), strict=True):
                    yield one.to_line(), of_one


class Decide(beam.PTransform):
    """(line, bands) -> (shard, line). The line of a duplicate names its step. A shard is the first byte of a key.

    Args:
        duplicates: bool, whether copies of a pair are dropped.
        near_duplicates: float, the smallest similarity of near duplicates, or 0.
    """

    def __init__(self, duplicates, near_duplicates):
        super().__init__()
        self._duplicates, self._near_duplicates = duplicates, near_duplicates

    def expand(self, examined):
        dropped, staying = examined | "dropped by a rule" >> beam.Partition(_stays, 2)
        decided = [dropped | "lines dropped by a rule" >> beam.Keys()]
        if self._duplicates:
            of_texts = staying | "by text" >> beam.Map(_by_text) | "equal texts" >> beam.GroupByKey()
            again, staying = of_texts | beam.FlatMap(_one_stays) | "dropped as equal" >> beam.Partition(_stays, 2)
            decided.append(again | "lines dropped as equal" >> beam.Keys())
        if self._near_duplicates:
            staying = self._without_similar(staying)
        else:
            staying = staying | "lines that stay" >> beam.Keys()
        return [*decided, staying] | beam.Flatten() | "by shard" >> beam.Map(_by_shard)

    def _without_similar(self, staying):
        """(line, bands) -> line. The line of a near duplicate names its step."""
        similar = (
            staying
            | "by band" >> beam.FlatMap(_by_bands)
            | "equal bands" >> beam.GroupByKey()
            | beam.FlatMap(_compare, self._near_duplicates)
            | "first similar" >> beam.CombinePerKey(min)
        )
        by_key = staying | "by key" >> beam.Map(_by_key)
        return {"line": by_key, "similar": similar} | beam.CoGroupByKey() | beam.MapTuple(_with_similar)


def _stays(element, number):
    return int(not Examined.from_line(element[0]).step)


def _by_text(element):
    return digest(Examined.from_line(element[0]).pair), element


def _one_stays(group):
    """Of pairs with the same text, the one with the smallest key stays."""
    first, *others = sorted(group[1], key=lambda element: Examined.from_line(element[0]).key)
    yield first
    for line, bands in others:
        yield Examined.from_line(line)._replace(step="duplicates").to_line(), bands


def _by_key(element):
    return Examined.from_line(element[0]).key, element[0]


def _by_shard(line):
    return Examined.from_line(line).key[0], line


def _by_bands(element):
    line, bands = element
    for number, band in enumerate(bands):
        yield (number, band), line


def _compare(group, least):
    """Yields (key of a pair, (key of the first similar one, its text)) for pairs that share a band."""
    members = sorted(map(Examined.from_line, group[1]), key=attrgetter("key"))
    sides = [one.sides for one in members] if len(members) > 1 else []
    for later, of_later in enumerate(sides):
        for earlier, of_earlier in zip(members[: min(later, MOST_COMPARED)], sides, strict=False):
            if similarity(of_later, of_earlier) >= least:
                yield members[later].key, (earlier.key, earlier.received)
                break


def _with_similar(key, found):
    (line,) = found["line"]
    if not found["similar"]:
        return line
    ((_, received),) = found["similar"]
    return Examined.from_line(line)._replace(step="near_duplicates", detail=list(received)).to_line()


def write_shard(of_shard, directory):
    """Writes the lines of a shard in the order of their keys, into a file that appears when it is complete.

    Args:
        of_shard: (int, iterable of lines of `Examined`).
        directory: path.
    """
    shard, lines = of_shard
    in_order = sorted(lines, key=lambda line: (Examined.from_line(line).key, line))
    path = Path(directory, f"{shard:03}")
    unfinished = path.parent.with_name(f"{path.name}.{uuid.uuid4().hex}")  # a runner may try a shard twice at a time
    unfinished.write_bytes(b"".join(in_order))
    unfinished.rename(path)
