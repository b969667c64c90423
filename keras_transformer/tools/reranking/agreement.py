"""Minimum Bayes risk: of several random translations of a text, the one that agrees best with all of them."""

import random
from collections import Counter
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from keras_transformer.errors import UserError
from keras_transformer.tools.words import spaced_out
from keras_transformer.translation.lines import of_one_or_many
from keras_transformer.translation.options import complete_inputs
from keras_transformer.translation.results import Translation

if TYPE_CHECKING:  # it loads TensorFlow
    from keras_transformer.translation.translator import TextTranslator

SAMPLES = 64  # of each text, if no number is given
FEWEST_SAMPLES, MOST_SAMPLES = 2, 256
CHARACTERS, WORDS = 6, 4  # of the longest n-grams of chrF and of BLEU
RECALL_WEIGHT = 4  # beta^2 of chrF2
TIE = 9  # decimals. Mean utilities that agree in 9 decimals differ by rounding alone


@of_one_or_many
def minimum_bayes_risk(
    translator: "TextTranslator",
    texts: str | Iterable[str],
    samples: int = SAMPLES,
    utility: str = "chrf",
    on_progress: Callable[[int], Any] | None = None,
    **sampling: Any,
) -> Translation | list[Translation]:
    """The translations that agree best with what the model finds likely (Eikema and Aziz 2020, arXiv:2005.10283).

    `samples` translations of each text are drawn at random. Each one is a candidate, and also a reference of all
    candidates. The candidate with the highest mean utility wins; of equal ones, the one that was drawn first. A text of
    several sentences is drawn and compared as a whole. No text has an influence on another.

    Args:
        translator: `TextTranslator`.
        texts: list of str, or one str.
        samples: int, 2 to 256.
        utility: "chrf" or "bleu", sacreBLEU's score of a sentence, see `sentence_chrf` and `sentence_bleu`.
        on_progress: called with the number of texts done since its last call.
        sampling: options of `TextTranslator.sample`. The same `seed` gives the same translations.

    Returns:
        list of `Translation`, or one for one str. The score is the mean utility over all samples, 0 to 100; 0 for blank
        text.

    Raises:
        UserError: as `check_choice` and `TextTranslator.sample`.

    Example:

    ```python
    kt.minimum_bayes_risk(translator, ["one two"], samples=16, utility="chrf", seed=7)
    ```
    """
    check_choice(samples, utility)
    inputs = complete_inputs("sample", {"text": texts, **sampling})  # raises before the work
    seeds = inputs["seed"] if isinstance(inputs["seed"], (list, tuple)) else [inputs["seed"]] * len(texts)
    options = {name: _repeated(value, samples) for name, value in sampling.items()}
    options["seed"] = [seed for own in seeds for seed in seeds_of(own, samples)]
    drawn = translator.sample(_repeated(texts, samples), _every(samples, on_progress), **options)
    rows = [drawn[start : start + samples] for start in range(0, len(drawn), samples)]
    return [agreed([row.text for row in of_text], utility) for of_text in rows]


def check_choice(samples, utility):
    """Raises UserError for a wrong number of samples, and for an unknown utility."""
    if utility not in UTILITIES:
        raise UserError(f"`utility` must be one of {', '.join(UTILITIES)}. Received: utility={utility!r}")
    if not FEWEST_SAMPLES <= samples <= MOST_SAMPLES:
        raise UserError(f"`samples` must be between {FEWEST_SAMPLES} and {MOST_SAMPLES}. Received: samples={samples}")


def agreed(texts, utility):
    """The text with the highest mean utility over all of them, the first one of equal ones: a `Translation`.

    Args:
        texts: list of str, one or more, in which a text may occur several times.
        utility: "chrf" or "bleu".
    """
    counts = Counter(texts)  # in the order of the texts
    candidates = [*counts]
    means = UTILITIES[utility](candidates) @ np.array([*counts.values()]) / len(texts)
    best = int(means.round(TIE).argmax())
    return Translation(candidates[best], float(means[best]))


