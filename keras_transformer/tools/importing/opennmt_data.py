"""What users of OpenNMT-tf copy beside a checkpoint: configuration, vocabularies, SentencePiece models."""

import functools
import re
from pathlib import Path

import yaml

from keras_transformer.config import BOS_ID, EOS_ID
from keras_transformer.errors import FileError
from keras_transformer.tools.importing.pieces import Vocabulary, without_id
from keras_transformer.tools.importing.tensors import ImportedModelError, file_in

CONTROLS = ["<blank>", "<s>", "</s>"]  # the first tokens of a vocabulary; unk is behind the last one
BLANK, START, EOS = range(len(CONTROLS))
SIDES = {"source": ("source", "src"), "target": ("target", "tgt")}  # and what their files may be called
MOST_BYTES = 64 << 20  # of a vocabulary or a configuration
# Options of OpenNMT's own tokenizer beside which it divides as SentencePiece alone, in mode none.
HARMLESS = ("mode", "sp_model_path", "sp_nbest_size", "sp_alpha", "no_substitution", "spacer_annotate")


class Files:
    """The files of a directory, and of the run directory above it if it is `avg`.

    Args:
        directory: path.
        description: name of the file by which a run directory is known.
    """

    def __init__(self, directory, description):
        above = directory.resolve().parent
        is_average = directory.resolve().name == "avg" and (above / description).is_file()
        self.places = [directory, above] if is_average else [directory]

    def find(self, name):
        """The path of a file. Of a path in a configuration, only the name counts. Raises ImportedModelError."""
        name = Path(name).name
        return file_in(next((place for place in self.places if (place / name).is_file()), self.places[0]), name)

    def listed(self, *suffixes):
        """The paths of all files with one of these suffixes, or with any."""
        found = [path for place in self.places for path in sorted(place.iterdir()) if path.is_file()]
        return [path for path in found if not suffixes or path.suffix in suffixes]

    @functools.cached_property
    def data(self):
        """The section `data` of the configuration: a dict, {} without one. Raises ImportedModelError."""
        found = {}
        for path in self.listed(".yml", ".yaml"):
            settings = read_yaml(path)
            data = settings.get("data") if isinstance(settings, dict) else None
            for name, value in data.items() if isinstance(data, dict) else ():
                if found.setdefault(name, value) != value:
                    raise ImportedModelError(f"{path} and another configuration differ in data: {name}. Leave one")
        several = [name for name in found if re.fullmatch(r"source_\d.*_vocabulary", str(name))]
        if several:
            raise ImportedModelError(f"a model must have one source. Received: data: {several[0]}")
        return found

    def vocabularies(self):
        """The paths of the vocabularies of source and target. Raises ImportedModelError."""
        names = [text_of(self.data, f"{side}_vocabulary") for side in SIDES]
        if all(names):
            return [self.find(name) for name in names]
        found = [path for path in self.listed() if starts_as_vocabulary(path)]
        if len(found) == 1:
            return found * 2
        chosen = [[path for path in found if is_of(path, side)] for side in SIDES]
        if any(len(paths) != 1 for paths in chosen):
            raise ImportedModelError(
                f"copy the vocabularies into {self.places[0]}, and the configuration (data.yml), which names "
                "source_vocabulary and target_vocabulary. Received: files that start with the lines "
                f"{', '.join(CONTROLS)}: {names_of(found)}"
            )
        return [paths[0] for paths in chosen]

    def tokenizer(self, side, vocabulary):
        """The path of the SentencePiece model of a side, whose vocabulary is a path. Raises ImportedModelError."""
        named = self.named_model(side)
        if named:
            return self.find(named)
        found = self.listed(".model", ".spm")
        for suits in (lambda path: path.stem == vocabulary.stem, lambda path: is_of(path, side), lambda path: True):
            chosen = [path for path in found if suits(path)]
            if len(chosen) == 1:
                return chosen[0]
        raise ImportedModelError(
            f"copy the SentencePiece model of the {side} into {self.places[0]} as {side}.model: a model here divides "
            f"text by SentencePiece. Received: {names_of(found)}"
        )

    def named_model(self, side):
        """The SentencePiece model that the configuration names for a side; None if text was divided beforehand.

        Raises:
            ImportedModelError: for another tokenizer, and for options that divide otherwise than SentencePiece.
        """
        name = f"{side}_tokenization"
        given = self.data.get(name)
        given = read_yaml(self.find(given)) if isinstance(given, str) else given
        given = {"type": "SpaceTokenizer"} if given is None else given
        options = given.get("params") or {} if isinstance(given, dict) and "type" in given else given
        if not isinstance(options, dict):
            raise ImportedModelError(f"data: {name} must be a tokenizer and its options. Received: {given!r}")
        kind, received = given.get("type", "OpenNMTTokenizer"), {"mode": "conservative", **options}
        if kind == "SpaceTokenizer":
            return None
        if kind == "SentencePieceTokenizer":
            return text_of(options, "model")
        others = [option for option, value in options.items() if value and option not in HARMLESS]
        if kind != "OpenNMTTokenizer" or others or received["mode"] != "none" or not options.get("sp_model_path"):
            listed = ", ".join(f"{option}: {received[option]}" for option in ("mode", *others))
            raise ImportedModelError(
                f"data: {name} must be SentencePiece alone: SentencePieceTokenizer, or OpenNMTTokenizer with mode none "
                f"and sp_model_path. Received: type: {kind}, {listed}"
            )
        return text_of(options, "sp_model_path")

    def frame(self, automatic):
        """The setting `frame`: bos before the source and eos behind it, where the configuration asks for them.

        Args:
            automatic: dict, what the model's own configuration has for source_sequence_controls.

        Raises:
            ImportedModelError: if the target has no bos or no eos.
        """
        source, target = (self.data.get(f"{side}_sequence_controls") or {} for side in SIDES)
        for controls in (source, target):
            if not isinstance(controls, dict):
                raise ImportedModelError(f"data: sequence_controls must be start and end. Received: {controls!r}")
        if target and not (target.get("start") and target.get("end")):
            raise ImportedModelError(f"data: target_sequence_controls must have start and end. Received: {target}")
        source = {**automatic, **source}
        before, after = BOS_ID if source.get("start") else "", EOS_ID if source.get("end") else ""
        return f"{before}/{after}/" if before or after else None


