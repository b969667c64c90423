"""`files:DIR`: the corpus in a directory of text files.

For each of `train`, `val` and `test` the directory holds either

* two line-aligned files, such as `train.en` and `train.de`, or
* one file of two tab-separated columns, such as `train.tsv`: source TAB target, or in the order that a first line of
  the two language codes (`de TAB en`) tells,

plain or gzipped (`train.en.gz`, `train.tsv.gz`). Only `train` is required:

* without `val` (or `validation`, `valid`, `dev`) some of the training lines are held out;
* without `test` the one pair of files called `testANYTHING.LANG` is taken, such as `test2016.en` and `test2016.de`.
"""

from collections.abc import Iterable
from pathlib import Path

from keras_transformer.data.corpus import VALIDATION_NAMES, Corpus, CorpusError, Pair
from keras_transformer.data.parallel_text import (
    AlignedFiles,
    TsvFile,
    fingerprint,
    hold_out,
    open_aligned_files,
    open_tsv_file,
)

_LISTED_FILES = 12


def text_files_corpus(directory: str | Path, source_lang: str, target_lang: str) -> Corpus:
    """Opens the corpus in a directory of text files, and checks every file that it will read.

    Args:
        directory: str or Path; a leading `~` is the home directory.
        source_lang: str, the ending of the source files, such as `en`.
        target_lang: str, the ending of the target files.

    Returns:
        Corpus. Where validation lines were held out of the training text, or a test set was chosen, `notes` says so.

    Raises:
        CorpusError: if the directory or a side of a split is missing, or a file is empty, not UTF-8, not of the same
            number of lines as its other side, not a whole gzip file, or has a TSV line without exactly two columns.
    """
    root = Path(directory).expanduser()
    train = _open_split(root, "train", source_lang, target_lang)
    if train is None:
        raise CorpusError(
            f"no training text: {root} has neither train.{source_lang} and train.{target_lang} nor train.tsv; "
            + describe_directory(root)
        )
    train, validation, files, validation_notes = _with_validation(root, train, source_lang, target_lang)
    test, test_notes = _open_test(root, source_lang, target_lang)
    notes = validation_notes + test_notes
    return Corpus(f"files:{directory}", source_lang, target_lang, train, validation, test, fingerprint(files), notes)


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
    """Says what a directory holds, for the message of an error.

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
    if source and target:
        return open_aligned_files(source, target)
    if tsv := _find(root, f"{stem}.tsv"):
        return open_tsv_file(tsv, source_lang, target_lang)
    if source or target:
        missing = f"{stem}.{target_lang if source else source_lang}"
        raise CorpusError(f"{root} has {(source or target).name}, but no {missing}; {describe_directory(root)}")
    return None


def _find(root: Path, name: str) -> Path | None:
    candidates = (root / name, root / f"{name}.gz")
    return next((path for path in candidates if path.is_file()), None)


def _with_validation(
    root: Path, train: AlignedFiles | TsvFile, source_lang: str, target_lang: str
) -> tuple[Iterable[Pair], Iterable[Pair], tuple[Path, ...], tuple[str, ...]]:
    for stem in VALIDATION_NAMES:
        if validation := _open_split(root, stem, source_lang, target_lang):
            return train, validation, train.files + validation.files, ()
    rest, held_out = hold_out(train)
    note = f"no validation split: {len(held_out):,} of the {train.size:,} training pairs were held out for it"
    return rest, held_out, train.files, (note,)


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
