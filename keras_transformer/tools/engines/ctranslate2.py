"""A trained run as a model directory of CTranslate2, the C++ engine for Transformers on CPU and GPU."""

import contextlib
import functools
import logging
from dataclasses import replace
from pathlib import Path

import numpy as np
import sentencepiece
from keras import ops
from ml_dtypes import bfloat16

from keras_transformer.config import BOS_ID, EOS_ID, UNK_ID
from keras_transformer.errors import ExportError
from keras_transformer.models.transformer import Transformer
from keras_transformer.tokenizer import SHARED, SOURCE, TARGET, save_tokenizers
from keras_transformer.tools.engines.greedy import Greedy, Tokens, pieces_of_translations, vocabulary

try:
    import ctranslate2
except ImportError as error:
    raise ExportError("CTranslate2 is not installed: pip install ctranslate2") from error

ctranslate2.set_log_level(logging.ERROR)  # it warns that bfloat16 is computed as float32 on CPU
_KINDS = ctranslate2.specs.common_spec.Activation
ACTIVATIONS = {
    "relu": _KINDS.RELU,
    "gelu": _KINDS.GELU,
    "gelu_tanh": _KINDS.GELUTanh,
    "gelu_sigmoid": _KINDS.GELUSigmoid,
    "silu": _KINDS.SWISH,
}
MOST_INPUT = 1024  # source tokens; by default, CTranslate2 cuts off the rest
# The least share of translations that stay the same. int8 changes a piece here and there, and so many long sentences:
# 8 of 38 paragraphs of LibreOffice's help. A broken export changes all of them.
LEAST_EQUAL = {"float32": 0.995, "bfloat16": 0.8, "int16": 0.8, "int8": 0.5}


class CTranslate2Export:
    """An export for CTranslate2: weights and vocabularies, and beside them the tokenizers for SentencePiece.

    The proof is that of `Greedy`.

    Of a model of many languages, it has one direction: the default of the translator. The engine adds eos to a text,
    and one token before a translation. All other tokens of a model, such as tags of languages, are in the manifest, as
    pieces with spaces between them. A user gives them to the engine: "source_tag" and "source_end" around the pieces
    of a text, and "target_prefix" of a translation.

    Args:
        translator: `Translator` of the run.
        quantization: dtype of the matrices: "float32", "bfloat16", "int16" or "int8".

    Raises:
        ExportError: if the engine cannot run the model: it is no Transformer, or its values have a width of their own.
    """

    libraries = ("ctranslate2",)

    def __init__(self, translator, quantization="float32"):
        if not isinstance(translator.model, Transformer):
            name = type(translator.model).__name__
            raise ExportError(
                f"CTranslate2 runs Transformers only. Received: a model of type {name}; export a SavedModel"
            )
        if translator.source_tokenizer.has_placeholders:
            raise ExportError(
                "CTranslate2 cannot keep words that must not change: export a SavedModel, or train without `protect`"
            )
        if translator.model.heads:
            raise ExportError("CTranslate2 needs equally many heads in all attentions: export a SavedModel")
        if translator.model.autoregression == "ssru":
            raise ExportError("CTranslate2 has no SSRU. Received: decoder=ssru; export a SavedModel")
        attention = translator.model.decoder.layers[0].self_attention
        if attention.d_value != attention.d_key:
            widths = f"d_key={attention.d_key}, d_value={attention.d_value}"
            raise ExportError(f"CTranslate2 has one width for keys and values. Received: {widths}; export a SavedModel")
        self.reference = translator.with_model(translator.model, beam_size=1, length_penalty=0.0)
        self.quantization = quantization
        self.least_equal = LEAST_EQUAL[quantization]
        self.score_tolerance = 1e-2 if quantization == "float32" else np.inf
        self.advice = "export a SavedModel" if quantization == "float32" else "choose `quantization` float32"

    @property
    def adds_eos(self):
        """Whether the engine adds eos to a text."""
        return list(self.reference.model.source_frame.after) == [EOS_ID]

    @functools.cached_property
    def tokens(self):
        """The `Tokens` of the exported direction."""
        found = Tokens.of(self.reference)
        return replace(found, after=[]) if self.adds_eos else found

    def write(self, directory):
        """Writes the model and its tokenizers into an empty directory."""
        reference = self.reference
        longest = max(MOST_INPUT, reference.settings["max_length"]) + reference.signatures.extra_length
        vocabularies = [vocabulary(x) for x in (reference.source_tokenizer, reference.target_tokenizer)]
        spec = transformer_spec(reference.model, *vocabularies, longest)
        spec.config.add_source_eos = self.adds_eos
        spec.config.decoder_start_token = self.tokens.start
        spec.validate()
        if self.quantization == "bfloat16":
            to_bfloat16(spec)
        spec.optimize(self.quantization)
        spec.save(str(directory))
        save_tokenizers(directory, reference.source_tokenizer, reference.target_tokenizer)

    @contextlib.contextmanager
    def opened(self, directory):
        """A context that gives the `translate_batch` of the export, on one thread. It must find what `expected`
        finds."""
        yield CTranslate2Greedy(self.reference, self.tokens, directory).translate_batch

    def expected(self, sentences):
        """The pieces and the scores of the run: see `pieces_of_translations`."""
        return pieces_of_translations(self.reference, sentences)

    def describe(self, directory):
        """The entries of the manifest for this format, a dict."""
        return {"format": "ctranslate2", "weights": self.quantization, **self.tokens.described()}


