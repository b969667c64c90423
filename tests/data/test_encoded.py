import itertools
import os

import pytest
import sentencepiece

from keras_transformer.config import EOS_ID
from keras_transformer.data import encoded
from keras_transformer.data.encoded import EncodedPairs, Sentences, encode_pairs, make_once
from keras_transformer.errors import CorpusError, FileError
from keras_transformer.tokenizer import Tokenizer, train_tokenizer

PAIRS = [(f"a house for {n} cats", f"ein Haus für {n} Katzen und {n**5} Mäuse") for n in range(23)]


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer(train_tokenizer([text for pair in PAIRS for text in pair], 307))


@pytest.fixture(scope="module")
def processor(tokenizer):
    """The oracle: the same model in the sentencepiece package."""
    return sentencepiece.SentencePieceProcessor(model_proto=tokenizer.model)


@pytest.fixture
def encode(tokenizer, tmp_path):
    """`encode_pairs` with one tokenizer for both sides, into a new directory."""
    names = itertools.count()

    def encode(pairs, max_length, **arguments):
        (directory := tmp_path / str(next(names))).mkdir()
        return encode_pairs(pairs, tokenizer, tokenizer, max_length, directory, **arguments)

    return encode


def with_eos(rows):
    return [[*row, EOS_ID] for row in rows]


def test_pairs_are_tokenised_in_order_and_only_targets_end_with_eos(encode, processor):
    pairs = encode(iter(PAIRS), 101)
    sources, targets = zip(*PAIRS, strict=True)
    assert pairs.source.lists() == processor.encode(list(sources))
    assert pairs.target.lists() == with_eos(processor.encode(list(targets)))
    assert len(pairs) == len(PAIRS) and sum(pairs.dropped.values()) == 0
    assert pairs.target_pieces.tolist() == [len(processor.encode(target)) for target in targets]  # without eos


def test_pairs_with_a_blank_or_a_longer_side_are_dropped_and_counted(encode, processor):
    blank = [("", "eins"), ("two", ""), ("  ", "drei"), ("four", "\t\n"), ("\u00a0", "\u3000"), ("\u200b\ufeff", "six")]
    for pairs in (PAIRS, [pair[::-1] for pair in PAIRS]):  # the target is longer, or the source
        longest = {pair: max(map(len, processor.encode(list(pair)))) for pair in pairs}
        limit = sorted(longest.values())[11]
        sources, targets = zip(*(pair for pair in pairs if longest[pair] <= limit), strict=True)
        kept = encode([blank[0], *pairs[:3], *blank[1:], *pairs[3:]], limit)
        assert kept.source.lists() == processor.encode(list(sources))
        assert kept.target.lists() == with_eos(processor.encode(list(targets)))
        assert kept.dropped == {"blank on one side": 6, f"longer than {limit} tokens": len(pairs) - len(sources)}
        assert 0 < len(kept) < len(pairs)


def test_nothing_is_lost_between_chunks(encode, monkeypatch):
    long = ("a house " * 97, "ein Haus")
    pairs = [*PAIRS[:11], *[("", "x")] * 14, *[long] * 15, *PAIRS[11:]]  # chunks wholly blank, and wholly too long
    whole = encode(pairs, 101)
    monkeypatch.setattr(encoded, "CHUNK", 7)
    in_chunks = encode(iter(pairs), 101)
    assert in_chunks.source.lists() == whole.source.lists() and in_chunks.target.lists() == whole.target.lists()
    assert in_chunks.dropped == whole.dropped == {"blank on one side": 14, "longer than 101 tokens": 15}
    assert len(in_chunks) == len(PAIRS)


def test_no_pair_left_is_an_error_that_says_why(encode):
    for pairs, reasons in (([], "0 blank on one side, 0"), ([*PAIRS, ("", " ")], "1 blank on one side, 23")):
        with pytest.raises(CorpusError, match=rf"files:DIR, train: .*\({reasons} longer than 2 tokens\)"):
            encode(pairs, 2, name="files:DIR, train")


def test_description_counts_pairs_tokens_and_reasons(tmp_path):
    source, target = Sentences.of_lists([[5] * 1009, [7]]), Sentences.of_lists(with_eos([[5, 7], [11]]))
    counts = {"blank on one side": 0, "longer than 2003 tokens": 1499}
    described = EncodedPairs(source, target, counts).describe()
    assert described == "2 pairs (1,010 source and 3 target tokens); dropped 1,499 longer than 2003 tokens"
    assert EncodedPairs(source, target, dict.fromkeys(counts, 0)).describe().endswith("; none dropped")
    pairs = encode_pairs([("5", ""), ("5", "7")], Pieces(97), Pieces(89), 101, tmp_path)
    assert pairs.describe() == "1 pair (1 source and 1 target token); dropped 1 blank on one side"


