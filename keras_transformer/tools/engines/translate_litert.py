"""Translates with an export for LiteRT, without TensorFlow: text in, text out.

    pip install ai-edge-litert sentencepiece
    python translate_litert.py < new.en > new.de

`export.py --format litert` writes this file beside the model. The file imports nothing else of the project, so that a
directory with it is a whole translator. From Python: `LiteRTTranslator(directory).translate("one two")`.
"""

import contextlib
import json
import os
import re
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import NamedTuple

try:
    import numpy as np
    import sentencepiece
    from ai_edge_litert.interpreter import Interpreter
except ImportError as error:
    if __name__ == "__main__":
        sys.exit(f"error: {error}: pip install ai-edge-litert sentencepiece")
    raise

MODEL, SETTINGS, READER = "model.tflite", "litert.json", "translate_litert.py"
SHARED, SOURCE, TARGET = "tokenizer.model", "source_tokenizer.model", "target_tokenizer.model"
SPACE = "▁"  # in place of a space in a piece
INNER_BYTE = re.compile("<0x[89AB].>")  # a byte that is not the first of a character
CHUNK = 256  # lines of a file that are translated side by side


class Translation(NamedTuple):
    """The translation of one text.

    Args:
        text: str.
        score: float, its log-probability over its length penalty; 0 for blank text.
    """

    text: str
    score: float


class LiteRTTranslator:
    """Translates texts as the exported run does.

    The model translates one sentence at a time. Every thread has an interpreter of its own, so that the cores of a
    machine translate different sentences.

    Args:
        directory: EXPORT_DIR/VERSION, or EXPORT_DIR for its latest version.
        threads: how many sentences are translated side by side; as many as there are cores by default.

    Attributes:
        files: list of the path of the model.

    Raises:
        OSError: if a file of the export is missing.
        ValueError, RuntimeError: if a file of the export is damaged.
    """

    def __init__(self, directory, threads=None):
        directory = Path(directory)
        paths = [path for path in directory.glob("[0-9]*") if path.name.isascii() and path.name.isdecimal()]
        versions = [path for path in paths if int(path.name) < 2**63]
        self.path = max(versions, key=lambda path: int(path.name)) if versions else directory
        self.files = [self.path / MODEL]
        self._model = self.files[0].read_bytes()  # kept, because a thread makes its interpreter when it is first needed
        self._rules = Rules(**json.loads((self.path / SETTINGS).read_text(encoding="utf-8")))
        names = (SHARED, SHARED) if (self.path / SHARED).exists() else (SOURCE, TARGET)
        self._source, self._target = (
            sentencepiece.SentencePieceProcessor(model_file=str(self.path / name)) for name in names
        )
        self._of_thread = threading.local()
        self._threads = ThreadPoolExecutor(threads or number_of_cores())
        with without_greeting():
            self._threads.submit(self._search, [self._source.unk_id()]).result()  # a damaged model is found here

    def translate(self, texts, on_progress=None):
        """Translates any number of texts.

        Args:
            texts: list of str, or one str.
            on_progress: called with 1 after each text.

        Returns:
            list of str, in the order of `texts`; str if `texts` is one.
        """
        if isinstance(texts, str):
            return self.translate([texts])[0]
        return [translation.text for translation in self.translate_scored(texts, on_progress)]

    def translate_scored(self, texts, on_progress=None):
        """As `translate`, with scores: list of str -> list of `Translation`."""
        translations = []
        for translation in self._threads.map(self._translate_text, texts):
            translations.append(translation)
            if on_progress:
                on_progress(1)
        return translations

    def translate_batch(self, texts):
        """Translates a list of str: (list of str, list of float scores)."""
        rows = self.translate_scored(texts)
        return [row.text for row in rows], [row.score for row in rows]

    def fragments(self, texts):
        """Divides texts: for each of a list of str, a list of its sentences and of what stands between them."""
        texts = [self._rules.fragments(text) or [""] for text in texts]
        return [[part.replace(self._rules.no_space, "") for part in fragments] for fragments in texts]

    def _translate_text(self, text):
        """One text: its white space stays, its sentences are translated in parts, and all is joined again."""
        written, log_prob, tokens = [], 0.0, 0
        for fragment in self._rules.fragments(text):
            sentence = self._source.encode(self._rules.read(fragment))
            if not sentence:  # white space, or nothing that can be seen
                written.append(fragment)
                continue
            for gap, part in self._parts(sentence):
                ids, score = self._search(part)
                log_prob += score * self._rules.penalty(len(ids))
                tokens += len(ids)
                written.append(gap + self._decode(ids))
        return Translation(self._rules.joined(written), log_prob / self._rules.penalty(tokens))

    def _parts(self, ids):
        """Divides a sentence of too many pieces: yields the text before each part, and the ids of the part."""
        pieces = [self._source.id_to_piece(id) for id in ids]
        begins = divisions(pieces, self._rules.max_length)
        for start, end in zip(begins, [*begins[1:], len(ids)], strict=True):
            yield " " if start and pieces[start].startswith(SPACE) else "", ids[start:end]

    def _search(self, ids):
        """The best translation of the ids of a part: its ids, with the end where it was reached, and its score."""
        if not hasattr(self._of_thread, "search"):
            self._of_thread.interpreter = Interpreter(model_content=self._model, num_threads=1)
            self._of_thread.search = self._of_thread.interpreter.get_signature_runner()
        found = self._of_thread.search(ids=np.array([ids], np.int32))
        return found["ids"].tolist(), float(found["score"])

    def _decode(self, ids):
        """The text of ids, written as TensorFlow Text writes it: without control symbols and spaces at the start."""
        ids = [id for id in ids if id > self._rules.last_control_id]
        first = next((i for i, id in enumerate(ids) if self._target.id_to_piece(id) != SPACE), len(ids))
        return self._target.decode(ids[first:])


