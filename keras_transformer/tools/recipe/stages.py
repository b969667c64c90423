"""The commands of every stage: programs of keras_transformer, with the directories that they read and write."""

import shlex
from pathlib import Path
from typing import NamedTuple

from keras_transformer.config import Config
from keras_transformer.tools.recipe.plan import order

OTHER_POSITIONS = "sinusoidal"  # of the second teacher: the presets have others
# Dropout rates, each with the most epochs that it is for: in few epochs, a model does not learn its corpus by heart.
LITTLE_DROPOUT = ((30, 0.1), (60, 0.2))
EXPORTS = {  # format -> directory, flags of export.py
    "saved_model": ("export", []),
    "compiled": ("export_compiled", ["--compile", "true"]),
    "ctranslate2": ("ctranslate2", ["--format", "ctranslate2", "--quantization", "int8"]),
    "argos": ("argos", ["--format", "argos", "--quantization", "int8"]),
}
GUIDED = "0.05"  # the factor of guided alignment, so that tags of documents find their words


class Command(NamedTuple):
    """A program with its flags.

    Args:
        words: tuple of str, the name of the program first.
        product: Path of what the program leaves; if it is there, the program is not started again. None for a program
            that resumes where it stopped.
    """

    words: tuple[str, ...]
    product: Path | None = None

    def __str__(self):
        return shlex.join(["python", "-m", "keras_transformer", *self.words])


class Build(NamedTuple):
    """What a user asks for.

    Args:
        dataset: str, the corpus, as for train.py.
        source, target: str, the codes of the languages.
        output: Path.
        monolingual: str, the file of text in the target language; None for none.
        back_weight: float, the share of its lines that an epoch takes: as many as there are pairs, or all.
        held_out: str, "test" or "val": the set that the last stages translate.
        seed: int.
        license: str, or None.
        unknown: tuple of str, the steps of `clean` that do not know one of the languages.
    """

    dataset: str
    source: str
    target: str
    output: Path
    monolingual: str | None
    back_weight: float
    held_out: str
    seed: int
    license: str | None
    unknown: tuple = ()


def commands(build, sizes):
    """All stages in their order: dict from the name to a list of `Command`."""
    return {name: STAGES[name](build, sizes) for name in order(sizes)}


def shipped(sizes):
    """The stage whose model is exported: the student, or else the teacher."""
    return "student" if sizes.student else "teacher"


def together(sizes):
    """The stages of the models that translate together, a list of str; [] for one model."""
    return ["teacher", "second"] if sizes.second else ["teacher", "student"] if sizes.student else []


def systems(sizes):
    """What is scored: dict from a name to the list of stages whose models translate."""
    alone = [name for name in ("teacher", "second", "student") if name in order(sizes)]
    return {**{name: [name] for name in alone}, **({"together": together(sizes)} if together(sizes) else {})}


def prepare(build, sizes):
    """The corpus, cleaned. It has a validation set in any case."""
    output = build.output / "prepare"
    words = ["clean", "--input", build.dataset, "--source_lang", build.source, "--target_lang", build.target]
    words += [word for step in build.unknown for word in (f"--{step}", "0")]
    return [Command((*words, "--hold_out", "--output", str(output)), output)]


def training(build, name, preset, epochs, datasets, *flags):
    """A training, which scores the validation set alone: no choice rests on the test set."""
    words = ["train", *(word for dataset in datasets for word in ("--dataset", dataset)), *flags]
    words += ["--preset", preset, "--epochs", str(epochs), *dropout(preset, epochs), "--score_test", "false"]
    return [Command((*words, "--seed", str(build.seed), "--model_dir", str(build.output / name)))]


def dropout(preset, epochs):
    """The flags for less dropout than a preset has, a list of str: [] if so many epochs need that of the preset."""
    rates = [rate for most, rate in LITTLE_DROPOUT if epochs <= most and rate < Config(preset=preset).dropout_rate]
    return ["--dropout_rate", str(rates[0])] if rates else []


def prepared(build, *codes):
    """The cleaned corpus in one direction, as `dataset` names it: `@` takes no hyphen within a code."""
    return f"files:{build.output / 'prepare'}@{'-'.join(code.replace('-', '_') for code in codes)}"


