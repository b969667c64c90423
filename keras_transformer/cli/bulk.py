"""`--engine beam` of the programs that translate: from flags to a pipeline of files, and what it has done in a line."""

import argparse
import contextlib
import ctypes
import dataclasses
import functools
import logging
import os
import signal
import sys
import threading
import time

import psutil
from tqdm import tqdm

from keras_transformer.cli import console
from keras_transformer.cli.documents import refuse_documents
from keras_transformer.cli.flags import languages, load_translator, protected
from keras_transformer.cli.line_files import file_state, translate_file
from keras_transformer.errors import UserError, counted
from keras_transformer.process import find_tool
from keras_transformer.tools import duration
from keras_transformer.tools.exported import find_saved_model
from keras_transformer.tools.lines import CHUNK

log = logging.getLogger(__name__)
SECONDS_BETWEEN_LOOKS = 2
ENGINES = ("local", "beam")
ENGINE = "--engine beam"
WORKER = "keras_transformer.cli.bulk"  # the module that a worker process of Beam runs: see `work`
PARENT_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of prctl(2)


def add_engine_argument(parser, work="the files that --input matches into the directory --output"):
    """Adds to an argparse parser the flag that chooses the engine. `work` says what Beam translates."""
    parser.add_argument(
        "--engine",
        choices=ENGINES,
        default="local",
        help=f"local: this process translates. beam: Apache Beam translates {work}. All flags that are not listed here "
        "go to Beam, such as --runner and --direct_num_workers, the number of processes (default: local)",
    )


def check_engine(arguments, flags):
    """Checks the flags that go with an engine.

    Args:
        arguments: parsed flags.
        flags: list of str, those that this program does not know.

    Raises:
        UserError: for a flag that does not go with the engine.
    """
    if arguments.engine == "local":
        return
    if not arguments.saved_model:
        raise UserError("--engine beam translates with --saved_model: export.py makes one of a run")
    if arguments.reverse:
        raise UserError("--engine beam translates with one model, without --reverse: leave one out")
    if not (arguments.input and arguments.output):
        missing = "output" if arguments.input else "input"
        raise UserError(f"--engine beam needs --input 'DIR/*.txt' and --output DIR. Received: no --{missing}")
    for before, word in zip(["", *flags], flags, strict=False):
        if not (word.startswith("--") or before.startswith("--")):
            raise UserError(f"put quotes around the pattern: --input 'DIR/*.txt'. Received: {word}")


def translate_in_bulk(arguments, request, flags):
    """Translates files on Apache Beam.

    Args:
        arguments: parsed flags.
        request: `Request`.
        flags: list of str, the flags of Beam.

    Raises:
        UserError: without Apache Beam; for a flag that it does not know; for files that cannot be read or written.
    """
    options = beam_options(flags)
    model = find_saved_model(arguments.saved_model).absolute()
    asked = [file_state(model / "saved_model.pb"), dataclasses.asdict(request), protected(arguments)]
    asked += [given] if (given := languages(arguments)) else []
    found = find_tool("beam.files", ENGINE).find_files(arguments.input, arguments.output, asked)
    refuse_documents([file.source for file in found], arguments.format)
    load = functools.partial(load_checked, argparse.Namespace(**{**vars(arguments), "saved_model": model}), request)
    _run(found, load, request, options, arguments.output)


def translate_one(source, target, asked, translator, load, request, options):
    """Translates a file in this process or, if there are options of Beam, on Apache Beam.

    Args:
        source: path of a text.
        target: Path of its translation.
        asked: everything that the translation depends on besides the text, as JSON can hold it.
        translator: `TextTranslator` of this process.
        load, request: see `add_translation`.
        options: those of `beam_options`; None for this process.

    Raises:
        UserError: for files that cannot be read or written.
    """
    if options is None:
        answer = functools.partial(request.lines, translator)
        return translate_file(answer, source, target, asked, request.lines_each)
    find_file = find_tool("beam.files", ENGINE).find_file
    _run([find_file(str(source), str(target), asked)], load, request, options, str(target.parent))


