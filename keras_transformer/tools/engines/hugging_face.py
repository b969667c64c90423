"""A trained run as a directory of Hugging Face, which transformers loads, and all that reads its files.

transformers has three classes that a Transformer of ours can be. They differ in their norms and positions.
"""

import contextlib
import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
from keras import ops

from keras_transformer.config import BOS_ID, EOS_ID, PAD_ID
from keras_transformer.errors import ExportError
from keras_transformer.models.transformer import Transformer
from keras_transformer.tools.engines.greedy import Greedy, Tokens, pieces_at, pieces_of_translations, vocabulary
from keras_transformer.tools.engines.hugging_face_weights import tensors_of

try:
    from safetensors.numpy import save_file

    from keras_transformer.tools.engines.hugging_face_tokenizers import (
        NEVER,
        IdTable,
        save_fast,
        save_marian,
        save_pieces,
    )
except ImportError as error:
    raise ExportError("transformers is not installed: pip install torch transformers") from error

MARIAN, M2M100, MBART = "MarianMTModel", "M2M100ForConditionalGeneration", "MBartForConditionalGeneration"
CLASSES = {  # (pre_norm, embedding_norm) -> the class, and the positions that it has
    (False, False): (MARIAN, ("sinusoidal", "sinusoidal_halves")),
    (True, False): (M2M100, ("sinusoidal_tensor2tensor",)),
    (True, True): (MBART, ("learned",)),
}
ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "gelu_tanh": "gelu_new", "gelu_sigmoid": "quick_gelu", "silu": "silu"}
MODEL_TYPES = {MARIAN: "marian", M2M100: "m2m_100", MBART: "mbart"}
MOST_INPUT = 1024  # positions of a table of sinusoids
EPSILON = 1e-5  # of every layer normalisation there; the proof measures what it changes for a run with a smaller one
SEARCH = Path(__file__).with_name("transformers_search.py")


