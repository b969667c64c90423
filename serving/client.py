"""A client for an exported model: a Python class, and a program that translates lines."""

import argparse
import itertools
import os
import random
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from grpc import StatusCode
from tqdm import tqdm

from serving.connections import GrpcConnection, RestConnection, protected, texts_of
from serving.errors import ServingError

FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0  # Seconds. Each pause is up to twice as long as the pause before.
SHORTEST = 0.001  # Seconds of a request.
CHUNK = 1024  # Lines that the program sorts by length and translates together.

DESCRIPTION = """Translate with a running server. Each line of input gives one line of output, in the same order.

  python -m serving.client --grpc localhost:8500 < new.en > new.de
      a file, with a progress bar
  python -m serving.client --url http://localhost:8501 < new.en > new.de
      the same over REST
  python -m serving.client --grpc localhost:8500 --model_name ende --label canary < new.en > new.de
      the version of another model with the label canary
  echo 'A man rides a horse.' | python -m serving.client --grpc localhost:8500 --retries 10
      retries more often, for a server that is just starting
  python -m serving.client --grpc localhost:8500 --glossary terms.tsv --protect < new.en > new.de
      with these translations of these terms; URLs, numbers with units, {variables} and their like stay

In Python:

  from serving.client import Client
  with Client(grpc="localhost:8500") as client:
      print(client.translate(["A man rides a horse."])[0].text)"""


@dataclass(frozen=True)
class Translation:
    """A translation and its score: the log-probability divided by the length penalty."""

    text: str
    score: float


@dataclass(frozen=True)
class Score:
    """The score of a given translation. `token_scores` are the log-probabilities of its T `pieces`."""

    score: float
    pieces: list
    token_scores: list


@dataclass(frozen=True)
class Explanation:
    """A translation in T pieces, with the log-probability of each piece and its attention to the S source pieces.

    `alignment` is a list of T lists of S weights.
    """

    source_pieces: list
    pieces: list
    token_scores: list
    alignment: list


