"""The task of docs/tour/recurrence.md: a fact, n other words, and a question about the fact."""

import numpy as np

OBJECTS = ("grape", "plum", "stone", "book", "lamp", "key", "rope", "shoe")
OTHER_WORDS = (
    "the a an old young big small grey and but then so he she they it saw heard met passed left came went sat stood "
    "by near under over along river road wood house dog cat bird horse wind rain night day morning slowly again"
).split()
FACT, QUESTION = "Alice was carrying a {} .", "What was Alice carrying ?"
KNOWN = [*FACT.replace("{} ", "").split(), *QUESTION.split(), *OBJECTS, *OTHER_WORDS]
IDS = {word: i for i, word in enumerate(["", *dict.fromkeys(KNOWN)])}  # 0 is padding


def stories(count, n, seed):
    """Makes stories in which Alice carries an object, n other words follow, and a question asks for the object.

    Args:
        count: number of stories, B.
        n: words between the fact and the question.
        seed: of all choices.

    Returns:
        texts, list of str; ids int32 (B, S) of their words; answers int32 (B,), indices into `OBJECTS`.
    """
    rng = np.random.default_rng(seed)
    answers = rng.integers(0, len(OBJECTS), count, "int32")
    texts = [" ".join([FACT.format(OBJECTS[answer]), *rng.choice(OTHER_WORDS, n), QUESTION]) for answer in answers]
    return texts, np.array([[IDS[word] for word in text.split()] for text in texts], "int32"), answers