class HuggingFaceExport:
    """An export for transformers: config.json, model.safetensors, generation_config.json, and the tokenizer.

    A model that was imported as a MarianMTModel gets its files again: source.spm, target.spm and vocab.json. All others
    get one fast tokenizer, tokenizer.json, which puts the tokens around a text that the model needs.

    Of a model of many languages, it has one direction: the default of the translator. The proof is that of `Greedy`.

    Args:
        translator: `Translator` of the run.
        quantization: "float32".

    Raises:
        ExportError: if transformers has no class for the model, or no tokenizer; it names the setting.
    """

    libraries = ("torch", "transformers")
    least_equal, score_tolerance, advice = 0.995, 1e-2, "export a SavedModel"

    def __init__(self, translator, quantization="float32"):
        if missing := [name for name in self.libraries if not importlib.util.find_spec(name)]:
            raise ExportError(f"the proof needs transformers and torch: pip install {' '.join(missing)}")
        self.name = class_of(translator.model)
        self.settings = translator.settings
        self.reference = translator.with_model(translator.model, beam_size=1, length_penalty=0.0)
        self.tokens = Tokens.of(translator)
        self.is_marian = self.name == MARIAN and is_of_marian(translator.model)
        check_tokens(translator, self.tokens, self.is_marian)

    @property
    def longest(self):
        """The most tokens of a source or a translation."""
        return self.settings["max_length"] + self.reference.signatures.extra_length

    def tables(self):
        """The `IdTable` of the source and of the target; the same object if they share a vocabulary."""
        run, model = self.reference, self.reference.model
        matrices = [ops.convert_to_numpy(each.matrix) for each in (model.source_embedding, model.target_embedding)]
        bias = ops.convert_to_numpy(model.output_bias) if model.logits_bias else None
        pad_id = model.first_position - 1 if self.name == M2M100 else PAD_ID
        make = IdTable.marian if self.is_marian else IdTable.ours
        if model.target_vocabulary_size is None:
            return [make(run.target_tokenizer, matrices, bias, pad_id)] * 2
        return [
            make(run.source_tokenizer, matrices[:1], None, pad_id),
            make(run.target_tokenizer, matrices[1:], bias, pad_id),
        ]

    def write(self, directory):
        """Writes weights, settings and tokenizer into an empty directory."""
        directory = Path(directory)
        model, tables = self.reference.model, self.tables()
        positions = max(self.longest, model.num_positions if model.positions == "learned" else MOST_INPUT)
        tensors = tensors_of(model, tables, positions)
        if self.name == M2M100:
            tensors.pop("final_logits_bias")
        save_file(tensors, directory / "model.safetensors", {"format": "pt"})
        ids = self.special_ids(tables[1])
        config, generation = self.config(tables, positions, ids), self.generation_config(tables[1], ids)
        for name, content in {"config.json": config, "generation_config.json": generation}.items():
            (directory / name).write_text(json.dumps(content, indent=1) + "\n", encoding="ascii")
        if self.is_marian:
            save_marian(directory, self.reference, tables)
        else:
            save_fast(directory, self.reference.source_tokenizer, tables[0], self.tokens, self.settings["max_length"])
            if not self.tokens.prefix:  # transformers needs them not; our import reads them, and converters of Marian
                is_shared = model.source_embedding is model.target_embedding
                names = ["vocab.json"] if is_shared else ["vocab.json", "target_vocab.json"]
                named = {name: table.pieces for name, table in zip(names, tables, strict=False)}
                save_pieces(directory, [self.reference.source_tokenizer] * 2, named)

    def special_ids(self, table):
        """Their ids of the tokens that a translation begins and ends with: a dict of settings."""
        pieces = vocabulary(self.reference.target_tokenizer)
        start, *forced = (table.id_of(pieces.index(piece)) for piece in (self.tokens.start, *self.tokens.prefix))
        return {
            "pad_token_id": table.pad_id,
            **({} if self.is_marian else {"bos_token_id": table.id_of(BOS_ID)}),
            "eos_token_id": table.id_of(EOS_ID),
            "decoder_start_token_id": start,
            **({"forced_bos_token_id": forced[0]} if forced else {}),
        }

    def config(self, tables, positions, ids):
        """The content of config.json, a dict."""
        model = self.reference.model
        source, target = (len(table.rows) for table in tables)
        is_shared = model.source_embedding is model.target_embedding
        own = {"share_encoder_decoder_embeddings": is_shared, "decoder_vocab_size": target}
        sizes = {"attention_heads": model.num_heads, "ffn_dim": model.d_ff}
        return {
            "model_type": MODEL_TYPES[self.name],
            "architectures": [self.name],
            "vocab_size": source,
            **(own if self.name == MARIAN else {}),
            "d_model": model.d_model,
            "encoder_layers": len(model.encoder.layers),
            "decoder_layers": len(model.decoder.layers),
            **{f"{side}_{name}": value for side in ("encoder", "decoder") for name, value in sizes.items()},
            "activation_function": ACTIVATIONS[model.activation],
            "scale_embedding": model.scale_embeddings,
            "dropout": model.dropout_rate,
            "attention_dropout": model.attention_dropout_rate,
            "activation_dropout": model.feed_forward_dropout_rate,
            "max_position_embeddings": positions,
            "tie_word_embeddings": model.tie_embeddings,
            "is_encoder_decoder": True,
            "forced_eos_token_id": None,
            **{name: id for name, id in ids.items() if name != "forced_bos_token_id"},
        }

    def generation_config(self, table, ids):
        """How `generate` searches by default: as the run does, but for the length penalty, which is n^alpha there."""
        is_pad = np.arange(len(table.rows)) == table.pad_id
        never = np.flatnonzero((table.bias < NEVER) | (self.is_marian & is_pad)).tolist()
        return {
            **ids,
            "num_beams": self.settings["beam_size"],
            "length_penalty": self.settings["length_penalty"],
            "max_length": self.longest + len(self.tokens.prefix) + 1,
            **({"suppress_tokens": never} if never else {}),
        }

    @contextlib.contextmanager
    def opened(self, directory):
        """A context that gives the `translate_batch` of the export. It must find what `expected` finds."""
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "encoding": "utf-8"}
        # As text: a script would find ctranslate2.py beside itself in place of the library.
        command = [sys.executable, "-c", SEARCH.read_text(encoding="utf-8"), directory]
        with subprocess.Popen(command, **pipes) as process:
            yield TransformersGreedy(self.reference, self.tokens, process, self.is_marian).translate_batch

    def expected(self, sentences):
        """The pieces and the scores of the run: see `pieces_of_translations`."""
        return pieces_of_translations(self.reference, sentences)

    def describe(self, directory):
        """The entries of the manifest for this format, a dict."""
        tags = [piece for piece in self.tokens.before if self.is_marian]  # a fast tokenizer puts them itself
        typed = {"source_tag": " ".join(tags)} if tags else {}
        return {"format": "hugging_face", "weights": "float32", "class": self.name, "search": self.settings, **typed}


