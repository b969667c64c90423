import contextlib
import tempfile
import warnings
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf
from keras_transformer.training.heat_maps import AlignmentPictures, heat_map
from keras_transformer.training.optimizer import Adam
from keras_transformer.training.progress import Progress

from keras_transformer.data.encoded import encode_pairs
from keras_transformer.data.pipeline import make_batch
from keras_transformer.training import heat_maps
from keras_transformer.training.teacher_forcing import TeacherForcing
from tests import reference, tiny
from tests.training.curves import read_events

T, S = 3, 5
PIECES, SOURCE_PIECES = ["▁ein", "s", "</s>"], ["▁o", "ne", "▁", "<0xE2>", "\\t"]


def one_hot(row, column, weight=1.0):
    alignment = np.zeros((T, S))
    alignment[row, column] = weight
    return alignment


def marked(row, column):
    """First and last row and column of pixels that a cell's weight changes, and the picture's values there."""
    picture = heat_map(one_hot(row, column), SOURCE_PIECES, PIECES)
    different = (picture != heat_map(np.zeros((T, S)), SOURCE_PIECES, PIECES)).any(axis=-1)
    (rows, columns) = np.nonzero(different)
    box = np.array([rows.min(), rows.max(), columns.min(), columns.max()])
    return box, picture[box[0] + 3 : box[1] - 2, box[2] + 3 : box[3] - 2]


def test_rows_are_pieces_and_columns_source_pieces():
    first, _ = marked(0, 0)
    height, width = first[1] - first[0] + 1, first[3] - first[2] + 1
    assert height == pytest.approx(width, abs=2)
    for row, column in ((1, 0), (0, 1), (2, 4)):
        box, _ = marked(row, column)
        moved = np.array([row * height, row * height, column * width, column * width])
        np.testing.assert_allclose(box - first, moved, atol=1 + 0.5 * max(row, column))


def test_nothing_is_white_and_all_is_black():
    _, inside = marked(1, 2)
    assert inside.size and inside.max() == 0
    picture = heat_map(one_hot(1, 2, 0.0), SOURCE_PIECES, PIECES)
    box, _ = marked(1, 2)
    assert picture[box[0] + 3 : box[1] - 2, box[2] + 3 : box[3] - 2].min() == 255


def test_pictures_are_modest_and_of_bytes():
    picture = heat_map(np.full((40, 40), 0.025), ["▁piece"] * 40, ["▁piece"] * 40)
    assert picture.dtype == np.uint8 and picture.shape[2] == 3 and max(picture.shape) < 800


@pytest.mark.parametrize("labels", [SOURCE_PIECES, PIECES])
def test_labels_are_drawn(labels):
    picture = heat_map(np.zeros((T, S)), SOURCE_PIECES, PIECES)
    changed = [label.replace("s", "M").replace("ne", "MM") for label in labels]
    arguments = (changed, PIECES) if labels is SOURCE_PIECES else (SOURCE_PIECES, changed)
    assert (heat_map(np.zeros((T, S)), *arguments) != picture).any()


def test_any_piece_can_be_drawn():
    """TeX, which matplotlib would typeset or refuse, and what its font lacks."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        heat_map(np.zeros((T, S)), ["$x^{$", "$", "中文", "👩", "\\frac"], ["שלום", "x" * 16, "%$^$"])


def batch(count=4):
    with tempfile.TemporaryDirectory() as directory:
        encoded = encode_pairs(tiny.pairs(7), tiny.tokenizer(), 31, Path(directory))
        return make_batch(encoded, np.arange(count))


def pictures_by_numpy(inputs, labels, transformer, most=31):
    weights = reference.weights_of(transformer)
    alignments = reference.alignment(weights, **inputs, num_heads=2, residual=reference.post_norm)
    for alignment, source_ids, row in zip(alignments, inputs["source_ids"], labels, strict=True):
        source_pieces, pieces = (tiny.tokenizer().labels(ids[ids > 0])[:most] for ids in (source_ids, row))
        yield heat_map(alignment[: len(pieces), : len(source_pieces)], source_pieces, pieces)


@pytest.mark.parametrize("strategy", [tf.distribute.get_strategy, tiny.two_replicas])
def test_the_alignment_of_each_pair_is_drawn_at_the_end_of_an_epoch(tmp_path, strategy):
    with strategy().scope():
        transformer = tiny.transformer()
    writer = tf.summary.create_file_writer(str(tmp_path))
    pictures = AlignmentPictures(batch(), tiny.tokenizer(), writer, Progress(step=17))
    pictures.set_model(SimpleNamespace(transformer=transformer, averaged=contextlib.nullcontext))
    pictures.on_epoch_end(2, {})
    writer.close()
    events, (inputs, labels, _) = read_events(tmp_path), batch()
    expected = list(pictures_by_numpy(inputs, labels, tiny.transformer()))
    assert list(events) == [f"alignment/{number}" for number in range(1, 5)]
    for ((step, found),), picture in zip(events.values(), expected, strict=True):
        assert step == 17 and found.shape == picture.shape
        np.testing.assert_allclose(found.astype(int), picture, atol=2)
    assert len({picture.tobytes() for picture in expected}) == 4


def test_the_averaged_weights_are_drawn_where_there_are_any(tmp_path):
    trainer = TeacherForcing(tiny.transformer())
    trainer.compile(Adam(0.0, ema_decay=0.5))
    trainer.optimizer.build(trainer.trainable_variables)
    for average, weight in zip(trainer.optimizer.averages, tiny.trained_transformer().weights, strict=True):
        average.assign(weight)
    writer = tf.summary.create_file_writer(str(tmp_path))
    pictures = AlignmentPictures(batch(), tiny.tokenizer(), writer, Progress())
    pictures.set_model(trainer)
    pictures.on_epoch_end(0, {})
    writer.close()
    found = [picture.astype(int) for ((_, picture),) in read_events(tmp_path).values()]
    inputs, labels, _ = batch()
    averaged, raw = (
        list(pictures_by_numpy(inputs, labels, model)) for model in (tiny.trained_transformer(), tiny.transformer())
    )
    for picture, expected in zip(found, averaged, strict=True):
        np.testing.assert_allclose(picture, expected, atol=2)
    assert max(np.abs(picture - other).max() for picture, other in zip(found, raw, strict=True)) > 20


def test_of_long_sentences_the_first_pieces_are_drawn(tmp_path, monkeypatch):
    monkeypatch.setattr(heat_maps, "MOST_PIECES", 3)
    transformer, (inputs, labels, _) = tiny.transformer(), batch(1)
    writer = tf.summary.create_file_writer(str(tmp_path))
    pictures = AlignmentPictures(batch(1), tiny.tokenizer(), writer, Progress())
    pictures.set_model(SimpleNamespace(transformer=transformer, averaged=contextlib.nullcontext))
    pictures.on_epoch_end(0, {})
    writer.close()
    ((_, found),) = read_events(tmp_path)["alignment/1"]
    (picture,) = pictures_by_numpy(inputs, labels, transformer, most=3)
    np.testing.assert_allclose(found.astype(int), picture, atol=2)
