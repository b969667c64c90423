import random

import pytest
import regex
import sentencepiece
import tensorflow as tf

from keras_transformer import tokenizer as tokenizer_module
from keras_transformer.config import BOS_ID, EOS_ID, PAD_ID, UNK_ID
from keras_transformer.data.corpora import BothSides
from keras_transformer.errors import FileError, TokenizerError
from keras_transformer.normalization import mend
from keras_transformer.tokenizer import (
    SHARED,
    SOURCE,
    TARGET,
    Tokenizer,
    load_tokenizers,
    read_model,
    save_tokenizers,
    shift_right,
    train_tokenizer,
    with_eos,
)
from tests import tiny
from tests.sentences import SENTENCES

BYTES_AND_CONTROL_SYMBOLS = 256 + 4
VOCABULARY = 503

NASTY = ["", "the year", "The YEAR tHe", "👩‍👩‍👧 🇩🇪 ok", "one\ntwo\r\n", "\n", "\tone\ttwo", "one\x00two\x00"]
NASTY += ["שלום \u202bעולם\u202c مرحبا", "one  two   three", "one  ", "the year 2024! " * 683, "x" * 10_007]
NASTY += ["\ue000 \ufffe \U0010ffff", "\u00e9 e\u0301", "\ufeffone", "ﬁ ½ e\u0301 ² Ⅷ １ \u00a0 \u3000 ｱ"]
LIKE_CONTROL_SYMBOLS = ["</s>", "<s>", "<pad>", "<unk>", "<0x41>", "one </s> two<pad>"]


def corpus(sentences=211):
    draw = random.Random(5)
    words = ["".join(draw.choices("abcdefghijklmnopqrstuvwxyzäöü", k=draw.randint(1, 7))) for _ in range(211)]
    return [" ".join(["the year 2024", *draw.choices(words, k=draw.randint(1, 11))]) for _ in range(sentences)]


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer(train_tokenizer(corpus(), VOCABULARY))


@pytest.fixture(scope="module")
def processor(tokenizer):
    """The oracle: the same model in the sentencepiece package."""
    return sentencepiece.SentencePieceProcessor(model_proto=tokenizer.model)


def round_trip(tokenizer, *texts):
    decoded = tokenizer.decode(tokenizer.encode(tf.constant(texts)))
    return [text.decode("utf-8") for text in decoded.numpy()]


def test_text_comes_back_mended_and_mended_text_and_text_like_control_symbols_as_it_was(tokenizer):
    mended = [mend(text) for text in NASTY]
    assert round_trip(tokenizer, *(text.replace("\0", "") for text in NASTY)) == mended
    texts = [*mended, "one\0two", *LIKE_CONTROL_SYMBOLS]
    assert round_trip(tokenizer, *texts) == texts
    assert tf.reduce_min(tokenizer.encode(tf.constant(LIKE_CONTROL_SYMBOLS)).values) > EOS_ID


def random_texts(count):
    draw = random.Random(7)
    kinds = [range(0x80), range(0xD800), range(0xE000, 0x110000), (0x20, 0x2581, 0x301, 0xFFFF)]
    return ["".join(chr(draw.choice(draw.choice(kinds))) for _ in range(draw.randint(0, 19))) for _ in range(count)]


def test_nothing_else_changes_but_two_code_points(tokenizer):
    # The rules do not know every order of marks: tests/test_normalization.py says which they know.
    texts = [regex.sub(r"[\0\p{M}]", "", text) for text in random_texts(997)]
    # SentencePiece writes U+2581 for a space, and joins spaces inside a text before that.
    expected = [mend(text).replace("\u2581", " ").strip(" ") for text in texts]
    assert round_trip(tokenizer, *texts) == expected


def test_ids_are_those_of_the_sentencepiece_package_in_python_and_in_a_graph(tokenizer, processor):
    texts = [*NASTY, *LIKE_CONTROL_SYMBOLS, *random_texts(211), *(s.text for s in SENTENCES.values())]
    texts += [" one", "\u2581one"]
    ids = tf.function(tokenizer.encode)(tf.constant(texts))
    assert ids.dtype == tf.int32 and ids.to_list() == tokenizer.tokenize(texts) == processor.encode(texts)
    assert tokenizer.tokenize([]) == []
    pytest.raises(UnicodeEncodeError, tokenizer.tokenize, ["\ud800"])


def test_invalid_utf8_becomes_the_replacement_character_as_in_python_and_any_ids_give_valid_utf8(tokenizer):
    draw = random.Random(13)
    broken = [b"a\xffb", b"a\xe2\x82b", b"a\xc3", b"\xed\xa0\x80", b"\xc0\x80", b"\xf4\x90\x80\x80", b"\xff"]
    broken += [bytes(draw.choices(b"a\x82\x9f\xac\xc3\xe2\xf0\xff", k=7)) for _ in range(211)]
    assert round_trip(tokenizer, *broken) == [text.decode("utf-8", "replace") for text in broken]
    for size in (tokenizer.vocabulary_size, BYTES_AND_CONTROL_SYMBOLS):
        rows = [[draw.randrange(size) for _ in range(17)] for _ in range(199)]
        texts = [text.decode("utf-8") for text in tokenizer.decode(tf.constant(rows)).numpy()]
        assert any("\ufffd" in text for text in texts)


