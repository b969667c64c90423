import io
import random
import threading

import pytest
import regex
import sentencepiece
import tensorflow as tf

from keras_transformer import tokenizer as tokenizer_module
from keras_transformer.config import BOS_ID, EOS_ID, PAD_ID, UNK_ID
from keras_transformer.data.corpora import BothSides
from keras_transformer.errors import FileError, TokenizerError
from keras_transformer.normalization import mend
from keras_transformer.protection import PLACEHOLDERS
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

NASTY = {
    "empty": "",
    "words of the corpus": "the year",
    "case": "The YEAR tHe",
    "emoji": "👩‍👩‍👧 🇩🇪 ok",
    "newline": "one\ntwo\r\n",
    "leading newline": "\n",
    "right to left": "שלום \u202bעולם\u202c مرحبا",
    "tab": "\tone\ttwo",
    "NUL": "one\x00two\x00",
    "characters that NFKC would change": "ﬁ ½ e\u0301 ² Ⅷ １ \u00a0 \u3000 ｱ",
    "two forms of a letter": "\u00e9 e\u0301",
    "double spaces": "one  two   three",
    "trailing spaces": "one  ",
    "10 kB": "the year 2024! " * 683,
    "10 kB without a space": "x" * 10_007,
    "last code points": "\ue000 \ufffe \U0010ffff",
    "byte order mark": "\ufeffone",
}
LIKE_CONTROL_SYMBOLS = ["</s>", "<s>", "<pad>", "<unk>", "<0x41>", "one </s> two<pad>"]


def corpus(sentences=401):
    draw = random.Random(5)
    words = ["".join(draw.choices("abcdefghijklmnopqrstuvwxyzäöü", k=draw.randint(1, 7))) for _ in range(211)]
    return [" ".join(["the year 2024", *draw.choices(words, k=draw.randint(1, 11))]) for _ in range(sentences)]


@pytest.fixture(scope="module")
def model():
    return train_tokenizer(corpus(), VOCABULARY)


@pytest.fixture(scope="module")
def tokenizer(model):
    return Tokenizer(model)


@pytest.fixture(scope="module")
def processor(model):
    """The oracle: the same model in the sentencepiece package."""
    return sentencepiece.SentencePieceProcessor(model_proto=model)


def round_trip(tokenizer, *texts):
    decoded = tokenizer.decode(tokenizer.encode(tf.constant(texts)))
    return [text.decode("utf-8") for text in decoded.numpy()]


@pytest.mark.parametrize("text", NASTY.values(), ids=NASTY.keys())
def test_text_comes_back_mended(tokenizer, text):
    assert round_trip(tokenizer, text.replace("\0", "")) == [mend(text)]


def test_mended_text_comes_back_as_it_was(tokenizer):
    texts = [mend(text) for text in NASTY.values()]
    assert round_trip(tokenizer, *texts) == texts


@pytest.mark.parametrize("text", LIKE_CONTROL_SYMBOLS)
def test_text_that_looks_like_a_control_symbol_is_text(tokenizer, text):
    assert tf.reduce_min(tokenizer.encode(tf.constant([text])).values) > EOS_ID
    assert round_trip(tokenizer, text) == [text]


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


def test_a_nul_stays(tokenizer):
    assert round_trip(tokenizer, "one\0two") == ["one\0two"]


@pytest.mark.parametrize("run", [lambda f: f, tf.function], ids=["eager", "graph"])
def test_ids_are_those_of_the_sentencepiece_package(tokenizer, processor, run):
    texts = [*NASTY.values(), *LIKE_CONTROL_SYMBOLS, *random_texts(211), " one", "\u2581one"]
    ids = run(tokenizer.encode)(tf.constant(texts))
    assert ids.dtype == tf.int32
    assert ids.to_list() == processor.encode(texts)


def test_python_gives_the_ids_of_the_graph(tokenizer):
    texts = [
        *NASTY.values(),
        *LIKE_CONTROL_SYMBOLS,
        *random_texts(211),
        *(sentence.text for sentence in SENTENCES.values()),
        " one",
        "\u2581one",
    ]
    assert tokenizer.tokenize(texts) == tokenizer.encode(tf.constant(texts)).to_list()
    assert tokenizer.tokenize([]) == []
    with pytest.raises(UnicodeEncodeError):
        tokenizer.tokenize(["\ud800"])


