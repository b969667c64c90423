"""A recipe: from a corpus to a translator that ships, in one command that can be stopped at any moment."""

import importlib.util
import logging
import re
import subprocess
import sys
from pathlib import Path

from keras_transformer.cli import console
from keras_transformer.cli.line_files import check_files, check_has_text, chunks_in, file_state, reserved
from keras_transformer.cli.parser import Parser
from keras_transformer.config import configure
from keras_transformer.data.corpora import hash_pairs, kind_of, open_corpus
from keras_transformer.errors import UserError, counted
from keras_transformer.presets import PRESETS, RECURRENT
from keras_transformer.process import find_tool
from keras_transformer.tools import duration
from keras_transformer.tools.recipe.build import Recipe, read_recipe, remove_stages
from keras_transformer.tools.recipe.plan import FORMATS, SAVING, START, VALIDATED, Pace, choose
from keras_transformer.tools.recipe.stages import STAGES, Build, shipped, systems

log = logging.getLogger(__name__)
DESCRIPTION = """Recipe: from a corpus to a translator that ships, as good as the hours allow.

  python -m keras_transformer recipe --dataset files:DIR@en-de --output builds/en-de --hours 3
      cleans the corpus, trains a model in both directions, a teacher and another one with other positions, lets them
      teach a small student, scores all of them once on test, and exports the student for TensorFlow Serving,
      CTranslate2 and Argos Translate. builds/en-de/README.md is its model card
  python -m keras_transformer recipe ... --dry_run
      measures this machine for a minute, and prints the stages with their times
  python -m keras_transformer recipe ... --monolingual news.de
      also learns from text of the target language, translated back
  python -m keras_transformer recipe ... --stages prepare both
      runs these stages, and no more

builds/en-de/recipe.yaml lists the stages with their commands, so that each can be run by hand. After Ctrl-C, a crash or
a full disk, the same command goes on: no stage is trained twice. No choice rests on the test set."""
LARGER = {"small": 100_000, "base": 1_000_000}  # teachers besides tiny, and the pairs from which they are measured
MEASURED = ("dataset", "source_lang", "target_lang", "texts")  # settings that an epoch's time depends on
SETTINGS = ("dataset", "source_lang", "target_lang", "hours", "student", "monolingual", "license", "seed")


def make_parser():
    """The `Parser` of the program."""
    parser = Parser(DESCRIPTION)
    parser.add_argument("--dataset", required=True, help="corpus: files:DIR, tfds:NAME or cldr:A-B, as for train.py")
    parser.add_argument("--source_lang", help="code of the source language (default: that of `dataset`)")
    parser.add_argument("--target_lang", help="code of the target language (default: that of `dataset`)")
    parser.add_argument("--output", required=True, type=Path, help="directory for all stages and for what ships")
    parser.add_argument(
        "--hours",
        type=float,
        default=2.0,
        help="time on this machine. Sizes, epochs and the number of teachers follow from it (default: 2)",
    )
    parser.add_argument(
        "--student",
        choices=["none", *(name for name in PRESETS if name not in RECURRENT)],
        default="tiny_6_1",
        metavar="PRESET",
        help="preset of the small model that learns from the teachers and ships. none: the teacher ships (default: "
        "tiny_6_1)",
    )
    parser.add_argument("--monolingual", metavar="FILE", help="text of the target language, a sentence on every line")
    parser.add_argument("--license", metavar="NAME", help="licence of the model for its card, such as cc-by-4.0")
    parser.add_argument("--seed", type=int, default=1, help="seed of all trainings (default: 1)")
    parser.add_argument(
        "--stages",
        nargs="+",
        choices=STAGES,
        metavar="STAGE",
        help=f"run these stages alone, of {', '.join(STAGES)} (default: all)",
    )
    parser.add_argument(
        "--redo",
        action="store_true",
        help="remove the stages that a changed setting makes stale, and make them anew (default: say which they are)",
    )
    parser.add_argument("--dry_run", action="store_true", help="print the stages with their times, and run nothing")
    return parser


