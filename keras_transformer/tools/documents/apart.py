"""Documents of strangers, each in a process of its own: none takes the time or the memory of other work.

A document can have tags and braces that take hours. The system ends a process that goes beyond its limits. A process is
a fork of a small server, which has imported this tool, without TensorFlow. No model is in it: it sends its texts to a
translator of the process that started it.

Every document begins in the quick lane. One that has worked for a moment goes on in the slow lane, with a tenth of the
time that others have. So a page does not wait for files, and a hostile page does not look like a small one.
"""

import contextlib
import logging
import multiprocessing
import os
import resource
import shutil
import signal
import threading
import traceback
from concurrent import futures
from multiprocessing import forkserver, util
from pathlib import Path

import psutil

from keras_transformer.errors import UserError
from keras_transformer.tools.documents.files import translate_bytes, translate_pages

SECONDS_OF_FILE = 60  # of a processor
SECONDS_OF_PAGES, SECONDS_PER_CHARACTER = 5, 20e-6  # three times the need of usual pages
MOST_BYTES = 2**30  # of memory
MOST_BYTES_TOGETHER = 2**30  # of memory of all documents, beside what their processes begin with
SECONDS_QUICK = 0.25  # of a processor
NICE = 10  # of the slow lane: a tenth of the time of another process. With 19, it would starve on a busy machine
TICK = 0.1  # seconds between two looks at a document that works
TEXTS_AT_ONCE = 32  # of a document, so that texts of others find a place between them
LONGEST_EXPLAINED = 20_000  # characters. A long one is explained in parts, each of which asks with all that is left
MOST_REFUSED = 3  # pages of a list, each of which may take all its time
TOO_MUCH = "the document takes too much time or memory: divide it, or leave out some of its tags and braces"
DAMAGED = "the document cannot be read: it is damaged, or of another format"

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload([__name__, "markdown_it"])

logger = logging.getLogger(__name__)


class Busy(Exception):
    """There are too many documents at a time, or they have too much memory together."""


class Gone(Exception):
    """Nobody waits for the document any more."""


class _Lane:
    """A lane of documents: `places` work at a time, others wait, and `asking` ask the translator at a time."""

    def __init__(self, places, most_waiting, asking):
        self.most = places + most_waiting
        self.places = threading.Semaphore(places)
        self.asking = futures.ThreadPoolExecutor(asking, "asking")
        self._lock, self._count = threading.Lock(), 0

    @contextlib.contextmanager
    def place(self, wait):
        """Has a place to the end of the block. `wait` waits until a function of seconds is true. Raises `Busy`."""
        with self._lock:
            if self._count >= self.most:
                raise Busy
            self._count += 1
        try:
            wait(lambda seconds: self.places.acquire(timeout=seconds))
            try:
                yield
            finally:
                self.places.release()
        finally:
            with self._lock:
                self._count -= 1


QUICK, SLOW = _Lane(16, 32, asking=8), _Lane(8, 8, asking=2)
MOST_DOCUMENTS = QUICK.most + SLOW.most


def start():
    """Starts the small server, which takes a second. Otherwise the first document waits for it."""
    forkserver.ensure_running()


def stop():
    """Ends the processes of all documents, and removes the folder of the small server. No document may follow."""
    for process in multiprocessing.active_children():
        process.kill()
    shutil.rmtree(util.get_temp_dir(), ignore_errors=True)


def translate_file_apart(translator, data, format, target_lang=None, gone=None):
    """As `translate_bytes`, see `run_apart`."""
    return run_apart(translate_bytes, SECONDS_OF_FILE, translator, data, format, gone=gone, target_lang=target_lang)


def translate_pages_apart(translator, pages, target_lang=None, gone=None):
    """As `translate_pages`, see `run_apart`. Of several pages, one that is refused stays as it is.

    Raises:
        UserError: for a single page that is refused, and for more than `MOST_REFUSED` of them.
    """
    try:
        seconds = SECONDS_OF_PAGES + SECONDS_PER_CHARACTER * sum(map(len, pages))
        return run_apart(translate_pages, seconds, translator, pages, target_lang, gone=gone)
    except UserError:
        if len(pages) == 1:
            raise
    translated, refused = [], 0
    for page in pages:
        try:
            translated += translate_pages_apart(translator, [page], target_lang, gone)
        except UserError:
            translated, refused = [*translated, page], refused + 1
            if refused > MOST_REFUSED:
                raise
    return translated