def beam_options(flags):
    """The options of Beam that its flags (list of str) choose.

    Raises:
        UserError: without Apache Beam; for a flag that it does not know.
    """
    logging.getLogger().addHandler(logging.NullHandler())  # Beam says a lot, and workers that fail raise anyway
    return find_tool("beam.runner", ENGINE).pipeline_options(flags)


def _run(found, load, request, options, output):
    """Translates those of the files that are missing, and says what it has done."""
    files, runner, translation = (find_tool(f"beam.{name}", ENGINE) for name in ("files", "runner", "translation"))
    missing = [file for file in found if not file.is_finished()]
    if len(missing) < len(found):
        log.info("%s of %s there already", len(found) - len(missing), counted(len(found), "file"))
    files.check_texts(missing)
    files.prepare_output(output)
    if not missing:
        return
    start = time.monotonic()
    with _workers_end_first(), _progress(lambda: files.count_parts(missing) * CHUNK):
        build = functools.partial(translation.add_translation, files=missing, load=load, request=request)
        result = runner.run(build, options, WORKER)
    _report(runner.counters(result, translation.NAMESPACE), time.monotonic() - start, output)


def load_between(languages, *arguments, **settings):
    """`load`, with the languages of a dict as the default. Beam pickles it."""
    from keras_transformer.runs import load

    return load(*arguments, **settings).between(**languages)


def load_checked(arguments, request):
    """The translator of parsed flags, for a worker. Raises UserError if it cannot do what is wanted."""
    translator = load_translator(arguments)
    request.check_width(translator)
    return translator


@contextlib.contextmanager
def _workers_end_first():
    """Has Ctrl-C and SIGTERM end the worker processes first. Beam would wait until these have done all their work."""

    def end(number, frame):
        for child in psutil.Process().children():
            child.kill()
        print("the same command goes on from here", file=sys.stderr)
        before[number](number, frame)

    heard = [number for number in (signal.SIGINT, signal.SIGTERM) if callable(signal.getsignal(number))]
    before = {number: signal.signal(number, end) for number in heard}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def _progress(count):
    """Shows a progress bar at a terminal. The parts are counted, for the workers may be on any machine.

    Args:
        count: function that gives the number of lines that are done, about.
    """
    ended = threading.Event()
    with tqdm(unit=" lines", disable=None) as bar:

        def look():
            while not ended.wait(SECONDS_BETWEEN_LOOKS):
                bar.update(max(0, count() - bar.n))

        looking = threading.Thread(target=look, daemon=True)
        if not bar.disable:
            looking.start()
        try:
            yield
        finally:
            ended.set()


def _report(done, seconds, output):
    lines, failed = done.get("lines", 0), done.get("failed_lines", 0)
    rate = f"{counted(lines, 'line')} in {duration(seconds)}: {lines / seconds:.1f} lines/s"
    log.info("%s translated, %s", counted(done.get("files", 0), "file"), rate)
    if failed:
        log.info(
            "%s could not be translated: blank, with the reason in %s/errors-*.jsonl", counted(failed, "line"), output
        )


def end_with_parent():
    """Has the system end this process when its parent ends, even by SIGKILL; on Linux.

    Otherwise the worker would translate on until all is done that it has been given.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PARENT_DEATH_SIGNAL, signal.SIGKILL)


def work():
    """A worker process of Beam on this machine: works until Beam says that all is done, and prints nothing."""
    end_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which ends this process
    logging.getLogger().addHandler(logging.NullHandler())  # Beam sends the log to the parent, and prints it as well
    console.import_tensorflow()  # before the threads of Beam: it forks
    from keras_transformer.tools.beam.private_api import work_for_beam

    sys.stderr = open(os.devnull, "w")  # Beam sends every traceback there, too
    work_for_beam()


if __name__ == "__main__":
    work()
