"""Documents of strangers, each in a process of its own: none takes the time or the memory of other work.

A document can have tags and braces that take hours. The system ends a process that goes beyond its limits. A process is
a fork of a small server, which has imported this tool, without TensorFlow. No model is in it: it sends its texts to a
translator of the process that started it.
"""

import contextlib
import logging
import multiprocessing
import resource
import signal
import traceback
from multiprocessing import forkserver
from pathlib import Path

from keras_transformer.errors import UserError
from keras_transformer.tools.documents.files import translate_bytes, translate_pages

SECONDS_OF_FILE = 60  # of a processor
SECONDS_OF_PAGES, SECONDS_PER_CHARACTER = 5, 20e-6  # three times the need of usual pages
MOST_BYTES = 2**30  # of memory
LONGEST_EXPLAINED = 20_000  # characters. A long one is explained in parts, each of which asks with all that is left
MOST_REFUSED = 3  # pages of a list, each of which may take all its time
TOO_MUCH = "the document takes too much time or memory: divide it, or leave out some of its tags and braces"
DAMAGED = "the document cannot be read: it is damaged, or of another format"

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload([__name__, "markdown_it"])

logger = logging.getLogger(__name__)


def start():
    """Starts the small server, which takes a second. Otherwise the first document waits for it."""
    forkserver.ensure_running()


def translate_file_apart(translator, data, format, target_lang=None):
    """As `translate_bytes`, see `run_apart`."""
    return run_apart(translate_bytes, SECONDS_OF_FILE, translator, data, format, target_lang=target_lang)


def translate_pages_apart(translator, pages, target_lang=None):
    """As `translate_pages`, see `run_apart`. Of several pages, one that is refused stays as it is.

    Raises:
        UserError: for a single page that is refused, and for more than `MOST_REFUSED` of them.
    """
    try:
        seconds = SECONDS_OF_PAGES + SECONDS_PER_CHARACTER * sum(map(len, pages))
        return run_apart(translate_pages, seconds, translator, pages, target_lang)
    except UserError:
        if len(pages) == 1:
            raise
    translated, refused = [], 0
    for page in pages:
        try:
            translated += translate_pages_apart(translator, [page], target_lang)
        except UserError:
            translated, refused = [*translated, page], refused + 1
            if refused > MOST_REFUSED:
                raise
    return translated


def run_apart(function, seconds, translator, *arguments, **options):
    """Calls `function(translator, *arguments, **options)` in a process of its own.

    Args:
        function: of a module. Its arguments and its result can be pickled.
        seconds: float, of a processor, after which the process ends. The time of the translator does not count.
        translator: object with the methods `translate` and `explain` of `TextTranslator`, which are called here, and
            with its `protection`.

    Raises:
        UserError: as the function does; for a document that takes too much time or memory; and for one that the
            function cannot read.
    """
    here, there = CONTEXT.Pipe()
    protection = getattr(translator, "protection", None)
    work = (there, function, seconds, protection, arguments, options)
    process = CONTEXT.Process(target=_work, args=work, daemon=True)
    process.start()
    there.close()
    try:
        message = _received(here)
        while message[0] in ("translate", "explain"):
            method, texts = message
            answer = getattr(translator, method)(texts)
            with contextlib.suppress(ConnectionError):  # of a process that has ended, which `_received` tells
                here.send(answer)
            message = _received(here)
    finally:
        process.kill()
        process.join()
        here.close()
    kind, result = message
    if kind == "refused":
        raise UserError(result)
    return result


def _received(pipe):
    """What the process of a document sends. Raises UserError if the system has ended the process."""
    try:
        return pipe.recv()
    except (EOFError, ConnectionError):
        raise UserError(TOO_MUCH) from None


class _Asking:
    """The translator in the process of a document. It asks the one of the process that started it."""

    def __init__(self, pipe, protection):
        self._pipe, self.protection = pipe, protection

    def translate(self, texts, on_progress=None):
        self._pipe.send(("translate", texts))
        return self._pipe.recv()

    def explain(self, texts, on_progress=None):
        if max(map(len, texts)) > LONGEST_EXPLAINED:
            raise UserError(f"a paragraph with tags may have {LONGEST_EXPLAINED} characters: divide it")
        self._pipe.send(("explain", texts))
        return self._pipe.recv()


def _work(pipe, function, seconds, protection, arguments, options):
    """In the process of a document: calls the function, and sends its result, or why there is none."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that started this one
    resource.setrlimit(resource.RLIMIT_CPU, (round(seconds), round(seconds)))
    resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))
    try:
        answer = "done", function(_Asking(pipe, protection), *arguments, **options)
    except UserError as error:
        answer = "refused", str(error)
    except (RecursionError, MemoryError):
        answer = "refused", TOO_MUCH
    except Exception as error:  # a document that no parser expects. The message may quote it
        place = traceback.extract_tb(error.__traceback__)[-1]
        logger.error("%s in %s:%d", type(error).__name__, Path(place.filename).name, place.lineno)
        answer = "refused", DAMAGED
    pipe.send(answer)
