"""Measures what one odd character costs: the share of the validation lines that a run still translates exactly.

    python -m benchmarks.odd_characters --model_dir RUN

Each line gets one change that a reader hardly sees, such as a no-break space, or a symbol or letter that the training
text may never have had. It may stay in the translation or vanish. The rest of the translation must be the reference.
"""

import argparse
import unicodedata
from pathlib import Path

from keras_transformer.cli.console import import_tensorflow

SPACES = {"two spaces": "  ", "a tab": "\t"}
SPACES |= {f"U+{code:04X}": chr(code) for code in (0xA0, 0x2003, 0x2009, 0x202F, 0x205F, 0x3000)}
INVISIBLE = [0xAD, 0x34F, 0x61C, 0x200B, 0x200E, 0x200F, 0x202B, 0x2060, 0x2066, 0x2069, 0xFEFF]
SYMBOLS = ["😀", "🚀", "❤️", "👩‍🚀", "🇩🇪", "★", "✔", "→", "𝄞"]
UNKNOWN = ["§", "※", "©", "™", "№", "¶", "†", "‡", "…", "°", "Ω", "ж", "水", "क"]


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model_dir", type=Path, required=True, help="run whose validation lines are changed")
    parser.add_argument("--lines", type=int, default=500, help="most lines (default: 500)")
    return parser.parse_args()


def changes():
    """Name of a change -> (function from a line to the changed line, the symbol that may stay or vanish)."""
    marks = {f"U+{code:04X}": chr(code) for code in INVISIBLE}
    return {
        "none": (str, ""),
        "decomposed letters": (lambda line: unicodedata.normalize("NFD", line), ""),
        **{f"{name}, first space": (lambda line, c=c: line.replace(" ", c, 1), "") for name, c in SPACES.items()},
        **{f"{name} inside": (lambda line, c=c: line[:2] + c + line[2:], "") for name, c in marks.items()},
        **{f"{symbol} before": (lambda line, c=symbol: f"{c} {line}", symbol) for symbol in SYMBOLS + UNKNOWN},
        **{f"{symbol} inside": (lambda line, c=symbol: inside(line, c), symbol) for symbol in SYMBOLS + UNKNOWN},
        **{f"{symbol} behind": (lambda line, c=symbol: f"{line} {c}", symbol) for symbol in SYMBOLS + UNKNOWN},
    }


def inside(line, symbol):
    """The line with the symbol as a word of its own in its middle."""
    words = line.split(" ")
    middle = len(words) // 2
    return " ".join([*words[:middle], symbol, *words[middle:]]) if middle else line


def main(arguments):
    from keras_transformer.config import Config
    from keras_transformer.data.corpora import open_corpora
    from keras_transformer.normalization import mend
    from keras_transformer.runs import load

    config = Config.load(arguments.model_dir / "config.yaml")
    corpus = open_corpora(config.corpora, config.source_lang, config.target_lang, config.seed)[0]
    lines, references = zip(*list(corpus.validation)[: arguments.lines], strict=True)
    model, unchanged = load(arguments.model_dir), None
    print(f"| change to {len(lines)} lines | exact | cost |\n|---|---|---|")
    for name, (change, symbol) in changes().items():
        found = model.translate([change(line) for line in lines])
        found = [mend(text.replace(symbol, "") if symbol else text) for text in found]
        exact = sum(text == mend(reference) for text, reference in zip(found, references, strict=True))
        unchanged = exact if unchanged is None else unchanged
        print(f"| {name} | {exact / len(lines):.1%} | {(unchanged - exact) / len(lines):.1%} |", flush=True)


if __name__ == "__main__":
    parsed = parse_arguments()
    import_tensorflow()
    main(parsed)