def test_the_ops_are_made_once_and_outside_of_the_graph_that_first_needs_them(model, tmp_path):
    """Two graphs of two threads share them, and a SavedModel has them."""
    module = tf.Module()
    module.tokenizer = Tokenizer(model)
    text = tf.TensorSpec([None], tf.string)
    module.sizes = tf.function(lambda text: module.tokenizer.encode(text).row_lengths(), [text])
    module.again = tf.function(lambda text: module.tokenizer.decode(module.tokenizer.encode(text)), [text])
    threads = [threading.Thread(target=each.get_concrete_function) for each in (module.sizes, module.again)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    tf.saved_model.save(module, tmp_path)
    for each in (module, tf.saved_model.load(tmp_path)):
        assert each.again(tf.constant(["the year"])).numpy().tolist() == [b"the year"]
        assert each.sizes(tf.constant(["the year"])).numpy().tolist() == [
            len(module.tokenizer.tokenize(["the year"])[0])
        ]


def test_decoding_in_a_graph_is_decoding(tokenizer):
    ids = tokenizer.encode(tf.constant(corpus(11)))
    decode = tf.function(tokenizer.decode)
    assert [text.decode() for text in decode(ids).numpy()] == corpus(11)
    assert [text.decode() for text in decode(ids.to_tensor()).numpy()] == corpus(11)


def test_control_ids_are_fixed(processor):
    assert (PAD_ID, UNK_ID, BOS_ID, EOS_ID) == (0, 1, 2, 3)
    assert [processor.pad_id(), processor.unk_id(), processor.bos_id(), processor.eos_id()] == [0, 1, 2, 3]


def test_invalid_utf8_becomes_the_replacement_character_as_in_python(tokenizer):
    draw = random.Random(13)
    broken = [b"a\xffb", b"a\xe2\x82b", b"a\xc3", b"\xed\xa0\x80", b"\xc0\x80", b"\xf4\x90\x80\x80", b"\xff"]
    broken += [bytes(draw.choices(b"a\x82\x9f\xac\xc3\xe2\xf0\xff", k=7)) for _ in range(211)]
    assert round_trip(tokenizer, *broken) == [text.decode("utf-8", "replace") for text in broken]


def test_padding_and_control_ids_are_left_out_of_text(tokenizer):
    a, b = tokenizer.encode(tf.constant(["the year", "2024"])).to_list()
    rows = [[BOS_ID, *a, EOS_ID], [BOS_ID, PAD_ID, *b, UNK_ID, *a, EOS_ID, PAD_ID, PAD_ID], [PAD_ID] * 5, []]
    expected = [b"the year", b"2024 the year", b"", b""]
    ragged = tf.ragged.constant(rows, dtype=tf.int32)
    assert tokenizer.decode(ragged).numpy().tolist() == expected
    assert tokenizer.decode(ragged.to_tensor(PAD_ID)).numpy().tolist() == expected


def test_any_ids_of_a_model_give_valid_utf8(tokenizer):
    draw = random.Random(11)
    rows = [[draw.randrange(tokenizer.vocabulary_size) for _ in range(17)] for _ in range(199)]
    rows += [[draw.randrange(BYTES_AND_CONTROL_SYMBOLS) for _ in range(17)] for _ in range(199)]
    texts = [text.decode("utf-8") for text in tokenizer.decode(tf.constant(rows)).numpy()]
    assert any("\ufffd" in text for text in texts)


def test_no_sentences_give_no_rows(tokenizer):
    assert tokenizer.encode(tf.constant([], tf.string)).to_list() == []
    assert tokenizer.decode(tf.zeros([0, 0], tf.int32)).numpy().tolist() == []


def test_digits_are_tokens_of_their_own(tokenizer, processor):
    ids = tokenizer.encode(tf.constant(["2024"])).to_list()[0]
    assert [processor.id_to_piece(i) for i in ids if processor.id_to_piece(i) != "\u2581"] == ["2", "0", "2", "4"]
    assert processor.id_to_piece(tokenizer.encode(tf.constant(["year"])).to_list()[0]) == ["\u2581year"]


def test_pieces_are_those_of_sentencepiece(tokenizer, processor):
    pieces = [processor.id_to_piece(i) for i in range(VOCABULARY)]
    assert [piece.decode("utf-8") for piece in tokenizer.pieces(tf.range(VOCABULARY)).numpy()] == pieces
    ragged = tokenizer.pieces(tf.ragged.constant([[7, 300], [], [3]]))
    assert ragged.to_list() == [[pieces[7].encode(), pieces[300].encode()], [], [pieces[3].encode()]]
    assert tokenizer.visible_pieces(tf.range(VOCABULARY)) == pieces  # all of them can be seen


def test_invisible_characters_are_spelt_in_visible_pieces():
    tokenizer = Tokenizer(train_tokenizer(["the year", "\u200c\u200dÄ 👩"] * 29, VOCABULARY))
    pieces = tokenizer.visible_pieces(tf.range(tokenizer.vocabulary_size))
    assert all(piece.isprintable() for piece in pieces)
    assert {"\\u200c", "\\u200d", "Ä", "👩", "▁", "<0x0A>"} <= set(pieces)


def test_the_vocabulary_has_the_size_asked_for(tokenizer, processor):
    assert tokenizer.vocabulary_size == processor.get_piece_size() == VOCABULARY


def test_a_small_corpus_gives_a_smaller_vocabulary():
    tokenizer = Tokenizer(train_tokenizer(["the year", "the"], 8009))
    assert BYTES_AND_CONTROL_SYMBOLS < tokenizer.vocabulary_size < 8009
    assert round_trip(tokenizer, "the year", "Ωmega") == ["the year", "Ωmega"]


@pytest.mark.parametrize(
    ("sentences", "vocabulary_size", "said"),
    [
        ([], 503, "503 pieces .* it may be blank"),
        (["", ""], 503, "503 pieces .* it may be blank"),
        (["ü" * ((1 << 15) + 1)], 503, "503 pieces .* have no line of at most 65,536 bytes"),
        (["abc"], 13, r"13 pieces .* are 264 pieces\. Raise `vocabulary_size`, or lower `character_coverage`$"),
    ],
    ids=["no sentences", "blank sentences", "only too long ones", "no room for the bytes"],
)
def test_an_impossible_training_is_refused_in_one_line(sentences, vocabulary_size, said):
    with pytest.raises(TokenizerError, match=said) as caught:
        train_tokenizer(sentences, vocabulary_size)
    assert "\n" not in str(caught.value)


def test_the_same_corpus_gives_the_same_bytes(model):
    assert train_tokenizer(corpus(), VOCABULARY) == model


def test_a_small_corpus_that_can_be_read_only_once_gives_the_pieces_of_one_read_for_their_number():
    tokenizer = Tokenizer(train_tokenizer((text for text in corpus()), 8009))
    exact = io.BytesIO()  # SentencePiece is asked for the very number of pieces
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(corpus()), model_writer=exact, vocab_size=tokenizer.vocabulary_size, model_type="bpe",
        byte_fallback=True, pad_id=0, unk_id=1, bos_id=2, eos_id=3, split_digits=True, minloglevel=2,
        normalization_rule_name="identity",
    )  # fmt: skip
    processor = sentencepiece.SentencePieceProcessor(model_proto=exact.getvalue())
    assert tokenizer.vocabulary_size < 8009
    assert tokenizer.visible_pieces(tf.range(tokenizer.vocabulary_size)) == [
        processor.id_to_piece(number) for number in range(processor.get_piece_size())
    ]