class Client:
    """Asks a model for translations, with several requests at a time. The answers have the order of the texts.

    Args:
        url: str, http://HOST:PORT of the REST API. Give either `url` or `grpc`.
        grpc: str, HOST:PORT of the gRPC API.
        connection: object with `predict` and `close`, in place of `url` and `grpc`; see `serving.connections`.
        model: str, the model's name.
        version: int, or None for the newest version.
        label: str, a version label such as "stable"; excludes `version`.
        timeout: float, the most seconds for one request, including its retries.
        retries: int, the most retries of a request while the server is UNAVAILABLE (busy, starting or not running).
        max_batch_size: int, the most texts per request. The server must accept requests of this size.
        in_flight: int, the most requests at a time.
        glossary: dict, source form -> target form, or the path of a file of terms. Translations have these target
            forms. The model must have been trained with --protect.
        protect: bool, whether URLs, e-mail addresses, numbers with units, {variables}, format directives such as %s,
            and `code` stay as they are. The same holds for the model.

    Methods raise ValueError for inputs that do not fit together, and `ServingError` if the server refuses a request.
    """

    def __init__(
        self,
        url=None,
        grpc=None,
        connection=None,
        model="translator",
        version=None,
        label=None,
        timeout=30.0,
        retries=5,
        max_batch_size=32,
        in_flight=4,
        glossary=None,
        protect=False,
    ):
        if [url, grpc, connection].count(None) != 2:
            raise ValueError(f"either `url` or `grpc` must be given. Received: url={url}, grpc={grpc}")
        if version is not None and label is not None:
            raise ValueError(f"`version` excludes `label`. Received: version={version}, label={label}")
        for name, number, least in (("max_batch_size", max_batch_size, 1), ("in_flight", in_flight, 1)):
            if number < least:
                raise ValueError(f"`{name}` must be at least {least}. Received: {name}={number}")
        make, target = (RestConnection, url) if grpc is None else (GrpcConnection, grpc)
        connection = connection or make(target, model, version, label, in_flight)
        self._connection = protected(connection, glossary, protect)
        self._timeout = timeout
        self._retries = retries
        self._max_batch_size = max_batch_size
        self._pool = ThreadPoolExecutor(in_flight, thread_name_prefix="client")

    def __enter__(self):
        """Returns the client; `with` closes the client at the end of the block."""
        return self

    def __exit__(self, *_):
        """Closes the client."""
        self.close()

    def close(self):
        """Cancels all open requests and closes the connection."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._connection.close()

    def translate(self, texts, on_progress=None):
        """Translates each text.

        Args:
            texts: list of str.
            on_progress: function, called with the number of new answers after each request.

        Returns:
            list of `Translation`.
        """
        return self._translations("translate", {"text": _strings(texts)}, on_progress)

    def alternatives(self, texts):
        """Returns for each text a list of `Translation`, best first, as many as the exported beam size."""
        rows = self._ask("alternatives", {"text": _strings(texts)})
        return [list(map(Translation, row["translations"], row["scores"])) for row in rows]

    def translate_with_options(
        self,
        texts,
        *,
        length_penalty,
        prefix="",
        beam_size=0,
        max_length=0,
        repetition_penalty=1.0,
        no_repeat_ngram=0,
    ):
        """Translates each text with options. Each option is one value for all texts, or a list with one value per text.

        `length_penalty` is required, because the server has no value that means "the exported one". The other defaults
        mean "not given". See serving/README.md.
        """
        inputs = {
            "text": _strings(texts),
            "prefix": _strings([prefix] * len(texts) if isinstance(prefix, str) else prefix),
            **_numbers(texts, np.float32, length_penalty=length_penalty, repetition_penalty=repetition_penalty),
            **_numbers(texts, np.int32, beam_size=beam_size, max_length=max_length, no_repeat_ngram=no_repeat_ngram),
        }
        return self._translations("translate_with_options", inputs)

    def sample(self, texts, *, seed, temperature=1.0, top_k=0, top_p=1.0):
        """Draws a random translation of each text. Equal seeds give equal results. See `translate_with_options`."""
        inputs = {
            "text": _strings(texts),
            **_numbers(texts, np.float32, temperature=temperature, top_p=top_p),
            **_numbers(texts, np.int32, top_k=top_k),
            **_numbers(texts, np.int64, seed=seed),
        }
        return self._translations("sample", inputs)

    def score(self, texts, translations):
        """Scores `translations`, list of str, as translations of `texts`. Returns a list of `Score`."""
        inputs = {"text": _strings(texts), "translation": _strings(translations)}
        return list(map(_score, self._ask("score", inputs)))

    def explain(self, texts):
        """Returns an `Explanation` for each text."""
        return list(map(_explanation, self._ask("explain", {"text": _strings(texts)})))

    def _translations(self, signature_name, inputs, on_progress=None):
        rows = self._ask(signature_name, inputs, on_progress)
        return [Translation(row["translation"], row["score"]) for row in rows]

    def _ask(self, signature_name, inputs, on_progress=None):
        """Sends inputs, arrays (N,), in one or more requests. Returns N dicts output name -> value."""
        count = len(inputs["text"])
        if {len(array) for array in inputs.values()} != {count}:
            sizes = {name: len(array) for name, array in inputs.items()}
            raise ValueError(f"there must be one of each input for each text. Received: {sizes}")
        # The longest text determines the time of a batch. Sorting puts long texts together, and sends long texts first.
        order = sorted(range(count), key=lambda row: -len(inputs["text"][row]))
        batches = [order[start : start + self._max_batch_size] for start in range(0, count, self._max_batch_size)]
        replies = [
            self._pool.submit(self._send, signature_name, {name: array[rows] for name, array in inputs.items()})
            for rows in batches
        ]
        answers = [None] * count
        try:
            for rows, reply in zip(batches, replies, strict=True):
                columns = reply.result()
                for place, values in zip(rows, zip(*columns.values(), strict=True), strict=True):
                    answers[place] = dict(zip(columns, values, strict=True))
                if on_progress:
                    on_progress(len(rows))
        finally:
            for reply in replies:
                reply.cancel()
        return answers

    def _send(self, signature_name, inputs):
        """Sends one request, and repeats the request while the server is unavailable. The random pauses grow."""
        deadline = time.monotonic() + self._timeout
        for attempt in itertools.count():
            try:
                # A pause may end after the deadline, and urllib3 refuses a time that is not positive.
                left = max(deadline - time.monotonic(), SHORTEST)
                return self._connection.predict(signature_name, inputs, left)
            except ServingError as error:
                if error.code == StatusCode.DEADLINE_EXCEEDED:
                    raise ServingError(error.code, f"no answer within {self._timeout:g} seconds") from None
                pause = random.uniform(0.5, 1.0) * min(FIRST_PAUSE * 2**attempt, LONGEST_PAUSE)
                is_last = attempt == self._retries or time.monotonic() + pause >= deadline
                if error.code != StatusCode.UNAVAILABLE or is_last:
                    raise
            time.sleep(pause)


def _strings(texts):
    """Converts a list of str to an array (N,) of bytes objects."""
    if isinstance(texts, str) or not all(isinstance(text, str) for text in texts):
        raise ValueError(f"texts must be a list of str. Received: {str(texts)[:80]!r}")
    return texts_of(texts)


def _numbers(texts, dtype, **inputs):
    return {name: np.broadcast_to(np.asarray(value, dtype), (len(texts),)) for name, value in inputs.items()}


def _score(row):
    pieces = _without_padding(row["pieces"])
    return Score(row["score"], pieces, row["token_scores"][: len(pieces)])


def _explanation(row):
    source_pieces, pieces = _without_padding(row["source_pieces"]), _without_padding(row["pieces"])
    alignment = [weights[: len(source_pieces)] for weights in row["alignment"][: len(pieces)]]
    return Explanation(source_pieces, pieces, row["token_scores"][: len(pieces)], alignment)


def _without_padding(pieces):
    """Drops the padding: everything from the first "" on."""
    return pieces[: pieces.index("")] if "" in pieces else pieces


def translate_lines(client, source, target, chunk, on_progress=None):
    """Translates every line of a binary stream, without a byte order mark. Invalid UTF-8 becomes U+FFFD.

    Args:
        client: `Client`.
        source: iterable of bytes, lines with their ends.
        target: binary stream.
        chunk: int, the number of lines to read before each translation.
        on_progress: see `Client.translate`.
    """
    lines = (line if number else line.removeprefix(b"\xef\xbb\xbf") for number, line in enumerate(source))
    texts = (line.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8", "replace") for line in lines)
    while of_chunk := list(itertools.islice(texts, chunk)):
        translations = (found.text.replace("\n", " ") for found in client.translate(of_chunk, on_progress))
        target.write("".join(f"{text}\n" for text in translations).encode("utf-8"))
        target.flush()


def parse_arguments(arguments=None):
    """Parses the flags: dict of arguments of `Client`."""
    parser = argparse.ArgumentParser(
        prog="python -m serving.client", description=DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    server = parser.add_mutually_exclusive_group(required=True)
    server.add_argument("--url", help="REST API of the server, http://HOST:PORT")
    server.add_argument("--grpc", help="gRPC API of the server, HOST:PORT")
    parser.add_argument("--model_name", dest="model", default="translator", help="(default: translator)")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--version", type=int, help="version (default: the newest)")
    which.add_argument("--label", help="label of a version, such as stable; excludes --version")
    parser.add_argument("--timeout", type=float, default=60.0, help="most seconds for a request (default: 60)")
    parser.add_argument("--retries", type=int, default=5, help="most retries of a request (default: 5)")
    parser.add_argument("--max_batch_size", type=int, default=32, help="most sentences per request (default: 32)")
    parser.add_argument("--in_flight", type=int, default=4, help="most requests at a time (default: 4)")
    add_protection_arguments(parser)
    return vars(parser.parse_args(arguments))


def add_protection_arguments(parser):
    """Adds to an argparse parser the flags of words that translations keep."""
    terms = (
        "file of terms, a source form, a tab and its target form on every line; needs a model trained with --protect"
    )
    parser.add_argument("--glossary", help=terms)
    kept = "keep URLs, e-mail addresses, numbers with units, {variables}, %%s and `code`; needs the same model"
    parser.add_argument("--protect", action="store_true", help=kept)


def main():
    """Translates standard input to standard output. A mistake ends the program with one line."""
    options = parse_arguments()
    target = options["grpc"] or options["url"]
    chunk = 1 if sys.stdin.isatty() else CHUNK  # A person who types waits for each answer.
    try:
        with Client(**options) as client, tqdm(unit=" sentences", disable=None) as progress:
            translate_lines(client, sys.stdin.buffer, sys.stdout.buffer, chunk, progress.update)
    except KeyboardInterrupt:
        _leave("interrupted", 130)
    except BrokenPipeError:  # The reader has closed the pipe, as in `... | head`.
        _leave(None, 1)
    except ServingError as error:
        _leave(f"error: {target} does not translate: {error.code.name}: {error.message}", 2)
    except (ValueError, OSError) as error:
        _leave(f"error: {error}", 2)


def _leave(line, status):
    """Ends the program at once, without waiting for open requests."""
    if line:
        print(line, file=sys.stderr, flush=True)
    os._exit(status)


if __name__ == "__main__":
    main()
