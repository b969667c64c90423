"""A recipe on its way: it runs the commands of each stage in processes of their own, and keeps what is done."""

import contextlib
import logging
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import asdict

import psutil
import yaml

from keras_transformer.errors import FileError, UserError
from keras_transformer.files import reading, write_whole
from keras_transformer.tools import duration
from keras_transformer.tools.recipe.plan import Pace, Sizes, seconds_of
from keras_transformer.tools.recipe.stages import EXPORTS, commands

log = logging.getLogger(__name__)
TEXTS = ("texts", "monolingual_text")  # settings that tell whether a text has changed
RECORD, LOG, CHILD = "recipe.yaml", "recipe.log", ".process"


class Recipe:
    """The stages of a recipe.

    recipe.yaml in the output keeps the settings, the sizes, and the stages with their commands, so that each can be run
    by hand. A stage that is done has the seconds that it took.

    Args:
        build: `Build`.
        settings: dict, what the user gave.
        sizes: `Sizes`.
        paces: dict from presets to `Pace`.
        pairs: int, of the corpus.
        took: dict from the names of the stages that are done to seconds.
    """

    def __init__(self, build, settings, sizes, paces, pairs, took=()):
        self.build, self.settings, self.sizes, self.paces, self.pairs = build, settings, sizes, paces, pairs
        self.commands = commands(build, sizes)
        self.seconds = seconds_of(sizes, paces, pairs)
        self.took = dict(took)

    def save(self):
        """Writes recipe.yaml."""
        stages = []
        for name, found in self.commands.items():
            done = {"took_seconds": round(self.took[name])} if name in self.took else {}
            lines = [*map(str, found)]
            stages.append({"stage": name, "seconds": round(self.seconds[name]), **done, "commands": lines})
        content = {
            "settings": self.settings,
            "pairs": self.pairs,
            "paces": {preset: asdict(pace) for preset, pace in self.paces.items()},
            "sizes": {**asdict(self.sizes), "formats": [*self.sizes.formats]},
            "stages": stages,
        }
        text = yaml.safe_dump(content, sort_keys=False, width=1000, allow_unicode=True)
        for product in [command.product for found in self.commands.values() for command in found if command.product]:
            product.parent.mkdir(parents=True, exist_ok=True)
        write_whole(self.build.output / RECORD, lambda path: path.write_text(text, encoding="utf-8"))

    def stale(self, recorded):
        """The begun stages whose commands or texts have changed, and all begun stages after them: a list of str.

        Args:
            recorded: dict, the content of an older recipe.yaml.
        """
        before = {stage["stage"]: stage for stage in recorded["stages"]}
        places = {name: self.build.output / name for name in before}
        begun = [name for name, each in before.items() if "took_seconds" in each or any(places[name].glob("*"))]
        if any(self.settings.get(name) != recorded["settings"].get(name) for name in TEXTS):
            return begun
        same = [name for name in self.commands if name in begun and before[name]["commands"] == self.lines(name)]
        changed = [place for place, name in enumerate(begun) if name not in same]
        return begun[changed[0] :] if changed else []

    def lines(self, name):
        """The commands of a stage as lines for a shell, a list of str."""
        return [*map(str, self.commands[name])]

    def left(self):
        """The names of the stages that are not done."""
        return [name for name in self.commands if name not in self.took]

    def describe(self):
        """Yields a line for each stage: what it is, and how long it takes."""
        for number, name in enumerate(self.commands, start=1):
            state = f"done in {duration(self.took[name])}" if name in self.took else duration(self.seconds[name])
            yield f"{number:2}/{len(self.commands)}  {name:15} {state}"

    def run(self, names, write_card):
        """Runs stages that are not done, one after the other.

        Args:
            names: list of str.
            write_card: function of this recipe, the last stage.

        Raises:
            UserError: for a stage that fails. The same command goes on there.
        """
        stop_orphan(self.build.output)
        for name in names:
            number = [*self.commands].index(name) + 1
            left = sum(self.seconds[each] for each in self.left())
            best = f"; best BLEU on val so far {self.best()}" if self.best() else ""
            log.info(
                "stage       %d/%d %s: about %s, of %s left%s",
                number,
                len(self.commands),
                name,
                duration(self.seconds[name]),
                duration(left),
                best,
            )
            started = time.monotonic()
            for command in self.commands[name]:
                if not command.product or not command.product.exists():
                    run_command(command, self.build.output, f"[{number}/{len(self.commands)} {name}]")
            if name == "card":
                write_card(self)
            self.took[name] = time.monotonic() - started
            self.save()

    def scores(self):
        """BLEU on the validation set of each run of one direction that is done: dict from its stage to float."""
        found = {}
        for name in self.commands:
            path = self.build.output / name / "results.yaml"
            if name in self.took and path.exists() and not name.endswith("both"):
                with reading(path):
                    found[name] = yaml.safe_load(path.read_text(encoding="utf-8"))["bleu"]
        return found

    def best(self):
        """The best BLEU of a run of one direction, and its stage: str; "" before there is one."""
        scores = self.scores()
        return "{1:.1f} ({0})".format(*max(scores.items(), key=lambda found: found[1])) if scores else ""


