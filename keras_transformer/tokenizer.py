"""One shared SentencePiece model: trained from the corpus, applied to string tensors in the graph."""

import io
import re
import tempfile
from pathlib import Path

import sentencepiece
import tensorflow as tf
import tensorflow_text
from sentencepiece.sentencepiece_model_pb2 import ModelProto

PAD_ID, UNK_ID, BOS_ID, EOS_ID = 0, 1, 2, 3
MOST_TRAINING_SENTENCES = 2_000_000  # a sample of this size decides a vocabulary as well as a whole corpus
# Text is left as it is, but for one code point that no text may contain. With no rule at all, SentencePiece prints a
# line at every load, in training and in serving.
NORMALIZATION = "FFFF\tFFFD\n"


class TokenizerError(ValueError):
    """A tokenizer that cannot be trained or read; the message is one clear line."""


def train_tokenizer(sentences, vocabulary_size):
    """Trains a SentencePiece BPE model with byte fallback, so that every text can be written.

    Case, spaces and Unicode forms are kept as they are: what is tokenised comes back unchanged.

    Args:
        sentences: iterable of str, both languages; sampled if there are more than `MOST_TRAINING_SENTENCES`. It is
            read a second time where the corpus is too small for the vocabulary.
        vocabulary_size: V, most pieces wanted, control symbols and the 256 bytes included.

    Returns:
        The model, bytes. A corpus too small for `vocabulary_size` gives a smaller vocabulary.

    Raises:
        TokenizerError: if no model can be trained, e.g. for want of text.
    """
    try:
        return _train(sentences, vocabulary_size)
    except RuntimeError as error:
        largest = re.search(r"value <= (\d+)", str(error))
        if largest is None:
            raise TokenizerError(
                f"cannot train a tokenizer of {vocabulary_size} pieces on this text: {error}"
            ) from error
        return _train(sentences, int(largest.group(1)))


def _train(sentences, vocabulary_size):
    model = io.BytesIO()
    with tempfile.NamedTemporaryFile("w", suffix=".tsv") as rules:
        rules.write(NORMALIZATION)
        rules.flush()
        _train_into(model, sentences, vocabulary_size, rules.name)
    description = ModelProto.FromString(model.getvalue())
    description.normalizer_spec.ClearField("normalization_rule_tsv")  # a temporary file's name: new every time
    return description.SerializeToString(deterministic=True)


def _train_into(model, sentences, vocabulary_size, rules):
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(sentences),
        model_writer=model,
        vocab_size=vocabulary_size,
        model_type="bpe",
        byte_fallback=True,
        pad_id=PAD_ID,
        unk_id=UNK_ID,
        bos_id=BOS_ID,
        eos_id=EOS_ID,
        character_coverage=0.9995,
        split_digits=True,  # numbers are copied digit by digit
        normalization_rule_tsv=rules,
        remove_extra_whitespaces=False,
        input_sentence_size=MOST_TRAINING_SENTENCES,
        shuffle_input_sentence=True,
        max_sentence_length=1 << 16,
        num_threads=1,  # the same model on every machine
        minloglevel=2,
    )


class Tokenizer(tf.Module):
    """Strings to ids and back, as TensorFlow ops.

    Control symbols are added as ids by whoever needs them; text that looks like one ("</s>") is plain text.

    Args:
        model: a SentencePiece model, bytes.
    """

    def __init__(self, model):
        super().__init__(name="tokenizer")
        self.model = model
        self._pieces = tensorflow_text.SentencepieceTokenizer(model=model, out_type=tf.int32)
        self.vocabulary_size = int(self._pieces.vocab_size())

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

    def labels(self, ids):
        """ids int32 (N,) -> their pieces, a list of str; what cannot be seen, such as a tab, is written as "\\t"."""
        return [show_unprintable(piece.decode("utf-8")) for piece in self.pieces(ids).numpy()]

    def decode(self, ids):
        """ids int32 (B, T), dense or ragged; padding and control symbols are left out -> text string (B,)."""
        if not isinstance(ids, tf.RaggedTensor):
            ids = tf.RaggedTensor.from_tensor(ids)
        return self._pieces.detokenize(tf.ragged.boolean_mask(ids, ids > EOS_ID))


def show_unprintable(text):
    """Writes control, format and other invisible characters as Python would escape them: one line, and no tab in it."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)
