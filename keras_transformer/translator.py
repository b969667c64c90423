"""Lists of strings in, lists of strings out: a trained run and an exported SavedModel behind the same interface."""

import math
import os
from pathlib import Path
from typing import NamedTuple

import tensorflow as tf

from keras_transformer.batches import check_positive, run_sorted
from keras_transformer.config import Config
from keras_transformer.model import load_transformer
from keras_transformer.signatures import INPUTS, Signatures
from keras_transformer.tokenizer import Tokenizer

# What an option is where it is not given; see `Signatures.translate_with_options`.
NOT_GIVEN = {
    "prefix": "",
    "length_penalty": math.nan,
    "beam_size": 0,
    "max_length": 0,
    "repetition_penalty": 1.0,
    "no_repeat_ngram": 0,
}


class Translation(NamedTuple):
    """Of one text.

    Args:
        text: str.
        score: float, its log-probability over its length penalty; 0 for blank text.
    """

    text: str
    score: float


class TextTranslator:
    """What `Translator` and `SavedModelTranslator` share: all but where the signatures are.

    Texts are sorted by length on the way, so that little is padded. `on_progress` is called with the number of texts
    done since the last call. An option is one value for all texts, or a list with one for each.

    Args:
        batch_size: texts translated at a time.
    """

    def __init__(self, batch_size):
        check_positive(batch_size=batch_size)
        self.batch_size = batch_size

    def translate(self, texts, on_progress=None, **options):
        """Translates any number of texts.

        Args:
            texts: list of str.
            on_progress: see above.
            options: `prefix`, `length_penalty`, `beam_size`, `max_length`, `repetition_penalty`, `no_repeat_ngram`; see
                `Signatures.translate_with_options`.

        Returns:
            list of str, in the order of `texts`.
        """
        return [translation.text for translation in self.translate_scored(texts, on_progress, **options)]

    def translate_scored(self, texts, on_progress=None, **options):
        """As `translate`, with scores: list of `Translation`."""
        if options:
            rows = self.ask("translate_with_options", on_progress, text=texts, **{**NOT_GIVEN, **options})
        else:
            rows = self.ask("translate", on_progress, text=texts)
        return [_translation(row) for row in rows]

    def alternatives(self, texts, on_progress=None):
        """The best translations of every text, as many as the beam is wide: list of list of `Translation`."""
        rows = self.ask("alternatives", on_progress, text=texts)
        return [
            [_translation({"translation": text, "score": score}) for text, score in zip(*row.values(), strict=True)]
            for row in ({name: row[name] for name in ("translations", "scores")} for row in rows)
        ]

    def sample(self, texts, on_progress=None, temperature=1.0, top_k=0, top_p=1.0, seed=0):
        """Translations drawn at random, list of `Translation`; see `Signatures.sample`."""
        options = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "seed": seed}
        return [_translation(row) for row in self.ask("sample", on_progress, text=texts, **options)]

    def translate_batch(self, texts):
        """Translates one batch, a list of str: (list of str, list of float scores)."""
        rows = self._ask_batch("translate", {"text": texts})
        return [row["translation"].decode("utf-8") for row in rows], [float(row["score"]) for row in rows]

    def ask(self, signature, on_progress=None, **inputs):
        """Puts any number of texts through a signature.

        Args:
            signature: its name, of `INPUTS`.
            on_progress: see above.
            inputs: name -> list with a value for every text, or one value for all.

        Returns:
            list of dict: output name -> the text's part of it, a NumPy value.

        Raises:
            ValueError: if there is no such signature or input, or not a value for every text.
        """
        check_inputs(signature, inputs)
        number = len(inputs["text"])
        columns = [x if isinstance(x, (list, tuple)) else [x] * number for x in inputs.values()]
        rows = list(zip(*columns, strict=True))

        def ask_batch(rows):
            return self._ask_batch(signature, dict(zip(inputs, zip(*rows, strict=True), strict=True)))

        return run_sorted(ask_batch, rows, self.batch_size, on_progress, size=_size)

    def _ask_batch(self, signature, inputs):
        tensors = {
            name: tf.constant(list(inputs[name]), dtype, shape=[len(inputs[name])])
            for name, dtype in INPUTS[signature].items()
        }
        outputs = {name: output.numpy() for name, output in self._call(signature, tensors).items()}
        return [dict(zip(outputs, row, strict=True)) for row in zip(*outputs.values(), strict=True)]


