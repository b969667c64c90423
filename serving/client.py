"""A client for an exported model: a Python class, and a program that translates lines."""

import contextlib
import copy
import itertools
import os
import random
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple
from urllib.parse import urlsplit

import numpy as np
from grpc import StatusCode
from tqdm import tqdm

from serving.connections import LANGUAGES, GrpcConnection, RestConnection, TextConnection, texts_of
from serving.errors import Parser, ServingError
from serving.protection import Protection, read_glossary

FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0  # Seconds. Each pause is up to twice as long as the pause before.
NOT_GIVEN = {"prefix": "", "beam_size": 0, "max_length": 0, "repetition_penalty": 1.0, "no_repeat_ngram": 0}
DTYPES = {"seed": np.int64, **dict.fromkeys(("beam_size", "max_length", "no_repeat_ngram", "top_k"), np.int32)}

_SCHEMES_OF_GRPC = ("dns:", "unix:", "unix-abstract:", "ipv4:", "ipv6:", "xds:")  # of its URIs

DESCRIPTION = """Translate with a running server. Each line of input gives one line of output, in the same order.

  python -m serving.client --grpc localhost:8500 < new.en > new.de
  python -m serving.client --url http://localhost:8501 --model_name ende --label canary < new.en > new.de
  python -m serving.client --grpc localhost:8500 --retries 10 --glossary terms.tsv --protect < new.en > new.de
  python -m serving.client --grpc localhost:8500 --target_lang fr < new.en > new.fr"""


class Translation(NamedTuple):
    """A translation and its score: the log-probability divided by the length penalty."""

    text: str
    score: float


class Score(NamedTuple):
    """The score of a given translation. `token_scores` are the log-probabilities of its T `pieces`."""

    score: float
    pieces: list
    token_scores: list


class Explanation(NamedTuple):
    """A translation in T pieces, with their log-probabilities; `alignment` has T lists of S weights."""

    source_pieces: list
    pieces: list
    token_scores: list
    alignment: list


