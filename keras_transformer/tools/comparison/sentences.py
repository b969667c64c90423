"""The sentences that a reader of the report sees, with the words marked that differ."""

from collections import Counter
from collections.abc import Sequence
from difflib import SequenceMatcher
from functools import reduce
from operator import or_

from sacrebleu.metrics import CHRF

from keras_transformer.tools.comparison.measures import FAULTS
from keras_transformer.tools.words import tokens_of

SAME, RIGHT, WRONG = range(3)  # marks of a word
MOST_SHOWN = 40  # sentences of each list


def sentence_scores(hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> list[float]:
    """chrF of each sentence, 0 to 100.

    Args:
        hypotheses: sequence of str.
        references: sequence of sequences of str.
    """
    metric = CHRF()
    return [metric.sentence_score(text, row).score for text, row in zip(hypotheses, references, strict=True)]


def marked(text: str, other: str, references: Sequence[str]) -> list[tuple[str, int]]:
    """Marks the words of a text that another text does not have at this place.

    Args:
        text: str.
        other: str, the text to compare with.
        references: sequence of str.

    Returns:
        list of (part of the text, mark). Together, the parts are the text. A mark is SAME; or RIGHT, where the other
        text differs and a reference has the word; or WRONG, where no reference has it. A word is right as often as the
        reference has it.
    """
    spans = tokens_of(text)
    words, others = ([each[start:end] for start, end in tokens_of(each)] for each in (text, other))
    blocks = SequenceMatcher(None, others, words, autojunk=False).get_matching_blocks()
    same = {place for block in blocks for place in range(block.b, block.b + block.size)}
    left = reduce(or_, (Counter(each[start:end] for start, end in tokens_of(each)) for each in references), Counter())
    left -= Counter(words[place] for place in same)
    marks = []
    for place, word in enumerate(words):
        marks.append(SAME if place in same else RIGHT if left[word] > 0 else WRONG)
        left[word] -= marks[-1] == RIGHT
    return _joined(text, spans, marks)


def _joined(text: str, spans: list[tuple[int, int]], marks: list[int]) -> list[tuple[str, int]]:
    """Parts of a text with their marks. Neighbours of one mark are one part, with the space between them."""
    parts, done = [], 0
    for (start, end), mark in zip(spans, marks, strict=True):
        if parts and parts[-1][1] == mark:
            parts[-1] = (parts[-1][0] + text[done:end], mark)
        elif start > done and mark != SAME:
            parts += [(text[done:start], SAME), (text[start:end], mark)]
        else:
            parts.append((text[done:end], mark))
        done = end
    return [*parts, (text[done:], SAME)] if done < len(text) else parts


def lists_of(
    scores: Sequence[Sequence[float]], faults: Sequence[Sequence[Sequence[str]]]
) -> list[tuple[str, list[int]]]:
    """The lists of sentences to look at.

    Args:
        scores: of one or two systems, chrF of each sentence.
        faults: of each system, the faults of each sentence.

    Returns:
        list of (name, the numbers of the sentences, the most striking one first). An empty list is left out.
    """
    found = []
    if len(scores) == 2:
        differences = [ours - theirs for ours, theirs in zip(*scores, strict=True)]
        found.append(("the system is better", _most(differences)))
        found.append(("the baseline is better", _most([-difference for difference in differences])))
    for name, of_system, its_faults in zip(("the system", "the baseline"), scores, faults, strict=False):
        found.append((f"{name}: lowest chrF", _most([100 - score for score in of_system])))
        for fault in FAULTS:
            rows = [row for row, kinds in enumerate(its_faults) if fault in kinds]
            found.append((f"{name}: {fault}", rows[:MOST_SHOWN]))
    return [(name, rows) for name, rows in found if rows]


def _most(values: Sequence[float]) -> list[int]:
    """The places of the largest positive values, the largest one first. A value that is printed as 0.0 is left out."""
    return sorted((row for row, value in enumerate(values) if value >= 0.05), key=lambda row: -values[row])[:MOST_SHOWN]
