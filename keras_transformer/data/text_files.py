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
With `skip_bad_lines`, a faulty line is left out and listed instead.
"""

import gzip
import hashlib
import io
import os
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TypeVar

from keras_transformer.data.corpora import (
    HASH_DIGITS,
    VALIDATION_NAMES,
    BadLine,
    Corpus,
    Pair,
    Request,
    describe_bad_lines,
    hold_out,
)
from keras_transformer.errors import CorpusError, counted
from keras_transformer.files import reading
from keras_transformer.languages import own_codes

T = TypeVar("T")
_LISTED_FILES = 12
_BLOCK_BYTES = 1 << 20
_BOM = b"\xef\xbb\xbf"
_NOT_UTF8 = "not valid UTF-8; convert it to UTF-8, for example with iconv"
_HINT = ". With `skip_bad_lines`, bad lines are left out and listed"


@dataclass(frozen=True)
class AlignedFiles:
    """The pairs of two line-aligned files; made by `open_aligned_files`.

    Attributes:
        source: Path of the file with the first member of every pair.
        target: Path of the file with the second.
        size: int, the number of pairs.
        fingerprint: dict, as `Corpus.fingerprint`.
        bad_lines: tuple of BadLine, the lines of either file whose pairs are left out.
    """

    source: Path
    target: Path
    size: int
    fingerprint: dict[str, str]
    bad_lines: tuple[BadLine, ...] = ()

    def __len__(self) -> int:
        return self.size

    def __iter__(self) -> Iterator[Pair]:
        """Reads the files from their start; ValueError if they have since become unequally long."""
        return _without(self.bad_lines, zip(_lines(self.source), _lines(self.target), strict=True))


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
        bad_lines: tuple of BadLine, the lines that are left out.
    """

    path: Path
    source_column: int
    header_lines: int
    size: int
    columns: int
    fingerprint: dict[str, str]
    bad_lines: tuple[BadLine, ...] = ()

    def __len__(self) -> int:
        return self.size

    def __iter__(self) -> Iterator[Pair]:
        """Reads the file from its start."""
        for line in islice(_without(self.bad_lines, _lines(self.path)), self.header_lines, None):
            columns = line.split("\t")
            yield columns[self.source_column], columns[1 - self.source_column]


def open_aligned_files(source: Path, target: Path, skip_bad_lines: bool | None = None) -> AlignedFiles:
    """Opens two files whose n-th lines are each other's translation.

    Args:
        source: Path of the file in the source language.
        target: Path of the file in the target language.
        skip_bad_lines: bool, whether a pair with a line that is not UTF-8 is left out; None if that is no setting.

    Returns:
        AlignedFiles.

    Raises:
        CorpusError: if a file cannot be read, holds no text or is not UTF-8, or if their numbers of lines differ.
    """
    source_count, source_hash, source_bad = _read_through(source, skip_bad_lines=skip_bad_lines)
    target_count, target_hash, target_bad = _read_through(target, skip_bad_lines=skip_bad_lines)
    if source_count != target_count:
        raise CorpusError(
            f"not line-aligned: {source} has {counted(source_count, 'line')}, but {target} has {target_count:,}; "
            "every line must face its translation"
        )
    bad = (*source_bad, *target_bad)
    size = source_count - len({one.line for one in bad})
    return AlignedFiles(source, target, size, {_part(source): source_hash, _part(target): target_hash}, bad)


def open_tsv_file(path: Path, source_lang: str, target_lang: str, skip_bad_lines: bool | None = None) -> TsvFile:
    """Opens a file of lines `source TAB target`.

    A first line that is nothing but the two language codes, such as `de TAB en` or `DEU TAB EN`, is a header: it is no
    pair, and says which column is which. Without one the first column is the source. There is no quoting. A third
    column is ignored, if every line has one.

    Args:
        path: Path of the file.
        source_lang: str, the code of the source language.
        target_lang: str, the code of the target language.
        skip_bad_lines: bool or None, as above, for a line that is not UTF-8 or has a wrong number of columns.

    Returns:
        TsvFile.

    Raises:
        CorpusError: if the file cannot be read, holds no pair, is not UTF-8, or a line has a wrong number of columns.
    """
    columns = _Columns()
    count, content, bad = _read_through(path, columns.fault_of, skip_bad_lines)
    languages, first_line = (source_lang, target_lang), next(_without(bad, _lines(path)), "").split("\t")[:2]
    named = own_codes(languages, [cell.strip() for cell in first_line])
    is_header = sorted(named) == sorted(languages)
    size = count - len(bad) - int(is_header)
    if size == 0:
        raise CorpusError(f"{path} has {'a header' if is_header else counted(len(bad), 'bad line')}, but no pairs")
    source_column = named.index(source_lang) if is_header else 0
    return TsvFile(path, source_column, int(is_header), size, columns.number, {_part(path): content}, bad)


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
    opener = gzip.open if path.suffix == ".gz" else open  # a line that is no UTF-8 has been refused or will be left out
    with opener(path, "rt", encoding="utf-8-sig", errors="replace", newline="\n") as file:
        for line in file:
            yield line.removesuffix("\n").removesuffix("\r")


