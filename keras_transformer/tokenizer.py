"""SentencePiece models: trained from a corpus, applied to text and to string tensors; and what they do not know.

A model itself mends text as `normalization.mend` does: the rules in `nfc.tsv.xz` or `nfkc.tsv.xz`, which
`tools/mending.py` writes, are compiled into it.

A model reads a character without a piece of its own as bytes, and few models have learned to copy them: if they go
through the model, they take the sentence with them. `without_piece` finds these characters.
"""

import functools
import hashlib
import io
import lzma
import os
import re
import tempfile
import threading
import unicodedata
from collections.abc import Iterable
from importlib import resources
from pathlib import Path

import numpy as np
import regex
import sentencepiece
import tensorflow as tf
import tensorflow_text
from babel import Locale
from sentencepiece.sentencepiece_model_pb2 import ModelProto

from keras_transformer.config import BOS_ID, EOS_ID, FIRST_PLACEHOLDER_ID, PAD_ID, UNK_ID
from keras_transformer.errors import FileError, TokenizerError, counted
from keras_transformer.private_api import lasting
from keras_transformer.protection import PLACEHOLDERS
from keras_transformer.words import LETTER

MOST_TRAINING_SENTENCES = 2_000_000  # a sample of this size decides a vocabulary as well as a whole corpus
MOST_SENTENCE_BYTES = 1 << 16  # longer sentences are left out of the training of a tokenizer
# Marks such as variation selectors are signs, and so are characters of private use. Accents become letters.
SIGN_OR_MARK = r"(?V1)[\p{P}\p{S}\p{Co}[\p{M}&&[\p{sc=Zyyy}\p{sc=Zinh}]&&\p{ccc=0}]]"
# Unicode's blocks of arrows, shapes, dingbats, notes and pictures, with the marks that make emoji of characters
PICTURES = ((0x2190, 0x27BF), (0x2900, 0x297F), (0x2B00, 0x2BFF), (0x20E3, 0x20E3), (0xFE0E, 0xFE0F))
PICTURES += ((0x1D000, 0x1D1FF), (0x1F000, 0x1FBFF))
PRIVATE_PLANES = ((0xF0000, 0xFFFFD), (0x100000, 0x10FFFD))  # of icons, too many to look at each of them
_CHARACTERS = "".join(map(chr, [*range(0x21, 0xD800), *range(0xE000, 0xFFFE), *range(0x10000, 0x32400)]))
_MAKING = threading.Lock()  # threads that trace graphs share one tokenizer
SHARED, SOURCE, TARGET = "tokenizer.model", "source_tokenizer.model", "target_tokenizer.model"  # files of a directory


def train_tokenizer(sentences, vocabulary_size, character_coverage=0.9995, placeholders=(), nfkc=False):
    """Trains a SentencePiece BPE model with byte fallback, so that every text can be written.

    The model itself mends text, as `normalization.mend` does: its form is NFC, its spaces are single, and characters
    that nobody sees are gone. Other text comes back unchanged from ids, with three exceptions: "▁" becomes a space,
    invalid UTF-8 becomes U+FFFD, and rare orders of several marks stay as they are.

    Args:
        sentences: iterable of str, read once; sampled if there are more than `MOST_TRAINING_SENTENCES`.
        vocabulary_size: V, most pieces wanted, control symbols and the 256 bytes included.
        character_coverage: share of the characters of the text whose pieces are whole; rarer ones are written as bytes.
        placeholders: tuple of str, `PLACEHOLDERS` or none: pieces that are never divided. Their ids follow those of the
            control symbols.
        nfkc: bool, whether compatibility characters, such as full-width letters, become ordinary ones.

    Returns:
        The model, bytes. A corpus too small for `vocabulary_size` gives a smaller vocabulary.

    Raises:
        TokenizerError: if no model can be trained, for example because there is no text.
        The errors of `sentences`.
    """
    errors, model = [], io.BytesIO()
    rules = resources.files("keras_transformer").joinpath("nfkc.tsv.xz" if nfkc else "nfc.tsv.xz").read_bytes()
    try:
        with tempfile.NamedTemporaryFile(suffix=".tsv") as file:
            file.write(lzma.decompress(rules))
            file.flush()
            settings = {"user_defined_symbols": list(placeholders), "normalization_rule_tsv": file.name}
            sentences = _noting_errors(sentences, errors)
            _train(model, sentences, vocab_size=vocabulary_size, character_coverage=character_coverage, **settings)
    except RuntimeError as error:
        if errors:
            raise errors[0] from None
        raise TokenizerError(
            f"cannot train a tokenizer of {counted(vocabulary_size, 'piece')} on this text: {_remedy(error)}"
        ) from error
    description = ModelProto.FromString(model.getvalue())
    description.normalizer_spec.ClearField("normalization_rule_tsv")  # a temporary file's name, new every time
    return description.SerializeToString(deterministic=True)


