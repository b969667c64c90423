"""A vocabulary without the pieces that a corpus does not need. A model of 200 languages becomes one of two.

The corpus is divided as before. Where other text had a piece that is gone, it has smaller ones: single characters stay.
"""

import itertools
import logging
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from sentencepiece import SentencePieceProcessor
from sentencepiece.sentencepiece_model_pb2 import ModelProto, TrainerSpec

from keras_transformer.data.text_files import describe_directory, lines_of
from keras_transformer.errors import CorpusError
from keras_transformer.presets import split_frame_setting
from keras_transformer.tools.importing.pieces import BYTE, CONTROLS, NORMAL, UNUSED, USER_DEFINED

log = logging.getLogger(__name__)

LINES_AT_A_TIME = 1 << 14
SHOWN = 5  # pieces that are gone


@dataclass(frozen=True)
class Kept:
    """The ids of a vocabulary that stay.

    Attributes:
        ids: int (V',), sorted: for each new id, the old one.
    """

    ids: np.ndarray

    def new(self, old):
        """The new ids for a list of old ones."""
        return np.searchsorted(self.ids, old).tolist()

    def vocabulary(self, before):
        """The `Vocabulary` of the ids that stay."""
        copies = int(np.sum(self.ids >= len(before.rows) - before.copies))
        return replace(before, rows=before.rows[self.ids], names=[before.names[id] for id in self.ids], copies=copies)

    def tags(self, before):
        """The `LanguageTags` with the new ids of the source."""
        sides = {name: dict(zip(ids, self.new([*ids.values()]), strict=True)) for name, ids in before.sides.items()}
        return replace(before, **sides)

    def tokenizer(self, model):
        """The SentencePiece model with these ids: `ModelProto` -> bytes."""
        new = ModelProto()
        new.CopyFrom(model)
        del new.pieces[:]
        new.pieces.extend(model.pieces[id] for id in self.ids)
        new.trainer_spec.vocab_size = len(self.ids)
        return new.SerializeToString(deterministic=True)


def trimmed(foreign, corpus):
    """A model without the pieces that a corpus does not need. The log says which pieces are gone, and what that saves.

    Args:
        foreign: `ForeignModel`.
        corpus: path, or a list of paths: text files in the languages of the run, or directories with files train.*.

    Returns:
        `ForeignModel`.

    Raises:
        CorpusError: if no file is named, if a file is missing, holds no text or is not UTF-8, or if a directory has no
            file train.*.
    """
    files = corpus_files([corpus] if isinstance(corpus, str | Path) else corpus)
    models = [ModelProto.FromString(each) for each in foreign.tokenizers]
    needed = [needed_ids(model, texts_of(files)) for model in models]
    before, after, start = split_frame_setting(foreign.settings["frame"] or "//")
    of_source, of_target = needed[0] | {*before, *after}, needed[-1] | {*start}
    if foreign.tags:
        of_source |= {id for side in foreign.tags.sides.values() for id in side.values()}
    if is_shared := foreign.settings["share_vocabulary"]:
        of_source = of_target = of_source | of_target
    kept = [Kept(np.array(sorted(ids))) for ids in (of_source, of_target)]
    frame = "/".join(",".join(map(str, ids)) for ids in (kept[0].new(before), kept[0].new(after), kept[1].new(start)))
    source = kept[0].vocabulary(foreign.source)
    describe(foreign, kept)
    return replace(
        foreign,
        settings={**foreign.settings, "frame": foreign.settings["frame"] and frame},
        tokenizers=[each.tokenizer(model) for each, model in zip(kept, models, strict=False)],
        source=source,
        target=source if is_shared else kept[1].vocabulary(foreign.target),
        tags=foreign.tags and kept[0].tags(foreign.tags),
    )


