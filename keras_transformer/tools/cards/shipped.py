"""The model card of what a recipe ships: README.md, for whoever gets the directory."""

import json
from pathlib import Path
from typing import NamedTuple

from keras_transformer.evaluation import measure
from keras_transformer.export.manifest import read_manifest
from keras_transformer.files import write_whole
from keras_transformer.tools.cards import card

TITLES = {"export": "SavedModel", "export_compiled": "SavedModel, compiled", "ctranslate2": "CTranslate2"}
TITLES |= {"argos": "Argos Translate, LibreTranslate"}  # by directory


class Shipped(NamedTuple):
    """What a card tells of a recipe.

    Args:
        output: Path of its directory.
        dataset: str, the corpus.
        target: str, the code of the target language.
        held_out: str, "test" or "val": the set that the systems have translated.
        systems: list of str, the names of the systems that were scored.
        name: str, the system that ships.
        validated: dict from systems to float, their BLEU on the validation set.
    """

    output: Path
    dataset: str
    target: str
    held_out: str
    systems: list[str]
    name: str
    validated: dict[str, float]


def write_card_of(shipped):
    """Writes README.md, and copies the Argos package, if there is one, to the top of the directory.

    Args:
        shipped: `Shipped`.
    """
    package = shipped.output / f"{shipped.output.resolve().name}.argosmodel"
    package.unlink(missing_ok=True)  # of a recipe that made one before
    for path in (shipped.output / "argos").glob("1/*.argosmodel"):
        write_whole(package, lambda copy, path=path: copy.write_bytes(path.read_bytes()))
    text = card_of(shipped, package.name)
    write_whole(shipped.output / card.CARD, lambda path: path.write_text(text, encoding="utf-8"))


def card_of(shipped, package):
    """The text of the card. `package` is the name of the Argos package."""
    versions = {name: shipped.output / name / "1" for name in TITLES}
    manifests = {name: read_manifest(path) for name, path in versions.items() if path.exists()}
    first, scored = next(iter(manifests.values())), scores_of(shipped)
    settings = {**first["run"]["settings"], "dataset": shipped.dataset}
    evaluation = {"set": shipped.held_out, **scored[shipped.name]}
    about = {**first, "run": {**first["run"], "settings": settings, "evaluation": evaluation}}
    pairs = json.loads((shipped.output / "prepare" / "clean.json").read_text(encoding="utf-8"))["pairs"]
    validated = ", ".join(f"{bleu:.1f} ({name})" for name, bleu in shipped.validated.items())
    parts = [
        card.front_matter(about),
        card.introduction(about),
        f"## Data\n\n`{shipped.dataset}`: {pairs['kept']:,} of {pairs['read']:,} pairs, after `clean`. Its report is "
        f"prepare/report.html.",
        f"## Scores\n\nThe {shipped.held_out} set, with a beam of {settings['beam_size']}. This model is the "
        f"{shipped.name}.\n\n{card.scores(scored)}\n\nBLEU on the validation set, after training: {validated}. "
        f"report.html compares two systems.",
        f"## Examples\n\n{card.examples(about['run'])}",
        "## Run it\n\nEach export has a card of its own.",
    ]
    for name, manifest in manifests.items():
        place, size = "." if name == "argos" else f"{name}/1", f"{card.size_of(manifest) / 1e6:.1f} MB"
        parts.append(f"### {TITLES[name]}, {size}\n\n{card.how_to_run({**manifest, 'package': package}, place)}")
    return "\n\n".join([*parts, f"## Limits\n\n{card.limits(about)}"]) + "\n"


def scores_of(shipped):
    """The scores of each system on the held-out set: dict from its name to a dict with the fields of `Evaluation`."""
    references = read_lines(shipped.output / "prepare" / f"{shipped.held_out}.{shipped.target}")
    found = {}
    for name in shipped.systems:
        translations = read_lines(shipped.output / "evaluate" / f"{name}.{shipped.target}")
        found[name] = vars(measure(translations, references, target_lang=shipped.target))
    return found


def read_lines(path):
    """The lines of a file, a list of str."""
    return path.read_text(encoding="utf-8").removesuffix("\n").split("\n")
