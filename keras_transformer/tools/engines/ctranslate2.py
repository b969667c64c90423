"""A trained run as a model directory of CTranslate2, the C++ engine for Transformers on CPU and GPU."""

import contextlib
import functools
import itertools
import logging
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import sentencepiece
import tensorflow as tf
from keras import ops
from ml_dtypes import bfloat16

from keras_transformer.config import BOS_ID, EOS_ID, PAD_ID, UNK_ID
from keras_transformer.errors import ExportError
from keras_transformer.models.transformer import Transformer
from keras_transformer.tokenizer import SHARED, SOURCE, TARGET, save_tokenizers
from keras_transformer.translation.directions import default_tags
from keras_transformer.translation.segments import at_once, divide_into_parts

try:
    import ctranslate2
except ImportError as error:
    raise ExportError("CTranslate2 is not installed: pip install ctranslate2") from error

ctranslate2.set_log_level(logging.ERROR)  # it warns that bfloat16 is computed as float32 on CPU
log = logging.getLogger(__name__)
_KINDS = ctranslate2.specs.common_spec.Activation
ACTIVATIONS = {
    "relu": _KINDS.RELU,
    "gelu": _KINDS.GELU,
    "gelu_tanh": _KINDS.GELUTanh,
    "gelu_sigmoid": _KINDS.GELUSigmoid,
    "silu": _KINDS.SWISH,
}
MOST_INPUT = 1024  # source tokens; by default, CTranslate2 cuts off the rest


@dataclass(frozen=True)
class Tokens:
    """The pieces that stand around a text and before a translation.

    Attributes:
        before, after: lists of str, around the pieces of a text. The engine adds no more than eos behind them.
        start: str, before a translation. The engine adds it.
        prefix: list of str, behind `start`.
    """

    before: list
    after: list
    start: str
    prefix: list

    def described(self):
        """What a user gives to the engine, for the manifest: a dict."""
        given = {"source_tag": self.before, "source_end": self.after, "target_prefix": self.prefix}
        return {name: " ".join(pieces) for name, pieces in given.items() if pieces}