def _noting_errors(sentences, errors):
    """Yields the sentences. SentencePiece hides an error that they raise, so a list notes the error."""
    try:
        yield from sentences
    except Exception as error:
        errors.append(error)
        raise


def _remedy(error):
    """The advice for an error of SentencePiece. Its own text names flags of SentencePiece's programs."""
    needed = re.search(r"smaller than required_chars\. \d+ vs (\d+)", str(error))
    if needed:
        return (
            f"its characters, the 256 bytes and the control symbols are {int(needed[1]):,} pieces. "
            "Raise `vocabulary_size`, or lower `character_coverage`"
        )
    said = " ".join(str(error).split())
    return f"it may be blank, or have no line of at most {MOST_SENTENCE_BYTES:,} bytes. SentencePiece says: {said}"


def _train(model, sentences, **settings):
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=sentences,
        model_writer=model,
        hard_vocab_limit=False,  # a small corpus gives fewer pieces
        model_type="bpe",
        byte_fallback=True,
        pad_id=PAD_ID,
        unk_id=UNK_ID,
        bos_id=BOS_ID,
        eos_id=EOS_ID,
        split_digits=True,  # numbers are copied digit by digit
        remove_extra_whitespaces=True,
        input_sentence_size=MOST_TRAINING_SENTENCES,
        shuffle_input_sentence=True,
        max_sentence_length=MOST_SENTENCE_BYTES,
        num_threads=1,  # the same model on every machine
        minloglevel=2,
        **settings,
    )


def read_model(path):
    """Reads a SentencePiece model that another program trained.

    Args:
        path: of the file. A model without byte fallback cannot write characters that it has not seen.

    Returns:
        The model, bytes.

    Raises:
        FileError: if it cannot be read.
        TokenizerError: if it is no SentencePiece model, or its control symbols have other ids than ours.
    """
    try:
        model = Path(path).read_bytes()
    except OSError as error:
        raise FileError.of("read", path, error) from error
    Tokenizer.load(path)
    pieces = sentencepiece.SentencePieceProcessor(model_proto=model)
    needed = {"pad": PAD_ID, "unk": UNK_ID, "bos": BOS_ID, "eos": EOS_ID}
    found = {"pad": pieces.pad_id(), "unk": pieces.unk_id(), "bos": pieces.bos_id(), "eos": pieces.eos_id()}
    if found != needed:
        ids = ", ".join(f"no {name}" if id < 0 else f"{name} {id}" for name, id in found.items())
        flags = " ".join(f"--{name}_id={id}" for name, id in needed.items())
        raise TokenizerError(
            f"the control symbols of {path} have other ids than ours. Received: {ids}. Train it with spm_train {flags}"
        )
    return model


