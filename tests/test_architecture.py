"""What DESIGN.md promises of the source itself: direction of imports, mirrored tests, sizes, a README that works."""

import ast
import functools
import importlib.util
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "keras_transformer"
README = ROOT / "README.md"

# From low to high: a part knows only itself and the parts below it. `errors` lies below `config`: a setting that is
# not possible is a `UserError`, as every other mistake is.
ORDER = [
    {"words"},
    {"errors", "normalization", "presets", "protection", "private_api"},
    {"settings", "files", "languages", "process"},
    {"config"},
    {"layers", "tokenizer", "decoding", "tags"},
    {"recurrent"},
    {"models", "data"},
    {"translation"},
    {"training", "export", "evaluation"},
    {"runs"},
    {"tools"},
    {"cli"},
    {"scripts", "__main__"},
]
KNOW_THEMSELVES_ONLY = {"errors", "decoding", "serving"}
KNOW_KERAS_ONLY = {"layers", "recurrent", "models"}
STAND_ALONE = {"layers", "recurrent"}  # they know Keras and each other
KNOW_TENSORFLOW = {"process", "tokenizer", "data", "decoding", "translation", "training", "export", "tools", "cli"}

MOST_LINES_OF_A_MODULE, MOST_LINES_OF_A_FUNCTION = 350, 50  # of a module, lines of code


def modules():
    """Path, relative to the root, -> syntax tree of every module that is not a test."""
    paths = [*PACKAGE.rglob("*.py"), *(ROOT / "serving").rglob("*.py"), *ROOT.glob("*.py")]
    return {path.relative_to(ROOT): ast.parse(path.read_text(encoding="utf-8"), str(path)) for path in sorted(paths)}


MODULES = modules()


def package_modules():
    return {path: tree for path, tree in MODULES.items() if path.parts[0] == PACKAGE.name and path.stem != "__init__"}


def serving_modules():
    return {path: tree for path, tree in MODULES.items() if path.parts[0] == "serving" and path.stem != "__init__"}


def part_of(path):
    """The name by which ORDER knows a module: layers, model, ..., scripts, serving."""
    if path.parts[0] == PACKAGE.name:
        return Path(path.parts[1]).stem
    return "scripts" if len(path.parts) == 1 else path.parts[0]


