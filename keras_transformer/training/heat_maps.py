"""Pictures of cross-attention (3.2.3): which pieces of the source the decoder looks at for each piece of the target."""

import warnings

import keras
import numpy as np
import tensorflow as tf
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

MOST_PIECES = 40  # of either side in a picture
CELL, CHARACTER, MARGIN = 0.2, 0.09, 0.1  # inches
DOTS_PER_INCH, POINTS = 80, 8


class AlignmentPictures(keras.callbacks.Callback):
    """Draws after every epoch what the decoder attends to in a few validation pairs, given the true translation.

    They are the same pairs in every epoch: one sees the alignment emerge.

    Args:
        batch: of `make_batch`.
        tokenizer: `Tokenizer`.
        writer: `EventWriter`.
        progress: `Progress`.
    """

    def __init__(self, batch, tokenizer, writer, progress):
        super().__init__()
        self.inputs, labels, _ = batch
        self.writer = writer
        self.progress = progress
        self.source_pieces, self.pieces = (
            [tokenizer.labels(row[row > 0][:MOST_PIECES]) for row in ids] for ids in (self.inputs["source_ids"], labels)
        )

    def on_epoch_end(self, epoch, logs=None):
        transformer = self.model.transformer
        with self.model.averaged():
            memory, source_mask = transformer.encode(self.inputs["source_ids"])
            _, alignments = transformer.align(self.inputs["target_ids"], memory, source_mask)  # (B, T, S)
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
        warnings.filterwarnings("ignore", "Glyph", UserWarning)  # a box is drawn for what the font lacks
        canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3]
