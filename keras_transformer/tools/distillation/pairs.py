"""The pairs of sequence-level distillation (Kim and Rush 2016, arXiv:1606.07947): each text, and what a teacher writes.

A small model learns more from the translations of a teacher than from human ones, because a teacher is consistent.
"""

from dataclasses import dataclass

from keras_transformer.data.corpora import OneSide

RECORD = "distillation.json"  # the origin of the pairs, so that another text or teacher never adds to them


@dataclass(frozen=True)
class Teaching:
    """The task of the teacher for every text: the `request` of a bulk translation.

    Attributes:
        n_best: int, how many of the best translations of a text are written.
    """

    n_best: int = 1

    @property
    def lines_each(self):
        """The number of output lines of a text."""
        return self.n_best

    def lines(self, translator, texts, on_progress=None):
        """The targets that the teacher writes: list of str -> list of lists of `n_best` str, best first."""
        if self.n_best == 1:
            found = [[text] for text in translator.translate(texts, on_progress)]
        else:
            rows = translator.alternatives(texts, on_progress)
            found = [[each.text for each in row[: self.n_best]] for row in rows]
        return [[text.replace("\n", " ") for text in row] for row in found]


def name_of_texts(corpus):
    """The name of the file with a line for each text to translate. `distil` removes the file at the end."""
    return f"texts.{corpus.source_lang}"


def texts_of(corpus, n_best):
    """The text of a distilled corpus but for the translations, which are in `train` of the target language.

    Args:
        corpus: `Corpus`, whose validation and test pairs stay as they are.
        n_best: int, how often each training text is a source.

    Returns:
        dict from the name of a file to an iterable of str, its lines.
    """
    held_out = {"val": corpus.validation} | ({"test": corpus.test} if corpus.test is not None else {})
    sides = (corpus.source_lang, corpus.target_lang)
    texts = {f"{split}.{side}": OneSide(held_out[split], i) for split in held_out for i, side in enumerate(sides)}
    training = OneSide(corpus.train, 0)
    texts[f"train.{corpus.source_lang}"] = (text for text in training for _ in range(n_best))
    return texts | {name_of_texts(corpus): training}
