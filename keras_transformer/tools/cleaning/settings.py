"""The settings of a preparation: one for each step. 0 or false switches a step off."""

from dataclasses import dataclass, fields

from keras_transformer.errors import UserError

ADDED_TO_LENGTHS = 10  # characters, before the ratio: short sentences may differ more
PAIRS_BY_CHARACTER = 100  # as many pairs count as much as the assumption that the sides are equally wide
FEWEST_LETTERS = 10  # of a text whose language is identified
SURE = 60  # characters: the beginning of a text by which its language is identified
RICH = 450  # languages that CLDR names in a language whose data are rich
FEWEST_WORDS = 3  # of a text that can be called untranslated

HELP = {
    "normalize": "mend the text: NFC, single spaces, no control or invisible characters, no marks of direction",
    "blank": "drop pairs with a blank side",
    "copied": "drop pairs whose sides are equal, or differ only in case and punctuation",
    "max_characters": "drop pairs with a side of more characters. An ideograph counts as three, and a Japanese or "
    "Korean syllable as two",
    "max_ratio": "drop pairs with a side that is more than this many times as long as the other side usually would be, "
    f"by the median of the corpus. {ADDED_TO_LENGTHS} characters are first added to both",
    "min_letters": "drop pairs with a side that has a smaller share of letters. Numbers do not count",
    "max_overlap": "drop untranslated pairs: a greater share of the words of one side is also on the other. A side "
    f"with less than {FEWEST_WORDS} words is never dropped",
    "numbers": "drop pairs if each side has a number in digits that the other side lacks",
    "urls": "drop pairs with different URLs or e-mail addresses",
    "brackets": "drop pairs that do not have the same brackets on both sides",
    "min_script": "drop pairs with a side that has a smaller share of its words in the script of its language. Words "
    "that are on the other side, too, do not count",
    "language_odds": "drop pairs with a side that is this many times likelier in another language. The first "
    f"{SURE} characters of a side with {FEWEST_LETTERS} letters or more decide (needs `pip install py3langid`)",
    "near_held_out": "drop pairs with a side that is this similar to a line of `without` (Jaccard similarity of runs "
    "of four characters)",
    "duplicates": "drop pairs that repeat another one",
    "near_duplicates": "drop pairs that are this similar to another pair (Jaccard similarity, both sides together)",
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
    max_overlap: float = 0.7
    numbers: bool = True
    urls: bool = True
    brackets: bool = True
    min_script: float = 0.7
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
                raise UserError(f"`{field.name}` must be {limits}, or 0 to turn the step off. Received: {value}")
        if self.near_duplicates and not self.duplicates:
            raise UserError("`near_duplicates` drops equal pairs as well: without `duplicates`, it must be 0, too")
