"""`files:DIR`: the corpus in a directory of text files, and the parallel text on disk that it is made of.

For each of `train`, `val` and `test` the directory holds either

* two line-aligned files, such as `train.en` and `train.de`, or
* one file of two tab-separated columns, such as `train.tsv`: source TAB target, or in the order of a first line that
  has the two language codes (`de TAB en`); a third column, such as the attribution in Tatoeba's files, is ignored,

plain or gzipped (`train.en.gz`, `train.tsv.gz`). Only `train` is required:

* without `val` (or `validation`, `valid`, `dev`) some of the training lines are held out;
* without `test` the only pair of files called `testANYTHING.LANG` is taken, such as `test2016.en` and `test2016.de`.

Files are UTF-8, with or without a byte order mark. Only "\n" ends a line, after an optional "\r". The other line ends
of Unicode (U+2028, form feed, ...) occur inside sentences: a break there would shift one side against the other. Each
file is read through once when it is opened, so that a faulty line is reported at once and not hours into the training.
"""

import gzip
import hashlib
import io
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from keras_transformer.data.corpus import HASH_DIGITS, VALIDATION_NAMES, Corpus, Pair, hold_out
from keras_transformer.errors import CorpusError, counted

_LISTED_FILES = 12
_BLOCK_BYTES = 1 << 20
_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class AlignedFiles:
    """The pairs of two line-aligned files; made by `open_aligned_files`.

    Attributes:
        source: Path of the file with the first member of every pair.
        target: Path of the file with the second.
        size: int, the number of lines of each.
        fingerprint: dict, as `Corpus.fingerprint`.
    """

    source: Path
    target: Path
    size: int
    fingerprint: dict[str, str]

    def __len__(self) -> int:
        return self.size

    def __iter__(self) -> Iterator[Pair]:
        """Reads the files from their start; ValueError if they have since become unequally long."""
        return zip(_lines(self.source), _lines(self.target), strict=True)


@dataclass(frozen=True)
class TsvFile:
    """The pairs of a file of two or three tab-separated columns; made by `open_tsv_file`.

    Attributes:
        path: Path of the file.
        source_column: int, 0 or 1, the column with the first member of every pair.
        header_lines: int, the number of lines before the first pair.
        size: int, the number of pairs.
        columns: int, 2 or 3; the third is ignored.
        fingerprint: dict, as `Corpus.fingerprint`.
    """

    path: Path
    source_column: int
    header_lines: int
    size: int
    columns: int
    fingerprint: dict[str, str]

    def __len__(self) -> int:
        return self.size

    def __iter__(self) -> Iterator[Pair]:
        """Reads the file from its start."""
        for line in islice(_lines(self.path), self.header_lines, None):
            columns = line.split("\t")
            yield columns[self.source_column], columns[1 - self.source_column]


def open_aligned_files(source: Path, target: Path) -> AlignedFiles:
    """Opens two files whose n-th lines are each other's translation.

    Args:
        source: Path of the file in the source language.
        target: Path of the file in the target language.

    Returns:
        AlignedFiles.

    Raises:
        CorpusError: if a file cannot be read, holds no text or is not UTF-8, or if their numbers of lines differ.
    """
    (source_count, source_hash), (target_count, target_hash) = _read_through(source), _read_through(target)
    if source_count != target_count:
        raise CorpusError(
            f"not line-aligned: {source} has {counted(source_count, 'line')}, but {target} has {target_count:,}; "
            "every line must face its translation"
        )
    return AlignedFiles(source, target, source_count, {_part(source): source_hash, _part(target): target_hash})


def open_tsv_file(path: Path, source_lang: str, target_lang: str) -> TsvFile:
    """Opens a file of lines `source TAB target`.

    A first line that is nothing but the two language codes, such as `de TAB en`, is a header: it is no pair, and says
    which column is which. Without one the first column is the source. There is no quoting. A third column is ignored,
    if every line has one.

    Args:
        path: Path of the file.
        source_lang: str, the code of the source language.
        target_lang: str, the code of the target language.

    Returns:
        TsvFile.

    Raises:
        CorpusError: if the file cannot be read, holds no pair, is not UTF-8, or a line has a wrong number of columns.
    """
    columns = _Columns()
    count, content = _read_through(path, columns.check)
    first_line = next(_lines(path)).split("\t")[:2]
    is_header = sorted(first_line) == sorted((source_lang, target_lang))
    if is_header and count == 1:
        raise CorpusError(f"{path} has a header, but no pairs")
    source_column = first_line.index(source_lang) if is_header else 0
    size = count - int(is_header)
    return TsvFile(path, source_column, int(is_header), size, columns.number, {_part(path): content})


