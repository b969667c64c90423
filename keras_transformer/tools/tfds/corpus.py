"""`tfds:NAME[/CONFIG]` and `tfds:DIR`: translation corpora of TensorFlow Datasets (TFDS).

`NAME` is a name in the catalogue of TFDS, such as `wmt14_translate/de-en`. On first use, TFDS downloads the corpus and
prepares it under `~/tensorflow_datasets` (or `$TFDS_DATA_DIR`). `DIR` is a directory of one of two kinds: a corpus that
TFDS has prepared, with a `features.json`; or files `LANG.SPLIT.txt`, as `tfds.folder_dataset.TranslateFolder` reads.

The functions import TFDS late, because the import is slow and needs additional packages.
"""

import contextlib
import logging
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from keras_transformer.data.corpora import VALIDATION_NAMES, Corpus, Pair, Request, hold_out
from keras_transformer.data.text_files import (
    AlignedFiles,
    describe_directory,
    ending_of,
    open_aligned_files,
)
from keras_transformer.errors import CorpusError

_BATCH = 1024
_MESSAGE_LENGTH = 300


@dataclass(frozen=True)
class TfdsSplit:
    """The pairs of one split of a prepared TFDS dataset, always in the same order.

    Attributes:
        builder: `tfds.core.DatasetBuilder`.
        split: str in TFDS's notation, such as `train` or `train[:900]`.
        source_lang: str, the name of the feature with the source sentence.
        target_lang: str, the name of the feature with the target sentence.
    """

    builder: Any
    split: str
    source_lang: str
    target_lang: str

    def __len__(self) -> int:
        return self.builder.info.splits[self.split].num_examples

    def __iter__(self) -> Iterator[Pair]:
        """Reads the split from its start."""
        tfds = _import_tfds()
        # Batches are faster, because one call into TensorFlow costs more than one sentence. TFDS's cache would keep a
        # small split in memory for a second pass, but this dataset object makes one pass only.
        config = tfds.ReadConfig(try_autocache=False)
        batches = self.builder.as_dataset(self.split, batch_size=_BATCH, shuffle_files=False, read_config=config)
        for batch in tfds.as_numpy(batches):
            for source, target in zip(batch[self.source_lang], batch[self.target_lang], strict=True):
                yield source.decode("utf-8", "replace"), target.decode("utf-8", "replace")


def open_tfds(request: Request) -> Corpus:
    """Opens `tfds:NAME`, see `tfds_corpus`. Raises CorpusError."""
    return replace(tfds_corpus(request.name, request.source_lang, request.target_lang), name=request.spec)


def tfds_corpus(name: str, source_lang: str | None = None, target_lang: str | None = None) -> Corpus:
    """Opens a translation corpus of TFDS. Downloads and prepares the corpus on first use.

    Args:
        name: str, `NAME`, `NAME/CONFIG`, `NAME/CONFIG:VERSION`, or a directory.
        source_lang: str, one of the corpus's languages; None for the corpus's own source language.
        target_lang: str, one of the corpus's languages; None for the corpus's own target language.

    Returns:
        Corpus. If validation pairs were held out of the training split, `notes` says so.

    Raises:
        CorpusError: if TFDS does not know the name, if the dataset is no translation corpus, if the download fails, or
            if the corpus lacks a language or a training split.
    """
    directory = Path(os.path.expanduser(name))
    if directory.is_dir() and not (directory / "features.json").is_file():
        return _folder_corpus(name, directory, source_lang, target_lang)
    builder = _open_builder(name, directory)
    source_lang, target_lang = _builder_languages(name, builder, source_lang, target_lang)
    _prepare(name, builder)
    return _builder_corpus(name, builder, source_lang, target_lang)


def _import_tfds() -> Any:
    try:
        import tensorflow_datasets as tfds
    except ImportError as error:
        raise CorpusError(
            f"tfds: corpora need TensorFlow Datasets ({error}): pip install tensorflow-datasets importlib_resources"
        ) from error
    return tfds


def _open_builder(name: str, directory: Path) -> Any:
    tfds = _import_tfds()
    if name.startswith(("/", ".", "~")) and not directory.is_dir():
        raise CorpusError(f"no such directory: {directory}")
    dataset = name.split("/")[0]
    try:
        return tfds.builder_from_directory(directory) if directory.is_dir() else tfds.builder(name)
    except tfds.core.DatasetNotFoundError as error:
        similar = get_close_matches(dataset, tfds.list_builders(with_community_datasets=False), n=5)
        hint = f"did you mean {' or '.join(similar)}?" if similar else f"there is no directory {directory} either"
        raise CorpusError(f"TFDS has no dataset {dataset!r}; {hint}") from error
    except Exception as error:  # Builders raise whatever they like.
        if "BuilderConfig" in str(error):
            configs = ", ".join(tfds.builder_cls(dataset).builder_configs)
            raise CorpusError(f"TFDS has no configuration {name}; {dataset} has {configs}") from error
        raise CorpusError(f"TFDS cannot open {name} ({_one_line(error)})") from error


def _prepare(name: str, builder: Any) -> None:
    try:
        with _first_warning_only("urllib3.connectionpool"):
            builder.download_and_prepare()
    except Exception as error:  # The network, the disk, a checksum or the archive can fail.
        raise CorpusError(
            f"TFDS could not download and prepare {name} ({_one_line(error)}). Prepare the corpus on a machine with "
            f"network access and copy {builder.data_dir} from there, or use files:DIR or cldr:A-B."
        ) from error


