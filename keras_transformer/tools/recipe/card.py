"""The model card of a recipe: README.md, for whoever gets the directory."""

import json

from keras_transformer.evaluation import measure
from keras_transformer.export import card
from keras_transformer.export.manifest import read_manifest
from keras_transformer.files import write_whole
from keras_transformer.tools.recipe.stages import shipped, systems

TITLES = {"export": "SavedModel", "export_compiled": "SavedModel, compiled", "ctranslate2": "CTranslate2"}
TITLES |= {"argos": "Argos Translate, LibreTranslate"}


def write_card(build, sizes, validated):
    """Writes README.md, and copies the Argos package to the top of the directory.

    Args:
        build: `Build`.
        sizes: `Sizes`.
        validated: dict from stages to float, their BLEU on the validation set.
    """
    for path in (build.output / "argos").glob("1/*.argosmodel"):
        write_whole(build.file, lambda copy, path=path: copy.write_bytes(path.read_bytes()))
    text = card_of(build, sizes, validated)
    write_whole(build.output / card.CARD, lambda path: path.write_text(text, encoding="utf-8"))


def card_of(build, sizes, validated):
    """The text of the card."""
    manifests = {
        name: read_manifest(build.output / name / "1") for name in TITLES if (build.output / name / "1").exists()
    }
    first, scored = next(iter(manifests.values())), score(build, sizes)
    run = {**first["run"], "evaluation": {"set": build.held_out, **scored[shipped(sizes)]}}
    run["settings"] = {**run["settings"], "dataset": build.dataset}
    pairs = json.loads((build.output / "prepare" / "clean.json").read_text(encoding="utf-8"))["pairs"]
    parts = [
        card.front_matter({**first, "run": run}),
        card.introduction({**first, "run": run}),
        f"## Data\n\n`{build.dataset}`: {pairs['kept']:,} of {pairs['read']:,} pairs, after `clean`. Its report is "
        f"prepare/report.html.",
        f"## Scores\n\nThe {build.held_out} set, beam {run['settings']['beam_size']}. This model is the "
        f"{shipped(sizes)}.\n\n{card.scores(scored)}\n\nOn the validation set, which every choice rests on, BLEU was "
        f"{', '.join(f'{bleu:.1f} ({name})' for name, bleu in validated.items())}. report.html compares the systems.",
        f"## Examples\n\n{card.examples(run)}",
        "## Run it\n\nEach export has a card of its own.",
    ]
    for name, manifest in manifests.items():
        size = f"{card.size_of(manifest) / 1e6:.1f} MB"
        manifest["package"] = build.file.name  # of Argos
        place = "." if name == "argos" else f"{name}/1"
        parts.append(f"### {TITLES[name]}, {size}\n\n{card.how_to_run(manifest, place)}")
    return "\n\n".join([*parts, f"## Limits\n\n{card.limits(run)}"]) + "\n"


def score(build, sizes):
    """The scores of every system on the held-out set: dict from its name to a dict with the fields of `Evaluation`."""
    references = read_lines(build.output / "prepare" / f"{build.held_out}.{build.target}")
    found = {}
    for name in systems(sizes):
        translations = read_lines(build.output / "evaluate" / f"{name}.{build.target}")
        found[name] = vars(measure(translations, references, target_lang=build.target))
    return found


def read_lines(path):
    """The lines of a file, a list of str."""
    return path.read_text(encoding="utf-8").removesuffix("\n").split("\n")
