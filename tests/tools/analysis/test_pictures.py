import contextlib
import functools
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf

from keras_transformer.data.pipeline import make_batch
from keras_transformer.tokenizer import shift_right
from keras_transformer.tools.analysis import pictures
from keras_transformer.tools.analysis.pictures import AlignmentPictures, heat_map
from keras_transformer.training.teacher_forcing import TeacherForcing
from keras_transformer.training.tensorboard import EventWriter
from keras_transformer.training.watchers import Progress
from tests import reference, tiny
from tests.training.curves import read_events

T, S = 3, 5
PIECES, SOURCE_PIECES = ["▁ein", "s", "</s>"], ["▁o", "ne", "▁", "<0xE2>", "\\t"]


def test_rows_are_pieces_and_columns_source_pieces_in_square_cells():
    empty, centres = heat_map(np.zeros((T, S)), SOURCE_PIECES, PIECES), []
    for cell in ((0, 0), (T - 1, 0), (0, S - 1)):
        alignment = np.zeros((T, S))
        alignment[cell] = 1
        picture = heat_map(alignment, SOURCE_PIECES, PIECES)
        centre = np.argwhere((picture != empty).any(axis=-1)).mean(axis=0)
        assert picture[tuple(centre.astype(int))].tolist() == [0, 0, 0]
        centres.append(centre)
    down, right = centres[1:] - centres[0]
    assert down[0] > 20 and down[0] / (T - 1) == pytest.approx(right[1] / (S - 1), abs=2)
    assert abs(down[1]) < 2 and abs(right[0]) < 2


def test_any_pieces_can_be_drawn_in_a_modest_picture():
    """TeX, which matplotlib would typeset or refuse, and characters that its font lacks."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        heat_map(np.zeros((T, S)), ["$x^{$", "$", "中文", "👩", "\\frac"], ["שלום", "x" * 16, "%$^$"])
    picture = heat_map(np.full((40, 40), 0.025), ["▁piece"] * 40, ["▁piece"] * 40)
    assert picture.dtype == np.uint8 and picture.shape[2] == 3 and max(picture.shape) < 800


def batch(count=4):
    """(source_ids, labels)."""
    return make_batch(tiny.encoded_pairs([3, 5, 2, 4], [2, 4, 3, 5], tiny.VOCABULARY), np.arange(count))


@functools.cache  # no test changes its weights
def transformer(seed=0):
    return tiny.transformer(seed)


def pictures_by_numpy(source_ids, labels, transformer, most=31):
    weights, target_ids = reference.weights_of(transformer), shift_right(labels).numpy()
    alignments = reference.alignment(weights, source_ids, target_ids, num_heads=2, residual=reference.post_norm)
    for alignment, source_row, row in zip(alignments, source_ids, labels, strict=True):
        source_pieces, pieces = (tiny.tokenizer().visible_pieces(ids[ids > 0])[:most] for ids in (source_row, row))
        yield heat_map(alignment[: len(pieces), : len(source_pieces)], source_pieces, pieces)


def draw(directory, network, source_ids, labels, step=0, tokenizers=(tiny.tokenizer,) * 2, averaged=None):
    """Writes the pictures of an epoch's end and reads them: [(step, picture)]."""
    writer = EventWriter(directory)
    tokenizers = [tokenizer() for tokenizer in tokenizers]
    drawn = AlignmentPictures(source_ids, labels, tokenizers, writer, Progress(step=step))
    drawn(SimpleNamespace(network=network, averaged=averaged or contextlib.nullcontext), {})
    writer.close()
    events = read_events(directory)
    assert list(events) == [f"alignment/{number}" for number in range(1, 1 + len(labels))]
    return [event for ((event),) in events.values()]


def assert_pictures(found, expected):
    for one, other in zip(found, expected, strict=True):
        assert one.shape == other.shape
        np.testing.assert_allclose(one.astype(int), other, atol=2)


@pytest.mark.parametrize("strategy", [tf.distribute.get_strategy, tiny.two_replicas])
def test_the_alignment_of_each_pair_is_drawn_at_the_end_of_an_epoch(tmp_path, strategy):
    with strategy().scope():
        network = tiny.transformer()
    steps, found = zip(*draw(tmp_path, network, *batch(), step=17), strict=True)
    expected = list(pictures_by_numpy(*batch(), transformer()))
    assert set(steps) == {17} and len({picture.tobytes() for picture in expected}) == 4
    assert_pictures(found, expected)


def test_the_averaged_weights_are_drawn_where_there_are_any(tmp_path):
    trainer = TeacherForcing(tiny.transformer(), ema_decay=0.5)
    trainer.compile("adam")
    for average, weight in zip(trainer.updates.averages, transformer(seed=5).weights, strict=True):
        average.assign(weight)
    _, found = zip(*draw(tmp_path, trainer.network, *batch(), averaged=trainer.averaged), strict=True)
    assert_pictures(found, pictures_by_numpy(*batch(), transformer(seed=5)))


def test_of_long_sentences_the_first_pieces_are_drawn(tmp_path, monkeypatch):
    monkeypatch.setattr(pictures, "MOST_PIECES", 3)
    ((_, found),) = draw(tmp_path, transformer(), *batch(1))
    assert_pictures([found], pictures_by_numpy(*batch(1), transformer(), most=3))


def test_each_side_is_written_in_the_pieces_of_its_own_tokenizer(tmp_path):
    shared, other = tiny.tokenizer, lambda: SimpleNamespace(visible_pieces=lambda ids: ["x" * 23 for _ in ids])
    shapes = []
    for number, tokenizers in enumerate([(shared, shared), (other, shared), (shared, other)]):
        ((_, picture),) = draw(tmp_path / f"{number}", transformer(), *batch(1), tokenizers=tokenizers)
        shapes.append(picture.shape)
    both, source, target = shapes
    assert source[0] > both[0] and source[1] == both[1]  # columns
    assert target[1] > both[1] and target[0] == both[0]  # rows