@contextlib.contextmanager
def _first_warning_only(logger_name: str) -> Iterator[None]:
    """Lets only the first message of a logger through: TFDS retries a download for minutes, and warns each time."""
    logger, seen = logging.getLogger(logger_name), []

    def is_first(record: logging.LogRecord) -> bool:
        seen.append(record)
        return len(seen) == 1

    logger.addFilter(is_first)
    try:
        yield
    finally:
        logger.removeFilter(is_first)


def _builder_languages(name: str, builder: Any, source_lang: str | None, target_lang: str | None) -> tuple[str, str]:
    features = builder.info.features
    if not isinstance(features, _import_tfds().features.Translation):
        shown = ", ".join(features.keys()) if hasattr(features, "keys") else repr(features)
        raise CorpusError(f"{name} is no translation corpus. Its features are {shown}, not one text per language.")
    languages = list(features.keys())
    try:
        return _choose_languages(name, languages, builder.info.supervised_keys, source_lang, target_lang)
    except CorpusError as error:
        configs = ", ".join(builder.builder_configs)
        if not configs:
            raise
        raise CorpusError(f"{error}; the configurations of {builder.name} are {configs}") from error


def _choose_languages(
    name: str,
    languages: Sequence[str],
    default: Sequence[str] | None,
    source_lang: str | None,
    target_lang: str | None,
) -> tuple[str, str]:
    source_lang, target_lang = (ending_of(code, languages) for code in (source_lang, target_lang))
    for language in (source_lang, target_lang):
        if language is not None and language not in languages:
            raise CorpusError(f"{name} has no language {language!r}, only {' and '.join(languages)}")
    default = default or languages
    if source_lang is None and target_lang is None and len(default) == 2:
        return default[0], default[1]
    others = [language for language in languages if language not in (source_lang, target_lang)]
    if None in (source_lang, target_lang) and len(others) != 1:
        raise CorpusError(
            f"{name} has the languages {', '.join(languages)}: choose with `source_lang` and `target_lang`"
        )
    return source_lang or others[0], target_lang or others[0]


def _builder_corpus(name: str, builder: Any, source_lang: str, target_lang: str) -> Corpus:
    sizes = {split: info.num_examples for split, info in builder.info.splits.items()}
    if "train" not in sizes:
        raise CorpusError(f"{name} has no split `train`, only {', '.join(sizes) or 'an empty list of splits'}")
    notes = ()
    validation = next((split for split in VALIDATION_NAMES if split in sizes), None)
    splits = {
        split: TfdsSplit(builder, split, source_lang, target_lang)
        for split in ("train", validation, "test")
        if split in sizes
    }
    train, fingerprint = splits["train"], {split: _describe_split(builder.info, split) for split in splits}
    if validation is None:
        train, held_out, note = hold_out(train)
        notes = (note,)
    else:
        held_out = splits[validation]
    fingerprint.pop("test", None)
    test = splits.get("test")
    return Corpus(
        f"tfds:{name}", source_lang, target_lang, train, held_out, test, fingerprint, notes, held_out=bool(notes)
    )


def _describe_split(info: Any, split: str) -> str:
    """Says which examples are in a split. TFDS gives changed examples a new version, so nothing need be read."""
    whole = info.splits[split.partition("[")[0]]
    return f"{info.full_name}, {whole.num_examples} examples in {whole.num_bytes} bytes"


def _folder_corpus(name: str, root: Path, source_lang: str | None, target_lang: str | None) -> Corpus:
    # TFDS's own reader holds all the text in memory, and breaks lines at more characters than "\n".
    files = {tuple(path.name.split(".")): path for path in sorted(root.glob("*.*.txt"))}
    languages = [language for language, *rest in files if rest == ["train", "txt"]]
    if not languages:
        raise CorpusError(
            f"{root} has neither files LANG.train.txt nor features.json, the sign of a corpus that TFDS prepared; "
            + describe_directory(root)
        )
    source_lang, target_lang = _choose_languages(name, languages, None, source_lang, target_lang)
    splits = _open_folder_splits(root, files, source_lang, target_lang)
    train, notes, fingerprint = splits["train"], (), splits["train"].fingerprint
    validation = next((splits[split] for split in VALIDATION_NAMES if split in splits), None)
    if validation is not None:
        fingerprint = fingerprint | validation.fingerprint
    else:
        train, validation, note = hold_out(train)
        notes = (note,)
    test = splits.get("test")
    return Corpus(
        f"tfds:{name}", source_lang, target_lang, train, validation, test, fingerprint, notes, held_out=bool(notes)
    )


def _open_folder_splits(
    root: Path, files: dict[tuple[str, ...], Path], source_lang: str, target_lang: str
) -> dict[str, AlignedFiles]:
    splits = {}
    for split in ("train", "test", *VALIDATION_NAMES):
        source, target = (files.get((language, split, "txt")) for language in (source_lang, target_lang))
        if source and target:
            splits[split] = open_aligned_files(source, target)
        elif source or target:
            missing = f"{target_lang if source else source_lang}.{split}.txt"
            raise CorpusError(f"{root} has {(source or target).name}, but no {missing}; {describe_directory(root)}")
    return splits


def _one_line(error: Exception) -> str:
    text = f"{type(error).__name__}: {' '.join(str(error).split())}"
    return text if len(text) <= _MESSAGE_LENGTH else f"{text[:_MESSAGE_LENGTH]}..."