def class_of(model):
    """The name of the class of transformers that a model can be.

    Args:
        model: a model of ours.

    Raises:
        ExportError: if there is none.
    """
    if not isinstance(model, Transformer):
        raise ExportError(
            f"transformers runs Transformers only. Received: a {type(model).__name__}; export a SavedModel"
        )
    shape = model.shape
    name, positions = CLASSES.get((shape.pre_norm, shape.embedding_norm), (None, ()))
    key, values = shape.d_key or shape.d_model // shape.num_heads, shape.d_value or shape.d_key
    is_one = shape.target_vocabulary_size is None and shape.tie_embeddings
    bias = ops.convert_to_numpy(model.output_bias) if shape.logits_bias else np.zeros(1)
    refused = {
        f"positions={shape.positions}, pre_norm={shape.pre_norm}, embedding_norm={shape.embedding_norm}": (
            shape.positions not in positions
        ),
        f"layer_norm_epsilon={shape.layer_norm_epsilon}": shape.layer_norm_epsilon > EPSILON,
        "decoder=ssru": shape.autoregression == "ssru",
        f"heads={shape.heads}": shape.heads is not None,
        f"d_key={shape.d_key}": key * shape.num_heads != shape.d_model,
        f"d_value={shape.d_value}": values not in (None, key),
        f"num_key_value_heads={shape.num_key_value_heads}": shape.num_key_value_heads not in (None, shape.num_heads),
        f"first_position={shape.first_position}": (name == MARIAN and shape.first_position != 0)
        or (name == M2M100 and shape.first_position < 1),
        f"tie_positions={shape.tie_positions}": name == MBART and shape.tie_positions,
        "two matrices of embeddings": name != MARIAN and not is_one,
        f"logits_bias={shape.logits_bias}": name == M2M100 and np.any(bias[bias >= NEVER]),
    }
    for setting, is_refused in refused.items():
        if is_refused:
            raise ExportError(
                f"{name or 'transformers'} has no equal of this model: export a SavedModel or for CTranslate2. "
                f"Received: {setting}"
            )
    return name


def is_of_marian(model):
    """Whether a model reads eos behind a source, and never predicts our padding, as OPUS-MT's."""
    is_ended = list(model.source_frame.after) == [EOS_ID] and not model.target_frame.width
    return is_ended and model.logits_bias and bool(ops.convert_to_numpy(model.output_bias)[PAD_ID] < NEVER)


def check_tokens(translator, tokens, is_marian):
    """Raises ExportError if no tokenizer of transformers reads and writes text as the run does."""
    if translator.source_tokenizer.has_placeholders:
        raise ExportError(
            "transformers cannot keep words that must not change: export a SavedModel, or train without `protect`"
        )
    if not is_marian and translator.source_tokenizer is not translator.target_tokenizer:
        raise ExportError(
            "a fast tokenizer of transformers is one for both languages. Received: two tokenizers; export a SavedModel "
            "or for CTranslate2"
        )
    if len(tokens.prefix) > 1:
        raise ExportError(f"transformers begins with one token and one tag. Received: {tokens.start} {tokens.prefix}")


class TransformersGreedy(Greedy):
    """Greedy search by transformers, with its own tokenizer, in another process.

    Args:
        reference, tokens: those of `Greedy`.
        process: `subprocess.Popen` of transformers_search.py.
        is_marian: whether the tokenizer is Marian's, which leaves tags before a text to users.

    Raises:
        ExportError: if transformers does not load the export.
    """

    name = "of transformers"

    def __init__(self, reference, tokens, process, is_marian):
        super().__init__(reference, tokens)
        self.is_marian, self._process = is_marian, process
        self._answer()

    def translate_batch(self, texts):
        """As that of `Greedy`. A text that the tokenizer of the export divides otherwise counts as different."""
        parts, scores = super().translate_batch(texts)
        tokenizer = self.reference.source_tokenizer
        before = [] if self.is_marian else self.tokens.before
        pieces = [[*before, *pieces_at(tokenizer, ids), *self.tokens.after] for ids in tokenizer.tokenize(texts)]
        found, expected = self._ask("ids_of_texts", texts=texts), self._ask("ids_of_pieces", pieces=pieces)
        for row, (ids, other) in enumerate(zip(found, expected, strict=True)):
            if ids != other:
                parts[row] = f"(the pieces of the source have the ids {ids}, not {other})"
        return parts, scores

    def source_pieces(self, ids):
        return pieces_at(self.reference.source_tokenizer, ids)

    def search(self, sources, most):
        ids = self._ask("ids_of_pieces", pieces=sources)
        found = self._ask("search", ids=ids, most=most, prefix=len(self.tokens.prefix))
        return found["pieces"], found["scores"], found["texts"]

    def _ask(self, method, **arguments):
        print(json.dumps({method: arguments}), file=self._process.stdin, flush=True)
        return self._answer()

    def _answer(self):
        line = self._process.stdout.readline()
        if not line:
            raise ExportError("transformers cannot load or run the export: see its message above")
        return json.loads(line)
