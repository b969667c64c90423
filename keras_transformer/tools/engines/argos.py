"""A trained run as a package of Argos Translate, which LibreTranslate uses, too: a zip with a model of CTranslate2."""

import contextlib
import json
import shutil
import tempfile
from pathlib import Path

from keras_transformer.errors import ExportError
from keras_transformer.languages import ARGOS, locale_of, parts_of
from keras_transformer.tokenizer import SHARED
from keras_transformer.tools.engines.ctranslate2 import CTranslate2Export

TOKENIZER, METADATA, README = "sentencepiece.model", "metadata.json", "README.md"  # Argos Translate's names


class ArgosExport(CTranslate2Export):
    """An export for Argos Translate: NAME.argosmodel with the directory NAME, in which `model/` is for CTranslate2.

    Argos Translate divides a text into sentences by a model of its own, and encodes each sentence with SentencePiece.
    It adds no tokens: the engine adds bos and eos. Its search has its own settings.

    Args:
        translator: `Translator` of the run.
        quantization: dtype of the matrices: "float32", "bfloat16", "int16" or "int8".

    Raises:
        ExportError: as `CTranslate2Export`; or if the run has two tokenizers, tags of languages, or no languages.
    """

    def __init__(self, translator, quantization="float32"):
        super().__init__(translator, quantization)
        if translator.tags or self.tokens.described():
            raise ExportError("Argos Translate adds no tag to a text: export a model with tags as a SavedModel")
        if translator.source_tokenizer is not translator.target_tokenizer:
            raise ExportError("Argos Translate has one tokenizer for both languages: choose the format ctranslate2")
        if None in translator.languages:
            raise ExportError(
                "a package names its languages, and the run has none: train with --source_lang, --target_lang"
            )
        self.languages = translator.languages
        self.codes = tuple(map(argos_code, translator.languages))
        self.name = "translate-{}_{}-1_0".format(*self.codes)

    def write(self, directory):
        """Writes the package into an empty directory."""
        with tempfile.TemporaryDirectory(dir=directory) as temporary:
            root = Path(temporary, self.name)
            model = root / "model"
            model.mkdir(parents=True)
            super().write(model)
            (model / SHARED).rename(root / TOKENIZER)
            (root / METADATA).write_text(json.dumps(self.metadata(), indent=1), encoding="ascii")
            (root / README).write_text("{} to {}, by keras_transformer.\n".format(*self.codes), encoding="ascii")
            archive = shutil.make_archive(str(Path(directory, self.name)), "zip", temporary, self.name)
        Path(archive).rename(self.package(directory))

    @contextlib.contextmanager
    def opened(self, directory):
        """As that of `CTranslate2Export`, for the files in the package."""
        with tempfile.TemporaryDirectory() as temporary:
            shutil.unpack_archive(self.package(directory), temporary, "zip")
            root = Path(temporary, self.name)
            shutil.move(root / TOKENIZER, root / "model" / SHARED)
            with super().opened(root / "model") as translate_batch:
                yield translate_batch

    def package(self, directory):
        """The path of the package in the directory of an export."""
        return Path(directory, f"{self.name}.argosmodel")

    def metadata(self):
        """What metadata.json says, a dict. Names of languages are English, as those of other packages."""
        source, target = [
            {"code": code, "name": locale.get_display_name("en") if (locale := locale_of(language)) else code}
            for code, language in zip(self.codes, self.languages, strict=True)
        ]
        return {
            "package_version": "1.0",
            "argos_version": "1.0",
            **{f"from_{key}": value for key, value in source.items()},
            **{f"to_{key}": value for key, value in target.items()},
        }

    def describe(self, directory):
        """The entries of the manifest for this format, a dict."""
        package = self.package(directory).name
        return {"format": "argos", "weights": self.quantization, "package": package, "codes": self.codes}


def argos_code(code):
    """The code by which Argos Translate knows a language: "de" for `deu_Latn`, "zt" for Chinese in old characters."""
    if locale_of(code) is None:
        return code
    language, script, territory = parts_of(code)
    forms = ((language, script, territory), (language, script, ""))
    return next((name for name, meant in ARGOS.items() if parts_of(meant) in forms), language)