class Client(contextlib.AbstractContextManager):
    """Asks a model for translations, with several requests at a time. The answers have the order of the texts.

    Give `url`, http://HOST:PORT of the REST API, or `grpc`, HOST:PORT of the gRPC API, or another `connection` with the
    methods of `serving.connections`. `version` or `label` names a version; None means the newest. A request with its
    `retries` takes at most `timeout` seconds; only an UNAVAILABLE server (busy, starting, not running) has retries. At
    most `in_flight` requests at a time have at most `max_batch_size` texts each. `glossary`, a dict of terms or the
    path of their file, and `protect` keep words, see serving/README.md: the model must be trained with --protect.

    `languages` are `source_lang` and `target_lang`, for a model of many languages. "", and a code that the model does
    not know, stand for its default; see `knows`. Languages and options are one value, or a list of one for each text.

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
        timeout=60.0,
        retries=5,
        max_batch_size=32,
        in_flight=4,
        glossary=None,
        protect=False,
    ):
        if [url, grpc, connection].count(None) != 2:
            raise ValueError(f"either `url` or `grpc` must be given. Received: url={url}, grpc={grpc}")
        if connection is None and not _is_address(url, grpc):
            raise ValueError(f"`url` must be http://HOST:PORT, `grpc` HOST:PORT. Received: url={url}, grpc={grpc}")
        if not 0 < timeout < float("inf"):
            raise ValueError(f"`timeout` must be a positive number of seconds. Received: {timeout}")
        if version is not None and label is not None:
            raise ValueError(f"`version` excludes `label`. Received: version={version}, label={label}")
        if max_batch_size < 1 or in_flight < 1:
            received = f"max_batch_size={max_batch_size}, in_flight={in_flight}"
            raise ValueError(f"`max_batch_size` and `in_flight` must be positive. Received: {received}")
        make, target = (RestConnection, url) if grpc is None else (GrpcConnection, grpc)
        self._connection = TextConnection(connection or make(target, model, version, label, in_flight))
        self._terms = read_glossary(glossary) if isinstance(glossary, (str, os.PathLike)) else dict(glossary or {})
        self._protect = protect
        self.protection = Protection(self._terms, patterns=protect) if self._terms or protect else None
        self._timeout, self._retries, self._max_batch_size = timeout, retries, max_batch_size
        self._pool = ThreadPoolExecutor(in_flight, thread_name_prefix="client")

    def is_ready(self, timeout_s):
        """Returns whether the server says within some seconds that the model is in service."""
        return self._connection.is_ready(timeout_s)

    def keeping(self, terms):
        """Returns a client that keeps more terms, a dict. Both share their connection."""
        other = copy.copy(self)
        other.protection = Protection({**self._terms, **terms}, patterns=self._protect)
        return other

    def __exit__(self, *_):
        """Closes the client at the end of a block of `with`."""
        self.close()

    def close(self):
        """Cancels all open requests and closes the connection."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._connection.close()

    def translate(self, texts, on_progress=None, **languages):
        """Returns a `Translation` of each text. Calls `on_progress` with the number of new answers of each request."""
        return self._translations("translate", _inputs(texts, languages), on_progress)

    def alternatives(self, texts, **languages):
        """Returns for each text a list of `Translation`, best first, as many as the exported beam size."""
        rows = self._ask("alternatives", _inputs(texts, languages))
        return [list(map(Translation, row["translations"], row["scores"])) for row in rows]

    def translate_with_options(self, texts, *, length_penalty, **options):
        """Translates each text with languages and the options of `NOT_GIVEN`, see serving/README.md.

        `length_penalty` is required, because the server has no number that means "not given".
        """
        inputs = _inputs(texts, options, length_penalty=length_penalty, **NOT_GIVEN)
        return self._translations("translate_with_options", inputs)

    def sample(self, texts, *, seed, **options):
        """Draws a random translation of each text, with languages and `temperature`, `top_k` and `top_p`."""
        return self._translations("sample", _inputs(texts, options, seed=seed, temperature=1.0, top_k=0, top_p=1.0))

    def score(self, texts, translations, **languages):
        """Scores `translations`, list of str, as translations of `texts`. Returns a list of `Score`."""
        inputs = {**_inputs(texts, languages), "translation": _strings(translations)}
        return list(map(_score, self._ask("score", inputs)))

    def explain(self, texts, **languages):
        """Returns an `Explanation` for each text."""
        return list(map(_explanation, self._ask("explain", _inputs(texts, languages))))

    def knows(self, target_lang):
        """Returns whether the model has a target language. If so, it takes the tag of the language out of a text."""
        plain, tagged = self._ask("explain", _inputs(["a", f">>{target_lang}<< a"], {}))
        return plain.get("source_pieces") == tagged.get("source_pieces")

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
                left = max(deadline - time.monotonic(), 0.001)
                return self._connection.predict(signature_name, inputs, left, self.protection)
            except ServingError as error:
                if error.code == StatusCode.DEADLINE_EXCEEDED:
                    raise ServingError(error.code, f"no answer within {self._timeout:g} seconds") from None
                pause = random.uniform(0.5, 1.0) * min(FIRST_PAUSE * 2**attempt, LONGEST_PAUSE)
                is_last = attempt == self._retries or time.monotonic() + pause >= deadline
                if error.code != StatusCode.UNAVAILABLE or is_last:
                    raise
            time.sleep(pause)


def _is_address(url, grpc):
    """Returns whether the one that is given names a host and a port, or is a URI of gRPC. A URL needs no port."""
    if url is None and grpc.startswith(_SCHEMES_OF_GRPC):
        return True
    with contextlib.suppress(ValueError):  # A port above 65535 raises it.
        if url is None:
            found = urlsplit(f"//{grpc}")
            return bool(found.hostname and found.port)
        found = urlsplit(url)
        return found.scheme in ("http", "https") and bool(found.hostname) and found.port != 0
    return False


