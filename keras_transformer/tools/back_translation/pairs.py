"""The pairs of back-translation: the text that the model writes for each text."""

from dataclasses import dataclass

from keras_transformer.tools.back_translation.noise import DELETED, FILLER, FURTHEST, REPLACED, add_noise, seed_of

RECORD = "back_translation.json"  # the origin of the pairs, so that another text or model never adds to them
METHODS = {
    "beam": "the best translation",
    "sample": "a random translation",
    "noised": f"the best translation with noise: {DELETED:.0%} of its words are left out, {REPLACED:.0%} become "
    f"{FILLER}, and words move past up to {FURTHEST} others",
}


@dataclass(frozen=True)
class Writing:
    """The task of the model for every text: the `request` of a bulk translation.

    Attributes:
        method: one of `METHODS`.
        tag: word before every text, or None.
        seed: int, of samples and noise.
        sampling: dict, options of `TextTranslator.sample`.
    """

    method: str
    tag: str | None
    seed: int
    sampling: dict
    lines_each = 1

    def lines(self, translator, texts, on_progress=None):
        """The sources that the model writes: list of str -> list of lists of one str."""
        if self.method == "sample":
            seeds = [seed_of(text, self.seed) for text in texts]
            written = [row.text for row in translator.sample(texts, on_progress, seed=seeds, **self.sampling)]
        else:
            written = translator.translate(texts, on_progress)
        if self.method == "noised":
            written = [add_noise(text, self.seed) for text in written]
        return [[_tagged(" ".join(text.split("\n")), self.tag)] for text in written]


def _tagged(text, tag):
    return f"{tag} {text}" if tag and text.strip() else text