class Tokenizer(tf.Module):
    """Strings to ids and back, as TensorFlow ops.

    `encode` adds no control symbols, and text that looks like one ("</s>") is plain text. TensorFlow starts when its
    ops are first needed. Until then, as after `tokenize`, its devices can still be divided.

    Args:
        model: a SentencePiece model, bytes.

    Raises:
        TokenizerError: if it is none.

    Attributes:
        vocabulary_size: V, int.
        has_placeholders: bool, whether the `PLACEHOLDERS` are its pieces, from `FIRST_PLACEHOLDER_ID` on.
    """

    def __init__(self, model: bytes):
        super().__init__(name="tokenizer")
        self.model = model
        self._ops = None
        self._processor = sentencepiece.SentencePieceProcessor()
        try:
            self._processor.LoadFromSerializedProto(model)
        except RuntimeError as error:
            raise TokenizerError("this is not a SentencePiece model, or is damaged") from error
        self.vocabulary_size = self._processor.vocab_size()
        first = range(FIRST_PLACEHOLDER_ID, FIRST_PLACEHOLDER_ID + len(PLACEHOLDERS))
        self.has_placeholders = self.vocabulary_size > first[-1] and tuple(self.visible_pieces(first)) == PLACEHOLDERS

    @property
    def _graph(self):
        """The tokenizer of TensorFlow, made outside of any graph that first needs it. All graphs share it."""
        with _MAKING:
            if self._ops is None:
                # Python's loader of SavedModels gives all tokenizers of one name the model of the first.
                name = f"tokenizer_{hashlib.sha256(self.model).hexdigest()[:32]}"
                with tf.init_scope():
                    self._ops = lasting(tensorflow_text.SentencepieceTokenizer(self.model, tf.int32, name=name))
            return self._ops

    @property
    def first_bytes(self) -> list[int]:
        """The ids of the pieces that begin a character in bytes, list of int: one for a character without a piece."""
        ids = (self._processor.piece_to_id(f"<0x{byte:02X}>") for byte in range(0xC2, 0xF5))
        return [id for id in ids if self._processor.is_byte(id)]

    @classmethod
    def load(cls, path: str | os.PathLike) -> "Tokenizer":
        """Reads a SentencePiece model file. Raises TokenizerError if there is none or it is damaged."""
        try:
            return cls(Path(path).read_bytes())
        except OSError:
            raise TokenizerError(f"no tokenizer at {path}: is this a directory that train.py wrote?") from None
        except TokenizerError as error:
            raise TokenizerError(f"{path} is not a SentencePiece model, or is damaged") from error

    def tokenize(self, texts: list[str]) -> list[list[int]]:
        """The ids that `encode` gives, without TensorFlow: list of N str -> list of N lists of int.

        Raises:
            UnicodeEncodeError: for half of a surrogate pair.
        """
        return self._processor.encode([text.encode("utf-8") for text in texts])

    def encode(self, text: tf.Tensor) -> tf.RaggedTensor:
        """text string (B,) -> ids, RaggedTensor int32 (B, None), without control symbols.

        Invalid UTF-8 becomes U+FFFD.
        """
        return self._graph.tokenize(tf.strings.unicode_transcode(text, "UTF-8", "UTF-8", errors="replace"))

    def pieces(self, ids: tf.Tensor) -> tf.Tensor:
        """ids int32 of any shape -> their pieces, string of that shape: "▁" stands for a space, "<0x0A>" for a byte.

        Raises:
            TokenizerError: for an id that is no piece, outside of a graph. TensorFlow would end the process.
        """
        if tf.executing_eagerly():
            values = np.ravel(getattr(ids, "flat_values", ids))
            if (odd := values[(values < 0) | (values >= self.vocabulary_size)]).size:
                raise TokenizerError(f"`ids` must be from 0 to {self.vocabulary_size - 1}. Received: {odd[0]}")
        return self._graph.id_to_string(ids)

    def visible_pieces(self, ids: Iterable[int]) -> list[str]:
        """ids int (N,) -> their pieces, a list of str; an invisible character, such as a tab, is written as "\\t"."""
        return [show_unprintable(piece) for piece in self._processor.id_to_piece(np.asarray(ids).tolist())]

    def decode(self, ids: tf.Tensor | tf.RaggedTensor) -> tf.Tensor:
        """ids int32 (B, T), dense or ragged -> text string (B,), without padding and control symbols."""
        if not isinstance(ids, tf.RaggedTensor):
            ids = tf.RaggedTensor.from_tensor(ids)
        return self._graph.detokenize(tf.ragged.boolean_mask(ids, ids > max(PAD_ID, UNK_ID, BOS_ID, EOS_ID)))


def load_tokenizers(directory):
    """Reads the tokenizers of a run or of an export.

    Args:
        directory: path. It holds either `tokenizer.model`, or `source_tokenizer.model` and `target_tokenizer.model`.

    Returns:
        (source `Tokenizer`, target `Tokenizer`): the same object if both sides share one.

    Raises:
        TokenizerError: if they are missing or damaged.
    """
    directory = Path(directory)
    if (directory / SOURCE).exists() or (directory / TARGET).exists():
        return Tokenizer.load(directory / SOURCE), Tokenizer.load(directory / TARGET)
    shared = Tokenizer.load(directory / SHARED)
    return shared, shared


def save_tokenizers(directory, source_tokenizer, target_tokenizer):
    """Writes the files of `load_tokenizers` into a directory."""
    names = [SHARED] if source_tokenizer is target_tokenizer else [SOURCE, TARGET]
    for name, tokenizer in zip(names, (source_tokenizer, target_tokenizer), strict=False):
        Path(directory, name).write_bytes(tokenizer.model)