def seeds_of(seed, count):
    """`count` seeds for the samples of a text; the first ones are the same for every `count`. list of int."""
    draws = random.Random(str(seed))  # a number would lose its sign
    return [draws.getrandbits(62) for _ in range(count)]


def _repeated(values, times):
    """Every value of a list `times` times in a row; a value for all texts as it is."""
    return [x for x in values for _ in range(times)] if isinstance(values, (list, tuple)) else values


def _every(number, on_progress):
    """A function that counts texts done, and reports every `number` of them as one; None if nobody listens."""
    done = 0

    def count(more):
        nonlocal done
        on_progress((done + more) // number - done // number)
        done += more

    return on_progress and count


def sentence_chrf(texts):
    """chrF2 of each text against each other text, as sacreBLEU's `CHRF().sentence_score`: float64 (N, N), 0 to 100.

    Args:
        texts: list of N str. Row i has the scores of text i, and column j those against the reference j.
    """
    characters = ["".join(text.split()) for text in texts]
    matches, counts = _matches(characters, CHARACTERS)
    own, others = np.maximum(counts, 1)[:, :, None], np.maximum(counts, 1)[:, None, :]
    orders = np.maximum(1, ((counts[:, :, None] > 0) & (counts[:, None, :] > 0)).sum(axis=0))
    precision, recall = (matches / own).sum(axis=0) / orders, (matches / others).sum(axis=0) / orders
    divisor = RECALL_WEIGHT * precision + recall
    return 100 * (1 + RECALL_WEIGHT) * precision * recall / np.where(divisor > 0, divisor, 1)


def sentence_bleu(texts):
    """BLEU of each text against each other text, as sacreBLEU's `BLEU(effective_order=True).sentence_score`.

    Words are those of `13a`. Relative to sacreBLEU, a grapheme cluster of a script without spaces between words, such
    as Chinese and Thai, is a word.

    Args:
        texts: list of N str.

    Returns:
        float64 (N, N), as `sentence_chrf`.
    """
    from sacrebleu.metrics import BLEU  # imported late: few ask for it

    tokenize = BLEU(effective_order=True).tokenizer
    words = [tuple(tokenize(spaced_out(text).rstrip()).split()) for text in texts]
    matches, counts = _matches(words, WORDS)
    lengths = counts[0].tolist()

    def score(i, j):
        how = {"smooth_method": "exp", "effective_order": True}
        found = matches[:, i, j].tolist(), counts[:, i].tolist()
        return BLEU.compute_bleu(*found, lengths[i], lengths[j], **how).score

    every = range(len(texts))
    return np.array([[score(i, j) for j in every] for i in every])


def _matches(texts, longest):
    """The n-grams that each two texts share, each counted as often as in the text that has fewer of it.

    The k-th occurrence of an n-gram is a feature of its own, so that the shared features of two texts are a product of
    matrices of zeros and ones.

    Args:
        texts: list of N sequences.
        longest: L, the longest n-grams.

    Returns:
        int (L, N, N), and int (L, N), the number of n-grams of each text.
    """
    matches = np.zeros((longest, len(texts), len(texts)), "int64")
    for n in range(1, longest + 1):
        columns, places = {}, []
        for row, text in enumerate(texts):
            seen = Counter()
            for start in range(len(text) - n + 1):
                gram = text[start : start + n]
                seen[gram] += 1
                places.append((row, columns.setdefault((gram, seen[gram]), len(columns))))
        features = np.zeros((len(texts), len(columns)), "float32")
        features[tuple(np.array(places, "int64").reshape(-1, 2).T)] = 1
        matches[n - 1] = features @ features.T
    return matches, np.diagonal(matches, axis1=1, axis2=2)


UTILITIES = {"chrf": sentence_chrf, "bleu": sentence_bleu}