def describe(foreign, kept):
    """Says which pieces are gone, and what that saves.

    Args:
        foreign: `ForeignModel`, as it was before.
        kept: `Kept` of the source and of the target.
    """
    is_tied, is_shared = foreign.settings["tie_embeddings"], foreign.settings["share_vocabulary"]
    matrices = {"source": int(not (is_tied and is_shared)), "target": 1 if is_tied else 2}
    rows = 0
    for name, before, after in zip(matrices, (foreign.source, foreign.target), kept, strict=True):
        gone = np.setdiff1d(np.arange(len(before.rows)), after.ids)
        rows += len(gone) * matrices[name]
        if name == "target" or not is_shared:
            shown = [before.names[id] for id in gone[:SHOWN]] + ["..."] * (len(gone) > SHOWN)
            counts = f"{len(after.ids):,} of {len(before.rows):,} pieces stay{'' if is_shared else f' in the {name}'}"
            log.info("vocabulary  %s; gone are %s", counts, ", ".join(shown) or "none")
    log.info("            %s rows less, %.1f MB of float32", f"{rows:,}", rows * foreign.settings["d_model"] * 4 / 1e6)
    log.info("            text unlike the corpus is divided into smaller pieces than before")


def corpus_files(paths):
    """The files of a corpus, a list of paths. Raises CorpusError for no path, and for a directory without train.*."""
    if not paths or "" in paths:
        raise CorpusError(f"`trim_vocabulary` must name files or directories. Received: {paths}")
    files = []
    for path in map(Path, paths):
        found = sorted(path.glob("train.*")) if path.is_dir() else [path]
        if not found:
            raise CorpusError(f"{path} has no files train.*; {describe_directory(path)}")
        files += found
    return files


def texts_of(files):
    """The lines of files, and of a table (.tsv) its first two columns: an iterator of str."""
    for file in files:
        is_table = ".tsv" in file.suffixes
        for line in lines_of(file):
            yield from line.split("\t")[:2] if is_table else [line]


def needed_ids(model, texts):
    """The ids of a model that these texts need, and the ids that any text may need.

    Args:
        model: `ModelProto` with our ids.
        texts: iterator of str.

    Returns:
        set of int: controls, bytes, single characters, pieces that are never divided, and all pieces of the texts.
    """
    pieces = model.pieces
    ids = {*CONTROLS}
    ids |= {id for id, each in enumerate(pieces) if each.type in (BYTE, USER_DEFINED)}
    ids |= {id for id, each in enumerate(pieces) if each.type == NORMAL and len(each.piece) == 1}
    used, processor = set(), SentencePieceProcessor(model_proto=model.SerializeToString())
    while some := [*itertools.islice(texts, LINES_AT_A_TIME)]:
        used.update(itertools.chain.from_iterable(processor.encode(some)))
    ids |= used
    if model.trainer_spec.model_type == TrainerSpec.BPE:
        return ids | on_the_way(pieces, used)
    scores = {each.score: id for id, each in enumerate(pieces) if each.type == NORMAL}
    return ids | {scores[min(scores)], scores[max(scores)]}  # the scores of characters without a piece depend on them


def on_the_way(pieces, ids):
    """The ids of the pieces that BPE merges into the pieces `ids`.

    BPE merges the best pair of neighbours, again and again. So a long piece comes about only by way of shorter pieces.
    """
    mergeable = {each.piece: id for id, each in enumerate(pieces) if each.type in (NORMAL, UNUSED)}
    found = set()
    for id in ids:
        symbols = list(pieces[id].piece) if pieces[id].type == NORMAL else []
        while len(symbols) > 1:
            pairs = [(mergeable.get(a + b), place) for place, (a, b) in enumerate(itertools.pairwise(symbols))]
            best = max(pairs, key=lambda pair: (-np.inf if pair[0] is None else pieces[pair[0]].score, -pair[1]))
            if best[0] is None:
                break
            found.add(best[0])
            symbols[best[1] : best[1] + 2] = [pieces[best[0]].piece]
    return found