def _without(bad_lines: Sequence[BadLine], lines: Iterable[T]) -> Iterator[T]:
    """The lines, or pairs of lines, that are not bad."""
    numbers = {bad.line for bad in bad_lines}
    return (line for number, line in enumerate(lines, start=1) if number not in numbers) if numbers else iter(lines)


def _read_through(
    path: Path, check_line: Callable[[bytes], str] | None = None, skip_bad_lines: bool | None = None
) -> tuple[int, str, tuple[BadLine, ...]]:
    """Reads and checks the whole file. `check_line` gives the fault of a line, or "".

    An error names the setting `skip_bad_lines`, unless it is None.

    Returns:
        The number of lines, a hash of the text, and the bad lines.
    """
    count, has_text, content, bad = 0, False, hashlib.sha256(), []
    for lines in _blocks(path):
        block = b"".join(lines)
        has_text = has_text or bool(block.removeprefix(_BOM).strip())
        for number, line in enumerate(lines, count + 1) if check_line or not _is_utf8(block) else ():
            fault = (check_line(line) if check_line else "") if _is_utf8(line) else _NOT_UTF8
            if fault:
                if not skip_bad_lines:
                    raise CorpusError(f"{path}, line {number:,}: {fault}{'' if skip_bad_lines is None else _HINT}")
                bad.append(BadLine(path.name, number, fault, line.decode("utf-8", "backslashreplace").rstrip("\r\n")))
        count += len(lines)
        content.update(block)
    if not has_text:
        raise CorpusError(f"{path} is empty" if count < 2 else f"{path} has nothing but blank lines")
    return count, content.hexdigest()[:HASH_DIGITS], tuple(bad)


def _blocks(path: Path) -> Iterator[list[bytes]]:
    """Yields the lines of the file in lists of about a mebibyte: checking one list at a time is fast."""
    try:
        # GzipFile itself finds lines in Python, one by one; the buffer around it does so in C.
        with io.BufferedReader(gzip.open(path)) if path.suffix == ".gz" else open(path, "rb") as file:
            while lines := file.readlines(_BLOCK_BYTES):
                yield lines
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise CorpusError(f"{path} is not a whole gzip file: {error}") from error
    except OSError as error:
        raise CorpusError(f"cannot read {path}: {error.strerror or error}") from error


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _part(path: Path) -> str:
    """The name of a file in a fingerprint. A compressed file is the same part of a corpus."""
    return path.name.removesuffix(".gz")


class _Columns:
    """Checks that all lines have as many columns as the first: two, or three."""

    number = 0

    def fault_of(self, line: bytes) -> str:
        found = line.count(b"\t") + 1
        self.number = self.number or (3 if found == 3 else 2)
        if found != self.number:
            needed = "two columns, source TAB target" if self.number == 2 else "three columns, as the first line"
            return f"needs exactly {needed}; it has {found}"
        return ""


def open_files(request: Request) -> Corpus:
    """Opens `files:DIR`, see `text_files_corpus`.

    Raises:
        CorpusError: without both languages, and as `text_files_corpus`.
    """
    endings = languages_in(request.name)
    if request.source_lang is None or request.target_lang is None:
        found = ", ".join(endings) or "no train.LANG"
        raise CorpusError(
            f"files:{request.name} needs its languages: files:{request.name}@SOURCE-TARGET, or both `source_lang` and "
            f"`target_lang`. The directory has {found}."
        )
    codes = (ending_of(code, endings) for code in (request.source_lang, request.target_lang))
    return replace(text_files_corpus(request.name, *codes, request.skip_bad_lines), name=request.spec)


def ending_of(code: str | None, endings: Iterable[str]) -> str | None:
    """The ending of files that a code means: `@pt_BR-en` takes no hyphen within a code, and means `pt-BR`, too."""
    return code if code in endings else {each.replace("-", "_"): each for each in endings}.get(code, code)


