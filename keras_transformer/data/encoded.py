"""Sentence pairs as token ids: flat arrays with offsets, in files that are mapped into memory.

Whatever the size of the corpus, tokenising holds one chunk of pairs in memory, and training holds only the pages of the
files that its batches touch. The kernel takes these pages back when it needs memory. Batches are quick, because a batch
is one indexing of a flat array. The files are made once and kept (`make_once`).
"""

import itertools
import json
import logging
import math
import shutil
import zlib
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import tensorflow as tf
from tqdm import tqdm

from keras_transformer.config import BOS_ID, EOS_ID, PAD_ID
from keras_transformer.data.corpora import InTurn
from keras_transformer.errors import CorpusError, counted
from keras_transformer.files import whole_directory

CHUNK = 8192  # pairs tokenised at a time
log = logging.getLogger(__name__)
LAYOUT = 2  # of the files; a change of their content must raise it, so that older files are made again
ABOUT = "about.json"  # beside the arrays: the dtype of the ids, and the numbers of dropped pairs
INDEX = "index.json"  # written last: the ingredients, and the checksum of every other file
BLOCK_BYTES = 1 << 20


@dataclass(frozen=True)
class Sentences:
    """Token ids of many sentences.

    Args:
        ids: int (total,), all sentences one after the other.
        starts: int64 (N + 1,); sentence i is ids[starts[i] : starts[i + 1]].
    """

    ids: np.ndarray
    starts: np.ndarray

    @classmethod
    def open(cls, stem, dtype):
        """Maps the files STEM_ids, of integers of this type, and STEM_starts into memory."""
        ids, starts = np.memmap(f"{stem}_ids", dtype, mode="r"), np.memmap(f"{stem}_starts", np.int64, mode="r")
        return cls(np.asarray(ids), np.asarray(starts))

    @property
    def lengths(self):
        """int64 (N,): tokens of every sentence, counted anew."""
        return np.diff(self.starts)

    def lengths_of(self, rows):
        """int64 (B,): tokens of the sentences `rows`."""
        return self.starts[rows + 1] - self.starts[rows]

    def of(self, rows):
        """The sentences `rows` (B,) alone, as `Sentences`."""
        lengths = self.lengths_of(rows)
        starts = np.concatenate([[0], np.cumsum(lengths)])
        return Sentences(self.ids[np.repeat(self.starts[rows] - starts[:-1], lengths) + np.arange(starts[-1])], starts)

    @classmethod
    def of_lists(cls, rows):
        """The `Sentences` of a list of lists of int."""
        starts = np.cumsum([0, *map(len, rows)])
        return cls(np.fromiter(itertools.chain.from_iterable(rows), np.int64, int(starts[-1])), starts)

    def count(self, wanted):
        """How many of the ids are in the list `wanted`: int."""
        starts = range(0, len(self.ids), CHUNK * CHUNK)
        return sum(int(np.isin(self.ids[start : start + CHUNK * CHUNK], wanted).sum()) for start in starts)

    def lists(self):
        """The ids of every sentence: a list of lists of int."""
        ids = np.asarray(self.ids, np.int64).tolist()
        return [ids[start:stop] for start, stop in itertools.pairwise(self.starts.tolist())]

    def texts(self, tokenizer):
        """The sentences as their `Tokenizer` writes them, a list of str."""
        ids = tf.RaggedTensor.from_row_splits(self.ids.astype(np.int32), self.starts)
        return [text.decode("utf-8") for text in tokenizer.decode(ids).numpy()]

    def padded(self, rows):
        """The sentences `rows` (B,) as int32 (B, T), with T the length of the longest."""
        lengths = self.lengths_of(rows)
        positions = np.arange(lengths.max())[None, :]  # (1, T)
        inside = positions < lengths[:, None]
        padded = np.full(inside.shape, PAD_ID, np.int32)
        padded[inside] = self.ids[(self.starts[rows, None] + positions)[inside]]
        return padded