def parse_arguments(parser):
    """The flags, checked. Raises UserError."""
    arguments = parser.parse_args()
    find_tool("cards.shipped", "a recipe")  # for its last stage
    if not 0 < arguments.hours < float("inf"):
        raise UserError(f"--hours must be a number above 0. Received: {arguments.hours}")
    if not 0 <= arguments.seed < 2**31:
        raise UserError(f"--seed must be at least 0 and below 2^31. Received: {arguments.seed}")
    if arguments.monolingual:
        check_files(arguments.monolingual, None)
        check_has_text(arguments.monolingual)
    if arguments.output.exists() and not arguments.output.is_dir():
        raise UserError(f"--output must be a directory. Received: {arguments.output}, a file")
    return arguments


def plan(arguments, corpus):
    """The `Recipe` that the flags ask for: planned anew, or as recipe.yaml in the output has it for the same settings.

    Raises:
        UserError: for a changed setting or text that makes finished stages stale, without `--redo`.
    """
    settings = {name: getattr(arguments, name) for name in SETTINGS} | texts_of(arguments, corpus)
    before, pairs = read_recipe(arguments.output), len(corpus.train)
    build = make_build(arguments, corpus)
    if before and before["settings"] == settings:
        recipe = Recipe(build, settings, before["sizes"], before["paces"], before["pairs"], before["took"])
    else:
        student = None if arguments.student == "none" else arguments.student
        teachers = ["tiny", *(preset for preset, least in LARGER.items() if pairs >= least)]
        is_known = before and all(before["settings"].get(name) == settings[name] for name in MEASURED)
        paces = {**before["paces"]} if is_known else {}
        for preset in [*teachers, *([student] if student else [])]:
            if preset not in paces:
                paces[preset] = measure(arguments, preset, len(corpus.validation))
        seconds = 3600 * arguments.hours - START * len(paces)  # the measurements
        sizes = choose(seconds, paces, pairs, teachers, student, bool(arguments.monolingual), formats())
        recipe = Recipe(build, settings, sizes, paces, pairs, before["took"] if before else ())
    if stale := recipe.stale(before) if before else []:
        if not arguments.redo:
            raise UserError(
                f"the settings or the texts have changed, and make these stages stale: {', '.join(stale)}. Make them "
                f"anew with --redo, or choose another --output"
            )
        if not arguments.dry_run:
            remove_stages(recipe, stale)
        recipe.took = {name: took for name, took in recipe.took.items() if name not in stale}
    return recipe


def texts_of(arguments, corpus):
    """The hashes and file states that show a changed text: a dict of settings."""
    return {
        "texts": {**corpus.fingerprint, "test": hash_pairs(list(corpus.test or ()))},
        "monolingual_text": file_state(arguments.monolingual) if arguments.monolingual else None,
    }


def make_build(arguments, corpus):
    """The `Build` of the flags. Says which steps of `clean` do not know the languages."""
    weight = 1.0
    unknown = find_tool("cleaning.rules", "a recipe").unknown_steps(corpus.source_lang, corpus.target_lang)
    for step in unknown:
        log.info("left out    %s of clean: it does not know %s or %s", step, corpus.source_lang, corpus.target_lang)
    if arguments.monolingual:
        lines = sum(len(chunk) for chunk in chunks_in(arguments.monolingual))
        weight = max(0.0001, min(1.0, len(corpus.train) / lines))
    return Build(
        arguments.dataset,
        corpus.source_lang,
        corpus.target_lang,
        arguments.output,
        arguments.monolingual,
        weight,
        "test" if corpus.test else "val",
        arguments.seed,
        arguments.license,
        tuple(unknown),
    )


def formats():
    """The formats of the exports: of CTranslate2 only where it is installed."""
    needed = {"ctranslate2": "ctranslate2", "argos": "ctranslate2"}
    return tuple(name for name in FORMATS if name not in needed or importlib.util.find_spec(needed[name]))


