"""The measurements of docs/tour/recurrence.md and docs/tour/latent_attention.md: each prints a table as it goes."""

import itertools
import statistics
import time

import keras
import numpy as np

from benchmarks.tour import recipes, stories
from benchmarks.tour.readers import accuracy, gradient_norms, recipe_reader, story_reader

READERS = ("rnn", "lstm", "gru", "transformer")
BATCH, SEEDS = 32, (1, 2)

OTHER_WORDS = (4, 8, 16, 32, 64)  # n
UPDATES = 500
DISTANCES = (1, 2, 4, 8, 16, 32, 64, 128)  # T of the gradient norms
TRAINED_AT = 4  # n of the trained cells whose gradients are measured
GRADIENT_STORIES = 8
LENGTHS = (16, 32, 64, 128, 256)  # words of the stories that are timed
TIMED_BATCHES = (1, 32)
REPEATS = 15

RECIPES, EPOCHS = 4000, 8


def train_story_reader(kind, n, seed):
    """A new model after `UPDATES` batches of stories with n other words."""
    keras.utils.set_random_seed(seed)
    model = story_reader(kind, len(stories.IDS), len(stories.OBJECTS))
    _, ids, answers = stories.stories(UPDATES * BATCH, n, seed)
    model.fit(ids, answers, batch_size=BATCH, verbose=0)
    return model


def measure_memory():
    """Accuracy on new stories after the same number of updates: kind -> (len(SEEDS), len(OTHER_WORDS))."""
    print(f"accuracy after {UPDATES} updates of {BATCH} stories, mean of {len(SEEDS)} seeds (lowest to highest)")
    found = {kind: np.zeros((len(SEEDS), len(OTHER_WORDS))) for kind in READERS}
    for column, n in enumerate(OTHER_WORDS):
        _, ids, answers = stories.stories(1000, n, seed=0)
        for kind in READERS:
            for row, seed in enumerate(SEEDS):
                logits = train_story_reader(kind, n, seed).predict(ids, batch_size=100, verbose=0)
                found[kind][row, column] = accuracy(logits, answers)
            shares = found[kind][:, column]
            print(f"n {n:3}  {kind:11}  {shares.mean():4.0%}  ({shares.min():.0%} to {shares.max():.0%})", flush=True)
    return found


def measure_gradients():
    """Mean norms of d h_T / d h_1 over stories: (kind, is trained) -> list of len(DISTANCES)."""
    _, ids, _ = stories.stories(GRADIENT_STORIES, max(DISTANCES), seed=0)
    print(f"norm of d h_T / d h_1 at T = {DISTANCES}, mean of {GRADIENT_STORIES} stories")
    found = {}
    for kind in READERS[:3]:
        for is_trained in (False, True):
            keras.utils.set_random_seed(SEEDS[0])
            model = story_reader(kind, len(stories.IDS), len(stories.OBJECTS))
            if is_trained:
                model = train_story_reader(kind, TRAINED_AT, SEEDS[0])
            x, cell = model.get_layer("embedding")(ids), model.get_layer("encoder").forward_cells[0]
            norms = [gradient_norms(cell, x[i : i + 1], DISTANCES) for i in range(GRADIENT_STORIES)]
            found[kind, is_trained] = list(np.mean(norms, axis=0))
            name = f"{kind}, {'trained' if is_trained else 'new'}"
            print(f"{name:13}", "  ".join(f"{norm:.1e}" for norm in found[kind, is_trained]), flush=True)
    return found


def measure_steps():
    """Milliseconds of an update against the length of the stories: (kind, batch) -> list of len(LENGTHS).

    The rounds go through all models one after the other, so that a busy moment hits all of them.
    """
    models = {kind: story_reader(kind, len(stories.IDS), len(stories.OBJECTS)) for kind in READERS}
    around = len(stories.stories(1, 0, seed=0)[0][0].split())
    found = {(kind, batch): [] for kind in READERS for batch in TIMED_BATCHES}
    print(f"milliseconds of an update, median of {REPEATS}")
    for batch, length in itertools.product(TIMED_BATCHES, LENGTHS):
        _, ids, answers = stories.stories(batch, length - around, seed=0)
        times = {kind: [] for kind in READERS}
        for repeat in range(REPEATS + 1):  # the first one, which traces, does not count
            for kind, model in models.items():
                started = time.perf_counter()
                model.train_on_batch(ids, answers)
                times[kind] += [1000 * (time.perf_counter() - started)] * bool(repeat)
        for kind in READERS:
            found[kind, batch].append(statistics.median(times[kind]))
        shown = "  ".join(f"{kind} {found[kind, batch][-1]:.1f}" for kind in READERS)
        print(f"{batch:2} of {length:3} words  {shown}", flush=True)
    return found


def train_recipe_reader(pooling, seed, count=RECIPES, epochs=EPOCHS):
    """A new model that has read `count` recipes in the familiar phrasings, `epochs` times."""
    keras.utils.set_random_seed(seed)
    model = recipe_reader(pooling, len(recipes.IDS), len(recipes.SERVICES))
    familiar, _ = recipes.split_phrasings(seed=0)
    texts, triggers, actions = recipes.recipes(count, familiar, seed)
    answers = {"trigger": triggers, "action": actions}
    model.fit(recipes.ids_of(texts), answers, batch_size=BATCH, epochs=epochs, verbose=0)
    return model


def predict_services(model, texts):
    """The trigger and the action that a model finds in each text: list of pairs of names."""
    logits = model.predict(recipes.ids_of(texts), batch_size=100, verbose=0)
    best = zip(*(np.argmax(logits[name], axis=-1) for name in ("trigger", "action")), strict=True)
    return [tuple(recipes.SERVICES[i] for i in pair) for pair in best]


def measure_recipes():
    """Prints the accuracies of both poolings; returns the first model with latent attention."""
    familiar, held_out = recipes.split_phrasings(seed=0)
    print(f"trained on {RECIPES} recipes in {len(familiar)} phrasings, asked for 2,000 in {len(held_out)} others")
    texts, triggers, actions = recipes.recipes(2000, held_out, seed=100)
    shown = None
    for pooling in ("mean", "latent"):
        for seed in SEEDS:
            model = train_recipe_reader(pooling, seed)
            shown = model if pooling == "latent" and shown is None else shown
            logits = model.predict(recipes.ids_of(texts), batch_size=100, verbose=0)
            right = accuracy(logits["trigger"], triggers), accuracy(logits["action"], actions)
            found = predict_services(model, [text for text, *_ in recipes.OF_THE_PAPER])
            answers = ", ".join(f"if {trigger} then {action}" for trigger, action in found)
            print(f"{pooling:6}  seed {seed}: trigger {right[0]:.1%}, action {right[1]:.1%}; {answers}", flush=True)
    return shown