def lines_of(path: Path) -> Iterator[str]:
    """Checks a file, and reads its lines.

    Args:
        path: Path, plain or gzipped.

    Returns:
        Iterator of str.

    Raises:
        CorpusError: if the file cannot be read, holds no text or is not UTF-8.
    """
    _read_through(path)
    return _lines(path)


def _lines(path: Path) -> Iterator[str]:
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt", encoding="utf-8-sig", newline="\n") as file:
        for line in file:
            yield line.removesuffix("\n").removesuffix("\r")


def _part(path: Path) -> str:
    """The name of a file in a fingerprint. A compressed file is the same part of a corpus."""
    return path.name.removesuffix(".gz")


def _read_through(path: Path, check_line: Callable[[bytes], None] | None = None) -> tuple[int, str]:
    """Reads and checks the whole file. `check_line` raises ValueError with the fault of a line.

    Returns:
        The number of lines, and a hash of the text.
    """
    count, has_text, content = 0, False, hashlib.sha256()
    for lines in _blocks(path):
        block = b"".join(lines)
        has_text = has_text or bool(block.removeprefix(_BOM).strip())
        if not _is_utf8(block):
            number = next(number for number, line in enumerate(lines, count + 1) if not _is_utf8(line))
            raise CorpusError(f"{path}, line {number:,}: not valid UTF-8; convert it to UTF-8, for example with iconv")
        if check_line:
            _check_lines(path, lines, count + 1, check_line)
        count += len(lines)
        content.update(block)
    if not has_text:
        raise CorpusError(f"{path} is empty" if count < 2 else f"{path} has nothing but blank lines")
    return count, content.hexdigest()[:HASH_DIGITS]


def _blocks(path: Path) -> Iterator[list[bytes]]:
    """Yields the lines of the file in lists of about a mebibyte: checking one list at a time is fast."""
    try:
        with _open_binary(path) as file:
            while lines := file.readlines(_BLOCK_BYTES):
                yield lines
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise CorpusError(f"{path} is not a whole gzip file: {error}") from error
    except OSError as error:
        raise CorpusError(f"cannot read {path}: {error.strerror or error}") from error


def _open_binary(path: Path) -> BinaryIO:
    # GzipFile itself finds lines in Python, one by one; the buffer around it does so in C.
    return io.BufferedReader(gzip.open(path)) if path.suffix == ".gz" else open(path, "rb")


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _check_lines(path: Path, lines: list[bytes], first_number: int, check_line: Callable[[bytes], None]) -> None:
    for number, line in enumerate(lines, first_number):
        try:
            check_line(line)
        except ValueError as error:
            raise CorpusError(f"{path}, line {number:,}: {error}") from error


class _Columns:
    """Checks that all lines have as many columns as the first: two, or three."""

    number = 0

    def check(self, line: bytes) -> None:
        found = line.count(b"\t") + 1
        self.number = self.number or (3 if found == 3 else 2)
        if found != self.number:
            needed = "two columns, source TAB target" if self.number == 2 else "three columns, as the first line"
            raise ValueError(f"needs exactly {needed}; it has {found}")


def text_files_corpus(directory: str | Path, source_lang: str, target_lang: str) -> Corpus:
    """Opens the corpus in a directory of text files, and checks every file that it will read.

    Args:
        directory: str or Path; a leading `~` is the home directory.
        source_lang: str, the ending of the source files, such as `en`.
        target_lang: str, the ending of the target files.

    Returns:
        Corpus. Where validation lines were held out of the training text, or a test set was chosen, `notes` says so.

    Raises:
        CorpusError: if the directory or a side of a split is missing or a split is there twice; or if a file is empty,
            not UTF-8, not of the same number of lines as its other side, not a whole gzip file, or has a TSV line with
            a wrong number of columns.
    """
    root = Path(directory).expanduser()
    train_files = _open_split(root, "train", source_lang, target_lang)
    if train_files is None:
        raise CorpusError(
            f"no training text: {root} has neither train.{source_lang} and train.{target_lang} nor train.tsv; "
            + describe_directory(root)
        )
    train, validation, fingerprint, validation_notes = _with_validation(root, train_files, source_lang, target_lang)
    test, test_notes = _open_test(root, source_lang, target_lang)
    notes = validation_notes + test_notes + _column_notes(train_files, validation, test)
    name, is_held_out = f"files:{directory}", bool(validation_notes)
    return Corpus(name, source_lang, target_lang, train, validation, test, fingerprint, notes, held_out=is_held_out)


