"""The tasks and the measurements of benchmarks/tour, against answers that are known without them."""

import itertools
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from benchmarks.tour import recipes, stories
from benchmarks.tour.__main__ import DRAWN
from benchmarks.tour.readers import accuracy, gradient_norms, recipe_reader, story_reader
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


def pattern_of(text):
    """A recipe with its services, verb and thing blanked: what of it is phrasing."""
    kinds = (("<service>", recipes.SERVICES), ("<verb>", recipes.VERBS), ("<thing>", recipes.THINGS))
    blanks = {word.lower(): kind for kind, words in kinds for word in words}
    return " ".join(blanks.get(word, word) for word in text.lower().split())


def test_no_held_out_phrasing_is_in_training():
    familiar, held_out = recipes.split_phrasings(seed=0)
    assert sorted(familiar + held_out) == sorted(itertools.product(recipes.SOURCES, recipes.TARGETS, recipes.ORDERS))
    patterns = [{pattern_of(text) for text in recipes.recipes(3000, part, seed=1)[0]} for part in (familiar, held_out)]
    assert len(patterns[0]) == len(familiar) and len(patterns[1]) == len(held_out)  # all were drawn, no two are alike
    assert not patterns[0] & patterns[1]
    assert {pattern_of(text) for text, *_ in recipes.OF_THE_PAPER} <= patterns[1]


def test_a_recipe_names_its_trigger_in_the_source_and_its_action_in_the_target():
    phrasing = ("{things} from {service}", "to {service}", "{verb} {target} {source}")
    for text, trigger, action in zip(*recipes.recipes(30, [phrasing], seed=1), strict=True):
        verb, to, target, thing, origin, source = text.split()
        assert (to, target, source) == ("to", recipes.SERVICES[action], recipes.SERVICES[trigger])
        assert verb in recipes.VERBS and thing in recipes.THINGS and origin == "from" and trigger != action


def test_a_reader_of_stories_is_small_and_gives_a_number_for_each_object():
    for kind in (*CELLS, "transformer"):
        model = story_reader(kind, len(stories.IDS), len(stories.OBJECTS))
        assert model(stories.stories(3, 5, seed=1)[1]).shape == (3, len(stories.OBJECTS))
        assert model.count_params() < 11000


@pytest.mark.parametrize("pooling", ["mean", "latent"])
def test_words_are_known_in_any_case_and_padding_does_not_change_what_a_reader_finds_in_a_recipe(pooling):
    model = recipe_reader(pooling, len(recipes.IDS), len(recipes.SERVICES))
    texts = [text for text, *_ in recipes.OF_THE_PAPER]
    ids = recipes.ids_of(texts)
    np.testing.assert_array_equal(ids, recipes.ids_of([text.upper() for text in texts]))
    assert ids.shape == (2, 8) and ids[0, 7] == 0 and np.all(ids[1])
    padded = np.pad(ids, [(0, 0), (0, 3)])
    for name in ("trigger", "action"):
        np.testing.assert_allclose(model(padded)[name], model(ids)[name], atol=1e-5)


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
