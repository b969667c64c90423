"""SentencePiece models: trained from a corpus, applied to string tensors in the graph."""

import io
import re
import tempfile
from pathlib import Path

import sentencepiece
import tensorflow as tf
import tensorflow_text
from sentencepiece.sentencepiece_model_pb2 import ModelProto

from keras_transformer.config import BOS_ID, EOS_ID, FIRST_PLACEHOLDER_ID, PAD_ID, UNK_ID
from keras_transformer.errors import FileError, TokenizerError, counted
from keras_transformer.normalization import rules
from keras_transformer.protection import PLACEHOLDERS

MOST_TRAINING_SENTENCES = 2_000_000  # a sample of this size decides a vocabulary as well as a whole corpus
MOST_SENTENCE_BYTES = 1 << 16  # longer sentences are left out of the training of a tokenizer
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
    errors = []
    try:
        return _train(_noting_errors(sentences, errors), vocabulary_size, character_coverage, placeholders, rules(nfkc))
    except RuntimeError as error:
        if errors:
            raise errors[0] from None
        raise TokenizerError(
            f"cannot train a tokenizer of {counted(vocabulary_size, 'piece')} on this text: {_remedy(error)}"
        ) from error


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


def _train(sentences, vocabulary_size, character_coverage, placeholders, normalization):
    model = io.BytesIO()
    with tempfile.NamedTemporaryFile("w", suffix=".tsv") as file:
        file.write(normalization)
        file.flush()
        _train_into(model, sentences, vocabulary_size, character_coverage, placeholders, file.name)
    description = ModelProto.FromString(model.getvalue())
    description.normalizer_spec.ClearField("normalization_rule_tsv")  # a temporary file's name, new every time
    return description.SerializeToString(deterministic=True)


def _train_into(model, sentences, vocabulary_size, character_coverage, placeholders, normalization_file):
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=sentences,
        model_writer=model,
        vocab_size=vocabulary_size,
        hard_vocab_limit=False,  # a small corpus gives fewer pieces
        model_type="bpe",
        byte_fallback=True,
        pad_id=PAD_ID,
        unk_id=UNK_ID,
        bos_id=BOS_ID,
        eos_id=EOS_ID,
        character_coverage=character_coverage,
        split_digits=True,  # numbers are copied digit by digit
        user_defined_symbols=list(placeholders),
        normalization_rule_tsv=normalization_file,
        remove_extra_whitespaces=True,
        input_sentence_size=MOST_TRAINING_SENTENCES,
        shuffle_input_sentence=True,
        max_sentence_length=MOST_SENTENCE_BYTES,
        num_threads=1,  # the same model on every machine
        minloglevel=2,
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

    `encode` adds no control symbols, and text that looks like one ("</s>") is plain text.

    Args:
        model: a SentencePiece model, bytes.

    Attributes:
        vocabulary_size: V, int.
        has_placeholders: bool, whether the `PLACEHOLDERS` are its pieces, from `FIRST_PLACEHOLDER_ID` on.
    """

    def __init__(self, model):
        super().__init__(name="tokenizer")
        self.model = model
        self._pieces = tensorflow_text.SentencepieceTokenizer(model=model, out_type=tf.int32)
        self.vocabulary_size = int(self._pieces.vocab_size())
        first = range(FIRST_PLACEHOLDER_ID, FIRST_PLACEHOLDER_ID + len(PLACEHOLDERS))
        self.has_placeholders = self.vocabulary_size > first[-1] and tuple(self.visible_pieces(first)) == PLACEHOLDERS

    @classmethod
    def load(cls, path):
        """Reads a SentencePiece model file. Raises TokenizerError if there is none or it is damaged."""
        try:
            return cls(Path(path).read_bytes())
        except FileNotFoundError:
            raise TokenizerError(f"no tokenizer at {path}: is this a directory that train.py wrote?") from None
        except (tf.errors.OpError, RuntimeError) as error:
            raise TokenizerError(f"{path} is not a SentencePiece model, or is damaged") from error

    def encode(self, text):
        """text string (B,) -> ids, RaggedTensor int32 (B, None), without control symbols.

        Invalid UTF-8 becomes U+FFFD.
        """
        return self._pieces.tokenize(tf.strings.unicode_transcode(text, "UTF-8", "UTF-8", errors="replace"))

    def pieces(self, ids):
        """ids int32 of any shape -> their pieces, string of that shape: "▁" stands for a space, "<0x0A>" for a byte."""
        return self._pieces.id_to_string(ids)

    def visible_pieces(self, ids):
        """ids int32 (N,) -> their pieces, a list of str; an invisible character, such as a tab, is written as "\\t"."""
        return [show_unprintable(piece.decode("utf-8")) for piece in self.pieces(ids).numpy()]

    def decode(self, ids):
        """ids int32 (B, T), dense or ragged -> text string (B,), without padding and control symbols."""
        if not isinstance(ids, tf.RaggedTensor):
            ids = tf.RaggedTensor.from_tensor(ids)
        return self._pieces.detokenize(tf.ragged.boolean_mask(ids, ids > max(PAD_ID, UNK_ID, BOS_ID, EOS_ID)))


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
    if source_tokenizer is target_tokenizer:
        (Path(directory) / SHARED).write_bytes(source_tokenizer.model)
    else:
        (Path(directory) / SOURCE).write_bytes(source_tokenizer.model)
        (Path(directory) / TARGET).write_bytes(target_tokenizer.model)


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
