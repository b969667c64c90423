"""The package as others get it: names with types, one version, and a wheel that works where nothing else is."""

import ast
import contextlib
import inspect
import json
import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import urllib.request
import venv
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement

import keras_transformer as kt
from tests.installed import WITHOUT, modules_beside
from tests.serving.live import HOST, ask, free_port, wait_for

ROOT = Path(__file__).parents[1]
SERVING = {"extra": "serving"}
CLASSES = (kt.Config, kt.Run, kt.SavedModelTranslator, kt.Tokenizer, kt.Translator)
# One process, as each imports TensorFlow. The export is proven: it translates as the run does.
WORK = """
import keras_transformer as kt
assert kt.open_corpus("cldr:en-de").train
pairs = [("one two", "eins zwei"), ("two three", "zwei drei"), ("three one", "drei eins")] * 20
sizes = {"vocabulary_size": 300, "max_length": 17, "num_layers": 1, "d_model": 26, "num_heads": 2, "d_ff": 17}
run = kt.train(pairs, max_steps=2, validation=pairs[:3], beam_size=1, model_dir="runs/wheel", **sizes)
print(run.export("exports/wheel"))
"""


def read(name):
    return (ROOT / name).read_text(encoding="utf-8")


def public_functions():
    """The name of each public function of the library -> the function."""
    found = {name: getattr(kt, name) for name in kt.__all__ if inspect.isfunction(getattr(kt, name))}
    for home in (kt.process, *CLASSES):
        for name, value in inspect.getmembers(home):
            function = inspect.unwrap(getattr(value, "fget", None) or getattr(value, "__func__", value))
            is_ours = (getattr(function, "__module__", None) or "").startswith(kt.__name__)
            if is_ours and inspect.isfunction(function) and (name[0] != "_" or name == "__init__"):
                found[f"{home.__name__.rpartition('.')[2]}.{name}"] = function
    return found


def without_annotation(function):
    """The parameters of a function that have none, and "return" if the result has none."""
    signature = inspect.signature(function)
    lacking = [
        p.name for p in signature.parameters.values() if p.annotation is p.empty and p.name not in ("self", "cls")
    ]
    has_result = signature.return_annotation is signature.empty and function.__name__ != "__init__"
    return lacking + ["return"] * has_result


def test_every_public_function_has_the_types_of_its_parameters_and_of_its_result():
    functions = public_functions()
    assert {"train", "rerank", "process.share_cores", "Run.export", "Translator.translate"} <= functions.keys()
    lacking = {name: without_annotation(function) for name, function in functions.items()}
    assert {name: parts for name, parts in lacking.items() if parts} == {}


def test_a_type_checker_finds_each_name_where_the_library_imports_it_from():
    stub, found = ast.parse(read("keras_transformer/__init__.pyi")), {}
    for node in stub.body:
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                assert alias.name == alias.asname  # else the name is not exported
                found[alias.name] = f"{node.module}.{alias.name}"
    homes = {name: kt._HOMES[name] for name in kt.__all__}
    modules = {name for name, home in homes.items() if inspect.ismodule(getattr(kt, name))}
    assert found == {
        name: f"{kt.__name__}.{home}{'' if name in modules else f'.{name}'}" for name, home in homes.items()
    }


def test_the_version_and_its_day_stand_in_the_changelog():
    changes, citation = read("CHANGELOG.md"), yaml.safe_load(read("CITATION.cff"))
    newest = re.findall(r"^## (\S+) - (\S+)$", changes, re.MULTILINE)[0]
    assert newest == (kt.__version__, citation["date-released"]) and citation["version"] == kt.__version__


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The sdist, and the wheel that is made of it."""
    directory = tmp_path_factory.mktemp("dist")
    done = run([sys.executable, "-m", "build", "--outdir", directory, ROOT], directory)
    assert done.returncode == 0, done.stdout
    (sdist,), (wheel,) = directory.glob("*.tar.gz"), directory.glob("*.whl")
    return sdist, wheel


def run(command, directory):
    """Runs a command as a user does who has nothing of this project on the path."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    how = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "timeout": 500}
    return subprocess.run([*map(str, command)], cwd=directory, env=environment, **how)


@pytest.mark.slow
def test_the_sdist_has_every_file_of_the_project_and_the_wheel_every_file_that_a_program_opens(built):
    listed = run(["git", "ls-files", "--cached", "--others", "--exclude-standard"], ROOT)
    tracked = {*listed.stdout.splitlines()}
    with tarfile.open(built[0]) as archive:
        files = {member.name.partition("/")[2] for member in archive if member.isfile()}
    assert len(tracked) > 500 and tracked - files == set() and files - tracked == {"PKG-INFO"}
    paths = [path for folder in ("keras_transformer", "serving") for path in (ROOT / folder).rglob("*")]
    paths = [path.relative_to(ROOT) for path in paths if path.is_file() and "__pycache__" not in path.parts]
    # Of serving/, an operator takes the rest from the sdist.
    needed = {str(p) for p in paths if p.parts[0] != "serving" or p.suffix == ".py" or p.parts[1] == "page"}
    needed |= {"serving/config/session.config", "serving/config/session.gpu.config"}
    files = {name for name in zipfile.ZipFile(built[1]).namelist() if ".dist-info/" not in name}
    assert {"keras_transformer/py.typed", "serving/page/page.js", "serving/rest.py"} <= needed and files == needed


@pytest.mark.slow
def test_the_wheel_trains_exports_translates_and_serves_where_the_project_is_not(built, tmp_path):
    """The installed packages are lent to its environment, without all that it does not ask for."""
    desk, wheel = tmp_path, built[1]
    venv.create(desk / "venv")
    python, program = desk / "venv/bin/python", desk / "venv/bin/keras-transformer"
    installed = run([sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", wheel], desk)
    assert installed.returncode == 0, installed.stdout
    (home,) = desk.glob("venv/lib/python*/site-packages")
    (found,) = metadata.distributions(name="keras-transformer", path=[home])
    asked = [each for each in map(Requirement, found.requires) if not each.marker or each.marker.evaluate(SERVING)]
    missing = modules_beside(each.name for each in asked) - {"keras_transformer", "serving"}
    (home / "sitecustomize.py").write_text(f"MISSING = {missing}{WITHOUT}")
    (home / "others.pth").write_text(sysconfig.get_path("purelib"))

    for command, said in (([python, "-c", WORK], "exports/wheel/1"), ([program, "gateway", "--help"], "--backend")):
        done = run(command, desk)
        assert done.returncode == 0 and said in done.stdout, done.stdout
    rest, grpc = free_port(), free_port()
    server = [python, "-m", "serving.server", "--model_base_path", "exports/wheel", "--model_name=t"]
    server += [f"--port={grpc}", f"--rest_api_port={rest}"]
    with contextlib.ExitStack() as running:
        how = {"cwd": desk, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        process = subprocess.Popen([*map(str, server)], **how)
        running.callback(process.wait)
        running.callback(process.terminate)

        def predicted():
            with contextlib.suppress(OSError):
                status, _, reply = ask(rest, "POST", "/v1/models/t:predict", json.dumps({"instances": ["3 km"]}))
                return status == 200 and reply["predictions"]

        assert len(wait_for(predicted)) == 1 and urllib.request.urlopen(f"http://{HOST}:{rest}/page.js").status == 200