def transformer_spec(model, source_pieces, pieces, longest):
    """The model in the form that CTranslate2 reads, with its weights.

    Args:
        model: `Transformer`.
        source_pieces: list of str, the source vocabulary.
        pieces: list of str, the target vocabulary.
        longest: int, most positions of a source or a translation.

    Returns:
        `ctranslate2.specs.TransformerSpec`.
    """
    stacks = ctranslate2.specs.transformer_spec
    shape = model.shape
    arguments = {
        "num_heads": shape.num_heads,
        "pre_norm": shape.pre_norm,
        "activation": ACTIVATIONS[shape.activation],
        "layernorm_embedding": shape.embedding_norm,
        "head_dim": shape.d_key,
        "num_heads_kv": shape.num_key_value_heads,
        "relative_position": shape.positions == "relative",
        "rotary_dim": 0 if shape.positions == "rotary" else None,  # 0: all of a head
    }
    spec = ctranslate2.specs.TransformerSpec(
        stacks.TransformerEncoderSpec(len(model.encoder.layers), **arguments),
        # alignment_heads=0: the mean over all heads of the last layer
        stacks.TransformerDecoderSpec(len(model.decoder.layers), alignment_heads=0, **arguments),
    )
    spec.config.layer_norm_epsilon = model.layer_norm_epsilon
    spec.config.unk_token, spec.config.bos_token, spec.config.eos_token = (pieces[i] for i in (UNK_ID, BOS_ID, EOS_ID))
    spec.register_source_vocabulary(source_pieces)
    spec.register_target_vocabulary(pieces)

    spec.encoder.embeddings[0].weight = ops.convert_to_numpy(model.source_embedding.matrix)
    spec.decoder.embeddings.weight = ops.convert_to_numpy(model.target_embedding.matrix)
    spec.decoder.projection.weight = ops.convert_to_numpy(model.output_matrix)
    if model.logits_bias:
        spec.decoder.projection.bias = ops.convert_to_numpy(model.output_bias)
    fill_positions(spec.encoder, model.position_layer, model, longest)
    fill_positions(spec.decoder, model.target_position_layer, model, longest)
    for stack_spec, layers in ((spec.encoder, model.encoder), (spec.decoder, model.decoder)):
        stack_spec.scale_embeddings = model.scale_embeddings
        for layer_spec, layer in zip(stack_spec.layer, layers.layers, strict=True):
            fill_layer(layer_spec, layer)
        if model.pre_norm:
            fill_norm(stack_spec.layer_norm, layers.norm)
    return spec