def test_opened_pairs_are_those_written_last_and_read_only(tokenizer, tmp_path):
    for some in (PAIRS[:7], [("", "eins"), *PAIRS[:3]]):
        pairs = encode_pairs(some, tokenizer, tokenizer, 101, tmp_path)
    again = EncodedPairs.open(tmp_path)
    assert again.source.lists() == pairs.source.lists() and again.target.lists() == pairs.target.lists()
    assert len(again) == 3 and again.dropped == {"blank on one side": 1, "longer than 101 tokens": 0}
    for sentences in (again.source, again.target):
        assert not sentences.ids.flags.writeable and not sentences.starts.flags.writeable


class Pieces:
    """A tokenizer with a vocabulary of any size: ids are the numbers in the text."""

    def __init__(self, vocabulary_size):
        self.vocabulary_size = vocabulary_size

    def tokenize(self, texts):
        return [[int(number) for number in text.split()] for text in texts]


@pytest.mark.parametrize(("size", "width", "larger"), [(256, 1, 0), (257, 2, 1), (2**16, 2, 0), (2**16 + 1, 4, 1)])
def test_ids_are_stored_in_the_smallest_type_that_holds_both_vocabularies(size, width, larger, tmp_path):
    tokenizers = [Pieces(size if larger == side else 97) for side in (0, 1)]
    pairs = encode_pairs([(f"4 {size - 1}", "5"), ("7", f"{size - 1}")], *tokenizers, 3, tmp_path)
    assert pairs.source.lists() == [[4, size - 1], [7]] and pairs.target.lists() == with_eos([[5], [size - 1]])
    assert (tmp_path / "source_ids").stat().st_size == 3 * width


def test_every_chunk_is_on_disk_before_the_next_one_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(encoded, "CHUNK", 7)
    written = []

    def pairs():
        for number in range(5 * 7 + 1):
            if number % 7 == 0 and number:
                written.append((tmp_path / "target_ids").stat().st_size)
            yield "5", "7 11 13"

    encode_pairs(pairs(), Pieces(97), Pieces(89), 101, tmp_path)
    assert written == [chunks * 7 * 4 for chunks in range(1, 6)]  # ids of one byte, eos among them


# Files that are made once.

INGREDIENTS = {"corpus": "en to de, 23 bytes", "max_length": 31}
CONTENT = {"ids": b"\x05\x07\x0b", "starts": bytes(17)}


@pytest.fixture
def directory(tmp_path):
    return tmp_path / "tokens" / "train"


def calls(directory, ingredients=INGREDIENTS, before_last=lambda: None):
    """How often a start with these ingredients makes the directory; it is whole afterwards."""
    made = []

    def make(unfinished):
        assert list(unfinished.iterdir()) == []
        made.append(unfinished)
        (unfinished / "ids").write_bytes(CONTENT["ids"])
        before_last()
        (unfinished / "starts").write_bytes(CONTENT["starts"])

    make_once(directory, ingredients, make)
    assert {name: (directory / name).read_bytes() for name in CONTENT} == CONTENT
    assert [path.name for path in directory.parent.iterdir()] == [directory.name]
    return len(made)


def test_a_directory_is_made_once_without_a_word_and_files_that_others_leave_there_do_no_harm(directory, capsys):
    """The rest of a start that was killed is cleared away."""
    unfinished = directory.with_name(f".train.{os.getpid()}.0a1b.partial")
    unfinished.mkdir(parents=True)
    (unfinished / "ids").write_bytes(b"half")
    assert [calls(directory) for _ in range(3)] == [1, 0, 0]
    (directory / ".DS_Store").write_bytes(b"13")
    assert calls(directory) == 0 and capsys.readouterr().out == ""


DAMAGE = [
    lambda path: (path / "starts").write_bytes(bytes(16)),  # a file cut short
    lambda path: (path / "ids").write_bytes(b"\x05\x07\x0a"),  # one other bit
    lambda path: (path / "ids").rename(path / "starts"),
    lambda path: (path / "ids").unlink(),
    lambda path: (path / "index.json").unlink(),
    lambda path: (path / "index.json").write_text('{"ingredients"'),
    lambda path: (path / "index.json").write_text("[17]"),
    lambda path: (path / "index.json").write_text('{"ingredients": {}}'),
]


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_one_is_made_anew_with_a_line_that_says_so(directory, capsys, damage):
    calls(directory)
    damage(directory)
    assert [calls(directory) for _ in range(2)] == [1, 0]
    (line,) = capsys.readouterr().out.splitlines()
    assert str(directory) in line and line.endswith(": made anew")


@pytest.mark.parametrize("stop", [KeyboardInterrupt(), OSError(28, "No space left on device")])
def test_an_interruption_leaves_nothing_that_is_taken_for_whole_and_the_old_one_as_it_was(directory, stop):
    def stopped():
        raise stop

    for makes, ingredients in ((1, INGREDIENTS), (0, INGREDIENTS | {"max_length": 37})):
        before = [*directory.parent.glob("*")]
        pytest.raises((KeyboardInterrupt, FileError), calls, directory, ingredients, stopped)
        assert [*directory.parent.glob("*")] == before and calls(directory) == makes