def test_padding_and_control_ids_are_left_out_of_text(tokenizer):
    a, b = tokenizer.encode(tf.constant(["the year", "2024"])).to_list()
    rows = [[BOS_ID, *a, EOS_ID], [BOS_ID, PAD_ID, *b, UNK_ID, *a, EOS_ID, PAD_ID, PAD_ID], [PAD_ID] * 5, []]
    expected = [b"the year", b"2024 the year", b"", b""]
    ragged = tf.ragged.constant(rows, dtype=tf.int32)
    assert tf.function(tokenizer.decode)(ragged).numpy().tolist() == expected
    assert tokenizer.decode(ragged.to_tensor(PAD_ID)).numpy().tolist() == expected
    assert tokenizer.encode(tf.constant([], tf.string)).to_list() == []  # no sentences have no rows
    assert tokenizer.decode(tf.zeros([0, 0], tf.int32)).numpy().tolist() == []


def test_control_ids_and_the_size_are_those_asked_for_and_digits_are_tokens_of_their_own(tokenizer, processor):
    assert tokenizer.vocabulary_size == processor.get_piece_size() == VOCABULARY
    assert (PAD_ID, UNK_ID, BOS_ID, EOS_ID) == (0, 1, 2, 3)
    assert [processor.pad_id(), processor.unk_id(), processor.bos_id(), processor.eos_id()] == [0, 1, 2, 3]
    (ids,), (year,) = tokenizer.tokenize(["2024"]), tokenizer.tokenize(["year"])
    assert [processor.id_to_piece(i) for i in ids if processor.id_to_piece(i) != "\u2581"] == ["2", "0", "2", "4"]
    assert processor.id_to_piece(year) == ["\u2581year"]


def test_pieces_are_those_of_sentencepiece_and_invisible_characters_are_spelt(tokenizer, processor):
    pieces = [processor.id_to_piece(i) for i in range(VOCABULARY)]
    assert [piece.decode("utf-8") for piece in tokenizer.pieces(tf.range(VOCABULARY)).numpy()] == pieces
    ragged = tokenizer.pieces(tf.ragged.constant([[7, 300], [], [3]]))
    assert ragged.to_list() == [[pieces[7].encode(), pieces[300].encode()], [], [pieces[3].encode()]]
    for odd in (VOCABULARY, -1):
        with pytest.raises(TokenizerError, match=f"`ids` must be from 0 to {VOCABULARY - 1}. Received: {odd}$"):
            tokenizer.pieces(tf.constant([[5, odd]]))
    assert tokenizer.visible_pieces(tf.range(VOCABULARY)) == pieces  # all of them can be seen
    other = Tokenizer(train_tokenizer(["the year", "\u200c\u200dÄ 👩"] * 29, VOCABULARY))
    pieces = other.visible_pieces(tf.range(other.vocabulary_size))
    assert all(piece.isprintable() for piece in pieces)
    assert {"\\u200c", "\\u200d", "Ä", "👩", "▁", "<0x0A>"} <= set(pieces)


@pytest.mark.parametrize(
    ("sentences", "vocabulary_size", "said"),
    [
        (["", ""], 503, "503 pieces .* it may be blank, or have no line of at most 65,536 bytes"),
        (["ü" * ((1 << 15) + 1)], 503, "it may be blank"),
        (["abc"], 13, r"13 pieces .* are 264 pieces\. Raise `vocabulary_size`, or lower `character_coverage`$"),
    ],
    ids=["blank", "too long", "no room for the bytes"],
)
def test_an_impossible_training_is_refused_in_one_line_and_an_error_of_the_sentences_is_raised_as_it_is(
    sentences, vocabulary_size, said
):
    with pytest.raises(TokenizerError, match=said) as caught:
        train_tokenizer(sentences, vocabulary_size)
    assert "\n" not in str(caught.value)
    with pytest.raises(KeyError, match="of this test"):
        train_tokenizer(({}["of this test"] for _ in sentences), vocabulary_size)


def test_rare_characters_are_pieces_as_far_as_they_are_to_be_covered_and_nothing_is_printed(capfd):
    """A small corpus gives fewer pieces than asked for, and may be an iterator."""
    text = ["the year"] * 97 + ["ŝ"]
    for coverage, pieces in ((1.0, ["▁ŝ"]), (0.98, ["▁", "<0xC5>", "<0x9D>"])):
        tokenizer = Tokenizer(train_tokenizer(iter(text), VOCABULARY, coverage))
        assert tokenizer.visible_pieces(tokenizer.encode(tf.constant(["ŝ"])).values) == pieces
        assert BYTES_AND_CONTROL_SYMBOLS < tokenizer.vocabulary_size < VOCABULARY
    assert capfd.readouterr() == ("", "")


