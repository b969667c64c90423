"""Pictures of attention in TensorBoard: after every epoch, what the model looks at."""

import warnings

import numpy as np
import tensorflow as tf
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from keras_transformer.config import PAD_ID
from keras_transformer.data.pipeline import make_batch
from keras_transformer.tokenizer import shift_right

MOST_PIECES = 40  # of either side in a picture
CELL, CHARACTER, MARGIN = 0.2, 0.09, 0.1  # inches
DOTS_PER_INCH, POINTS = 80, 8
PICTURES = 4  # validation pairs


def pictures_of(data, writer, progress):
    """The `AlignmentPictures` of a run.

    Args:
        data: `Data`.
        writer: `EventWriter`.
        progress: `Progress`.
    """
    rows = np.arange(min(PICTURES, len(data.validation)))
    pairs = make_batch(data.validation, rows)
    return AlignmentPictures(*pairs, data.tokenizers, writer, progress, data.validation.first_ids(rows))


class AlignmentPictures:
    """Draws after every epoch which source pieces the model looks at in a few validation pairs, as `align` tells.

    They are the same pairs in every epoch, with their true translations, so that one sees the alignment emerge.

    Args:
        source_ids: int32 (B, S).
        labels: int32 (B, T).
        tokenizers: `Tokenizer` of the source and of the target.
        writer: `EventWriter`.
        progress: `Progress`.
        first_ids: int32 (B,), with which the decoder begins; None for bos.
    """

    def __init__(self, source_ids, labels, tokenizers, writer, progress, first_ids=None):
        self.source_ids = source_ids
        self.target_ids = shift_right(labels, first_ids)
        self.writer = writer
        self.progress = progress
        self.source_pieces, self.pieces = (
            [tokenizer.visible_pieces(row[row != PAD_ID][:MOST_PIECES]) for row in ids]
            for tokenizer, ids in zip(tokenizers, (source_ids, labels), strict=True)
        )

    def __call__(self, trainer, logs):
        network = trainer.network
        with trainer.averaged():
            _, alignments = network.align(self.target_ids, network.encode(self.source_ids))  # (B, T, S)
        rows = zip(np.asarray(alignments), self.source_pieces, self.pieces, strict=True)
        with self.writer.as_default(step=self.progress.step):
            for number, (alignment, source_pieces, pieces) in enumerate(rows, start=1):
                picture = heat_map(alignment[: len(pieces), : len(source_pieces)], source_pieces, pieces)
                tf.summary.image(f"alignment/{number}", picture[None])


def heat_map(alignment, source_pieces, pieces):
    """Draws an alignment, white where it is 0 and black where it is 1.

    Args:
        alignment: float (T, S).
        source_pieces: list of str (S,), the columns.
        pieces: list of str (T,), the rows.

    Returns:
        uint8 (height, width, 3).
    """
    left, top = (MARGIN + CHARACTER * max(map(len, labels)) for labels in (pieces, source_pieces))
    columns, rows = CELL * len(source_pieces), CELL * len(pieces)
    width, height = left + columns + MARGIN, top + rows + MARGIN
    figure = Figure(figsize=(width, height), dpi=DOTS_PER_INCH)
    canvas = FigureCanvasAgg(figure)
    axes = figure.add_axes((left / width, MARGIN / height, columns / width, rows / height))
    axes.imshow(alignment, cmap="Greys", vmin=0, vmax=1)
    axes.xaxis.tick_top()
    text = {"fontsize": POINTS, "parse_math": False}
    axes.set_xticks(range(len(source_pieces)), source_pieces, rotation=90, **text)
    axes.set_yticks(range(len(pieces)), pieces, **text)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph", UserWarning)  # it draws a box for a character that the font lacks
        canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3]