def imported(tree):
    """The dotted names that a module imports, wherever in the module that is; `from a import b` gives a.b."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {f"{'.' * node.level}{node.module or ''}.{alias.name}" for alias in node.names}
    return names


def parts_imported(tree):
    """The parts of the package that a module imports."""
    dotted = [name.split(".") for name in imported(tree)]
    return {[*names, "__init__"][1] for names in dotted if names[0] == PACKAGE.name}


def floor(part):
    return next((number for number, parts in enumerate(ORDER) if part in parts), -1)


def test_imports_are_found_wherever_they_are():
    source = "import a.b, c\ndef f():\n    from keras_transformer.d import e\n    if c:\n        from . import g"
    assert imported(ast.parse(source)) == {"a.b", "c", "keras_transformer.d.e", "..g"}
    source += "\nfrom keras_transformer import h\nimport keras_transformer"
    assert parts_imported(ast.parse(source)) == {"d", "h", "__init__"}


def test_every_part_has_its_place_in_the_order():
    assert {part_of(path) for path in MODULES} - {"serving", "__init__"} == set.union(*ORDER)


def test_imports_are_absolute():
    assert [(str(path), name) for path, tree in MODULES.items() for name in imported(tree) if name[0] == "."] == []


def test_no_part_imports_what_is_not_below_it():
    upwards = [
        f"{path} imports {other}"
        for path, tree in MODULES.items()
        if part_of(path) != "serving"
        for other in parts_imported(tree) - {part_of(path)}
        if floor(other) >= floor(part_of(path))
    ]
    assert upwards == []


def test_decoding_knows_a_step_function_and_serving_a_saved_model():
    known = [
        f"{path} imports {other}"
        for path, tree in MODULES.items()
        if part_of(path) in KNOW_THEMSELVES_ONLY
        for other in parts_imported(tree) - {part_of(path)}
    ]
    assert known == []


def test_layers_and_models_run_on_every_keras_backend():
    others = {
        f"{path} imports {name}"
        for path, tree in MODULES.items()
        if part_of(path) in KNOW_KERAS_ONLY
        for name in imported(tree)
        if name.split(".")[0] not in {"keras", PACKAGE.name, *sys.stdlib_module_names} or name.startswith("keras.src")
    }
    assert others == set()


def test_tensorflow_is_imported_only_where_the_design_says():
    importing = {
        part_of(path)
        for path, tree in MODULES.items()
        if path.parts[0] != "serving"
        for name in imported(tree)
        if name.split(".")[0] in ("tensorflow", "tensorflow_text")
    }
    assert importing <= KNOW_TENSORFLOW


def test_layers_can_be_taken_without_the_rest_of_the_house():
    others = {
        f"{path} imports {part}"
        for path, tree in MODULES.items()
        if part_of(path) in STAND_ALONE
        for part in parts_imported(tree) - STAND_ALONE
    }
    assert others == set()


def test_a_tool_imports_no_other_tool_but_beam_that_of_cleaning():
    tools = {path: tree for path, tree in package_modules().items() if path.parts[1] == "tools"}
    imports = {
        (path.parts[2], name.split(".")[2], path.name)
        for path, tree in tools.items()
        for name in imported(tree)
        if re.match(r"keras_transformer\.tools\.\w+\.", name) and name.split(".")[2] != path.parts[2]
    }
    assert imports == {("beam", "cleaning", "cleaning.py")}


def test_every_package_has_tests():
    packages = {path.parent for path in [*package_modules(), *serving_modules()] if path.parent != Path(PACKAGE.name)}
    mirrors = {package: Path("tests", *package.parts[package.parts[0] == PACKAGE.name :]) for package in packages}
    assert [str(package) for package, mirror in mirrors.items() if not [*(ROOT / mirror).glob("test_*.py")]] == []


def test_no_module_is_a_drawer():
    drawers = {"utils", "util", "helpers", "helper", "common", "misc"}
    assert [str(path) for path in MODULES if drawers & {*path.parts, path.stem}] == []


def code_lines(source):
    """The lines of a source that are no docstring, comment or blank line: their number."""
    docstrings = {
        number
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        for number in range(node.lineno, node.end_lineno + 1)
    }
    lines = [line.strip() for line in source.splitlines()]
    return sum(bool(line) and line[0] != "#" and n not in docstrings for n, line in enumerate(lines, start=1))


def test_no_module_is_too_long():
    assert code_lines('"""a\n\nb"""\n\n# c\nd = 5  # e\ndef f():\n    "g"\n    return """h\ni"""\n') == 4
    lengths = {str(path): code_lines((ROOT / path).read_text(encoding="utf-8")) for path in MODULES}
    assert {path: length for path, length in lengths.items() if length > MOST_LINES_OF_A_MODULE} == {}


def lines_of(function):
    """Lines of a function from `def` to its end, those of its docstring not counted."""
    docstring = ast.get_docstring(function, clean=False)
    return function.end_lineno - function.lineno + 1 - (docstring.count("\n") + 1 if docstring else 0)


def functions(tree):
    return [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


def test_no_function_is_too_long():
    lengths = {
        f"{path}:{node.lineno} {node.name}": lines_of(node)
        for path, tree in MODULES.items()
        for node in functions(tree)
    }
    assert {name: length for name, length in lengths.items() if length > MOST_LINES_OF_A_FUNCTION} == {}


def test_mistakes_are_raised_not_asserted():
    asserts = [
        f"{path}:{node.lineno}"
        for path, tree in MODULES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Assert)
    ]
    assert asserts == []


def test_every_public_function_and_class_says_what_it_is():
    silent = [
        f"{path}:{node.lineno} {node.name}"
        for path, tree in {**package_modules(), **serving_modules()}.items()
        for node in tree.body
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name[0] != "_" and not ast.get_docstring(node)
    ]
    assert silent == []


def shell_lines(markdown):
    """The lines of a text's code blocks that are for a shell, continued lines joined."""
    blocks = re.findall(r"^ *```(?:bash|sh|shell|console)? *\n(.*?)^ *``` *$", markdown, re.MULTILINE | re.DOTALL)
    return [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]


