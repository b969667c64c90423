"""The pictures of docs/tour/, drawn with matplotlib from the results of the pages' code or of `experiments`."""

import re
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf
from matplotlib.figure import Figure

from benchmarks.tour import experiments, recipes
from keras_transformer.config import BOS_ID, EOS_ID

PAGES = Path(__file__).parents[2] / "docs/tour"
# The colours of Okabe & Ito: people who see no red or no green can tell them apart.
COLOURS = {"rnn": "#d55e00", "lstm": "#0072b2", "gru": "#009e73", "transformer": "#000000"}
NAMES = {"rnn": "simple cell", "lstm": "LSTM", "gru": "GRU", "transformer": "Transformer"}
WITHOUT, WITH = COLOURS["rnn"], COLOURS["lstm"]


def run_page(name):
    """Runs the Python blocks of a page of the tour; returns the names that they define."""
    blocks = re.findall(r"^```python\n(.*?)^```$", (PAGES / f"{name}.md").read_text(encoding="utf-8"), re.DOTALL | re.M)
    keras.utils.set_random_seed(1)
    names = {"print": lambda *words: None}
    exec("\n".join(blocks), names)
    return names


def canvas(columns, width=9.5, height=3.4):
    """A new figure with one row of axes without a frame above and on the right."""
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = [figure.add_subplot(1, columns, i + 1) for i in range(columns)]
    for each in axes:
        each.spines[["top", "right"]].set_visible(False)
    return figure, axes


def label(axes, title, x, y):
    """Says what the axes show."""
    axes.set_title(title, loc="left", fontsize=10)
    axes.set_xlabel(x)
    axes.set_ylabel(y)


def power_ticks(axes, values):
    """A logarithmic x axis with these values on it."""
    axes.set_xscale("log", base=2)
    axes.set_xticks(values, [str(value) for value in values])
    axes.minorticks_off()


def draw_lookup():
    """The weights of the three facts while the question learns to ask for Norway, by argmax and by softmax."""
    page = run_page("lookup")
    figure, axes = canvas(2)
    for each, (name, choose) in zip(axes, (("argmax", page["hard"]), ("softmax", page["soft"])), strict=True):
        q, weights = tf.Variable(page["question"]), []
        for _ in range(100):
            with tf.GradientTape() as tape:
                chosen = choose(tf.linalg.matvec(page["keys"], q))
                loss = tf.reduce_sum((chosen @ page["values"] - page["wanted"]) ** 2)
            weights.append(chosen[0])
            gradient = tape.gradient(loss, q)
            if gradient is not None:
                q.assign_sub(gradient)
        colours = COLOURS["gru"], COLOURS["lstm"], COLOURS["rnn"]
        for place, found, colour in zip(page["facts"], np.array(weights).T, colours, strict=True):
            each.plot(found, color=colour, label=place)
        each.lines[0].set(linestyle="--", zorder=3)  # lies on another line
        each.set_ylim(-0.03, 1.03)
        label(each, f"{name}: the question learns{'' if name == 'softmax' else ' nothing'}", "step", "weight of a fact")
        each.legend(frameon=False, loc="center right")
    return figure


def draw_recurrence():
    """Accuracy, gradients and time of the three cells, and of the Transformer."""
    measured = experiments.measure_memory(), experiments.measure_gradients(), experiments.measure_steps()
    return figure_of_recurrence(*measured)


def figure_of_recurrence(memory, gradients, steps):
    """Three axes of the results of `experiments`."""
    figure, (left, middle, right) = canvas(3, width=12)
    for kind, found in memory.items():
        left.plot(experiments.OTHER_WORDS, found.mean(axis=0), "o-", color=COLOURS[kind], label=NAMES[kind])
        left.fill_between(experiments.OTHER_WORDS, *np.quantile(found, (0, 1), axis=0), color=COLOURS[kind], alpha=0.12)
    left.axhline(1 / 8, color="grey", linewidth=0.8, linestyle=":")
    left.text(experiments.OTHER_WORDS[0], 0.03, "a guess", color="grey", fontsize=8)
    power_ticks(left, experiments.OTHER_WORDS)
    left.set_ylim(0, 1.03)
    label(left, f"right answers after {experiments.UPDATES} updates", "words between fact and question", "accuracy")
    left.legend(frameon=False, fontsize=8, loc="center right")
    for (kind, is_trained), norms in gradients.items():
        shown = np.maximum(norms, 1e-30)  # 0 has no place on a logarithmic axis
        middle.plot(experiments.DISTANCES, shown, "-" if is_trained else ":", color=COLOURS[kind])
    middle.set_yscale("log")
    middle.set_ylim(1e-14, 10)
    power_ticks(middle, experiments.DISTANCES)
    label(middle, "norm of d h_T / d h_1 (dotted: new, line: trained)", "T", "norm")
    for (kind, batch), times in steps.items():
        right.plot(experiments.LENGTHS, times, "-" if batch == 1 else ":", color=COLOURS[kind])
    power_ticks(right, experiments.LENGTHS)
    right.set_yscale("log")
    label(right, "an update (line: one story, dotted: 32)", "words of a story", "milliseconds")
    return figure