def _strings(texts):
    """Converts a list of str to an array (N,) of bytes objects."""
    if isinstance(texts, str) or not all(isinstance(text, str) for text in texts):
        raise ValueError(f"texts must be a list of str. Received: {str(texts)[:80]!r}")
    return texts_of(texts)


def _inputs(texts, options, **defaults):
    """Makes the inputs of texts and options: dict name -> array (N,)."""
    if unknown := options.keys() - {*LANGUAGES, *defaults}:
        raise TypeError(f"there is no option {', '.join(sorted(unknown))}")
    inputs = {"text": _strings(texts)}
    for name, value in {**defaults, **options}.items():
        if name in ("prefix", *LANGUAGES):
            inputs[name] = _strings([value] * len(texts) if isinstance(value, str) else value)
        else:
            inputs[name] = np.broadcast_to(np.asarray(value, DTYPES.get(name, np.float32)), (len(texts),))
    return inputs


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


def translate_lines(client, source, target, chunk, on_progress=None, **languages):
    """Translates binary lines to a binary stream, `chunk` lines at a time. Invalid UTF-8 becomes U+FFFD."""
    lines = (line.removesuffix(b"\n").removesuffix(b"\r") for line in source)
    texts = (line.decode("utf-8" if row else "utf-8-sig", "replace") for row, line in enumerate(lines))
    while lines := list(itertools.islice(texts, chunk)):
        translations = client.translate(lines, on_progress, **languages)
        target.write("".join(found.text.replace("\n", " ") + "\n" for found in translations).encode("utf-8"))
        target.flush()


def parse_arguments(arguments=None):
    """Parses the flags: dict of arguments of `Client`, and of languages that are given."""
    parser = Parser(prog="python -m serving.client", description=DESCRIPTION)
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
    for name, what in (("source_lang", "language of the texts"), ("target_lang", "language of the translations")):
        parser.add_argument(f"--{name}", help=f"{what}, such as fr, for a model of many languages")
    add_protection_arguments(parser)
    return vars(parser.parse_args(arguments))


def add_protection_arguments(parser):
    """Adds to an argparse parser the flags of words that translations keep."""
    parser.add_argument("--glossary", help="terms: source form, tab, target form; for a model trained with --protect")
    kept = "keep URLs, e-mail addresses, numbers with units, {variables}, %%s and `code`; needs the same model"
    parser.add_argument("--protect", action="store_true", help=kept)


def main():
    """Translates standard input to standard output. A mistake ends the program with one line."""
    options = parse_arguments()
    languages = {name: code for name in LANGUAGES if (code := options.pop(name))}
    target = options["grpc"] or options["url"]
    chunk = 1 if sys.stdin.isatty() else 1024  # Lines to translate together. A person who types waits for each answer.
    try:
        with Client(**options) as client, tqdm(unit=" sentences", disable=None) as progress:
            if "target_lang" in languages and not client.knows(languages["target_lang"]):
                code = languages["target_lang"]
                raise ValueError(f"the model has no target language {code}. With one direction, omit --target_lang")
            translate_lines(client, sys.stdin.buffer, sys.stdout.buffer, chunk, progress.update, **languages)
    except KeyboardInterrupt:
        line, status = "interrupted", 130
    except BrokenPipeError:  # The reader has closed the pipe, as in `... | head`.
        line, status = "", 1
    except ServingError as error:
        line, status = f"error: {target} does not translate: {error.code.name}: {error.message}", 2
    except (ValueError, OSError) as error:
        line, status = f"error: {error}", 2
    else:
        return
    sys.stderr.write(f"{line}\n" * bool(line))
    sys.stderr.flush()
    os._exit(status)  # Without waiting for open requests.


if __name__ == "__main__":
    main()
