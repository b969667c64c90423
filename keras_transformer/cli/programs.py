"""The command `keras-transformer PROGRAM ...`, also `python -m keras_transformer PROGRAM ...`."""

import importlib.util
import sys
from pathlib import Path

PROGRAMS = {
    "train": "train a model on sentence pairs",
    "translate": "translate text with a run or an export",
    "evaluate": "score a run, an export or a file of translations",
    "export": "make a SavedModel of a run, or a model for CTranslate2, Argos, Hugging Face or LiteRT",
    "clean": "prepare a corpus: mend its text, drop dirty pairs",
    "back_translate": "make sentence pairs from text of one language",
    "recipe": "from a corpus to a translator that ships, in one command",
    "sweep": "train every combination of some settings, and compare the runs",
    "distil": "make sentence pairs that a large model teaches a small one",
    "import": "make a run of a model of Hugging Face, Marian, OpenNMT-tf, CTranslate2 or Argos",
    "align": "link the words of sentences and of their translations",
    "analyze": "show what the heads of a Transformer do",
    "gateway": "offer the APIs of LibreTranslate and DeepL, with HTML and files, before a server",
}


def main():
    """Starts the program that the first argument names, with the other arguments."""
    name, arguments = (sys.argv[1] if len(sys.argv) > 1 else "--help"), sys.argv[2:]
    if name in ("-h", "--help"):
        print("usage: keras-transformer PROGRAM ..., with PROGRAM one of\n")
        print("\n".join(f"  {program:14} {purpose}" for program, purpose in PROGRAMS.items()))
        print("\n`keras-transformer PROGRAM --help` lists the flags of a program.")
        return
    if name not in PROGRAMS:
        sys.exit(f"error: no program {name!r}: there are {', '.join(PROGRAMS)}")
    start = "python -m keras_transformer" if Path(sys.argv[0]).name == "__main__.py" else "keras-transformer"
    sys.argv = [f"{start} {name}", *arguments]
    module = f"keras_transformer.cli.{name}"
    if importlib.util.find_spec(module) is None:
        sys.exit(f"error: the program {name!r} is not installed: keras_transformer/cli/{name}.py is missing")
    importlib.import_module(module).program()
