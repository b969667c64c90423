"""The settings of a preparation: one for each step. 0 or false switches a step off."""

from dataclasses import dataclass, fields

from keras_transformer.errors import UserError

ADDED_TO_LENGTHS = 10  # characters, before the ratio: short sentences may differ more
FEWEST_LETTERS = 10  # of a text whose language is identified
SURE = 60  # characters: the beginning of a text by which its language is identified
FEWEST_WORDS = 3  # of a text that can be called untranslated

HELP = {
    "normalize": "mend the text: NFC, no control and invisible characters, no marks of direction, single spaces",
    "blank": "drop pairs with a blank side",
    "copied": "drop pairs whose sides differ in nothing but case and punctuation",
    "max_characters": "drop pairs with a longer side; a Chinese, Japanese or Korean character counts as three",
    "max_ratio": f"drop pairs with a side so many times longer than the other, after adding {ADDED_TO_LENGTHS} to both",
    "min_letters": "drop pairs with a side whose share of letters is smaller",
    "min_script": "drop pairs with a side whose share of letters in the script of its language is smaller",
    "max_overlap": f"drop untranslated pairs: of the words of the side with more of them, {FEWEST_WORDS} at least, a "
    "greater share stands on both sides",
    "numbers": "drop pairs with numbers on both sides that differ",
    "urls": "drop pairs with different URLs or e-mail addresses",
    "brackets": "drop pairs with different numbers of a bracket",
    "language_odds": f"drop pairs with a side of {FEWEST_LETTERS} letters or more whose first {SURE} characters are so "
    "many times likelier in another language (needs `pip install py3langid`)",
    "near_held_out": "drop pairs with a side that is so similar to a line of --without (Jaccard similarity of runs of "
    "four characters)",
    "duplicates": "drop pairs that repeat another one",
    "near_duplicates": "drop pairs that are so similar to another one (Jaccard similarity, both sides together)",
}
NUMBER_RANGES = {
    "max_ratio": (1, None),
    "min_letters": (0, 1),
    "min_script": (0, 1),
    "max_overlap": (0, 1),
    "language_odds": (1, None),
    "near_held_out": (0.5, 1),
    "near_duplicates": (0.8, 1),
    "max_characters": (1, None),
}


@dataclass(frozen=True)
class CleaningSettings:
    """What is mended and what is dropped; `HELP` describes each field.

    Raises:
        UserError: for a number out of its range.
    """

    normalize: bool = True
    blank: bool = True
    copied: bool = True
    max_characters: int = 600
    max_ratio: float = 2.0
    min_letters: float = 0.4
    min_script: float = 0.7
    max_overlap: float = 0.7
    numbers: bool = True
    urls: bool = True
    brackets: bool = True
    language_odds: float = 5.0
    near_held_out: float = 0.8
    duplicates: bool = True
    near_duplicates: float = 0.9

    def __post_init__(self):
        for field in fields(self):
            least, most = NUMBER_RANGES.get(field.name, (None, None))
            value = getattr(self, field.name)
            if field.name in NUMBER_RANGES and value and not (least <= value and (most is None or value <= most)):
                limits = f"at least {least}" if most is None else f"between {least} and {most}"
                raise UserError(f"--{field.name} must be {limits}, or 0 for no such step. Received: {value}")
        if self.near_duplicates and not self.duplicates:
            raise UserError("--near_duplicates finds exact ones as well: add --near_duplicates 0 to --duplicates false")
