"""Lists of strings in, lists of strings out: a trained run and an exported SavedModel behind the same interface."""

import contextlib
import math
import os
from pathlib import Path

import tensorflow as tf

from keras_transformer.batches import check_positive
from keras_transformer.config import Config
from keras_transformer.model import load_transformer
from keras_transformer.signatures import Signatures
from keras_transformer.text_translator import TextTranslator
from keras_transformer.tokenizer import Tokenizer


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
    def load(cls, model_dir, beam_size=None, length_penalty=None, batch_size=32, strategy=None):
        """The translator of a run directory; the options default to those of its config. The weights are made under the
        strategy, if there is one.

        Raises:
            FileNotFoundError: if train.py has not finished a model there.
        """
        model_dir = Path(model_dir)
        if not (model_dir / "model.keras").exists():
            raise FileNotFoundError(f"no model.keras in {model_dir}: train.py writes it at the end of a run")
        config = Config.load(model_dir / "config.yaml")
        with strategy.scope() if strategy else contextlib.nullcontext():
            model = load_transformer(model_dir / "model.keras")
        return cls(
            model,
            Tokenizer.load(model_dir / "tokenizer.model"),
            beam_size=config.beam_size if beam_size is None else beam_size,
            length_penalty=config.length_penalty if length_penalty is None else length_penalty,
            max_length=config.max_length,
            batch_size=batch_size,
            strategy=strategy,
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
