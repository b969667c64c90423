"""Bulk translation as a pipeline: it reads text files in parts, translates the parts anywhere, and joins them.

A part is a chunk of lines, as `translate.py` translates them: sorted by length, in batches. So a translation does not
depend on the engine. A translated part is a file. So a killed pipeline, started again, translates only the missing
parts. A runner may run a bundle twice: the second time, the part exists already.
"""

import io
import json
import shutil

import apache_beam as beam
from apache_beam.io.filesystems import FileSystems
from apache_beam.metrics import Metrics
from apache_beam.utils.shared import Shared

from keras_transformer.tools.beam.files import RAW, BulkFile, new_file, open_text, remove_directory
from keras_transformer.tools.lines import chunks_of, packed, translate_lines

NAMESPACE = "bulk_translation"  # of the counters in Beam's metrics


def add_translation(pipeline, files, load, request):
    """Adds the translation of files to a pipeline.

    Args:
        pipeline: `beam.Pipeline`.
        files: list of `BulkFile`.
        load: function without arguments that gives the translator; every process calls it once. It is pickled.
        request: the task for every text. `request.lines(translator, texts)` gives a list of `request.lines_each` str
            for each text. The request is pickled.

    Returns:
        PCollection of the paths of finished translations.
    """
    return (
        pipeline
        | "Files" >> beam.Create([tuple(file) for file in files])
        | "Read" >> beam.FlatMap(read_parts)
        | "Share" >> beam.Reshuffle()
        | "Translate" >> beam.ParDo(TranslatePart(load, request))
        | "Group" >> beam.GroupByKey()
        | "Put together" >> beam.ParDo(PutTogether())
    )


def read_parts(file):
    """Yields the parts of a text file; an empty file has one, without lines.

    Args:
        file: fields of a `BulkFile`.

    Yields:
        (file, (number of the first line, from 0; list of bytes, the lines without their ends)).
    """
    first = 0
    with open_text(BulkFile(*file).source) as text:
        for lines in chunks_of(text):
            yield file, (first, lines)
            first += len(lines)
    if first == 0:
        yield file, (0, [])


class TranslatePart(beam.DoFn):
    """Writes the translation of a part, unless the file exists. A line that cannot be translated becomes blank.

    Args:
        load, request: see `add_translation`.
    """

    def __init__(self, load, request):
        self._load, self._request = load, request
        self._shared = Shared()
        self._lines = Metrics.counter(NAMESPACE, "lines")
        self._failed_lines = Metrics.counter(NAMESPACE, "failed_lines")

    def setup(self):
        self._translator = self._shared.acquire(self._load)

    def process(self, part):
        key, (first, lines) = part
        file = BulkFile(*key)
        if not FileSystems.exists(file.part(first)):
            failures = self._translate(file, first, lines)
            self._lines.inc(len(lines))
            self._failed_lines.inc(len(failures))
        yield key, (first, len(lines))

    def _translate(self, file, first, lines):
        failures = []

        def answer(texts):
            rows = []
            for i, (row, error) in enumerate(answer_each(self._request, self._translator, texts)):
                rows.append(row)
                if error is not None:
                    number = first + i + 1
                    failures.append({"file": file.source, "line": number, "text": texts[i], "error": describe(error)})
            return rows

        translation = io.BytesIO()
        translate_lines(answer, [lines], translation)
        if failures:  # before the translation, whose file marks the part as complete
            with new_file(file.part_errors(first), file.work) as target:
                target.write("".join(json.dumps(each, ensure_ascii=False) + "\n" for each in failures).encode("utf-8"))
        with new_file(file.part(first), file.work) as target:
            target.write(translation.getvalue())
        return failures


def answer_each(request, translator, texts):
    """The answers to texts. Some texts may have no answer.

    Args:
        request: see `add_translation`.
        translator: from `load`, see `add_translation`.
        texts: list of str.

    Returns:
        list of (list of str, None), or of (list of blank str, Exception) for a text that has no answer.

    Raises:
        Exception: the one of all texts together, if each of several texts fails alone, too: then the fault is not in a
            text.
    """
    try:
        return [(row, None) for row in request.lines(translator, texts)]
    except Exception as error:
        answers = [_answer(request, translator, text) for text in texts]
        if len(texts) > 1 and all(failure for _, failure in answers):
            raise error
        return answers


def _answer(request, translator, text):
    try:
        (row,) = request.lines(translator, [text])
        return row, None
    except Exception as error:
        return [""] * request.lines_each, error


def describe(error):
    """An exception in one line: "UserError: ..."."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


class PutTogether(beam.DoFn):
    """Joins the parts of a translation, and removes the parts. The translation appears when it is complete."""

    def __init__(self):
        self._files = Metrics.counter(NAMESPACE, "files")

    def process(self, file_and_parts):
        key, parts = file_and_parts
        file = BulkFile(*key)
        if not file.is_finished():  # else the bundle runs for the second time, and the parts are removed
            put_together(file, dict(parts))
            self._files.inc()
        yield file.target


def put_together(file, parts):
    """Joins the parts of a translation and of the records of its errors; removes the parts.

    Args:
        file: `BulkFile`.
        parts: dict, number of the first line of a part -> its number of lines.
    """
    firsts = sorted(parts)
    errors = [path for path in map(file.part_errors, firsts) if FileSystems.exists(path)]
    if errors:
        with new_file(file.errors, file.work) as target:
            _copy(errors, target)
    elif FileSystems.exists(file.errors):  # of an earlier request
        FileSystems.delete([file.errors])
    with new_file(file.target, file.work) as target, packed(target, file.target) as text:
        _copy(map(file.part, firsts), text)
    with new_file(file.record, file.work) as target:
        record = {"source": file.source, "lines": sum(parts.values()), "errors": bool(errors), "bytes": file.size()}
        target.write(json.dumps(record).encode("utf-8"))
    remove_directory(file.work)


def _copy(paths, target):
    for path in paths:
        with FileSystems.open(path, **RAW) as part:
            shutil.copyfileobj(part, target)