def with_eos(ids):
    """Ends every row with eos: RaggedTensor int32 (N, None) -> RaggedTensor int32 (N, None).

    tf.concat along axis 1 would transpose integers, and oneDNN would complain on the console.
    """
    number = ids.nrows()
    ends = tf.RaggedTensor.from_tensor(tf.fill([number, 1], EOS_ID))
    rows = tf.range(number)
    each_and_its_end = tf.reshape(tf.stack([rows, rows + number], axis=1), [-1])
    parts = tf.gather(tf.concat([ids, ends], axis=0), each_and_its_end)
    return tf.RaggedTensor.from_row_lengths(parts.values, ids.row_lengths() + 1, validate=False)


def shift_right(labels, first_ids=None):
    """The decoder's input for labels: int32 (B, T) = y1 ... yn eos -> target_ids int32 (B, T) = bos y1 ... yn.

    `first_ids`, int32 (B,), stand in place of bos: the tags of target languages.
    """
    without_eos = tf.where(labels == EOS_ID, PAD_ID, labels)
    shifted = tf.pad(without_eos, [[0, 0], [1, 0]], constant_values=BOS_ID)[:, :-1]
    if first_ids is None:
        return shifted
    return tf.where(tf.range(tf.shape(labels)[1]) == 0, tf.cast(first_ids, labels.dtype)[:, None], shifted)


def show_unprintable(text):
    """Writes control, format and other invisible characters as Python would escape them: one line, and no tab in it."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def without_piece(tokenizers):
    """Finds the characters that a model can neither read nor write: signs, marks, and letters of other scripts.

    Args:
        tokenizers: list of `Tokenizer`. A character that one of them knows is known.

    Returns:
        set of str. It is empty if a tokenizer knows no letter, because its model reads all text as bytes.
    """
    return _without_piece(tuple(dict.fromkeys(tokenizer.model for tokenizer in tokenizers)))


@functools.lru_cache(maxsize=32)  # a quarter of a second for a tokenizer
def _without_piece(models):
    pieces = [sentencepiece.SentencePieceProcessor(model_proto=model) for model in models]
    texts = ["".join(map(each.id_to_piece, _ids_of_text(each))) for each in pieces]
    if not all(regex.search(LETTER, text) for text in texts):
        return frozenset()
    known = set().union(*texts)
    unread = [c for c in _all(SIGN_OR_MARK) if c not in known]
    for each in pieces:
        unread = _not_read_by(each, unread)
    letters = "".join(regex.findall(LETTER, "".join(texts)))
    scripts = "".join(script for script in _scripts() if regex.search(script, letters))
    foreign = _all(rf"(?V1)[{LETTER}--[\p{{sc=Zyyy}}\p{{sc=Zinh}}{scripts}]]")
    return frozenset([*unread, *foreign])


def written(spans):
    """The ranges of pairs of a first and a last code point, as a str."""
    return "".join(_point(first) + (f"-{_point(last)}" if last > first else "") for first, last in spans)


def _point(point):
    return chr(point) if point > 0x7F else rf"\x{{{point:x}}}"  # ASCII has signs that mean something in a pattern


def _ids_of_text(pieces):
    """The ids of the pieces that write text, a list of int."""
    others = (pieces.is_byte, pieces.is_control, pieces.is_unknown, pieces.is_unused)
    return [id for id in range(pieces.vocab_size()) if not any(is_other(id) for is_other in others)]


def _not_read_by(pieces, characters):
    """The characters that are bytes or unknown even after the tokenizer has mended them."""
    read = zip(characters, pieces.encode(characters), strict=True)
    return [c for c, ids in read if any(pieces.is_byte(id) or pieces.is_unknown(id) for id in ids)]


@functools.cache
def _scripts():
    """A pattern for each script of Unicode, by the codes that CLDR has a name for: a list."""
    codes = set(Locale("en").scripts) - {"Zyyy", "Zinh", "Zzzz"}
    return [pattern for code in sorted(codes) if _is_pattern(pattern := rf"\p{{sc={code}}}")]


def _is_pattern(text):
    try:
        return bool(regex.compile(text))
    except regex.error:  # codes such as "Hans" are no scripts of Unicode
        return False


@functools.cache
def _all(pattern):
    return regex.findall(pattern, _CHARACTERS)


def ranges_of(characters):
    """Characters as ranges for a class of RE2: an iterable of str -> str."""
    spans = []
    for point in sorted(map(ord, characters)):
        if spans and all(_is_unassigned(other) for other in range(spans[-1][1] + 1, point)):
            spans[-1][1] = point
        else:
            spans.append([point, point])
    return written(spans)


def _is_unassigned(point):
    is_noncharacter = point & 0xFFFE == 0xFFFE or 0xFDD0 <= point < 0xFDF0  # they stand between sentences
    return unicodedata.category(chr(point)) == "Cn" and not is_noncharacter
