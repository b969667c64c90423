"""The tasks and the measurements of benchmarks/tour, against answers that are known without them."""

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from benchmarks.tour import stories
from benchmarks.tour.__main__ import DRAWN
from benchmarks.tour.readers import accuracy, gradient_norms, story_reader
from keras_transformer.recurrent.cells import CELLS, run

TOUR = Path(__file__).parents[1] / "docs/tour"


def test_every_page_of_the_tour_shows_the_picture_that_the_command_draws_for_it():
    assert {path.stem for path in TOUR.glob("*.md")} == {path.stem for path in TOUR.glob("*.png")} == set(DRAWN)
    for page in DRAWN:
        assert f"]({page}.png)" in (TOUR / f"{page}.md").read_text(encoding="utf-8")
    index = (TOUR.parent / "index.md").read_text(encoding="utf-8")
    assert "\n".join(f"tour/{page}" for page in DRAWN) in index  # in the order of the story


def test_a_story_says_the_fact_then_n_other_words_and_asks_for_the_fact():
    n = 7
    texts, ids, answers = stories.stories(50, n, seed=1)
    assert texts == stories.stories(50, n, seed=1)[0] != stories.stories(50, n, seed=2)[0]
    for text, row, answer in zip(texts, ids, answers, strict=True):
        words = text.split()
        assert words[:6] == f"Alice was carrying a {stories.OBJECTS[answer]} .".split()
        assert words[-5:] == "What was Alice carrying ?".split() and len(words) == 6 + n + 5
        assert not set(words[6:-5]) & {*stories.OBJECTS, "Alice", "carrying"}  # nothing else answers the question
        assert [stories.IDS[word] for word in words] == row.tolist() and 0 not in row
    assert set(answers) == set(range(len(stories.OBJECTS)))


def test_a_reader_of_stories_is_small_and_gives_a_number_for_each_object():
    for kind in (*CELLS, "transformer"):
        model = story_reader(kind, len(stories.IDS), len(stories.OBJECTS))
        assert model(stories.stories(3, 5, seed=1)[1]).shape == (3, len(stories.OBJECTS))
        assert model.count_params() < 11000


@pytest.mark.parametrize("kind", CELLS)
def test_gradient_norms_are_those_of_finite_differences_and_accuracy_the_share_of_largest_logits(kind):
    assert accuracy(np.array([[3, 1], [2, 5], [0, -1], [7, 8]]), np.array([0, 1, 1, 1])) == 0.75
    cell, rng = CELLS[kind](3), np.random.default_rng(1)
    cell.build((None, None, 5))
    x = tf.constant(rng.normal(size=(1, 4, 5)), "float32")
    h, *rest = (tensor[:, 0] for tensor in run(cell, x[:, :1], cell.zero_state(1)))
    shift = 1e-2 * np.eye(3, dtype="float32")
    ends = [run(cell, x[:, 1:], (h + sign * shift[i], *rest))[0][0, -1] for i in range(3) for sign in (1, -1)]
    matrix = (np.array(ends[::2]) - np.array(ends[1::2])) / 2e-2
    np.testing.assert_allclose(gradient_norms(cell, x, [4]), [np.linalg.norm(matrix, 2)], rtol=1e-2)