def read_recipe(output):
    """The content of recipe.yaml in a directory: dict; None if there is none. Raises FileError if it is damaged."""
    path = output / RECORD
    if not path.exists():
        return None
    with reading(path, "remove it, and the recipe is planned anew"):
        try:
            found = dict(yaml.safe_load(path.read_text(encoding="utf-8")))
        except yaml.YAMLError as error:
            raise ValueError(error) from error
        sizes, paces = found["sizes"], found["paces"].items()
        found["sizes"] = Sizes(**{**sizes, "formats": tuple(sizes["formats"])})
        found["paces"] = {preset: Pace(**pace) for preset, pace in paces}
        found["took"] = {each["stage"]: each["took_seconds"] for each in found["stages"] if "took_seconds" in each}
        return found


def remove_stages(recipe, names):
    """Removes what stages have left, so that they are made anew."""
    for name in names:
        products = [command.product for command in recipe.commands.get(name, ()) if command.product]
        if name == "export":  # those that are made no more, too
            products = [recipe.build.output / directory / "1" for directory, _ in EXPORTS.values()]
        for path in [recipe.build.output / name, *products]:
            shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)


def run_command(command, output, label):
    """Runs a program, and says and keeps each line that it prints.

    On Ctrl-C and SIGTERM the program gets a SIGTERM: it saves its state and ends.

    Args:
        command: `Command`.
        output: Path of the directory of the recipe.
        label: str before each line.

    Raises:
        UserError: if the program fails, with its last line.
    """
    process = subprocess.Popen(
        [sys.executable, "-m", "keras_transformer", *command.words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,  # Ctrl-C in a terminal is for this process, which passes it on
    )
    last = ""
    (output / CHILD).write_text(f"{process.pid} {psutil.Process(process.pid).create_time()}", encoding="utf-8")
    try:
        with open(output / LOG, "a", encoding="utf-8") as kept:
            for line in process.stdout:
                log.info("%s %s", label, line.rstrip("\n"))
                print(label, line.rstrip("\n"), file=kept, flush=True)
                last = line.strip() or last
        status = process.wait()
    except BaseException as error:
        process.terminate()
        process.wait()
        if isinstance(error, OSError):  # a full disk
            raise FileError.of("write", output / LOG, error) from error
        raise
    finally:
        if process.poll() is not None:  # a second Ctrl-C does not wait: the next start ends the program
            (output / CHILD).unlink(missing_ok=True)
    if status:
        killed = f"ended by {signal.Signals(-status).name}; its last line: " if status < 0 else ""
        raise UserError(f"{command} failed: {killed}{last.removeprefix('error: ')}. The same recipe goes on there")


def stop_orphan(output):
    """Ends the program of a recipe that was killed itself: it saves its state."""
    path = output / CHILD
    with contextlib.suppress(OSError, ValueError, psutil.Error):
        pid, created = path.read_text(encoding="utf-8").split()
        orphan = psutil.Process(int(pid))
        if abs(orphan.create_time() - float(created)) < 1:
            orphan.terminate()
            orphan.wait(timeout=300)
    path.unlink(missing_ok=True)