def text_files_corpus(
    directory: str | Path, source_lang: str, target_lang: str, skip_bad_lines: bool = False
) -> Corpus:
    """Opens the corpus in a directory of text files, and checks every file that it will read.

    Args:
        directory: str or Path; a leading `~` is the home directory.
        source_lang: str, the ending of the source files, such as `en`.
        target_lang: str, the ending of the target files.
        skip_bad_lines: bool, whether lines that are no pair are left out, and are the `bad_lines` of the corpus.

    Returns:
        Corpus. Where validation lines were held out of the training text, or a test set was chosen, `notes` says so.

    Raises:
        CorpusError: if the directory or a side of a split is missing or a split is there twice; or if a file is empty,
            not UTF-8, not of the same number of lines as its other side, not a whole gzip file, or has a TSV line with
            a wrong number of columns.
    """
    root, how = Path(os.path.expanduser(directory)), (source_lang, target_lang, skip_bad_lines)
    train_files = _open_split(root, "train", *how)
    if train_files is None:
        raise CorpusError(
            f"no training text: {root} has neither train.{source_lang} and train.{target_lang} nor train.tsv; "
            + describe_directory(root)
        )
    train, validation, fingerprint, validation_notes = _with_validation(root, train_files, *how)
    test, test_notes = _open_test(root, *how)
    splits = (train_files, validation, test)
    bad = tuple(line for split in splits for line in getattr(split, "bad_lines", ()))
    wide = [split.path.name for split in splits if isinstance(split, TsvFile) and split.columns == 3]
    notes = [*validation_notes, *test_notes]
    notes += [f"the third column of {', '.join(wide)} is ignored"] if wide else []
    notes += [describe_bad_lines(bad)] if bad else []
    headerless = {
        str(split.path): split.fingerprint[_part(split.path)]
        for split in splits
        if isinstance(split, TsvFile) and not split.header_lines
    }
    parts = (train, validation, test, fingerprint, tuple(notes), bool(validation_notes))
    return Corpus(f"files:{directory}", source_lang, target_lang, *parts, bad_lines=bad, headerless=headerless)


def languages_in(directory: str | Path) -> list[str]:
    """Lists the languages of the training files in a directory.

    Args:
        directory: str or Path; a leading `~` is the home directory.

    Returns:
        Sorted list of str, the endings of its files `train.LANG` and `train.LANG.gz`.

    Raises:
        CorpusError: if there is no such directory.
    """
    names = (name.removesuffix(".gz") for name in _file_names(Path(os.path.expanduser(directory))))
    return sorted({name.removeprefix("train.") for name in names if name.startswith("train.")} - {"tsv"})


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
    if not os.path.isdir(root):
        raise CorpusError(f"no such directory: {root}")
    with reading(root):
        return sorted(path.name for path in root.iterdir() if path.is_file())


def _open_split(
    root: Path, stem: str, source_lang: str, target_lang: str, skip_bad_lines: bool
) -> AlignedFiles | TsvFile | None:
    source, target = _find(root, f"{stem}.{source_lang}"), _find(root, f"{stem}.{target_lang}")
    tsv = _find(root, f"{stem}.tsv")
    if tsv and (source or target):
        raise CorpusError(f"{root} has both {tsv.name} and {(source or target).name}: remove or rename one of them")
    if tsv:
        return open_tsv_file(tsv, source_lang, target_lang, skip_bad_lines)
    if source and target:
        return open_aligned_files(source, target, skip_bad_lines)
    if source or target:
        missing = f"{stem}.{target_lang if source else source_lang}"
        raise CorpusError(f"{root} has {(source or target).name}, but no {missing}; {describe_directory(root)}")
    return None


def _find(root: Path, name: str) -> Path | None:
    return next((path for path in (root / name, root / f"{name}.gz") if path.is_file()), None)


def _with_validation(
    root: Path, train: AlignedFiles | TsvFile, *how: str | bool
) -> tuple[Iterable[Pair], Iterable[Pair], dict[str, str], tuple[str, ...]]:
    for stem in VALIDATION_NAMES:
        if validation := _open_split(root, stem, *how):
            return train, validation, train.fingerprint | validation.fingerprint, ()
    rest, held_out, note = hold_out(train)
    return rest, held_out, train.fingerprint, (note,)


def _open_test(
    root: Path, source_lang: str, target_lang: str, skip_bad_lines: bool
) -> tuple[Iterable[Pair] | None, tuple[str, ...]]:
    if test := _open_split(root, "test", source_lang, target_lang, skip_bad_lines):
        return test, ()
    names = {name.removesuffix(".gz") for name in _file_names(root)}
    endings = (f".{source_lang}", f".{target_lang}")
    of_source, of_target = ({name.removesuffix(end) for name in names if name.endswith(end)} for end in endings)
    stems = sorted(stem for stem in of_source & of_target if stem.startswith("test"))
    if len(stems) == 1:
        note = f"the test set is {stems[0]}.{source_lang} and {stems[0]}.{target_lang}"
        return _open_split(root, stems[0], source_lang, target_lang, skip_bad_lines), (note,)
    note = f"no test set: {root} has several ({', '.join(stems)}); call one of them test.LANG"
    return None, (note,) if stems else ()