def in_both(build, sizes, name, preset, *flags):
    """A training in both directions, which is a good start for one of them."""
    directions = [prepared(build, build.source, build.target), prepared(build, build.target, build.source)]
    return training(build, name, preset, sizes.epochs_of_both, directions, *flags)


def in_one(build, sizes, name, preset, start, datasets, *flags):
    """A training in one direction, from a run of both if there is one."""
    weight = ":0.5" if datasets else ""
    named = [f"files:{build.output / 'prepare'}{weight}", *datasets]
    named += [f"files:{build.output / 'back_translate'}:{build.back_weight:.4f}"] if sizes.back else []
    words = ["--source_lang", build.source, "--target_lang", build.target, "--schedule", "linear"]
    words += ["--guided_alignment", GUIDED, *flags]
    if sizes.both:
        words += ["--init_from", str(build.output / start), "--tags", "none"]
    return training(build, name, preset, sizes.epochs, named, *words)


def same_pieces(build):
    """The flags for the tokenizer of the first teacher: only models with equal pieces translate together."""
    return ["--tokenizer", str(build.output / "both" / "tokenizer.model")]


def back_translate(build, sizes):
    """Pairs of text in the target language."""
    words = ["back_translate", "--model_dir", str(build.output / "both"), "--monolingual", build.monolingual]
    words += ["--source_lang", build.target, "--target_lang", build.source, "--tag"]
    return [Command((*words, "--output", str(build.output / "back_translate")))]


def distil(build, sizes):
    """The training text, translated by the teachers."""
    words = ["distil"]
    for name in ["teacher", "second"] if sizes.second else ["teacher"]:
        words += ["--teacher", str(build.output / name)]
    words += ["--dataset", prepared(build, build.source, build.target)]
    return [Command((*words, "--output", str(build.output / "distil")))]


def evaluate(build, sizes):
    """Every system translates the held-out set, and the report compares two of them."""
    source, reference = (build.output / "prepare" / f"{build.held_out}.{code}" for code in (build.source, build.target))
    made = {name: build.output / "evaluate" / f"{name}.{build.target}" for name in systems(sizes)}
    found = []
    for name, members in systems(sizes).items():
        models = [word for member in members for word in ("--model_dir", str(build.output / member))]
        found.append(Command(("translate", *models, "--input", str(source), "--output", str(made[name])), made[name]))
    report, first = build.output / "report.html", made[shipped(sizes)]
    words = ["evaluate", "--hypotheses", str(first), "--source", str(source), "--reference", str(reference)]
    other = next((made[name] for name in ("together", "teacher") if name in made and made[name] != first), None)
    words += ["--baseline", str(other)] if other else []
    return [*found, Command((*words, "--target_lang", build.target, "--report", str(report)), report)]


def export(build, sizes):
    """The model that ships, in every format."""
    license = ["--license", build.license] if build.license else []
    found = []
    for directory, flags in (EXPORTS[name] for name in sizes.formats):
        path = build.output / directory
        words = ["export", "--model_dir", str(build.output / shipped(sizes)), "--export_dir", str(path)]
        found.append(Command((*words, "--version", "1", *flags, *license), path / "1"))
    return found


STAGES = {
    "prepare": prepare,
    "both": lambda build, sizes: in_both(build, sizes, "both", sizes.teacher),
    "back_translate": back_translate,
    "teacher": lambda build, sizes: in_one(build, sizes, "teacher", sizes.teacher, "both", []),
    "second_both": lambda build, sizes: in_both(
        build, sizes, "second_both", sizes.teacher, "--positions", OTHER_POSITIONS, *same_pieces(build)
    ),
    "second": lambda build, sizes: in_one(
        build, sizes, "second", sizes.teacher, "second_both", [], "--positions", OTHER_POSITIONS
    ),
    "distil": distil,
    "student_both": lambda build, sizes: in_both(build, sizes, "student_both", sizes.student, *same_pieces(build)),
    "student": lambda build, sizes: in_one(
        build, sizes, "student", sizes.student, "student_both", [f"files:{build.output / 'distil'}:0.5"]
    ),
    "evaluate": evaluate,
    "export": export,
    "card": lambda build, sizes: [],
}