def run_apart(function, seconds, translator, *arguments, gone=None, **options):
    """Calls `function(translator, *arguments, **options)` in a process of its own.

    Args:
        function: of a module. Its arguments and its result can be pickled.
        seconds: float, of a processor, after which the process ends. The time of the translator does not count.
        translator: object with the methods `translate` and `explain` of `TextTranslator`, which are called here, and
            with its `protection`.
        gone: `threading.Event`, or None. Soon after it is set, the process ends.

    Raises:
        UserError: as the function does; for a document that takes too much time or memory; and for one that the
            function cannot read.
        Busy: if there are too many documents now, or if this one is the largest of too large ones.
        Gone: after `gone`.
    """
    document = _Document(gone or threading.Event())
    with document.lanes:
        document.lanes.enter_context(QUICK.place(document.wait))
        protection = getattr(translator, "protection", None)
        document.start()
        try:
            document.send((function, seconds, protection, arguments, options))
            kind, result = document.receive()
            while kind in ("translate", "explain"):
                document.answer(getattr(translator, kind), result)
                kind, result = document.receive()
        finally:
            document.end()
    if kind == "refused":
        raise UserError(result)
    return result


class _Document:
    """A document and its process. `lanes` is a `contextlib.ExitStack` with its place."""

    working = set()  # all documents of this program that have a process

    def __init__(self, gone):
        self.lanes, self._lane, self._gone = contextlib.ExitStack(), QUICK, gone
        self.size = 0  # bytes of memory, beside those that its process began with

    def start(self):
        """Starts the process, which waits for its work. It cannot end before psutil has found it."""
        self._pipe, there = CONTEXT.Pipe()
        self._process = CONTEXT.Process(target=_work, args=(there,), daemon=True)
        self._process.start()
        there.close()
        self._usage = psutil.Process(self._process.pid)
        self._first_size = self._memory()
        self.working.add(self)

    def end(self):
        self.working.discard(self)
        self._process.kill()
        self._process.join()
        self._pipe.close()

    def send(self, message):
        with contextlib.suppress(ConnectionError):  # of a process that has ended, which `receive` tells
            self._pipe.send(message)

    def receive(self):
        """Waits for what the process sends. Raises UserError if the system has ended the process."""
        self.wait(lambda seconds: self._pipe.poll(seconds) or self._slow_down())
        try:
            return self._pipe.recv()
        except (EOFError, ConnectionError):
            raise UserError(TOO_MUCH) from None

    def answer(self, method, texts):
        """Sends the process what the translator says."""
        asked = self._lane.asking.submit(method, texts)
        try:
            self.wait(lambda seconds: bool(futures.wait([asked], seconds).done))
        finally:
            asked.cancel()
        self.send(asked.result())

    def wait(self, is_ready):
        """Waits until a function of seconds, which waits so long, is true. Raises `Gone` or `Busy`."""
        while not is_ready(TICK):
            if self._gone.is_set():
                raise Gone
            if self in self.working:
                self.size = self._memory() - self._first_size
                sizes = [document.size for document in tuple(self.working)]
                if sum(sizes) > MOST_BYTES_TOGETHER and self.size == max(sizes):
                    raise Busy

    def _slow_down(self):
        """Moves a document that has worked for too long to the slow lane. Its process waits there for a place."""
        if self._lane is SLOW:
            return
        with contextlib.suppress(OSError, psutil.Error):  # of a process that has ended, which `receive` tells
            if sum(self._usage.cpu_times()[:2]) < SECONDS_QUICK:
                return
            self._lane = SLOW
            os.kill(self._process.pid, signal.SIGSTOP)
            self.lanes.close()
            self.lanes.enter_context(SLOW.place(self.wait))
            os.setpriority(os.PRIO_PROCESS, self._process.pid, NICE)
            os.kill(self._process.pid, signal.SIGCONT)

    def _memory(self):
        with contextlib.suppress(psutil.Error):  # of a process that has ended
            found = self._usage.memory_info()
            return found.rss - getattr(found, "shared", 0)  # without the pages of files, which Linux counts apart
        return 0


class _Asking:
    """The translator in the process of a document. It asks the one of the process that started it."""

    def __init__(self, pipe, protection):
        self._pipe, self.protection = pipe, protection

    def translate(self, texts, on_progress=None):
        return self._ask("translate", texts)

    def explain(self, texts, on_progress=None):
        if max(map(len, texts)) > LONGEST_EXPLAINED:
            raise UserError(f"a paragraph with tags may have {LONGEST_EXPLAINED} characters: divide it")
        return self._ask("explain", texts)

    def _ask(self, method, texts):
        """Asks for some texts at a time, those of about the same length together."""
        order, answers = sorted(range(len(texts)), key=lambda place: -len(texts[place])), [None] * len(texts)
        for start in range(0, len(texts), TEXTS_AT_ONCE):
            places = order[start : start + TEXTS_AT_ONCE]
            self._pipe.send((method, [texts[place] for place in places]))
            for place, answer in zip(places, self._pipe.recv(), strict=True):
                answers[place] = answer
        return answers


def _work(pipe):
    """In the process of a document: receives its work, and sends the result of the function, or why there is none."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that started this one
    function, seconds, protection, arguments, options = pipe.recv()
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