def fill_positions(spec, layer, model, length):
    """Fills in the vectors that a layer adds to the embeddings of `length` positions, and the norm of the sums.

    The engine adds zeros if self-attention knows no positions either: without a table, it would add its own sinusoids.
    """
    if model.positions not in ("relative", "rotary"):
        encodings = layer.encode(ops.arange(length))
        encodings = np.zeros((length, model.d_model)) if encodings is None else ops.convert_to_numpy(encodings)
        spec.position_encodings.encodings = encodings.astype("float32")
    if model.embedding_norm:
        fill_norm(spec.layernorm_embedding, layer.sum_norm)


def fill_layer(spec, layer):
    """Fills in the weights of an encoder layer or a decoder layer."""
    attention = layer.self_attention
    fill_linear(spec.self_attention.linear[0], attention.query, attention.key, attention.value)
    fill_linear(spec.self_attention.linear[1], attention.output_projection)
    fill_norm(spec.self_attention.layer_norm, layer.self_attention_residual.norm)
    if layer.positions == "relative":
        spec.self_attention.relative_position_keys = ops.convert_to_numpy(attention.distance_keys)
        spec.self_attention.relative_position_values = ops.convert_to_numpy(attention.distance_values)
    if hasattr(layer, "cross_attention"):
        attention = layer.cross_attention
        fill_linear(spec.attention.linear[0], attention.query)
        fill_linear(spec.attention.linear[1], attention.key, attention.value)
        fill_linear(spec.attention.linear[2], attention.output_projection)
        fill_norm(spec.attention.layer_norm, layer.cross_attention_residual.norm)
    fill_linear(spec.ffn.linear_0, layer.feed_forward.inner)
    fill_linear(spec.ffn.linear_1, layer.feed_forward.outer)
    fill_norm(spec.ffn.layer_norm, layer.feed_forward_residual.norm)


def fill_linear(spec, *dense):
    """Joins `Linear` layers with the same input into one product. CTranslate2 stores a matrix as (out, in)."""
    spec.weight = np.concatenate([ops.convert_to_numpy(layer.kernel) for layer in dense], axis=1).T
    if dense[0].use_bias:
        spec.bias = np.concatenate([ops.convert_to_numpy(layer.bias) for layer in dense])


def fill_norm(spec, norm):
    """Fills in gain and bias of a layer normalisation."""
    spec.gamma, spec.beta = ops.convert_to_numpy(norm.gamma), ops.convert_to_numpy(norm.beta)


def to_bfloat16(spec):
    """Rounds all arrays of a validated spec; CTranslate2 itself would need PyTorch for that."""
    for variable in spec.variables().values():
        if not variable.is_scalar():
            variable.array = variable.array.astype(bfloat16)


class CTranslate2Greedy(Greedy):
    """Greedy search by CTranslate2, with SentencePiece for its texts.

    Args:
        reference, tokens: those of `Greedy`.
        directory: of the export.
    """

    name = "SentencePiece for Python"

    def __init__(self, reference, tokens, directory):
        super().__init__(reference, tokens)
        names = (SHARED, SHARED) if Path(directory, SHARED).exists() else (SOURCE, TARGET)
        self._source, self._target = (
            sentencepiece.SentencePieceProcessor(model_file=str(Path(directory, name))) for name in names
        )
        self._engine = ctranslate2.Translator(str(directory), inter_threads=1, intra_threads=1)

    def source_pieces(self, ids):
        return self._source.id_to_piece(ids)

    def search(self, sources, most):
        results = self._engine.translate_batch(
            sources,
            target_prefix=[self.tokens.prefix] * len(sources),
            beam_size=1,
            length_penalty=0,
            min_decoding_length=0,
            max_input_length=0,  # nothing is cut off: texts are divided already
            max_decoding_length=most,
            return_scores=True,
        )
        found = [result.hypotheses[0][len(self.tokens.prefix) :] for result in results]
        written = [self._target.decode(self._target.piece_to_id(pieces)) for pieces in found]
        return found, [result.scores[0] for result in results], written
