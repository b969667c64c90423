"""The directory of a prepared corpus, which appears when it is complete."""

import json
import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from pathlib import Path

from keras_transformer.data.corpora import BAD_LINES, Corpus, Pair, write_bad_lines
from keras_transformer.errors import CorpusError
from keras_transformer.files import whole_directory
from keras_transformer.tools.cleaning.examination import STEPS, Examined
from keras_transformer.tools.cleaning.report import Tally, report_page
from keras_transformer.tools.cleaning.settings import CleaningSettings

DROPPED, REPORT, ABOUT = "dropped.jsonl", "report.html", "clean.json"


def write_clean_corpus(
    directory: Path,
    corpus: Corpus,
    settings: CleaningSettings,
    without: list[str],
    decide: Callable[[Path], Iterable[Examined]],
) -> dict:
    """Writes a prepared corpus, which `files:DIRECTORY` reads.

    `train.LANG` has the pairs that stay. `dropped.jsonl` has the other pairs before mending, each with its step. Both
    are in the order of the keys. `val.LANG` and `test.LANG` are those of the corpus, unchanged. `report.html` is for
    people, and `clean.json` has the settings and all counts. `bad_lines.jsonl` has the lines that were no pair.

    Args:
        directory: Path, which does not exist yet or is empty.
        corpus: Corpus.
        settings: CleaningSettings.
        without: list of str, the names of the held-out files.
        decide: function of a Path, a directory for work, that gives the `Examined` of every pair in the order of their
            keys.

    Returns:
        dict, the content of clean.json.

    Raises:
        CorpusError: if no pair stays.
        FileError: if a file cannot be written.
        The errors of `decide`. In each case nothing is left behind.
    """
    with whole_directory(directory) as unfinished:
        scratch = unfinished / "scratch"
        scratch.mkdir()
        tally = Tally()
        languages = (corpus.source_lang, corpus.target_lang)
        _write_pairs(unfinished, "train", languages, _kept(unfinished / DROPPED, decide(scratch), tally))
        if not tally.kept:
            raise CorpusError(f"no pair of {corpus.name} stays ({tally.describe()}): change the limits of these steps")
        shutil.rmtree(scratch)
        for name, split in (("val", None if corpus.held_out else corpus.validation), ("test", corpus.test)):
            if split is not None:
                _write_pairs(unfinished, name, languages, map(_on_one_line, split))
        if corpus.bad_lines:
            write_bad_lines(unfinished / BAD_LINES, corpus.bad_lines)
        about = _about(corpus, settings, without, tally)
        (unfinished / ABOUT).write_text(json.dumps(about, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        (unfinished / REPORT).write_text(report_page(about, tally), encoding="utf-8")
    return about


def _write_pairs(directory: Path, stem: str, languages: tuple[str, str], pairs: Iterable[Pair]) -> None:
    source, target = (directory / f"{stem}.{language}" for language in languages)
    with open(source, "w", encoding="utf-8") as sources, open(target, "w", encoding="utf-8") as targets:
        for one, other in pairs:
            sources.write(f"{one}\n")
            targets.write(f"{other}\n")


def _kept(path: Path, examined: Iterable[Examined], tally: Tally) -> Iterator[Pair]:
    """Yields the pairs that stay. Writes and counts all others."""
    with open(path, "w", encoding="utf-8") as dropped:
        for one in examined:
            tally.count(one)
            if not one.step:
                yield one.pair
                continue
            record = {"step": one.step, "source": one.received[0], "target": one.received[1]}
            record |= {"detail": one.detail} if one.detail else {}
            dropped.write(json.dumps(record, ensure_ascii=False) + "\n")


def _on_one_line(pair: Pair) -> Pair:
    source, target = (text.replace("\r", " ").replace("\n", " ") for text in pair)
    return source, target


def _about(corpus: Corpus, settings: CleaningSettings, without: list[str], tally: Tally) -> dict:
    return {
        "corpus": corpus.name,
        "source_lang": corpus.source_lang,
        "target_lang": corpus.target_lang,
        "settings": asdict(settings),
        "without": without,
        "pairs": {"read": tally.read, "kept": tally.kept, "mended": tally.mended},
        "bad_lines": len(corpus.bad_lines),
        "dropped": {step: tally.dropped[step] for step in STEPS},
    }
