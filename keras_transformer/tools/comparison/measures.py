"""Where translations are good and bad: by the length of the sentence, by the frequency of the word, by kinds of faults.

Words are those of `keras_transformer.words`: in scripts without spaces, a grapheme cluster takes the place of a word.
"""

from collections import Counter
from collections.abc import Sequence

import regex

from keras_transformer.errors import UserError
from keras_transformer.tools.words import has_words, is_unspaced, tokens_of
from keras_transformer.words import LETTER_WITH_MARKS

MOST_GROUPS = 6  # of sentences, by length
FREQUENCIES = (0, 1, 2, 10, 100, 1000, 10000)  # the least frequency of each group of words
MOST_COUNTED = 200_000  # sentences of a training corpus
CLUSTERS = 3  # grapheme clusters that are about a word
LONGEST_LOOP = 8  # words that are said twice in a row
PHRASE = 4  # words that are said again, wherever that is
FAR = 0.6  # a text that has less than this share of the words of another is far shorter
LEAST_DIFFERENCE = 3  # words. Of short texts, a smaller difference says nothing
_STUTTER = regex.compile(rf"((?:{LETTER_WITH_MARKS}){{1,4}}?)\1{{3,}}")  # up to four letters, four times in a row
FAULTS = {
    "repeats itself": "says a word or a phrase twice in a row, four words again, or a part of a word four times in a "
    "row, more often than its source and each reference",
    "far too short": f"lacks {LEAST_DIFFERENCE} words or more, and has less than {FAR:.0%} of the shortest reference",
    "far too long": f"adds {LEAST_DIFFERENCE} words or more, and the longest reference has less than {FAR:.0%} of it",
    "left as the source": "equals its source, and no reference",
}


def words_in(text: str) -> list[str]:
    """The words of a text and its numbers, without signs."""
    tokens = [text[start:end] for start, end in tokens_of(text)]
    return [token for token in tokens if has_words(token)]


def length_groups(lengths: Sequence[int], most: int = MOST_GROUPS) -> list[tuple[str, list[int]]]:
    """Groups sentences by length, about equally many in each group.

    Args:
        lengths: sequence of int, not empty.
        most: int, the most groups.

    Returns:
        list of (name such as "5 to 8", the numbers of the sentences), the shortest first. Sentences of one length are
        in one group.
    """
    ordered = sorted(lengths)
    ends = sorted({ordered[-(-len(ordered) * group // most) - 1] for group in range(1, most + 1)})
    groups = []
    for before, end in zip([-1, *ends], ends, strict=False):
        rows = [row for row, length in enumerate(lengths) if before < length <= end]
        start = min(lengths[row] for row in rows)
        groups.append((f"{start}" if start == end else f"{start} to {end}", rows))
    return groups


def training_words(model_dir) -> tuple[Counter, int] | None:
    """Counts the target words of the tokenised corpus of a run.

    Of a large corpus, evenly spaced sentences are counted.

    Args:
        model_dir: path of a run directory.

    Returns:
        (Counter of the words, the number of sentences that were counted); None if the run has no tokenised corpus.
    """
    import numpy as np

    from keras_transformer.tokenizer import load_tokenizers
    from keras_transformer.training.preparation import open_split
    from keras_transformer.training.run_directory import RunDirectory

    run = RunDirectory(model_dir)
    try:
        pairs = open_split(run, "train")
    except UserError:
        return None
    rows = np.arange(0, len(pairs), -(-len(pairs) // MOST_COUNTED))
    texts = pairs.target.of(rows).texts(load_tokenizers(run.path)[1])
    return Counter(word for text in texts for word in words_in(text)), len(rows)


def recall_by_frequency(
    hypotheses: Sequence[str], references: Sequence[Sequence[str]], counts: Counter
) -> dict[int, tuple[int, int]]:
    """How many of the words of the references a system has, by the frequency of the word.

    A translation has a word as often as the reference, or less often: it counts as often as both have it.

    Args:
        hypotheses: sequence of str.
        references: sequence of sequences of str; all of them count.
        counts: Counter, from a word to its frequency.

    Returns:
        dict from the least frequency of a group, of `FREQUENCIES`, to (words of the references, words that the
        translations have, too). A group without words is left out.
    """
    totals, found = Counter(), Counter()
    for hypothesis, row in zip(hypotheses, references, strict=True):
        said = Counter(words_in(hypothesis))
        for word, times in (pair for reference in row for pair in Counter(words_in(reference)).items()):
            group = max(least for least in FREQUENCIES if least <= counts[word])
            totals[group] += times
            found[group] += min(times, said[word])
    return {group: (totals[group], found[group]) for group in FREQUENCIES if totals[group]}


def frequency_name(group: int) -> str:
    """The name of a group of `FREQUENCIES`, such as "2 to 9"."""
    following = [least for least in FREQUENCIES if least > group]
    if group < 2:
        return ("never", "once")[group]
    return f"{group:,} to {following[0] - 1:,}" if following else f"{group:,} or more"


def repetitions(text: str) -> int:
    """Counts the places at which a text repeats itself.

    That is a word or a phrase that is said twice in a row, four words that the text has said before, or a part of a
    word that comes four times in a row. In scripts without spaces, `CLUSTERS` grapheme clusters count as a word,
    because many words have two equal ones.
    """
    words = [word.casefold() for word in words_in(text)]
    unit = CLUSTERS if 2 * sum(map(is_unspaced, words)) > len(words) else 1
    in_a_row = {
        start
        for size in range(unit, min(unit * LONGEST_LOOP, len(words) // 2) + 1)
        for start in range(len(words) - 2 * size + 1)
        if words[start : start + size] == words[start + size : start + 2 * size]
    }
    size = unit * PHRASE
    phrases = [tuple(words[start : start + size]) for start in range(len(words) - size + 1)]
    return len(in_a_row) + len(phrases) - len(set(phrases)) + len(_STUTTER.findall(text.casefold()))


def faults_of(hypothesis: str, references: Sequence[str], source: str | None) -> list[str]:
    """The kinds of faults that a translation has: a list of names of `FAULTS`.

    Args:
        hypothesis: str.
        references: sequence of str.
        source: str; None if it is not known.
    """
    others = [*references] if source is None else [*references, source]
    said, wanted = len(words_in(hypothesis)), [len(words_in(reference)) for reference in references]
    found = {
        "repeats itself": repetitions(hypothesis) > max(map(repetitions, others)),
        "far too short": _is_far_shorter(said, min(wanted)),
        "far too long": _is_far_shorter(max(wanted), said),
        "left as the source": has_words(hypothesis) and hypothesis == source and hypothesis not in references,
    }
    return [name for name in FAULTS if found[name]]


def _is_far_shorter(length: int, other: int) -> bool:
    return length < FAR * other and (other - length >= LEAST_DIFFERENCE or not length)