def languages_in(directory: str | Path) -> list[str]:
    """Lists the languages of the training files in a directory.

    Args:
        directory: str or Path; a leading `~` is the home directory.

    Returns:
        Sorted list of str, the endings of its files `train.LANG` and `train.LANG.gz`.

    Raises:
        CorpusError: if there is no such directory.
    """
    names = (name.removesuffix(".gz") for name in _file_names(Path(directory).expanduser()))
    endings = {name.removeprefix("train.") for name in names if name.startswith("train.")}
    return sorted(endings - {"tsv"})


def describe_directory(directory: Path) -> str:
    """Lists the files of a directory, for the message of an error.

    Args:
        directory: Path.

    Returns:
        str, such as "files there: train.de, train.en".

    Raises:
        CorpusError: if there is no such directory.
    """
    names = _file_names(directory)
    more = f" and {len(names) - _LISTED_FILES} more" if len(names) > _LISTED_FILES else ""
    return f"files there: {', '.join(names[:_LISTED_FILES]) or 'none'}{more}"


def _file_names(root: Path) -> list[str]:
    if not root.is_dir():
        raise CorpusError(f"no such directory: {root}")
    return sorted(path.name for path in root.iterdir() if path.is_file())


def _open_split(root: Path, stem: str, source_lang: str, target_lang: str) -> AlignedFiles | TsvFile | None:
    source, target = _find(root, f"{stem}.{source_lang}"), _find(root, f"{stem}.{target_lang}")
    tsv = _find(root, f"{stem}.tsv")
    if tsv and (source or target):
        raise CorpusError(f"{root} has both {tsv.name} and {(source or target).name}: remove or rename one of them")
    if tsv:
        return open_tsv_file(tsv, source_lang, target_lang)
    if source and target:
        return open_aligned_files(source, target)
    if source or target:
        missing = f"{stem}.{target_lang if source else source_lang}"
        raise CorpusError(f"{root} has {(source or target).name}, but no {missing}; {describe_directory(root)}")
    return None


def _find(root: Path, name: str) -> Path | None:
    candidates = (root / name, root / f"{name}.gz")
    return next((path for path in candidates if path.is_file()), None)


def _with_validation(
    root: Path, train: AlignedFiles | TsvFile, source_lang: str, target_lang: str
) -> tuple[Iterable[Pair], Iterable[Pair], dict[str, str], tuple[str, ...]]:
    for stem in VALIDATION_NAMES:
        if validation := _open_split(root, stem, source_lang, target_lang):
            return train, validation, train.fingerprint | validation.fingerprint, ()
    rest, held_out, note = hold_out(train)
    return rest, held_out, train.fingerprint, (note,)


def _column_notes(*splits: Iterable[Pair] | None) -> tuple[str, ...]:
    names = [split.path.name for split in splits if isinstance(split, TsvFile) and split.columns == 3]
    return (f"the third column of {', '.join(names)} is ignored",) if names else ()


def _open_test(root: Path, source_lang: str, target_lang: str) -> tuple[Iterable[Pair] | None, tuple[str, ...]]:
    if test := _open_split(root, "test", source_lang, target_lang):
        return test, ()
    stems = _test_stems(root, source_lang, target_lang)
    if len(stems) == 1:
        note = f"the test set is {stems[0]}.{source_lang} and {stems[0]}.{target_lang}"
        return _open_split(root, stems[0], source_lang, target_lang), (note,)
    if stems:
        return None, (f"no test set: {root} has several ({', '.join(stems)}); call one of them test.LANG",)
    return None, ()


def _test_stems(root: Path, source_lang: str, target_lang: str) -> list[str]:
    names = {name.removesuffix(".gz") for name in _file_names(root)}
    endings = (f".{source_lang}", f".{target_lang}")
    of_source, of_target = ({name.removesuffix(end) for name in names if name.endswith(end)} for end in endings)
    return sorted(stem for stem in of_source & of_target if stem.startswith("test"))
