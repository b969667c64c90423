"""The plan of a recipe: which stages there are, in which order, how long they take, and what fits into the hours."""

from dataclasses import dataclass, replace

# Seconds on two cores of small machines: docs/recipe.md has the measurement.
START = 25  # a program starts, reads its corpus and builds its graph
SAVING, VALIDATED = 1, 0.005  # after every epoch: its checkpoint, and each sentence of the validation BLEU
TRANSLATION = 3  # epochs of training take as long as the translation of the training text, with a beam of 4
PREPARED = 2000  # pairs a second that `clean` reads
FORMATS = {"saved_model": 45, "compiled": 110, "ctranslate2": 30, "argos": 30}  # seconds of an export
COMPILED_SHARE = 0.1  # of the time: compiled programs take no more

# The least epochs of each training in a chain: with both directions first, with a student, with two teachers. Below
# them, a shorter chain translates better. The least updates are enough, too. Above the most, a model learns no more.
ENOUGH, ENOUGH_FOR_STUDENT, ENOUGH_FOR_TWO, ENOUGH_UPDATES = 20, 32, 40, 30_000
MOST, MOST_UPDATES = 80, 100_000


@dataclass(frozen=True)
class Pace:
    """What an epoch of one direction costs on this machine.

    Attributes:
        seconds: float, with its validation.
        updates: int.
    """

    seconds: float
    updates: int

    def epochs(self, epochs, updates):
        """The given epochs, or fewer if fewer have the given updates already. At least 1."""
        return max(1, min(epochs, updates // self.updates))


@dataclass(frozen=True)
class Sizes:
    """What a recipe makes.

    Attributes:
        teacher: str, the preset of the large model.
        epochs: int, of the training in one direction. That of both directions before it has half as many.
        both: bool, whether a training in both directions comes first.
        student: str, the preset of the small model that learns from the teachers; None for no student.
        second: bool, whether there is a second teacher, with other positions.
        back: bool, whether text of one language is translated back.
        formats: tuple of str, of `FORMATS`.
    """

    teacher: str
    epochs: int
    both: bool
    student: str | None
    second: bool
    back: bool
    formats: tuple[str, ...]

    @property
    def epochs_of_both(self):
        """Epochs of the training in both directions."""
        return max(1, self.epochs // 2)


def order(sizes):
    """The stages in their order, a list of str. Each is the name of its directory, too."""
    stages = {
        "prepare": True,
        "both": sizes.both,
        "back_translate": sizes.back,
        "teacher": True,
        "second_both": sizes.second,
        "second": sizes.second,
        "distil": sizes.student,
        "student_both": sizes.student,
        "student": sizes.student,
        "evaluate": True,
        "export": True,
        "card": True,
    }
    return [name for name, is_wanted in stages.items() if is_wanted]


def seconds_of(sizes, paces, pairs):
    """How long each stage takes: dict from its name to float.

    Args:
        sizes: `Sizes`.
        paces: dict from presets to `Pace`.
        pairs: int, of the corpus.
    """
    pace, student = paces[sizes.teacher], paces.get(sizes.student)
    text = 2 if sizes.back else 1  # an epoch takes as many pairs of text that was translated back

    def training(pace, epochs, directions):
        return START + epochs * directions * pace.seconds if pace else 0

    translation = TRANSLATION * pace.seconds
    seconds = {
        "prepare": START + pairs / PREPARED,
        "both": training(pace, sizes.epochs_of_both, 2),
        "back_translate": START + translation,
        "teacher": training(pace, sizes.epochs, text),
        "second_both": training(pace, sizes.epochs_of_both, 2),
        "second": training(pace, sizes.epochs, text),
        "distil": START + translation * (2 if sizes.second else 1),
        "student_both": training(student, sizes.epochs_of_both, 2),
        "student": training(student, sizes.epochs, text),
        "evaluate": 2 * START,
        "export": sum(FORMATS[name] for name in sizes.formats),
        "card": 1,
    }
    return {name: seconds[name] for name in order(sizes)}


def choose(seconds, paces, pairs, teachers, student, has_back, formats):
    """The `Sizes` that fit into a time. The chain is the longest one in which each training has enough epochs.

    A larger teacher is chosen if its chain has enough epochs, and a second teacher after that. If nothing has enough,
    one model is trained for as long as there is time.

    Args:
        seconds: float, the time.
        paces: dict from presets to `Pace`.
        pairs: int, of the corpus.
        teachers: list of presets, the smallest first.
        student: preset of the student; None for none.
        has_back: bool, whether there is text of one language.
        formats: tuple of str, of `FORMATS`.
    """
    if FORMATS["compiled"] > COMPILED_SHARE * seconds:
        formats = tuple(name for name in formats if name != "compiled")
    whole = {"both": True, "student": student, "second": False, "back": has_back, "formats": formats}
    chains = [{**whole, "second": True}, whole, {**whole, "student": None}]
    for preset in reversed(teachers):
        for chain in chains if preset == teachers[0] else chains[:2]:
            sizes = fitted(Sizes(preset, 0, **chain), seconds, paces, pairs)
            enough = ENOUGH_FOR_TWO if sizes.second else ENOUGH_FOR_STUDENT if sizes.student else ENOUGH
            is_enough = sizes.epochs >= paces[preset].epochs(enough, ENOUGH_UPDATES)
            if is_enough and sum(seconds_of(sizes, paces, pairs).values()) <= seconds:
                return sizes
    alone = {**whole, "both": False, "student": None, "back": False}
    return fitted(Sizes(teachers[0], 0, **alone), seconds, paces, pairs)


def fitted(sizes, seconds, paces, pairs):
    """The sizes with as many epochs as fit into a time: at least 1."""
    every = [replace(sizes, epochs=epochs) for epochs in range(paces[sizes.teacher].epochs(MOST, MOST_UPDATES), 0, -1)]
    return next((each for each in every if sum(seconds_of(each, paces, pairs).values()) <= seconds), every[-1])
