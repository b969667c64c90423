"""The files of a run directory: their names, the lock, the log. What is in them is for `checkpoints` to know."""

import contextlib
import json
import logging
import os
import shutil
from pathlib import Path

import filelock
import keras
import yaml

from keras_transformer.config import Config
from keras_transformer.data.corpora import BAD_LINES
from keras_transformer.errors import CheckpointError, FileError
from keras_transformer.files import reading, remove_partial_files, write_whole
from keras_transformer.languages import own_codes
from keras_transformer.settings import SETTINGS
from keras_transformer.tags import TAGS_FILE
from keras_transformer.tokenizer import SHARED, SOURCE, TARGET

NUMBERS = ("batch_tokens", "warmup_steps", "peak_learning_rate", "passes", "last_step", "divided_for", "extra_length")


class RunDirectory:
    """The files of `model_dir`.

        config.yaml              all settings, as the last command has them
        resolved.yaml            what the run has decided, see `decide`: sizes, rate, length, languages
        corpus.json              the hash of each part of the corpus, which must stay the same
        bad_lines.jsonl          the lines of the corpus that `skip_bad_lines` has left out
        tokenizer.model          SentencePiece; or source_tokenizer.model and target_tokenizer.model
        languages.json           the languages and their tags, in a run of several directions
        full_stops.json          what the corpus knows: abbreviations, and whether it has characters without a piece
        tokens/                  the tokenised corpus; if it is removed, the next start makes it again
        samples.txt              validation sentences that export.py compares translations on
        model.json               what the model is made of, without weights
        checkpoints/last.npz     everything that resuming needs: weights, optimizer, dropout seeds, progress
        checkpoints/previous.npz the checkpoint before last.npz
        checkpoints/frozen.npz   the weights that training does not change (`lora_rank`)
        checkpoints/best.npz     the weights that validated best
        checkpoints/epoch_N.npz  the weights after the last few epochs, to be averaged
        model.keras              the finished model: their average; removed when the run goes on
        results.yaml             its score on the test set, or else on the validation set
        logs/                    TensorBoard
        run.log                  the lines of the console, with the time of each
        .lock                    held by the process that trains

    Args:
        path: directory; made when something is written into it.
    """

    def __init__(self, path):
        self.path = Path(path)
        self.config = self.path / "config.yaml"
        self.decided = self.path / "resolved.yaml"
        self.corpus = self.path / "corpus.json"
        self.tags = self.path / TAGS_FILE
        self.full_stops = self.path / "full_stops.json"
        self.bad_lines = self.path / BAD_LINES
        self.tokens = self.path / "tokens"
        self.samples = self.path / "samples.txt"
        self.checkpoints = self.path / "checkpoints"
        self.last = self.checkpoints / "last.npz"
        self.previous = self.checkpoints / "previous.npz"
        self.frozen = self.checkpoints / "frozen.npz"
        self.best = self.checkpoints / "best.npz"
        self.architecture = self.path / "model.json"
        self.model = self.path / "model.keras"
        self.results = self.path / "results.yaml"
        self.logs = self.path / "logs"
        self.log = self.path / "run.log"

    def tokenizer_files(self, has_one_tokenizer):
        """The paths of the tokenizers: one if both sides share it, else those of source and target."""
        return [self.path / name for name in ([SHARED] if has_one_tokenizer else [SOURCE, TARGET])]

    @contextlib.contextmanager
    def claimed(self):
        """A context in which the directory is reserved for this process, and the log is kept in it.

        It makes the directory, and removes unfinished files of a process that was killed. If an error
        ends the context before the corpus is tokenised, it also removes a directory that it made.

        Raises:
            CheckpointError: if another process has reserved it.
            FileError: if it cannot be made.
        """
        is_new, lock = not os.path.exists(self.path), filelock.FileLock(self.path / ".lock")
        try:
            self.checkpoints.mkdir(parents=True, exist_ok=True)
            lock.acquire(timeout=0)
        except filelock.Timeout:
            raise CheckpointError(
                f"{self.path} is in use by another training process: wait for its end, or choose another `model_dir`"
            ) from None
        except OSError as error:
            raise FileError.of("write", self.path, error) from error
        try:
            remove_partial_files(self.path)
            with _log_kept_in(self.log):
                yield
        finally:
            if is_new and not self.tokens.exists() and not self.config.exists():
                shutil.rmtree(self.path, ignore_errors=True)
            lock.release()

    def corpus_identity(self):
        """The `Corpus.identity` that the run keeps; {} if the run keeps none.

        Raises:
            FileError: if the file cannot be read or is damaged.
        """
        if not self.corpus.exists():
            return {}
        with reading(self.corpus):
            return dict(json.loads(self.corpus.read_text(encoding="utf-8")))

    def read_decided(self):
        """The decisions of the run, a dict; {} if it keeps none.

        Raises:
            FileError: if the file cannot be read or is damaged.
        """
        if not self.decided.exists():
            return {}
        with reading(self.decided):
            try:
                decided = dict(yaml.safe_load(self.decided.read_text(encoding="utf-8")))
            except yaml.YAMLError as error:
                raise ValueError from error
            if not all(isinstance(decided[name], int | float) for name in NUMBERS if name in decided):
                raise ValueError
            return decided

    def keep_settings(self, config):
        """Writes the `Config` of the last command."""
        write_whole(self.config, config.save)

    def keep_architecture(self, network):
        """Writes model.json: the model, in float32, without its weights."""
        description = keras.saving.serialize_keras_object(network)
        description["config"]["dtype"] = "float32"
        write_whole(self.architecture, lambda path: path.write_text(json.dumps(description, indent=1), "utf-8"))

    def keep_decided(self, decided):
        """Writes the decisions of the run, a dict: settings in the order of config.yaml, and then the others."""
        names = [name for name in SETTINGS if name in decided]
        text = yaml.safe_dump({**{name: decided[name] for name in names}, **decided}, sort_keys=False)
        write_whole(self.decided, lambda path: path.write_text(text, encoding="utf-8"))

    def languages(self):
        """(source, target), the codes of the languages of the corpus; None for each that is not known."""
        decided = self.read_decided()
        if "source_lang" in decided:
            return decided["source_lang"], decided["target_lang"]
        # Of a run that began before resolved.yaml, or that was imported.
        source, _, target = self.corpus_identity().get("languages", "").partition(",")[0].partition(" to ")
        if source or not self.config.exists():
            return source or None, target or None
        config = Config.load(self.config)
        return config.source_lang, config.target_lang

    def tokenization(self, target_lang=None):
        """How the run divides words for its BLEU in a language, by default its first one: a name, or "auto"."""
        decided = self.read_decided()
        kept = decided.get("tokenize", {})
        own = own_codes(kept, [target_lang or decided.get("target_lang")])[0]
        return kept.get(own) or Config.load(self.config).tokenize

    def has_checkpoint(self):
        """Whether there is a run to resume."""
        return os.path.exists(self.last) or os.path.exists(self.previous)

    def epoch(self, number):
        """The weights after epoch `number`, counted from 1."""
        return self.checkpoints / f"epoch_{number:04d}.npz"

    def epochs(self):
        """The weights after the last few epochs, oldest first."""
        return sorted(self.checkpoints.glob("epoch_*.npz"), key=epoch_number)

    def epochs_to_average(self, count, best=None):
        """The weights after the last `count` epochs, or after as many around epoch `best`, oldest first.

        With `count` None, the weights of a fifth of the epochs: an average over more would hold weights of the warm-up.
        """
        paths = self.epochs()
        last = epoch_number(paths[-1]) if paths else 0
        count = count or max(1, (best or last) // 5)
        stop = min(last, best + (count - 1) // 2) if best else last  # no epoch is the best if all measures are NaN
        return [self.epoch(number) for number in range(max(1, stop - count + 1), stop + 1)]


def epoch_number(path):
    """The number of the epoch whose weights are in a file."""
    return int(path.stem.removeprefix("epoch_"))


@contextlib.contextmanager
def _log_kept_in(path):
    """A context in which the log of the library is written to a file, with the time of each line."""
    logger = logging.getLogger("keras_transformer")
    handler, level = logging.FileHandler(path, encoding="utf-8"), logger.level
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%Y-%m-%d %H:%M:%S"))
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        handler.close()
