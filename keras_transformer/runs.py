"""From Python: train a run, open it or its export, translate with it and export it."""

import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from keras_transformer.config import Config, check_effect, configure
from keras_transformer.data.corpora import pairs_corpus
from keras_transformer.errors import UserError
from keras_transformer.evaluation import Evaluation, choose_tokenization, measure
from keras_transformer.export.manifest import describe_run
from keras_transformer.export.saved_model import SavedModelExport
from keras_transformer.export.versions import export_version, version_directory
from keras_transformer.files import versions_in
from keras_transformer.process import find_tool
from keras_transformer.tags import direction_of
from keras_transformer.training import train as training
from keras_transformer.training.checkpoints import load_translator
from keras_transformer.training.decide import languages_of
from keras_transformer.training.run_directory import RunDirectory
from keras_transformer.translation.options import LANGUAGE_INPUTS
from keras_transformer.translation.translator import TextTranslator, Translator

AnyPath = str | os.PathLike
Pairs = Iterable[tuple[str, str]]
EXAMPLES = 3  # translations in the card of an export


class Run:
    """A run directory, trained by `train` or by train.py; or several, whose models translate together (`Ensemble`).

    Args:
        path: of the directory, or a list of the directories of an ensemble. Settings, corpus and languages are those of
            the first.
        evaluated_set: "test" or "validation", the set that `evaluation` is of.
        evaluation: `Evaluation` of the finished model; None where it is not known.

    Raises:
        UserError: for an empty list, and a directory that is there twice.
    """

    def __init__(
        self, path: AnyPath | Sequence[AnyPath], evaluated_set: str | None = None, evaluation: Evaluation | None = None
    ):
        self.path, *self.others = _paths_of(path)
        self.evaluated_set = evaluated_set
        self.evaluation = evaluation

    def __repr__(self):
        return f"Run({str(self.path)!r})"

    @property
    def config(self) -> Config:
        """The `Config` of the run."""
        return Config.load(self.path / "config.yaml")

    def translator(
        self, checkpoint: str | int = "average", shortlist: int | None = None, **settings: Any
    ) -> Translator:
        """The `Translator` of the run.

        Args:
            checkpoint: weights of a run, finished or not: "average", "best", "last" or the number of an epoch.
            shortlist: N; a search then chooses only among the N likeliest target pieces of each source piece, counted
                from the training corpus, and the most frequent ones. None: among all pieces.
            settings: beam_size, length_penalty, split_sentences, batch_size; those of the run by default. And glossary
                and protect, see `TextTranslator`.

        Raises:
            UserError: if there are no such weights, or no tokenised corpus to count from, and for an ensemble whose
                tokenizers or languages differ.
        """
        directory = RunDirectory(self.path)
        ensemble = self.others and find_tool("ensemble", "an ensemble of several runs")
        if shortlist is not None:
            settings["shortlist"] = find_tool("shortlist", "`shortlist`").count_shortlist(directory, shortlist)
        first = load_translator(directory, checkpoint, **settings)
        return ensemble.ensemble_of(first, self.others, checkpoint) if ensemble else first

    def export(
        self,
        export_dir: AnyPath,
        version: int | None = None,
        format: str = "saved_model",
        precision: str = "float32",
        checkpoint: str | int = "average",
        shortlist: int | None = None,
        source_lang: str | None = None,
        target_lang: str | None = None,
        compiled: Any = False,
        license: str | None = None,
        **settings: Any,
    ) -> Path:
        """Writes EXPORT_DIR/VERSION, and proves that it translates as the run does.

        Args:
            export_dir: path, the directory of all versions.
            version: positive int; the next free one by default.
            format: "saved_model" for TensorFlow Serving, or the name of an engine of `keras_transformer.tools.engines`.
            precision: "float32", or "bfloat16" of a SavedModel. Each engine has its own.
            checkpoint, shortlist, settings: see `translator`. export.json says what a shortlist changes: how many
                translations of the validation set are the same, and its BLEU with and without.
            source_lang, target_lang: codes of languages of a model of many. They are the default of a SavedModel, and
                the one direction of the other formats; the default of the run by default.
            compiled: whether `translate` and `alternatives` of a SavedModel run as XLA programs, or the `Programs` of
                `keras_transformer.tools.engines.compiled`. TensorFlow Serving then needs the flag
                --xla_cpu_compilation_enabled=true.
            license: of the model, such as "cc-by-4.0", for its card (README.md) and export.json.

        Returns:
            pathlib.Path of the version.

        Raises:
            UserError: as `translator`, if the version exists, or if the export translates differently.
        """
        is_own = format == "saved_model"
        how = {"precision": precision, "shortlist": shortlist, **settings}
        make = SavedModelExport if is_own else find_tool("engines", f"`format` {format}").export_class(format, **how)
        if (compiled or self.others) and not is_own:
            raise UserError(f"only a SavedModel has compiled programs, or several runs. Received: format={format!r}")
        version_directory(export_dir, version)  # before the long work, it refuses one that exists
        directory = RunDirectory(self.path)
        default = self.translator(checkpoint, shortlist, **settings)
        translator = default.between(source_lang, target_lang)
        is_default = direction_of(translator) == direction_of(default)
        samples = directory.samples.read_text(encoding="utf-8").split("\n")
        facts = {}
        if compiled:
            tool = find_tool("engines.compiled", "`compiled`")
            make = tool.CompiledExport
            facts["programs"] = tool.checked_programs(compiled, translator.model, translator.shortlist)
        if shortlist is not None:
            compare = find_tool("shortlist", "`shortlist`").compare_with_all_pieces
            facts["shortlist"] = {"size": shortlist, **compare(translator, directory)}
        export = make(translator, precision, **facts)
        languages = dict(zip(LANGUAGE_INPUTS, translator.tags.default_codes, strict=True)) if translator.tags else {}
        ensemble = {"ensemble": [str(path) for path in (self.path, *self.others)]} if self.others else {}
        about = {"license": license} if license else {}
        if checkpoint != "average" or self.others or not is_default:
            about["evaluation"] = None  # that of the run is of other weights, of one model, or of another direction
        shown = [text for text in samples if text.strip()][: EXAMPLES * is_default]
        about["examples"] = [*map(list, zip(shown, translator.translate(shown), strict=True))]
        origin = describe_run(directory) | languages | ensemble | about
        return export_version(export, export_dir, version, samples, origin)