class CTranslate2Export:
    """An export for CTranslate2: weights and vocabularies, and beside them the tokenizers for SentencePiece.

    The proof compares pieces, because SentencePiece for Python and tensorflow-text write some of them differently. It
    compares greedy search, because CTranslate2 ranks hypotheses by another length penalty, n^alpha.

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

    libraries, has_shortlist = ("ctranslate2",), False

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
        attention = translator.model.decoder.layers[0].self_attention
        if attention.d_value != attention.d_key:
            widths = f"d_key={attention.d_key}, d_value={attention.d_value}"
            raise ExportError(f"CTranslate2 has one width for keys and values. Received: {widths}; export a SavedModel")
        self.reference = translator.with_model(translator.model, beam_size=1, length_penalty=0.0)
        self.quantization = quantization
        self.least_equal, self.score_tolerance = (0.995, 1e-2) if quantization == "float32" else (0.8, np.inf)
        self.advice = "export a SavedModel" if quantization == "float32" else "choose `quantization` float32"

    @property
    def adds_eos(self):
        """Whether the engine adds eos to a text."""
        return list(self.reference.model.source_frame.after) == [EOS_ID]

    @functools.cached_property
    def tokens(self):
        """The `Tokens` of the exported direction."""
        model, tags = self.reference.model, self.reference.tags
        tag, first = tags.ids(*tags.default) if tags else (None, BOS_ID)
        before = [*model.source_frame.before, *([] if tag is None else [tag])]
        after = [] if self.adds_eos else model.source_frame.after
        around = (pieces_at(self.reference.source_tokenizer, ids) for ids in (before, after))
        start, *prefix = pieces_at(self.reference.target_tokenizer, [*model.target_frame.before, first])
        return Tokens(*around, start, prefix)

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
        run = self.reference
        tokenizers = (run.source_tokenizer, run.target_tokenizer)
        division = run.signatures.division
        yield CTranslate2Greedy(
            directory, *tokenizers, run.settings["max_length"], run.signatures.extra_length, division, self.tokens
        ).translate_batch

    def expected(self, sentences):
        """The pieces and the scores of the run: see `pieces_of_translations`."""
        return pieces_of_translations(self.reference, sentences)

    def describe(self, directory):
        """The entries of the manifest for this format, a dict."""
        return {"format": "ctranslate2", "weights": self.quantization, **self.tokens.described()}


def vocabulary(tokenizer):
    """All pieces by their ids, a list of str."""
    return pieces_at(tokenizer, range(tokenizer.vocabulary_size))


def pieces_at(tokenizer, ids):
    """The pieces with these ids, a list of str."""
    return [piece.decode("utf-8") for piece in tokenizer.pieces(np.array(ids, "int32")).numpy()]


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


class CTranslate2Greedy:
    """Greedy search by CTranslate2. A right export finds the pieces that the run finds.

    The ops of the graph divide texts. SentencePiece and CTranslate2 do the rest.

    Args:
        directory: of the export.
        source_tokenizer: `Tokenizer` of the run, which divides texts.
        target_tokenizer: `Tokenizer` of the run, which writes translations.
        max_length: most source tokens of a part.
        extra_length: most tokens that a translation has more.
        division: see `segments.divide_into_parts`.
        tokens: `Tokens`.
    """

    def __init__(self, directory, source_tokenizer, target_tokenizer, max_length, extra_length, division, tokens):
        self.source_tokenizer = source_tokenizer
        self.target_tokenizer = target_tokenizer
        self.max_length, self.extra_length = max_length, extra_length
        self.division, self.tokens = division, tokens
        names = (SHARED, SHARED) if Path(directory, SHARED).exists() else (SOURCE, TARGET)
        self._source_pieces, self._pieces = (
            sentencepiece.SentencePieceProcessor(model_file=str(Path(directory, name))) for name in names
        )
        self._engine = ctranslate2.Translator(str(directory), inter_threads=1, intra_threads=1)

    def translate_batch(self, texts):
        """As `pieces_of_translations`. It logs the translations that the two detokenizers write differently."""
        text = tf.constant(texts, tf.string, shape=[len(texts)])
        segments = divide_into_parts(text, self.source_tokenizer, self.max_length, self.division)
        parts, scores = self._translate_parts([self._source_pieces.id_to_piece(ids) for ids in segments.ids.to_list()])
        self._compare_detokenizers(parts)
        rows = segments.rows.numpy()
        scores = np.bincount(rows, scores, minlength=len(texts)).tolist()
        return joined_parts(parts, rows, len(texts)), scores

    def _translate_parts(self, sources):
        """Translates parts of equal length together: the engine takes one limit for all parts of a call."""
        translations, scores = [()] * len(sources), [0.0] * len(sources)
        by_length = sorted(range(len(sources)), key=lambda row: len(sources[row]))
        for length, rows in itertools.groupby(by_length, key=lambda row: len(sources[row])):
            rows = list(rows)
            results = self._engine.translate_batch(
                [self.tokens.before + sources[row] + self.tokens.after for row in rows],
                target_prefix=[self.tokens.prefix] * len(rows),
                beam_size=1,
                length_penalty=0,
                min_decoding_length=0,
                max_input_length=0,  # nothing is cut off: texts are divided already
                max_decoding_length=len(self.tokens.prefix) + length + self.extra_length,  # it counts the prefix
                return_scores=True,
            )
            for row, result in zip(rows, results, strict=True):
                translations[row], scores[row] = result.hypotheses[0][len(self.tokens.prefix) :], result.scores[0]
        return translations, scores

    def _compare_detokenizers(self, parts):
        """SentencePiece for Python and tensorflow-text write a few pieces differently, such as a lone "▁"."""
        ids = [self._pieces.piece_to_id(list(pieces)) for pieces in parts]
        written = self.target_tokenizer.decode(tf.ragged.constant(ids, tf.int32, ragged_rank=1).to_tensor(PAD_ID))
        pairs = [(self._pieces.decode(x), text.decode("utf-8")) for x, text in zip(ids, written.numpy(), strict=True)]
        different = [pair for pair in pairs if pair[0] != pair[1]]
        if different:
            log.info(
                "detokenizer SentencePiece for Python writes %d of %d translations differently, such as %r for %r: "
                "the pieces are the same",
                len(different),
                len(pairs),
                *different[0],
            )


def pieces_of_translations(translator, texts):
    """The pieces that a run finds, which do not depend on how a detokenizer writes them.

    Args:
        translator: `Translator`.
        texts: list of str.

    Returns:
        list of str, the pieces of each translation, separated by spaces; list of float scores.
    """
    _, scores = translator.translate_batch(texts)
    tokenizer, max_length = translator.source_tokenizer, translator.settings["max_length"]
    text = tf.constant(texts, tf.string, shape=[len(texts)])
    segments = divide_into_parts(text, tokenizer, max_length, translator.signatures.division)
    tags = default_tags(translator.tags, tf.size(segments.places))
    labels = translator.signatures.find_labels(segments.ids, at_once(segments.places), tags)
    found = labels.with_values(translator.target_tokenizer.pieces(labels.values)).to_list()
    end = translator.target_tokenizer.pieces(tf.constant([EOS_ID])).numpy()[0]
    parts = [[piece.decode("utf-8") for piece in pieces if piece != end] for pieces in found]
    return joined_parts(parts, segments.rows.numpy(), len(texts)), scores


def joined_parts(parts, rows, number):
    """Joins the pieces of the parts of each of `number` texts; `rows` are the texts of the parts. A list of str."""
    texts = [[] for _ in range(number)]
    for row, pieces in zip(rows, parts, strict=True):
        texts[row] += pieces
    return [" ".join(pieces) for pieces in texts]