def test_an_error_of_the_sentences_is_raised_as_it_is():
    def sentences():
        yield "the year"
        raise KeyError("of this test")

    with pytest.raises(KeyError, match="of this test") as caught:
        train_tokenizer(sentences(), VOCABULARY)
    assert caught.traceback[-1].name == "sentences"


def test_rare_characters_are_pieces_as_far_as_they_are_to_be_covered():
    text = ["the year"] * 97 + ["ŝ"]
    for coverage, pieces in ((1.0, ["▁ŝ"]), (0.98, ["▁", "<0xC5>", "<0x9D>"])):
        tokenizer = Tokenizer(train_tokenizer(text, VOCABULARY, coverage))
        assert tokenizer.visible_pieces(tokenizer.encode(tf.constant(["ŝ"])).values) == pieces


@pytest.mark.parametrize("size", [VOCABULARY, 8009], ids=["enough text", "too little text"])
def test_a_corpus_may_stream(size):
    streamed = train_tokenizer(BothSides([(text, text.upper()) for text in corpus(37)]), size)
    listed = train_tokenizer([side for text in corpus(37) for side in (text, text.upper())], size)
    ids, expected = (Tokenizer(model).encode(tf.constant(corpus())).to_list() for model in (streamed, listed))
    assert ids == expected