def train(
    pairs: Pairs | None = None,
    config: Config | None = None,
    *,
    validation: Pairs | None = None,
    test: Pairs | None = None,
    callbacks: Sequence[Any] = (),
    **settings: Any,
) -> Run | None:
    """Trains a model to the end, or from where an earlier call or command stopped, and scores it.

    Args:
        pairs: iterable of (source, target) str, a generator too; None for the corpus that `dataset` names.
        config: `Config`, in place of `settings`.
        validation, test: iterables of pairs. Without `validation`, some of `pairs` are held out. Without `test`, the
            validation pairs are scored.
        callbacks: list of `keras.callbacks.Callback`, called after those of the run. `logs` has the measures of the
            run, after an epoch also those of validation: val_loss, val_accuracy, val_bleu. A run ends early with the
            setting `patience`, and not with `keras.callbacks.EarlyStopping`.
        settings: those of `Config`, such as preset="tiny", epochs=3, model_dir="runs/mine". With `init_from`, the
            settings of the model are those of that run.

    Returns:
        `Run`; None on a worker that is not the first.

    Raises:
        UserError: for everything that the caller can mend.

    Example:

    ```python
    run = train([("one two", "eins zwei"), ("two three", "zwei drei")] * 200, epochs=3, model_dir="runs/numbers")
    run.translator().translate("one two")
    ```
    """
    if not isinstance(config, Config | None):
        raise UserError("`train` takes pairs, such as zip(sources, targets), and settings by name: preset='tiny'")
    if config is not None and settings:
        raise UserError(f"`train` takes a config or settings, not both. Received: a config and {', '.join(settings)}")
    if pairs is None and (validation is not None or test is not None):
        raise UserError("`validation` and `test` belong to `pairs`: a dataset has its own")
    if pairs is not None and "dataset" in settings:
        raise UserError(f"`train` takes pairs or a dataset, not both. Received: pairs and {settings['dataset']}")
    config = config or configure(**settings)
    config = config if pairs is None else replace(config, dataset="pairs")
    check_effect(config, settings)
    corpus = None if pairs is None else pairs_corpus(pairs, validation, test, **languages_of(config))
    trained = training.train(config, measure, choose_tokenization, corpus, callbacks=callbacks)
    return trained and Run(trained[0].path, *trained[1:])


def load(path: AnyPath | Sequence[AnyPath], checkpoint: str | int = "average", **settings: Any) -> TextTranslator:
    """The translator of a run directory or of an export.

    Args:
        path: run directory, EXPORT_DIR or EXPORT_DIR/VERSION; or a list of run directories, whose models translate
            together: an ensemble.
        checkpoint: of a run, see `Run.translator`.
        settings: batch_size, glossary, protect; and of a run beam_size, length_penalty, split_sentences, shortlist. An
            export has its own inside.

    Returns:
        `Translator`, or the `SavedModelTranslator` of an export.

    Raises:
        UserError: if there is neither a run nor an export, or no such weights.

    Example:

    ```python
    load("runs/numbers").translate(["one two", "two"], beam_size=2)
    ```
    """
    path, *others = _paths_of(path)
    if others or os.path.exists(path / "config.yaml"):
        return Run([path, *others]).translator(checkpoint, **settings)
    if not (path / "saved_model.pb").exists() and not versions_in(path):
        raise UserError(f"no run and no export in {path}: train.py and export.py write them")
    return find_tool("saved_models", "an export in Python").load_export(path, checkpoint, **settings)


def _paths_of(path):
    """The directories of a path, or of a list of paths: a list of pathlib.Path."""
    paths = [Path(each) for each in (path if isinstance(path, (list, tuple)) else [path])]
    if not paths or len({each.resolve() for each in paths}) < len(paths):
        received = ", ".join(map(str, paths)) or "an empty list"
        raise UserError(f"an ensemble needs different runs, each named once. Received: {received}")
    return paths