def draw_order():
    """The sinusoids, their dot products against distance, and weights by clipped distances."""
    page = run_page("order")
    sinusoids, last = page["sinusoids"], page["last"]
    figure, (left, middle, right) = canvas(3, width=12)
    table = np.array(sinusoids(np.arange(100), 64))
    left.imshow(table[:, ::2].T, aspect="auto", cmap="RdBu", interpolation="nearest", extent=(0, 100, 63, 0))
    label(left, "sines of D = 64", "position", "component")
    distances = np.arange(-50, 50)
    for position, line in ((50, "-"), (30, "--")):
        colour = COLOURS["lstm"] if position == 50 else COLOURS["rnn"]
        products = table @ table[position]
        middle.plot(np.arange(100) - position, products, line, color=colour, label=f"from position {position}")
    middle.set_xlim(distances[0], distances[-1])
    middle.legend(frameon=False, fontsize=8)
    label(middle, "PE(p) . PE(p + k): the same from everywhere", "k", "dot product")
    right.bar(np.arange(-5, 1), last, color=[COLOURS["lstm"]] * 4 + [COLOURS["gru"], COLOURS["rnn"]])
    label(right, "relative positions, clipped at 2", "distance", "weight")
    return figure


def draw_square_root():
    """Variance of dot products and gradient of the softmax against the width, with and without the square root."""
    page = run_page("square_root")
    widths, rng = (4, 16, 64, 256, 1024), np.random.default_rng(1)
    figure, (left, right) = canvas(2)
    products = [np.sum(rng.normal(size=(5000, d)) * rng.normal(size=(5000, d)), axis=1) for d in widths]
    for values, scale, colour, name in (
        (products, lambda d: 1, WITHOUT, "without the square root"),
        (products, lambda d: d**-0.5, WITH, "divided by the square root"),
    ):
        variances = [np.var(product * scale(d)) for product, d in zip(values, widths, strict=True)]
        left.plot(widths, variances, "o-", color=colour, label=name)
        right.plot(widths, [page["mean_gradient"](d, scale(d)) for d in widths], "o-", color=colour)
    left.set_yscale("log")
    left.legend(frameon=False)
    right.set_ylim(0)
    for axes in (left, right):
        power_ticks(axes, widths)
    label(left, "variance of q . k", "d_k", "variance")
    label(right, "gradient of the largest weight of ten", "d_k", "mean of a (1 - a)")
    return figure


def draw_latent_attention():
    """The latent and the active weights of the paper's two sentences, for trigger and action."""
    return figure_of_latent_attention(experiments.measure_recipes())


def figure_of_latent_attention(model):
    """Two rows of weights for each answer and sentence, from the model of `experiments.measure_recipes`."""
    figure = Figure(figsize=(9.5, 4.4), layout="constrained")
    embedding, encoder = model.get_layer("embedding"), model.get_layer("encoder")
    found = experiments.predict_services(model, [text for text, *_ in recipes.OF_THE_PAPER])
    for i, (text, *_) in enumerate(recipes.OF_THE_PAPER):
        ids, words = recipes.ids_of([text]), text.split()
        states = encoder(embedding(ids), ids != 0)["states"]
        for j, name in enumerate(("trigger", "action")):
            latent, active = model.get_layer(f"{name}_attention").weigh(states, ids != 0)
            axes = figure.add_subplot(4, 1, 2 * i + j + 1)
            axes.imshow(np.concatenate([latent, active]), aspect="auto", cmap="Blues", vmin=0, vmax=1)
            for row, weights in enumerate((latent[0], active[0])):
                for column, weight in enumerate(np.array(weights)):
                    colour = "white" if weight > 0.5 else "black"
                    axes.text(column, row, f"{weight:.2f}", ha="center", va="center", color=colour, fontsize=8)
            axes.set_xticks(range(len(words)), words if j == 0 else [""] * len(words), fontsize=9)
            axes.xaxis.tick_top()
            axes.tick_params(length=0)
            axes.set_yticks((0, 1), ("latent", "active"), fontsize=8)
            axes.set_ylabel(f"{name}:\n{found[i][j]}", rotation=0, ha="right", va="center", fontsize=9)
    return figure


def draw_step_by_step(translator, text):
    """The three most likely pieces at every step of a greedy translation."""
    model, tokenizer = translator.model, translator.target_tokenizer
    memory = model.encode(translator.source_tokenizer.encode([text]).to_tensor())
    state, read, columns = model.start(memory, 1), BOS_ID, []
    while read != EOS_ID and len(columns) < 24:
        position = np.array(len(columns))
        states, state = model.step(np.array([[read]]), np.zeros((1, 1), "int32"), position, state)
        chances = np.array(keras.ops.softmax(model.logits(states)))[0, 0]
        best = np.argsort(-chances)[:3]
        columns.append((tokenizer.visible_pieces(best), chances[best]))
        read = int(best[0])
    figure, (axes,) = canvas(1, width=max(5, 0.85 * len(columns) + 1), height=2.0)
    axes.imshow(np.array([chances for _, chances in columns]).T, aspect="auto", cmap="Blues", vmin=0, vmax=1)
    for column, (pieces, chances) in enumerate(columns):
        for row, (piece, chance) in enumerate(zip(pieces, chances, strict=True)):
            colour = "white" if chance > 0.5 else "black"
            axes.text(column, row, f"{piece}\n{chance:.3f}", ha="center", va="center", color=colour, fontsize=8)
    axes.set_yticks(range(3), ("1st", "2nd", "3rd"))
    axes.set_xticks(range(len(columns)), range(1, len(columns) + 1))
    axes.tick_params(length=0)
    label(axes, f"“{text}”: the three most likely pieces of each step", "step", "")
    return figure