def test_the_sample_of_a_large_corpus_is_always_the_same(monkeypatch, model):
    monkeypatch.setattr(tokenizer_module, "MOST_TRAINING_SENTENCES", 101)
    pieces = [Tokenizer(train_tokenizer(corpus(), VOCABULARY)) for _ in range(2)]
    once, again = (tokenizer.encode(tf.constant(corpus())).to_list() for tokenizer in pieces)
    assert once == again != Tokenizer(model).encode(tf.constant(corpus())).to_list()


def test_a_tokenizer_from_a_file_is_the_same(tokenizer, model, tmp_path):
    (tmp_path / "tokenizer.model").write_bytes(model)
    loaded = Tokenizer.load(str(tmp_path / "tokenizer.model"))
    ids = loaded.encode(tf.constant(corpus()))
    assert ids.to_list() == tokenizer.encode(tf.constant(corpus())).to_list()
    assert loaded.vocabulary_size == tokenizer.vocabulary_size


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(TokenizerError, match=r"^no tokenizer at .*nowhere\.model.*train\.py.*$"):
        Tokenizer.load(tmp_path / "nowhere.model")


@pytest.mark.parametrize("keep", ["garbage", "nothing", "half"])
def test_a_damaged_file_is_named_in_one_clear_line(model, tmp_path, keep):
    path = tmp_path / "tokenizer.model"
    path.write_bytes({"garbage": b"not a model", "nothing": b"", "half": model[: len(model) // 2]}[keep])
    with pytest.raises(TokenizerError) as caught:
        Tokenizer.load(path)
    message = str(caught.value)
    assert message.startswith(f"{path} is not a SentencePiece model")
    assert "\n" not in message and "function_node" not in message


def test_training_and_loading_print_nothing(tmp_path, capfd):
    path = tmp_path / "tokenizer.model"
    path.write_bytes(train_tokenizer(corpus(83), VOCABULARY))  # a model loaded before would be taken from a cache
    Tokenizer.load(path).encode(tf.constant(["the year"]))
    assert capfd.readouterr() == ("", "")


# Models of other programs.


def spm_train(path, **settings):
    """A model as SentencePiece's own program writes it."""
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(corpus(83)), model_prefix=str(path), vocab_size=101, minloglevel=2, **settings
    )
    return path.with_suffix(".model")


def test_a_model_of_another_program_is_read_as_it_is(tmp_path):
    path = spm_train(tmp_path / "unigram", pad_id=0, unk_id=1, bos_id=2, eos_id=3)
    assert read_model(path) == path.read_bytes()
    assert round_trip(Tokenizer(read_model(path)), "the year") == ["the year"]


def test_other_control_symbols_are_refused_with_the_flags_that_give_ours(tmp_path):
    path = spm_train(tmp_path / "default")
    with pytest.raises(TokenizerError) as caught:
        read_model(path)
    assert str(caught.value) == (
        f"the control symbols of {path} have other ids than ours. Received: no pad, unk 0, bos 1, eos 2. "
        "Train it with spm_train --pad_id=0 --unk_id=1 --bos_id=2 --eos_id=3"
    )


def test_a_model_that_cannot_be_read_is_named(tmp_path):
    with pytest.raises(FileError, match=f"^cannot read {tmp_path / 'nowhere.model'}: No such file"):
        read_model(tmp_path / "nowhere.model")
    with pytest.raises(FileError, match=f"^cannot read {tmp_path}: Is a directory"):
        read_model(tmp_path)
    (tmp_path / "text").write_text("one two", encoding="utf-8")
    with pytest.raises(TokenizerError, match=f"^{tmp_path / 'text'} is not a SentencePiece model"):
        read_model(tmp_path / "text")


# Both tokenizers of a model.


@pytest.fixture(scope="module")
def other():
    return Tokenizer(train_tokenizer([text[::-1] for text in corpus(97)], 307))


def test_a_shared_tokenizer_is_one_file_and_one_object(tokenizer, tmp_path):
    save_tokenizers(tmp_path, tokenizer, tokenizer)
    assert [path.name for path in tmp_path.iterdir()] == [SHARED]
    source, target = load_tokenizers(tmp_path)
    assert source is target and source.model == tokenizer.model


def test_two_tokenizers_come_back_on_their_sides(tokenizer, other, tmp_path):
    save_tokenizers(tmp_path, tokenizer, other)
    assert sorted(path.name for path in tmp_path.iterdir()) == [SOURCE, TARGET]
    assert [found.model for found in load_tokenizers(str(tmp_path))] == [tokenizer.model, other.model]


def test_two_tokenizers_of_one_vocabulary_divide_differently_and_write_the_same():
    pieces, characters = tiny.tokenizer(), tiny.spelling_tokenizer()
    assert pieces.vocabulary_size == characters.vocabulary_size
    long, short = pieces.encode(["seven nine"]), characters.encode(["seven nine"])
    assert long.row_lengths()[0] < short.row_lengths()[0]
    for ids in (long, short):
        assert [tokenizer.decode(ids).numpy()[0] for tokenizer in (pieces, characters)] == [b"seven nine"] * 2


@pytest.mark.parametrize(("names", "missing"), [((), SHARED), ((SOURCE,), TARGET), ((TARGET,), SOURCE)])
def test_a_missing_tokenizer_of_either_side_is_named(model, tmp_path, names, missing):
    for name in names:
        (tmp_path / name).write_bytes(model)
    with pytest.raises(TokenizerError, match=f"^no tokenizer at {tmp_path / missing}"):
        load_tokenizers(tmp_path)


# Control symbols around sentences.


@pytest.mark.parametrize("run", [lambda f: f, tf.function], ids=["eager", "graph"])
@pytest.mark.parametrize("rows", [[[5, 7], [], [11]], [[5]], [[]], []], ids=str)
def test_eos_ends_every_row(rows, run):
    ended = run(with_eos)(tf.ragged.constant(rows, dtype=tf.int32, ragged_rank=1))
    assert ended.dtype == tf.int32 and ended.to_list() == [[*row, EOS_ID] for row in rows]


@pytest.mark.parametrize("run", [lambda f: f, tf.function], ids=["eager", "graph"])
def test_the_decoder_reads_bos_and_every_label_but_eos(run):
    labels = tf.constant([[5, 7, 11, 3], [13, 3, 0, 0], [3, 0, 0, 0]])
    assert run(shift_right)(labels).numpy().tolist() == [[2, 5, 7, 11], [2, 13, 0, 0], [2, 0, 0, 0]]


def test_placeholders_are_whole_pieces_and_without_them_the_model_is_as_before(model):
    assert train_tokenizer(corpus(), VOCABULARY, placeholders=()) == model
    assert not Tokenizer(model).has_placeholders
    tokenizer = Tokenizer(train_tokenizer(corpus(), VOCABULARY, placeholders=PLACEHOLDERS))
    assert tokenizer.has_placeholders
    text = "".join(PLACEHOLDERS) + "x⟦3⟧y, ⟦12⟧ ⟦ ⟧"
    ids = tokenizer.encode([text])
    assert tokenizer.decode(ids).numpy()[0].decode() == text
    pieces = tokenizer.visible_pieces(ids.values)
    assert [piece for piece in pieces if piece in PLACEHOLDERS] == [*PLACEHOLDERS, "⟦3⟧"]
