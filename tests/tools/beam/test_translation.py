"""The pipeline on runners that are as unkind as they may be; translate_lines, with no pipeline, is the oracle."""

import gzip
import io
import json
import os
import random
from pathlib import Path

import apache_beam as beam
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner

from keras_transformer.errors import UserError
from keras_transformer.tools import lines
from keras_transformer.tools.beam.files import find_files
from keras_transformer.tools.beam.runner import counters
from keras_transformer.tools.beam.translation import NAMESPACE, add_translation, answer_each
from keras_transformer.tools.lines import chunks_of, translate_lines

TEXTS = {
    "long.txt": b"".join(b"line %d\n" % i for i in range(20)),
    "odd.txt": b"\xef\xbb\xbfone\r\n\n\xff\n \nno\rend\n\xef\xbb\xbftwo",
    "packed.txt.gz": gzip.compress(b"three\n\nfour\n" * 3),
    "empty.txt": b"",
    "empty.txt.gz": gzip.compress(b""),
    "deep/blank.txt": b"\n",
}


class Loud:
    """A request of two lines for every text; the texts "bad" have no answer."""

    lines_each = 2

    def lines(self, translator, texts, on_progress=None):
        if "bad" in texts:
            raise UserError("a bad\ntext")
        return [[translator(text), f"{text}!"] for text in texts]


def load():
    return lambda text: text.upper()


class InAnyOrder(beam.PTransform):
    """In place of a Reshuffle: everything in one list, shuffled."""

    def __init__(self, seed):
        super().__init__()
        self.seed = seed

    def expand(self, collection):
        def shuffled(elements):
            elements = list(elements)
            random.Random(self.seed).shuffle(elements)
            return elements

        return collection | beam.WithKeys(0) | beam.GroupByKey() | beam.FlatMapTuple(lambda _, found: shuffled(found))


@pytest.fixture(autouse=True)
def small_parts(monkeypatch):
    monkeypatch.setattr(lines, "CHUNK", 3)


@pytest.fixture
def texts(tmp_path):
    for name, content in TEXTS.items():
        (tmp_path / "in" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "in" / name).write_bytes(content)
    return tmp_path


def translate(directory, runner=None, request=None, loading=load):
    """Translates in/** into out/. Returns the counters."""
    files = find_files(str(directory / "in/**"), str(directory / "out"), [])
    missing = [file for file in files if not file.is_finished()]
    pipeline = beam.Pipeline(runner or FnApiRunner())
    add_translation(pipeline, missing, loading, request or Loud())
    result = pipeline.run()
    result.wait_until_finish()
    return counters(result, NAMESPACE)


def found(directory):
    """Name -> text of everything in out/ but what the translation keeps for itself."""
    paths = [path for path in (directory / "out").rglob("*") if path.is_file() and ".translation" not in path.parts]
    texts = {os.path.relpath(path, directory / "out"): path.read_bytes() for path in paths}
    return {name: gzip.decompress(text) if name.endswith(".gz") else text for name, text in texts.items()}


def expected():
    """Name -> text, by the function that translate.py has without Beam."""
    wanted = {}
    for name, content in TEXTS.items():
        target = io.BytesIO()
        source = io.BytesIO(gzip.decompress(content) if name.endswith(".gz") else content)
        translate_lines(lambda texts: Loud().lines(str.upper, texts), chunks_of(source), target)
        wanted[name] = target.getvalue()
    return wanted


def left(directory):
    """What is left of the work: the records of finished files apart."""
    return [path for path in (directory / "out/.translation").rglob("*") if path.suffix != ".json"]


def test_every_file_has_the_lines_of_the_engine_without_beam_and_a_second_start_does_what_is_missing(texts):
    loads = texts / "loads"

    def load_and_count():
        with open(loads, "a") as file:
            file.write("loaded\n")
        return load()

    done = translate(texts, loading=load_and_count)
    assert found(texts) == expected() and loads.read_text() == "loaded\n"  # once in a process
    assert done == {"files": 6, "lines": 20 + 6 + 9 + 1, "failed_lines": 0} and left(texts) == []
    (texts / "out/odd.txt").unlink()
    (texts / "out/long.txt").write_bytes(b"edited")
    stamps = {path: path.stat().st_mtime_ns for path in (texts / "out").rglob("*.txt.gz")}
    done = translate(texts)
    assert found(texts) == expected() and (done["files"], done["lines"]) == (2, 26) and len(stamps) == 2
    assert {path: path.stat().st_mtime_ns for path in stamps} == stamps


def test_parts_in_any_order_and_bundles_that_run_three_times_give_the_same_text(texts, monkeypatch):
    monkeypatch.setattr(beam, "Reshuffle", lambda: InAnyOrder(seed=1))
    translate(texts, FnApiRunner(bundle_repeat=2))
    assert found(texts) == expected() and left(texts) == []


class Failing(Loud):
    """As `Loud`, until so many parts have been asked for: then the process fails, again and again."""

    def __init__(self, record, parts):
        self.record, self.parts = record, parts

    def lines(self, translator, texts, on_progress=None):
        with open(self.record, "a") as file:
            file.write("asked\n")
        if len(Path(self.record).read_text().splitlines()) > self.parts:
            raise MemoryError("all is lost")
        return super().lines(translator, texts)


def test_a_pipeline_that_fails_goes_on_with_the_parts_it_has_and_shows_nothing_half_done(texts):
    for name in ("empty.txt", "empty.txt.gz", "deep/blank.txt"):  # a failure of one line alone would be its own
        (texts / "in" / name).unlink()
    with pytest.raises(Exception, match="all is lost"):
        translate(texts, request=Failing(str(texts / "asked"), 4))
    assert found(texts) == {} and len([path for path in left(texts) if path.is_file()]) == 4
    done = translate(texts)
    assert found(texts) == {name: expected()[name] for name in ("long.txt", "odd.txt", "packed.txt.gz")}
    assert left(texts) == [] and 35 - 4 * 3 <= done["lines"] < 35


def test_a_line_without_an_answer_is_blank_and_recorded_and_a_part_without_any_stops_all(texts):
    (texts / "in/long.txt").write_bytes(b"one\nbad\ntwo\nthree\nfour\nbad\n")
    done = translate(texts)
    assert found(texts)["long.txt"] == b"ONE\none!\n\n\nTWO\ntwo!\nTHREE\nthree!\nFOUR\nfour!\n\n\n"
    records = [json.loads(line) for line in found(texts)["errors-long.txt.jsonl"].splitlines()]
    bad = {"text": "bad", "error": "UserError: a bad text", "file": str(texts / "in/long.txt")}
    assert records == [{"line": 2, **bad}, {"line": 6, **bad}] and done["failed_lines"] == 2
    (texts / "in/long.txt").write_bytes(b"one\n")
    translate(texts)
    assert found(texts)["long.txt"] == b"ONE\none!\n" and "errors-long.txt.jsonl" not in found(texts)
    with pytest.raises(UserError, match="a bad"):
        answer_each(Loud(), str.upper, ["bad", "bad"])
    ((row, error),) = answer_each(Loud(), str.upper, ["bad"])
    assert row == ["", ""] and isinstance(error, UserError)
