"""What DESIGN.md promises of the source itself: direction of imports, mirrored tests, sizes, docstrings."""

import ast
import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "keras_transformer"

# From low to high: a part knows only itself and the parts below it.
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
KNOW_THEMSELVES_ONLY = {"errors", "decoding", "serving"}  # decoding knows a step function, serving a SavedModel
KNOW_KERAS_ONLY = {"layers", "recurrent", "models"}
STAND_ALONE = {"layers", "recurrent"}  # they know Keras and each other
KNOW_TENSORFLOW = {"process", "tokenizer", "data", "decoding", "translation", "training", "export", "tools", "cli"}

MOST_LINES_OF_A_MODULE, MOST_LINES_OF_A_FUNCTION = 350, 50  # of a module, lines of code

PATHS = [*PACKAGE.rglob("*.py"), *(ROOT / "serving").rglob("*.py"), *ROOT.glob("*.py")]
# Path, relative to the root, -> syntax tree of every module that is not a test.
MODULES = {path.relative_to(ROOT): ast.parse(path.read_text(encoding="utf-8"), str(path)) for path in sorted(PATHS)}
PUBLIC = {path: tree for path, tree in MODULES.items() if len(path.parts) > 1 and path.stem != "__init__"}  # no scripts


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


def test_every_part_has_its_place_in_the_order_and_imports_what_is_below_it_by_an_absolute_name():
    assert {part_of(path) for path in MODULES} - {"serving", "__init__"} == set.union(*ORDER)
    assert [(str(path), name) for path, tree in MODULES.items() for name in imported(tree) if name[0] == "."] == []
    below = {part: set.union({"__init__", part}, *ORDER[:floor]) for floor, parts in enumerate(ORDER) for part in parts}
    below |= {part: {part} for part in KNOW_THEMSELVES_ONLY} | {part: below[part] & STAND_ALONE for part in STAND_ALONE}
    upwards = [
        f"{path} imports {other}"
        for path, tree in MODULES.items()
        for other in parts_imported(tree) - below.get(part_of(path), {"__init__"})
    ]
    assert upwards == []


def test_layers_and_models_run_on_every_keras_backend_and_tensorflow_is_imported_where_the_design_says():
    imports = {(path, name, name.split(".")[0]) for path, tree in MODULES.items() for name in imported(tree)}
    known = {"keras", PACKAGE.name, *sys.stdlib_module_names}
    others = {
        f"{path} imports {name}"
        for path, name, package in imports
        if part_of(path) in KNOW_KERAS_ONLY and (package not in known or name.startswith("keras.src"))
    }
    assert others == set()
    of_tensorflow = {part_of(path) for path, _, package in imports if package in ("tensorflow", "tensorflow_text")}
    assert of_tensorflow - {"serving"} <= KNOW_TENSORFLOW


def test_a_tool_imports_no_other_tool_but_beam_that_of_cleaning():
    imports = {
        (path.parts[2], name.split(".")[2], path.name)
        for path, tree in PUBLIC.items()
        if path.parts[1] == "tools"
        for name in imported(tree)
        if re.match(r"keras_transformer\.tools\.(?!(?:lines|lexicon|words|exported)\.)\w+\.", name)
        and name.split(".")[2] != path.parts[2]
    }
    assert imports == {("beam", "cleaning", "cleaning.py")}


def test_every_package_has_tests_and_no_module_is_a_drawer():
    packages = {path.parent for path in PUBLIC if path.parent != Path(PACKAGE.name)}
    mirrors = {package: Path("tests", *package.parts[package.parts[0] == PACKAGE.name :]) for package in packages}
    assert [str(package) for package, mirror in mirrors.items() if not [*(ROOT / mirror).glob("test_*.py")]] == []
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


def test_no_module_and_no_function_is_too_long():
    lengths = {str(path): code_lines((ROOT / path).read_text(encoding="utf-8")) for path in MODULES}
    assert {path: length for path, length in lengths.items() if length > MOST_LINES_OF_A_MODULE} == {}
    lengths = {
        f"{path}:{node.lineno} {node.name}": lines_of(node)
        for path, tree in MODULES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    assert {name: length for name, length in lengths.items() if length > MOST_LINES_OF_A_FUNCTION} == {}


def lines_of(function):
    """Lines of a function from `def` to its end, those of its docstring not counted."""
    docstring = ast.get_docstring(function, clean=False)
    return function.end_lineno - function.lineno + 1 - (docstring.count("\n") + 1 if docstring else 0)


def test_every_public_function_and_class_says_what_it_is_and_mistakes_are_raised_not_asserted():
    silent = [
        f"{path}:{node.lineno} {node.name}"
        for path, tree in PUBLIC.items()
        for node in tree.body
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name[0] != "_" and not ast.get_docstring(node)
    ]
    assert silent == []
    nodes = [(path, node) for path, tree in MODULES.items() for node in ast.walk(tree)]
    assert [f"{path}:{node.lineno}" for path, node in nodes if isinstance(node, ast.Assert)] == []


def test_requirements_are_the_dependencies_of_the_package_and_of_its_extras_for_serving_and_tfds():
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")  # Python 3.10 has no parser of TOML

    def declared(name):
        return re.findall(r'"(.+?)"(?:,|\]|$)', re.search(rf"^{name} = \[(.*?\])$", project, re.M | re.S)[1], re.M)

    lines = (ROOT / "requirements.txt").read_text(encoding="utf-8").splitlines()
    required = [line.split("#")[0].strip() for line in lines if not line.startswith("#")]
    expected = [name.replace("'", '"') for name in declared("dependencies") + declared("serving") + declared("tfds")]
    assert sorted(required) == sorted(expected) and len(declared("tfds")) == 3
