"""Writes a model of another program as the directory of a run."""

import os
import shutil
import zipfile
from collections.abc import Sequence
from pathlib import Path

import keras

from keras_transformer.config import Config
from keras_transformer.export.parity import PROBES
from keras_transformer.files import whole_directory
from keras_transformer.runs import Run
from keras_transformer.tokenizer import SHARED, SOURCE, TARGET, Tokenizer
from keras_transformer.tools import check_new_directory
from keras_transformer.tools.importing import ctranslate2_model, hugging_face, marian, opennmt
from keras_transformer.tools.importing.tensors import ImportedModelError, read_json
from keras_transformer.tools.importing.trimming import trimmed
from keras_transformer.training.run_directory import RunDirectory
from keras_transformer.translation.options import LANGUAGE_INPUTS
from keras_transformer.translation.segments import EXTRA_LENGTH, LONGEST_ASKED

# The file by which a format is known, and who reads it.
FORMATS = {**dict.fromkeys(marian.DECODERS, marian), ctranslate2_model.MODEL: ctranslate2_model}
FORMATS |= {"config.json": hugging_face}
SHOWN = 5  # names of files in a message
FORMATS |= {"model_description.py": opennmt, "*.index": opennmt}


def import_model(
    path: str | os.PathLike,
    model_dir: str | os.PathLike,
    source_lang: str | None = None,
    target_lang: str | None = None,
    trim_vocabulary: str | os.PathLike | Sequence[str | os.PathLike] | None = None,
    languages: str | Sequence[str] | None = None,
) -> Run:
    """Makes a run of a model that another program has trained.

    The run has no corpus and no checkpoints. All else is as if it had been trained here: translation, evaluation,
    export, analysis, and further training with `init_from`.

    Args:
        path: directory of the model, as it was downloaded, or NAME.argosmodel: see docs/import.md.
        model_dir: directory of the run; it must not exist, or be empty.
        source_lang, target_lang: codes of the languages. A model of several languages needs them, or `languages`.
        trim_vocabulary: path or list of paths, text files or directories with files train.*. The run has only the
            pieces that this text needs, single characters and bytes. None: all pieces.
        languages: list of codes, one text with commas between them, or "all". The run translates between all of them.
            With OPUS-MT, the run translates from `source_lang` into all of them. `source_lang` and `target_lang` are
            then the default direction. With a list, they can be left out: the first two are the default. With "all",
            they are needed.

    Returns:
        `Run`.

    Raises:
        UserError: if a file is missing or damaged, if the model has no equal here, or if `model_dir` cannot be written.
    """
    path = Path(path)
    check_new_directory(model_dir)
    read = reader_of(path)
    try:
        codes = languages.split(",") if isinstance(languages, str) else languages
        codes = codes and [code.strip() for code in codes]
        foreign = read(path, source_lang, target_lang, codes)
    except KeyError as error:
        raise ImportedModelError(f"the settings of the model in {path} lack {error}") from error
    if trim_vocabulary is not None:
        foreign = trimmed(foreign, trim_vocabulary)
    several = {}
    if foreign.tags:
        several = {"tags": foreign.tags.place, **dict(zip(LANGUAGE_INPUTS, foreign.tags.default, strict=True))}
    settings = {"preset": "base", "dataset": "pairs", "model_dir": str(model_dir), **foreign.settings, **several}
    config = Config(**settings)
    model = foreign.make(config)
    with whole_directory(model_dir) as directory:
        run = RunDirectory(directory)
        config.save(run.config)
        names = (SHARED,) if len(foreign.tokenizers) == 1 else (SOURCE, TARGET)
        for name, tokenizer in zip(names, foreign.tokenizers, strict=True):
            Tokenizer(tokenizer)  # raises if the rewritten model cannot be read
            (directory / name).write_bytes(tokenizer)
        if foreign.tags:
            foreign.tags.save(directory)
        save(model, run.model)
        if longest := longest_translation(path):
            run.keep_decided({"extra_length": max(EXTRA_LENGTH, longest)})
        run.samples.write_text("\n".join(PROBES[:2]), encoding="utf-8")
    return Run(model_dir)


def reader_of(path):
    """The function that reads a model.

    Raises:
        ImportedModelError: if there is no model of a format that is known.
    """
    if path.suffix == ctranslate2_model.PACKAGE and path.is_file():
        return ctranslate2_model.read_package
    if not path.is_dir():
        raise ImportedModelError(
            f"no directory {path}: download all files of the model into one, or give an .argosmodel"
        )
    check_no_adapter(path)
    importer = next((importer for name, importer in FORMATS.items() if any(path.glob(name))), None)
    if importer is None:
        raise ImportedModelError(
            f"{path} has no config.json (Hugging Face), no model.bin (CTranslate2), no decoder.yml (Marian), and no "
            "ckpt-N.index with model_description.py (OpenNMT-tf). "
            f"It has {', '.join(sorted(os.listdir(path))[:SHOWN]) or 'no files'}"
        )
    return importer.read_directory


def longest_translation(path):
    """Most tokens of a translation by the files of Hugging Face, up to `LONGEST_ASKED`; 0 if they do not say it."""
    for name in ("generation_config.json", "config.json"):
        told = read_json(path, name) if (path / name).exists() else {}
        for longest in (told.get("max_new_tokens"), told.get("max_length")):
            if type(longest) is int and longest > 0:
                return min(longest, LONGEST_ASKED)
    return 0


def check_no_adapter(path):
    """Refuses a directory of a LoRA adapter, which holds some changes of a model, and no model."""
    if (path / "adapter_config.json").exists() and not [*path.glob("model*.safetensors*"), *path.glob("pytorch_*")]:
        base = read_json(path, "adapter_config.json").get("base_model_name_or_path")
        raise ImportedModelError(
            f"{path} holds an adapter of PEFT (LoRA) for {base}, and no model: add it to this model where it was made, "
            "with `merge_and_unload()` and `save_pretrained`, and import the result"
        )


def save(model, path):
    """Writes a .keras file. `model.save` writes the same file, but holds all weights in memory once more."""
    parts = path.with_suffix(".parts")
    keras.saving.save_model(model, parts, zipped=False)
    with zipfile.ZipFile(path, "w") as archive:
        for part in sorted(parts.iterdir()):
            archive.write(part, part.name)
    shutil.rmtree(parts)