def test_the_same_corpus_gives_the_same_bytes_streamed_or_not_and_a_large_one_the_same_sample(monkeypatch, tokenizer):
    assert train_tokenizer(corpus(), VOCABULARY) == tokenizer.model
    streamed = train_tokenizer(BothSides([(text, text.upper()) for text in corpus(37)]), 8009)
    assert streamed == train_tokenizer([side for text in corpus(37) for side in (text, text.upper())], 8009)
    monkeypatch.setattr(tokenizer_module, "MOST_TRAINING_SENTENCES", 101)
    once, again = (train_tokenizer(corpus(), VOCABULARY) for _ in range(2))
    assert once == again != tokenizer.model


def test_a_tokenizer_from_a_file_is_the_same_and_a_missing_or_damaged_file_is_named_in_one_line(tokenizer, tmp_path):
    path, model = tmp_path / "tokenizer.model", tokenizer.model
    with pytest.raises(TokenizerError, match=r"^no tokenizer at .*tokenizer\.model.*train\.py.*$"):
        Tokenizer.load(path)
    path.write_bytes(model)
    assert (loaded := Tokenizer.load(str(path))).model == model and loaded.vocabulary_size == VOCABULARY
    for damaged in (b"not a model", b"", model[: len(model) // 2]):
        path.write_bytes(damaged)
        with pytest.raises(TokenizerError, match=f"^{path} is not a SentencePiece model") as caught:
            Tokenizer.load(path)
        assert "\n" not in str(caught.value) and "function_node" not in str(caught.value)


def test_a_model_of_another_program_is_read_as_it_is_and_refused_with_other_control_symbols(tmp_path):
    def spm_train(name, **settings):
        """A model as SentencePiece's own program writes it."""
        files = {"sentence_iterator": iter(corpus(83)), "model_prefix": str(tmp_path / name)}
        sentencepiece.SentencePieceTrainer.train(**files, vocab_size=101, minloglevel=2, **settings)
        return tmp_path / f"{name}.model"

    path = spm_train("unigram", pad_id=0, unk_id=1, bos_id=2, eos_id=3)
    assert read_model(path) == path.read_bytes()
    assert round_trip(Tokenizer(read_model(path)), "the year") == ["the year"]
    path = spm_train("default")
    said = "other ids than ours. Received: no pad, unk 0, bos 1, eos 2. Train it with spm_train --pad_id=0 --unk_id=1 "
    with pytest.raises(TokenizerError, match=f"^the control symbols of {path} have {said}--bos_id=2 --eos_id=3$"):
        read_model(path)
    with pytest.raises(FileError, match=f"^cannot read {tmp_path / 'nowhere.model'}: No such file"):
        read_model(tmp_path / "nowhere.model")


def test_a_shared_tokenizer_is_one_file_and_one_object_and_two_come_back_on_their_sides(tokenizer, tmp_path):
    save_tokenizers(tmp_path, tokenizer, tokenizer)
    assert [path.name for path in tmp_path.iterdir()] == [SHARED]
    source, target = load_tokenizers(tmp_path)
    assert source is target and source.model == tokenizer.model
    (tmp_path / SHARED).unlink()
    with pytest.raises(TokenizerError, match=f"^no tokenizer at {tmp_path / SHARED}"):
        load_tokenizers(tmp_path)
    save_tokenizers(tmp_path, tokenizer, tiny.tokenizer())
    assert sorted(path.name for path in tmp_path.iterdir()) == [SOURCE, TARGET]
    assert [found.model for found in load_tokenizers(str(tmp_path))] == [tokenizer.model, tiny.tokenizer_model()]
    (tmp_path / SOURCE).unlink()
    with pytest.raises(TokenizerError, match=f"^no tokenizer at {tmp_path / SOURCE}"):
        load_tokenizers(tmp_path)


def test_eos_ends_every_row_and_the_decoder_reads_bos_and_every_label_but_eos():
    for run, rows in ((tf.function, [[5, 7], [], [11]]), (lambda f: f, [[]]), (lambda f: f, [])):
        ended = run(with_eos)(tf.ragged.constant(rows, dtype=tf.int32, ragged_rank=1))
        assert ended.dtype == tf.int32 and ended.to_list() == [[*row, EOS_ID] for row in rows]
    labels = tf.constant([[5, 7, 11, 3], [13, 3, 0, 0], [3, 0, 0, 0]])
    assert shift_right(labels).numpy().tolist() == [[2, 5, 7, 11], [2, 13, 0, 0], [2, 0, 0, 0]]
    assert shift_right(labels, tf.constant([17, 19, 23])).numpy()[:, 0].tolist() == [17, 19, 23]