def measure(arguments, preset, sentences):
    """The `Pace` of a preset on this machine and corpus, from `train --dry_run`.

    Args:
        arguments: parsed flags.
        preset: name.
        sentences: int, of the validation set.
    """
    log.info("measuring   %s", preset)
    words = ["train", "--dataset", arguments.dataset, "--preset", preset, "--epochs", "1", "--dry_run"]
    words += ["--model_dir", str(arguments.output / "measured" / preset)]  # a new run, whatever is in runs/
    for name in ("source_lang", "target_lang"):
        words += [f"--{name}", value] if (value := getattr(arguments, name)) else []
    found = subprocess.run(
        [sys.executable, "-m", "keras_transformer", *words], stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    updates = re.search(r"^epoch .*; ([\d,]+) updates? in all", found.stdout, re.MULTILINE)
    seconds = re.search(r"^time .* ([\d.e+-]+) s an update", found.stdout, re.MULTILINE)
    if found.returncode or not updates or not seconds:
        *_, last = ["no output", *found.stdout.splitlines(), *found.stderr.splitlines()]
        raise UserError(f"{preset} cannot be trained here: {last.removeprefix('error: ')}")
    number = int(updates[1].replace(",", ""))
    validation = SAVING + VALIDATED * min(sentences, configure(preset=preset).validation_sentences)
    return Pace(number * float(seconds[1]) + validation, number)


def chosen(recipe, names):
    """The stages to run: all that are not done, or those of `--stages`.

    Raises:
        UserError: for a stage that this recipe leaves out, and for one that needs another.
    """
    left = recipe.left()
    for name in names or ():
        if name not in recipe.commands:
            raise UserError(f"this recipe has no stage {name}, only {', '.join(recipe.commands)}")
    found = [name for name in left if not names or name in names]
    for name in found:
        if missing := [each for each in left[: left.index(name)] if each not in found]:
            raise UserError(f"--stages {name} needs stages that are not done: {', '.join(missing)}")
    return found


def write_card(recipe):
    """The last stage: the model card of what ships."""
    build, names = recipe.build, [*systems(recipe.sizes)]
    facts = (build.output, build.dataset, build.target, build.held_out, names, shipped(recipe.sizes), recipe.scores())
    cards = find_tool("cards.shipped", "the stage card")
    cards.write_card_of(cards.Shipped(*facts))


def describe(recipe, hours):
    """Says what the recipe makes, and how long each stage takes."""
    sizes, whole = recipe.sizes, sum(recipe.seconds.values())
    log.info("recipe      %s pairs, %s to %s, in %s", f"{recipe.pairs:,}", *recipe.build[1:3], recipe.build.output)
    teachers = "two teachers" if sizes.second else "one teacher"
    small = f", student {sizes.student}" if sizes.student else ""
    log.info(
        "sizes       %s of %s%s; %s in each direction", teachers, sizes.teacher, small, counted(sizes.epochs, "epoch")
    )
    for line in recipe.describe():
        log.info("            %s", line)
    log.info("time        about %s of %s", duration(whole), duration(3600 * hours))
    if recipe.settings["student"] != "none" and not sizes.student:
        log.info("left out    the student: --hours is too short for it")
    if recipe.settings["monolingual"] and not sizes.back:
        log.info("left out    %s: --hours is too short for it", recipe.settings["monolingual"])


def program():
    """The program, from its command line to its exit status."""
    parser = make_parser()
    with console.program(parser.flags):
        arguments = parse_arguments(parser)
        if (kind := kind_of(arguments.dataset)) and kind.starts_tensorflow:
            console.import_tensorflow()
        corpus = open_corpus(arguments.dataset, arguments.source_lang, arguments.target_lang)
        if arguments.dry_run:
            describe(plan(arguments, corpus), arguments.hours)
            return
        with reserved(arguments.output, "recipe"):
            recipe = plan(arguments, corpus)
            names = chosen(recipe, arguments.stages)
            describe(recipe, arguments.hours)
            recipe.save()
            recipe.run(names, write_card)
        if not recipe.left():
            log.info(
                "finished    %s is the model card, and recipe.yaml has all commands", arguments.output / "README.md"
            )