class Translator(TextTranslator):
    """Translates lists of strings with a trained model.

    Args:
        model: `Transformer`.
        tokenizer: `Tokenizer`.
        beam_size: W; 1 is greedy search.
        length_penalty: alpha.
        max_length: most source tokens that are translated as one sequence; longer text is divided.
        batch_size: texts translated at a time, on every device.
        strategy: tf.distribute.Strategy that the weights were made under, each of whose replicas on this machine is to
            translate its part of every batch; None leaves all to the first.

    Raises:
        ValueError: for a size that is not positive, or a length penalty that is not finite.
    """

    def __init__(self, model, tokenizer, beam_size=4, length_penalty=0.6, max_length=256, batch_size=32, strategy=None):
        check_positive(beam_size=beam_size, max_length=max_length)
        if not math.isfinite(length_penalty):
            raise ValueError(f"`length_penalty` must be finite. Received: length_penalty={length_penalty}")
        self.model = model
        self.tokenizer = tokenizer
        self.options = {"beam_size": beam_size, "length_penalty": length_penalty, "max_length": max_length}
        self.signatures = Signatures(model, tokenizer, **self.options)
        self._functions = self.signatures.functions()
        self._strategy = strategy or tf.distribute.get_strategy()
        self._replicas = len(self._strategy.experimental_local_results(model.weights[0].value))
        self._functions["translate"] = tf.function(self._share, input_signature=[tf.TensorSpec([None], tf.string)])
        super().__init__(batch_size * self._replicas)

    @classmethod
    def load(cls, model_dir, beam_size=None, length_penalty=None, batch_size=32):
        """The translator of a run directory; the options default to those of its config.

        Raises:
            FileNotFoundError: if train.py has not finished a model there.
        """
        model_dir = Path(model_dir)
        if not (model_dir / "model.keras").exists():
            raise FileNotFoundError(f"no model.keras in {model_dir}: train.py writes it at the end of a run")
        config = Config.load(model_dir / "config.yaml")
        return cls(
            load_transformer(model_dir / "model.keras"),
            Tokenizer.load(model_dir / "tokenizer.model"),
            beam_size=config.beam_size if beam_size is None else beam_size,
            length_penalty=config.length_penalty if length_penalty is None else length_penalty,
            max_length=config.max_length,
            batch_size=batch_size,
        )

    @property
    def width(self):
        """W, the most hypotheses that its search keeps, and alternatives that it gives."""
        return self.options["beam_size"]

    def _call(self, signature, inputs):
        return self._functions[signature](*inputs.values())

    def _share(self, text):
        """`translate` of string (B,), of which every replica does the rows i, i + n, ..., with its own weights."""

        def translate_part():
            replica = tf.distribute.get_replica_context().replica_id_in_sync_group % self._replicas
            return self.signatures.translate(text[replica :: self._replicas])

        rows = [tf.range(tf.size(text))[replica :: self._replicas] for replica in range(self._replicas)]
        parts = self._strategy.run(translate_part)
        return {
            name: tf.dynamic_stitch(rows, self._strategy.experimental_local_results(part))
            for name, part in parts.items()
        }


class SavedModelTranslator(TextTranslator):
    """The same over an exported SavedModel, which has model, tokenizer and search inside.

    Args:
        path: EXPORT_DIR/VERSION, or EXPORT_DIR, whose latest version is taken.
        batch_size: texts translated at a time.

    Raises:
        FileNotFoundError: if there is no SavedModel.
    """

    def __init__(self, path, batch_size=32):
        super().__init__(batch_size)
        path = Path(path)
        versions = [p for p in path.glob("[0-9]*") if p.name.isdigit()] if path.is_dir() else []
        if versions:
            path = max(versions, key=lambda p: int(p.name))
        if not (path / "saved_model.pb").exists():
            raise FileNotFoundError(f"no SavedModel at {path}: export.py writes one")
        self.path = path
        self._loaded = tf.saved_model.load(os.fspath(path))

    @property
    def width(self):
        """As `Translator.width`."""
        return self._signature("alternatives").structured_outputs["scores"].shape[1]

    def _call(self, signature, inputs):
        return self._signature(signature)(**inputs)

    def _signature(self, name):
        if name not in self._loaded.signatures:
            raise ValueError(f"{self.path} has no signature `{name}`: export the run again with export.py")
        return self._loaded.signatures[name]


def load_translator(model_dir, saved_model, beam_size, length_penalty, batch_size):
    """The translator of a run directory or of a SavedModel, whichever is given.

    Raises:
        FileNotFoundError: if there is none.
        ValueError: for search options beside a SavedModel, which has them inside.
    """
    if saved_model is None:
        return Translator.load(model_dir, beam_size, length_penalty, batch_size)
    if beam_size is not None or length_penalty is not None:
        raise ValueError(
            "a SavedModel has its beam size and length penalty inside: give them to export.py, or to `translate`"
        )
    return SavedModelTranslator(saved_model, batch_size)


def check_inputs(signature, inputs):
    """Raises ValueError if there is no such signature, or it has other inputs, or not one value for every text."""
    if signature not in INPUTS:
        raise ValueError(f"there is no signature `{signature}`, only {', '.join(INPUTS)}")
    if unknown := inputs.keys() ^ INPUTS[signature].keys():
        raise ValueError(f"`{signature}` takes {', '.join(INPUTS[signature])}. Not so: {', '.join(sorted(unknown))}")
    number = len(inputs["text"])
    for name, values in inputs.items():
        if isinstance(values, (list, tuple)) and len(values) != number:
            raise ValueError(f"`{name}` must have one value for every text. Received: {len(values)}, of {number} texts")


def _translation(row):
    return Translation(row["translation"].decode("utf-8"), float(row["score"]))


def _size(row):
    return sum(len(value) for value in row if isinstance(value, str))