def commands_in(line):
    """The commands of a shell line, lists of words, without what joins or redirects them."""
    words = shlex.shlex(line, posix=True, punctuation_chars=True)
    words.whitespace_split = True
    commands = [[]]
    for word in words:
        if set(word) <= set("();<>|&"):
            commands.append([])
        else:
            commands[-1].append(word)
    return commands


def python_commands(markdown):
    """What Python is asked to run in the code blocks: a list of (script, "-m module" or "-m package name", flags)."""
    found = []
    for line in shell_lines(markdown):
        for words in commands_in(line) if re.search(r"\bpython3? ", line) else []:
            start = next((i for i, word in enumerate(words) if Path(word).name in ("python", "python3")), len(words))
            parts = 3 if words[start + 1 : start + 3] == ["-m", "keras_transformer"] else 2
            program = words[start + 1 :][: parts if "-m" in words[start + 1 : start + 2] else 1]
            if program and (program[0] == "-m" or program[0].endswith(".py")):
                flags = [word.split("=")[0] for word in words[start + 1 :] if word.startswith("--")]
                found.append((" ".join(program), flags))
    return found


def readme_commands():
    assert README.exists(), "there is no README.md: it has to show how to train, translate and export"
    return python_commands(README.read_text(encoding="utf-8"))


def file_of(program):
    """The file in this repository that `python program` runs, whether it exists or not; None if it is not ours."""
    if not program.startswith("-"):
        return ROOT / program
    if program.startswith("-m keras_transformer "):
        return ROOT / "keras_transformer/cli" / f"{program.split()[-1]}.py"
    path = ROOT / program.split()[-1].replace(".", "/")
    return path.with_suffix(".py") if (ROOT / path.relative_to(ROOT).parts[0]).is_dir() else None


@functools.cache
def help_of(program):
    command = [sys.executable, *program.split(), "--help"]
    environment = os.environ | {"COLUMNS": "100"}
    run = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, f"python {program} --help: exit status {run.returncode}\n{run.stderr}"
    return run.stdout


def test_commands_are_found_in_code_blocks():
    markdown = """
python prose.py --not
```bash
python train.py --d_ff 53 \\
    --preset=tiny  # --comment
cat a.txt | .venv/bin/python translate.py --model_dir "runs/a --b" > b.txt && X=1 python3 -m pytest -q
python -c "print(5)" --not
python -m keras_transformer clean --dataset x
```
```python
python code.py --not
```
    """
    assert python_commands(markdown) == [
        ("train.py", ["--d_ff", "--preset"]),
        ("translate.py", ["--model_dir"]),
        ("-m pytest", []),
        ("-m keras_transformer clean", ["--dataset"]),
    ]


def test_readme_shows_how_to_train_translate_and_export():
    assert {"train.py", "translate.py", "export.py"} <= {program for program, _ in readme_commands()}


def test_readme_commands_exist():
    files = {program: file_of(program) for program, _ in readme_commands()}
    assert [program for program, file in files.items() if file and not file.exists()] == []
    modules = {program.split()[-1].split(".")[0] for program, file in files.items() if file is None}
    assert [module for module in modules if importlib.util.find_spec(module) is None] == []


def test_readme_flags_are_known_to_their_programs():
    unknown = [
        f"{program} {flag}"
        for program, flags in readme_commands()
        for flag in flags
        if file_of(program) and flag not in re.findall(r"--[\w-]+", help_of(program))
    ]
    assert unknown == []


def test_requirements_are_the_dependencies_of_the_package_and_of_its_extras_for_serving_and_tfds():
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")  # Python 3.10 has no parser of TOML

    def declared(name):
        return re.findall(r'"(.+?)"(?:,|\]|$)', re.search(rf"^{name} = \[(.*?\])$", project, re.M | re.S)[1], re.M)

    lines = (ROOT / "requirements.txt").read_text(encoding="utf-8").splitlines()
    required = [line.split("#")[0].strip() for line in lines if not line.startswith("#")]
    expected = [name.replace("'", '"') for name in declared("dependencies") + declared("serving") + declared("tfds")]
    assert sorted(required) == sorted(expected) and len(declared("tfds")) == 3