def read_text(path):
    """The text of a file. Raises ImportedModelError if it is too large or not UTF-8."""
    try:
        if path.stat().st_size > MOST_BYTES:
            raise ImportedModelError(f"{path} has more than {MOST_BYTES >> 20} MiB")
        return path.read_bytes().decode("utf-8")
    except OSError as error:
        raise FileError.of("read", path, error) from error
    except UnicodeDecodeError as error:
        raise ImportedModelError(f"{path} is not text in UTF-8, or is damaged: {error}") from None


def read_yaml(path):
    """The object in a YAML file. Raises ImportedModelError."""
    text = read_text(path)
    try:
        return yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except (ValueError, TypeError, RecursionError, yaml.YAMLError) as error:
        raise ImportedModelError(f"{path} is not YAML, or is damaged: {' '.join(str(error).split())}") from None


def text_of(settings, name):
    """A setting that is a text, or None. Raises ImportedModelError."""
    value = settings.get(name)
    if not isinstance(value, str | None):
        raise ImportedModelError(f"{name} must be the name of a file. Received: {name}: {value!r}")
    return value


def starts_as_vocabulary(path):
    """Whether a file has the lines of `CONTROLS` first."""
    with open(path, "rb") as file:
        return file.read(64).replace(b"\r", b"").startswith("\n".join([*CONTROLS, ""]).encode())


def is_of(path, side):
    """Whether the name of a file says that it belongs to a side, "source" or "target"."""
    return any(word in path.name.lower() for word in SIDES[side])


def names_of(paths):
    """The names of files, for a message."""
    return ", ".join(path.name for path in paths) or "none"


def read_vocabulary(path):
    """The tokens of a vocabulary, one a line: a list of str. Raises ImportedModelError."""
    tokens = [line.rstrip("\r") for line in read_text(path).removesuffix("\n").split("\n")]
    if tokens[: len(CONTROLS)] != CONTROLS or len(set(tokens)) != len(tokens):
        raise ImportedModelError(
            f"{path} must start with the lines {', '.join(CONTROLS)}, and have no line twice. Received: {tokens[:3]}"
        )
    return tokens


def vocabularies(tables, known, is_shared):
    """The `Vocabulary` of source and of target, the same object if they share it.

    Args:
        tables: lists of str, the tokens of source and target.
        known: dicts, `own_pieces` of the tokenizers of source and target.
        is_shared: bool.
    """
    sides = [{**known[0], **known[1]}] if is_shared else known
    found = []
    for table, own in zip(tables, sides, strict=False):
        found.append(Vocabulary.of([*table, "<unk>"], BLANK, len(table), START, EOS, without_id(own, table)))
    return found[0], found[-1]