@dataclass(frozen=True)
class Share:
    """One of several corpora whose pairs follow one another, and the share of it that an epoch takes.

    The pair at place i of its corpus is taken floor((i + e + 1) w) - floor((i + e) w) times in epoch e, with w the
    weight. So every epoch takes a share w of the pairs, to within one pair, and each epoch takes other pairs. If
    w = p / q, then q epochs in a row take every pair exactly p times. Places are in the order of the lengths, so no
    epoch prefers short or long pairs.

    Args:
        size: number of its pairs.
        weight: `Fraction`, how often an epoch takes each pair on average.
    """

    size: int
    weight: Fraction = Fraction(1)

    @property
    def fewest(self):
        """Number of pairs in the smallest epoch."""
        return math.floor(self.size * self.weight)

    @property
    def most(self):
        """Number of pairs in the largest epoch."""
        return math.ceil(self.size * self.weight)

    def times(self, epoch):
        """How often an epoch takes the pair at each place: int64 (size,)."""
        p, q = self.weight.as_integer_ratio()
        return np.diff((np.arange(self.size + 1) + epoch % q) * p // q)

    def latest_places(self):
        """The last place that the pair in each position may have in any epoch: int64 (most,)."""
        p, q = self.weight.as_integer_ratio()
        places = -(-np.arange(1, self.most + 1) * q // p) - 1
        return np.minimum(places, self.size - 1)


@dataclass(frozen=True, eq=False)  # equal only to itself: large arrays are never compared
class EncodedPairs:
    """A split of a corpus, tokenised and filtered.

    Args:
        source: `Sentences`.
        target: `Sentences`, aligned with the source, each with eos at its end: the labels.
        dropped: reason -> number of pairs left out.
        shares: tuple of `Share`, of the corpora, whose pairs follow one another; () for one corpus of weight 1.
        directions: tuple of (source, target), the languages of every share; () in a run of one direction.
        tags: tuple of (source_tag, first_id), the ids for each direction, see `LanguageTags`; () without tags.
        links: `Sentences` of the links of every pair, see `data/links.py`; None without links.
    """

    source: Sentences
    target: Sentences
    dropped: dict
    shares: tuple = ()
    directions: tuple = ()
    tags: tuple = ()
    links: Sentences | None = None

    @classmethod
    def open(cls, directory):
        """Maps the files of `encode_pairs` into memory."""
        about = json.loads(Path(directory, ABOUT).read_text(encoding="utf-8"))
        source, target = (Sentences.open(Path(directory, side), about["dtype"]) for side in ("source", "target"))
        directions = tuple(map(tuple, about.get("directions", ())))
        return cls(source, target, about["dropped"], tuple(map(Share, about.get("sizes", ()))), directions)

    def __len__(self):
        return len(self.source.starts) - 1

    def of(self, rows):
        """The pairs `rows` (B,) alone, without their tags."""
        links = self.links and self.links.of(rows)
        return EncodedPairs(self.source.of(rows), self.target.of(rows), dropped={}, links=links)

    @property
    def target_pieces(self):
        """int64 (N,): tokens of every target sentence without its eos, counted anew."""
        return self.target.lengths - 1

    @property
    def lengths(self):
        """int64 (N,) twice: tokens of every source sentence and of every target sentence, with tag and eos."""
        return self.source.lengths + bool(self.tags), self.target.lengths

    def tagged(self, languages):
        """The same pairs, with the tags of their directions. `languages` is a `LanguageTags`; None adds no tags."""
        if languages is None:
            return self
        return replace(self, tags=tuple(languages.ids(*languages.find(*each)) for each in self.directions))

    def source_tags(self, rows):
        """The tags before the source sentences `rows` (B,): int32 (B, 1); (B, 0) if pairs have no tags."""
        tags = np.array([source_tag for source_tag, _ in self.tags], np.int32)
        return tags[self.shares_of(rows), None] if self.tags else np.empty((len(rows), 0), np.int32)

    def first_ids(self, rows):
        """The tokens with which the decoder begins for the pairs `rows` (B,): bos, or tags; int32 (B,)."""
        first = np.array([first_id for _, first_id in self.tags], np.int32)
        return first[self.shares_of(rows)] if self.tags else np.full(len(rows), BOS_ID, np.int32)

    def shares_of(self, rows):
        """The number of the share of each of the pairs `rows` (B,): int64 (B,)."""
        return np.searchsorted(np.cumsum([share.size for share in self.shares]), rows, side="right")

    def weighted(self, weights):
        """The same pairs, with a `Fraction` for each corpus: how often an epoch takes it."""
        shares = [Share(share.size, weight) for share, weight in zip(self.shares, weights, strict=True)]
        return replace(self, shares=tuple(shares))

    @property
    def tokens_per_epoch(self):
        """Target tokens that an epoch takes on average, eos counted; float."""
        if not self.shares:
            return float(len(self.target.ids))
        stops = np.cumsum([share.size for share in self.shares])
        tokens = np.diff(self.target.starts[[0, *stops]])
        return float(sum(share.weight * count for share, count in zip(self.shares, tokens.tolist(), strict=True)))

    def describe(self):
        """One line for the console: the numbers of pairs kept and dropped, with the reasons."""
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in self.dropped.items() if count)
        tokens = f"{len(self.source.ids):,} source and {counted(self.target_pieces.sum(), 'target token')}"
        return f"{counted(len(self), 'pair')} ({tokens})" + (f"; dropped {reasons}" if reasons else "; none dropped")


def encode_pairs(pairs, source_tokenizer, target_tokenizer, max_length, directory, name="corpus", directions=()):
    """Tokenises pairs into files, chunk by chunk, and drops pairs that are blank on one side or too long.

    Ids are stored in the smallest unsigned type that holds both vocabularies. In a terminal, a progress bar appears
    after three seconds.

    Args:
        pairs: iterable of (source, target) strings; `InTurn` for several corpora, each of which becomes a `Share`.
        source_tokenizer: `Tokenizer`.
        target_tokenizer: `Tokenizer`, which may be the same.
        max_length: most tokens of either side, control symbols not counted.
        directory: for the files; those of an earlier call are replaced.
        name: of the pairs, for an error message.
        directions: list of (source, target), the languages of each corpus; () in a run of one direction.

    Returns:
        `EncodedPairs`, mapped from the files.

    Raises:
        CorpusError: if no pair of a corpus is left.
    """
    tokenizers = (source_tokenizer, target_tokenizer)
    dtype = np.min_scalar_type(max(tokenizer.vocabulary_size for tokenizer in tokenizers) - 1)
    writers = [_SentencesWriter(Path(directory, side), dtype) for side in ("source", "target")]
    reasons = ("blank on one side", f"longer than {max_length} tokens")
    sizes, dropped = [], dict.fromkeys(reasons, 0)
    for corpus, split in (pairs.splits if isinstance(pairs, InTurn) else {name: pairs}).items():
        rest = iter(tqdm(split, "tokenising", unit=" pairs", unit_scale=True, delay=3, leave=False, disable=None))
        counts = np.zeros(3, int)
        while chunk := list(itertools.islice(rest, CHUNK)):
            counts += _encode_chunk(chunk, tokenizers, max_length, writers)
        left_out = dict(zip(reasons, counts.tolist(), strict=False))
        if not counts[2]:
            listed = ", ".join(f"{count:,} {reason}" for reason, count in left_out.items())
            raise CorpusError(f"{corpus}: no pair is left to use ({listed}); check the files or raise `max_length`")
        sizes.append(int(counts[2]))
        dropped = {reason: dropped[reason] + left_out[reason] for reason in reasons}
    about = {"dtype": dtype.str, "dropped": dropped, "sizes": sizes}
    about |= {"directions": list(directions)} if directions else {}
    Path(directory, ABOUT).write_text(json.dumps(about), encoding="utf-8")
    return EncodedPairs.open(directory)


def _encode_chunk(chunk, tokenizers, max_length, writers):
    """Tokenises a list of pairs. Returns the numbers of blank, too long, and written pairs."""
    sides, seen, fits = tokenised(chunk, tokenizers, max_length)
    source, target = (list(itertools.compress(side, seen & fits)) for side in sides)
    writers[0].append(source)
    writers[1].append([[*ids, EOS_ID] for ids in target])
    visible = int(np.count_nonzero(seen))
    return len(chunk) - visible, visible - len(source), len(source)


def tokenised(chunk, tokenizers, max_length):
    """Tokenises a list of pairs.

    Args:
        chunk: list of (source, target) strings.
        tokenizers: each a `Tokenizer`, of source and target.
        max_length: most tokens of either side.

    Returns:
        The ids of source and target, each a list of lists of int; and two arrays bool (N,): whether both sides of a
        pair have tokens, and whether neither is too long. A corpus keeps the pairs for which both are true.
    """
    texts = zip(*chunk, strict=True)
    sides = [tokenizer.tokenize(list(side)) for tokenizer, side in zip(tokenizers, texts, strict=True)]
    lengths = np.array([[len(ids) for ids in side] for side in sides])  # 0 of a text of invisible characters
    has_text = [bool(source.strip() and target.strip()) for source, target in chunk]
    return sides, (lengths > 0).all(axis=0) & has_text, (lengths <= max_length).all(axis=0)


class _SentencesWriter:
    """Writes the files of `Sentences.open` chunk by chunk; `total` counts the ids."""

    def __init__(self, stem, dtype):
        self.stem, self.dtype, self.total = stem, dtype, 0
        for name in ("ids", "starts"):
            Path(f"{stem}_{name}").write_bytes(b"")  # The directory may hold the files of an earlier call.
        self._append("starts", np.zeros(1, np.int64))

    def append(self, rows):
        """Adds a list of lists of int."""
        sentences = Sentences.of_lists(rows)
        self._append("ids", sentences.ids.astype(self.dtype))
        self._append("starts", self.total + sentences.starts[1:])
        self.total += len(sentences.ids)

    def _append(self, name, array):
        with open(f"{self.stem}_{name}", "ab") as file:
            file.write(array)


def make_once(directory, ingredients, make):
    """Fills a directory, unless an earlier call has filled it from the same ingredients and it is still intact.

    It is filled under another name and then renamed, so an interruption never leaves half a directory. A directory of
    other ingredients, or a damaged one, is replaced; a line on the screen says so.

    Args:
        directory: path; its parents are made, too.
        ingredients: dict of str to str or int: everything that the files depend on, with names for people.
        make: function of a path, an empty directory, that writes files into it.

    Raises:
        FileError: if a file cannot be written.
        The errors of `make`. Nothing is left behind.
    """
    directory = Path(directory)
    if directory.exists():
        flaw = find_flaw(directory, ingredients)
        if flaw is None:
            return
        log.info("            %s %s: made anew", directory, flaw)
    with whole_directory(directory) as unfinished:
        make(unfinished)
        checksums = {path.name: _checksum(path) for path in sorted(unfinished.iterdir())}
        index = {"ingredients": ingredients, "checksums": checksums}
        (unfinished / INDEX).write_text(json.dumps(index, indent=1), encoding="utf-8")
        shutil.rmtree(directory, ignore_errors=True)


def find_flaw(directory, ingredients):
    """The flaw of a directory of `make_once`, as words to put after its name; None if it has no flaw."""
    try:
        index = json.loads((directory / INDEX).read_text(encoding="utf-8"))
        before = index["ingredients"]
        other = [name for name in {**before, **ingredients} if before.get(name) != ingredients.get(name)]
        if other:
            return f"was made from another {' and '.join(other)}"
        damaged = [name for name, checksum in index["checksums"].items() if _checksum(directory / name) != checksum]
    except OSError as error:
        return f"is not whole (no {Path(error.filename).name})"
    except (ValueError, TypeError, KeyError, AttributeError):  # the index may hold anything
        return f"is damaged ({INDEX})"
    return f"is damaged ({', '.join(damaged)})" if damaged else None


def _checksum(path):
    checksum = 0
    with open(path, "rb") as file:
        while block := file.read(BLOCK_BYTES):
            checksum = zlib.crc32(block, checksum)
    return checksum
