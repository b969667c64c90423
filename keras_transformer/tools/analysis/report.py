"""The report: one HTML file that needs no network, and a table of the heads."""

import base64
import math
from collections import Counter
from pathlib import Path

import numpy as np
from keras import ops

from keras_transformer.config import EOS_ID
from keras_transformer.errors import FileError, counted
from keras_transformer.tokenizer import show_unprintable
from keras_transformer.tools import page_of

PAGE, TABLE = "report.html", "heads.tsv"
POSITIONS = 64  # of the picture of the positional encodings
NEIGHBOURS = 8  # of a piece
MOST_PIECES = 3000  # whose neighbours are in the page, the most frequent ones


def write_report(directory, translator, heads, title, texts, references, lost=None, curves=(), score=""):
    """Writes report.html, and heads.tsv, into a directory that exists.

    Args:
        directory: path.
        translator: `Translator`, whose model is a `Transformer`.
        heads: `Heads` of it.
        title: str, such as the path of the run.
        texts, references: lists of str, the corpus. Neighbours are shown for its pieces.
        lost: (N,), the score that is lost without each head; None if it is not known.
        curves: list of (name, list of (share of heads, value)).
        score: str, a note about the curves.

    Returns:
        pathlib.Path of report.html.

    Raises:
        FileError: if a file cannot be written.
    """
    rows = _rows(heads, lost)
    data = {
        "title": title,
        "about": f"{counted(len(heads), 'head')}, measured on {counted(heads.pairs, 'pair')} of sentences.",
        "heads": rows,
        "relations": _relations(heads),
        "sentences": [_sentence(attended) for attended in heads.sentences],
        "curves": [{"name": name, "points": [list(map(float, point)) for point in points]} for name, points in curves],
        "score": score,
        "positions": positions(translator.model),
        "neighbours": neighbours(translator, texts, references),
    }
    columns = [name for name in rows[0] if name != "roles"] + ["roles"] if rows else []
    lines = ["\t".join(columns), *("\t".join(_cell(row[name]) for name in columns) for row in rows)]
    path = Path(directory) / PAGE
    try:
        (Path(directory) / TABLE).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        path.write_text(page_of(__package__, data), encoding="utf-8")
    except OSError as error:
        raise FileError.of("write", path, error) from error
    return path


def positions(model):
    """The vectors that a model adds to the embeddings of its first positions.

    Args:
        model: `Transformer`.

    Returns:
        dict of sizes, values as bytes in base64, and the mean dot product of two positions at each distance. None for
        a model that adds nothing. If source and target have a table each, those of the source.
    """
    encodings = model.position_layer.encode(ops.arange(POSITIONS))
    if encodings is None:
        return None
    encodings = ops.convert_to_numpy(encodings).astype(np.float64)
    largest = np.abs(encodings).max()
    products = encodings @ encodings.T
    return {
        "length": POSITIONS,
        "width": encodings.shape[1],
        "values": _base64((encodings / largest + 1) / 2),
        "products": [round(float(np.mean(np.diag(products, distance))), 4) for distance in range(POSITIONS)],
    }


def neighbours(translator, texts, references):
    """The nearest neighbours, by cosine, of the most frequent pieces of a corpus, in the embedding of each side.

    Args:
        translator: `Translator`, whose model is a `Transformer`.
        texts, references: lists of str.

    Returns:
        list of one or two {"side": str, "pieces": list of [piece, list of [neighbour, cosine]]}: one if both sides
        share their embedding.
    """
    model = translator.model
    ids = [translator.source_tokenizer.encode(list(texts)).flat_values.numpy()]
    ids.append(translator.target_tokenizer.encode(list(references)).flat_values.numpy())
    if model.source_embedding is model.target_embedding:
        sides = [("source and target", model.source_embedding, translator.source_tokenizer, np.concatenate(ids))]
    else:
        sides = [
            ("source", model.source_embedding, translator.source_tokenizer, ids[0]),
            ("target", model.target_embedding, translator.target_tokenizer, ids[1]),
        ]
    return [
        {"side": side, "pieces": _nearest(ops.convert_to_numpy(embedding.matrix), tokenizer, of_side)}
        for side, embedding, tokenizer, of_side in sides
    ]


def _nearest(matrix, tokenizer, ids):
    asked = [id for id, _ in Counter(ids.tolist()).most_common(MOST_PIECES)]
    unit = matrix / np.maximum(np.linalg.norm(matrix, axis=1, keepdims=True), 1e-12)
    cosines = unit[asked] @ unit.T  # (asked, V)
    cosines[:, : EOS_ID + 1] = -np.inf  # control symbols are no pieces
    cosines[np.arange(len(asked)), asked] = -np.inf
    nearest = np.argsort(-cosines, axis=1, kind="stable")[:, :NEIGHBOURS]
    names = tokenizer.visible_pieces(np.arange(len(matrix), dtype=np.int32))
    return [
        [names[id], [[names[other], round(float(row[other]), 3)] for other in others if math.isfinite(row[other])]]
        for id, row, others in zip(asked, cosines, nearest, strict=True)
    ]


def _rows(heads, lost):
    """A dict for each head; None where a number does not exist."""
    columns = {
        "kind": heads.kinds,
        "layer": heads.layers.tolist(),
        "place": heads.places.tolist(),
        "importance": heads.importance.tolist(),
        "lost": [math.nan] * len(heads) if lost is None else np.asarray(lost).tolist(),
        "entropy": heads.entropies.tolist(),
        "offset": heads.offsets.tolist(),
        "offset_share": heads.offset_shares.tolist(),
        "rare": heads.rare.tolist(),
        "rare_by_chance": heads.rare_by_chance.tolist(),
        "diagonal": heads.diagonal.tolist(),
        "aligned": heads.aligned.tolist(),
        "name": heads.names,
        "roles": heads.roles,
    }
    rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    return [{name: None if x != x else x for name, x in row.items()} for row in rows]


def _relations(heads):
    def best(shares):
        head = int(np.argmax(shares))
        return [heads.names[head], float(shares[head])]

    return [
        {
            "relation": name,
            "pairs": relation.pairs,
            "offset": relation.offset,
            "baseline": float(relation.baseline),
            "to_head": best(relation.to_head),
            "to_dependent": best(relation.to_dependent),
        }
        for name, relation in heads.relations.items()
        if len(relation.to_head)
    ]


def _sentence(attended):
    pieces = (attended.source_pieces, attended.target_pieces, attended.label_pieces)
    shown = [[show_unprintable(piece) for piece in side] for side in pieces]
    weights = {kind: _base64(of_kind) for kind, of_kind in attended.weights.items()}
    return {**dict(zip(("source", "target", "labels"), shown, strict=True)), "weights": weights}


def _base64(shares):
    """Numbers from 0 to 1 as bytes from 0 to 255, in base64."""
    return base64.b64encode(np.rint(255 * np.clip(shares, 0, 1)).astype(np.uint8).tobytes()).decode("ascii")


def _cell(value):
    if isinstance(value, list):
        return ", ".join(value)
    return "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)