class Rules:
    """How texts are divided and joined, and how scores are normalised. The file `SETTINGS` has the arguments.

    Args:
        beam_size: of the search inside the model.
        length_penalty: alpha of ((5 + n) / 6)^alpha, of the search inside the model.
        max_length: most pieces of a part.
        last_control_id: the ids up to this one write nothing.
        blank: pattern of one character of white space. A text of nothing else has no translation.
        no_space: stands for the white space between two sentences that have none.
        border: stands between two fragments of a text after the replacements of `divide`.
        divide: list of (pattern, replacement), for a text.
        join: list of (pattern, replacement), for a translation.
        copied: pattern of a fragment that is not translated. An old export has none.
        unread: list of (pattern, replacement), with which the model reads a sentence.
        space: what an old export has in place of `copied`: pattern of one character that may stand between sentences.
    """

    def __init__(
        self,
        beam_size,
        length_penalty,
        max_length,
        last_control_id,
        blank,
        no_space,
        border,
        divide,
        join,
        copied="",
        unread=(),
        space="",
    ):
        self.beam_size = beam_size
        self.length_penalty = length_penalty
        self.max_length = max_length
        self.last_control_id = last_control_id
        self.no_space = no_space
        self._blank = re.compile(f"{blank}*")
        self._copied = re.compile(copied or f"{space or blank}*|{no_space}")
        self._border = border
        self._divide, self._unread, self._join = (
            [(re.compile(pattern), new) for pattern, new in rules] for rules in (divide, unread, join)
        )

    def fragments(self, text):
        """The white space and the sentences of a text in their order, a list of str."""
        if self._blank.fullmatch(text):
            return []
        text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")  # JSON has halves of emoji
        return replaced(text, self._divide).split(self._border)

    def read(self, fragment):
        """What the model reads of a fragment, str: "" if the fragment is white space and symbols."""
        return "" if self._copied.fullmatch(fragment) else replaced(fragment, self._unread)

    def joined(self, written):
        """The translation of a text, from its white space and the translations of its parts."""
        return replaced("".join(written), self._join)

    def penalty(self, length):
        """((5 + n) / 6)^alpha of n tokens."""
        return ((5 + length) / 6) ** self.length_penalty


def replaced(text, rules):
    """The text after all replacements, a list of (pattern, replacement)."""
    for pattern, replacement in rules:
        text = pattern.sub(replacement, text)
    return text


def divisions(pieces, max_length):
    """Where the parts of a sentence begin: at about equal distances, and at words where that is possible.

    A part begins at a word if a word begins at most a quarter of `max_length` before, and never inside a character.

    Args:
        pieces: list of str, one at least.
        max_length: most pieces of a part. A part can exceed it by the rest of a word.

    Returns:
        list of int.
    """
    reach = max(max_length // 4, 1)
    room = max(max_length - reach - 4, 1)  # a character has at most 4 pieces
    count = -(-len(pieces) // room) if len(pieces) > max_length else 1
    begins, last, word, character = [], -1, 0, 0
    for place, piece in enumerate(pieces):
        word = place if piece.startswith(SPACE) else word
        character = place if not INNER_BYTE.fullmatch(piece) else character
        part = (word + (character - word) // reach * reach) * count // len(pieces)
        if part != last:
            begins.append(place)
        last = part
    return begins


@contextlib.contextmanager
def without_greeting():
    """Leaves out the line that LiteRT prints when its first interpreter starts. Errors of LiteRT are exceptions."""
    sys.stderr.flush()
    saved, null = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 2)
    try:
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)
        os.close(null)


def number_of_cores():
    """The number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


def main():
    """Translates standard input line by line."""
    directory = Path(__file__).parent
    try:
        translator = LiteRTTranslator(directory)
    except (OSError, ValueError, RuntimeError) as error:
        sys.exit(f"error: no LiteRT export at {directory}, or it is damaged: {error}")
    sys.stdin.reconfigure(encoding="utf-8-sig", errors="replace", newline="\n")
    sys.stdout.reconfigure(encoding="utf-8")
    while lines := list(islice(sys.stdin, 1 if sys.stdin.isatty() else CHUNK)):
        for translation in translator.translate([line.rstrip("\r\n") for line in lines]):
            print(translation.replace("\n", " "), flush=True)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        os._exit(130)  # An orderly exit would translate the lines that wait for a thread.
    except BrokenPipeError:
        os._exit(1)
