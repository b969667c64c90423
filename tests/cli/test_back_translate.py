import gzip
import json
import shutil
import sys
from types import SimpleNamespace

import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_transformer import runs
from keras_transformer.cli import back_translate
from keras_transformer.data.corpora import open_corpus
from keras_transformer.normalization import mend
from keras_transformer.tokenizer import Tokenizer, train_tokenizer
from keras_transformer.tools.back_translation import pairs
from keras_transformer.tools.back_translation.noise import add_noise
from keras_transformer.training.checkpoints import load_translator
from keras_transformer.translation.results import Translation
from tests import tiny

LINES = [source for source, _ in tiny.learned_pairs()][:11]
TEXT = "\ufeff" + "\n".join([*LINES[:5], "", *LINES[5:]]) + "\r\n"


class Reverse:
    """A translator that notes what it is asked, and may be interrupted when it is asked for the third time."""

    tags = None

    def __init__(self, path):
        self.files, self.asked, self.is_interrupted = [path / "model.keras"], [], False

    def between(self, **languages):
        self.tags = languages and SimpleNamespace(default_codes=tuple(languages.values()))
        return self

    def translate(self, texts, on_progress):
        self.note(texts)
        return [f"übersetzt: {text} ." if text else "" for text in texts]

    def sample(self, texts, on_progress, seed, temperature=1.0):
        self.note(texts)
        rows = zip(texts, seed, strict=True)
        return [Translation(f"gezogen: {text} {number} {temperature}" if text else "", 0.0) for text, number in rows]

    def note(self, texts):
        if self.is_interrupted and len(self.asked) == 2:
            raise KeyboardInterrupt
        self.asked.append(texts)


@pytest.fixture
def reverse(tmp_path, monkeypatch):
    """The directory of a run of one to the other language, with a `Reverse` instead of a model."""
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "corpus.json").write_text('{"languages": "en to de"}')
    (tmp_path / "run" / "model.keras").write_text("weights")
    translator = Reverse(tmp_path / "run")
    monkeypatch.setattr(runs, "load", lambda path, checkpoint, batch_size, **search: translator)
    return translator


@pytest.fixture
def text(tmp_path):
    (tmp_path / "mono.en").write_text(TEXT, encoding="utf-8", newline="")
    return tmp_path / "mono.en"


@pytest.fixture
def first(reverse, text, tmp_path):
    """The flags that the program needs."""
    return ["--model_dir", tmp_path / "run", "--monolingual", text, "--output", tmp_path / "bt"]


@pytest.fixture
def back(monkeypatch, first, tmp_path):
    """A function from more flags to the directory that the program writes."""

    def run_here(*flags, output="bt"):
        monkeypatch.setattr(sys, "argv", ["program", *map(str, [*first, *flags, "--output", tmp_path / output])])
        back_translate.program()
        return tmp_path / output

    return run_here


def lines(path):
    return path.read_text(encoding="utf-8").split("\n")[:-1]


@pytest.mark.slow
def test_a_model_of_the_reverse_direction_writes_a_corpus(learned, text, tmp_path, monkeypatch):
    reverse = shutil.copytree(learned.path, tmp_path / "run")
    (reverse / "corpus.json").write_text('{"languages": "en to de"}')
    arguments = ["--model_dir", reverse, "--monolingual", text, "--output", tmp_path / "bt", "--beam_size", 2]
    monkeypatch.setattr(sys, "argv", ["program", *map(str, arguments)])
    back_translate.program()
    expected = load_translator(learned, beam_size=2).translate([*LINES[:5], "", *LINES[5:]])
    assert lines(tmp_path / "bt" / "train.de") == expected


@pytest.mark.slow
def test_beam_writes_the_same_pairs(learned, text, tmp_path, monkeypatch):
    reverse = shutil.copytree(learned.path, tmp_path / "run")
    (reverse / "corpus.json").write_text('{"languages": "en to de"}')
    for name, flags in {"here": [], "beam": ["--engine", "beam", "--direct_num_workers", 2]}.items():
        arguments = ["--model_dir", reverse, "--monolingual", text, "--output", tmp_path / name]
        monkeypatch.setattr(sys, "argv", ["program", *map(str, [*arguments, "--method", "sample", "--tag", *flags])])
        back_translate.program()
    for name in ("train.en", "train.de"):
        assert (tmp_path / "beam" / name).read_bytes() == (tmp_path / "here" / name).read_bytes()
    assert sum(line.startswith("<BT> ") for line in lines(tmp_path / "beam" / "train.de")) > len(LINES) / 2


def test_a_model_of_many_languages_takes_the_direction_that_is_given(back):
    written = back("--source_lang", "fr", "--target_lang", "ja")
    assert lines(written / "train.fr")[0] == LINES[0]
    assert lines(written / "train.ja")[0] == f"übersetzt: {LINES[0]} ."
    record = json.loads((written / "back_translation.json").read_text(encoding="utf-8"))
    assert (record["source_lang"], record["target_lang"]) == ("fr", "ja")


def test_flags_of_beam_are_errors_without_its_engine(first, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["program", *map(str, first), "--direct_num_workers", "2"])
    with pytest.raises(SystemExit):
        back_translate.program()
    assert "unrecognized arguments: --direct_num_workers 2" in capsys.readouterr().err


def test_the_pairs_are_a_corpus_whose_source_the_model_has_written(back):
    directory = back("--tag")
    assert lines(directory / "train.en") == [*LINES[:5], "", *LINES[5:]]
    assert lines(directory / "train.de") == [
        f"<BT> übersetzt: {line} ." if line else "" for line in lines(directory / "train.en")
    ]
    corpus = open_corpus(f"files:{directory}", "de", "en")
    assert sum(1 for pair in (*corpus.train, *corpus.validation) if pair[0].startswith("<BT> ")) == len(LINES)


def test_a_noised_translation_is_that_of_the_beam_with_noise_behind_the_tag(back):
    directory = back("--tag", "[synth]", "--seed", "7", "--method", "noised")
    clean = [f"übersetzt: {line} ." if line else "" for line in lines(directory / "train.en")]
    assert lines(directory / "train.de") == [f"[synth] {add_noise(line, 7)}" if line else "" for line in clean]


def test_every_text_is_drawn_with_a_seed_of_its_own(back):
    drawn = [lines(back("--method", "sample", "--seed", seed, output=f"bt{seed}") / "train.de") for seed in (1, 2)]
    numbers = [line.split()[-2] for found in drawn for line in found if line]
    assert len(set(numbers)) == len(numbers) == 2 * len(LINES)


@pytest.mark.parametrize("flags", [["--method", "sample", "--temperature", "3"], ["--method", "noised"]], ids=" ".join)
def test_an_interrupted_text_goes_on_and_is_as_if_it_never_was_interrupted(
    back, reverse, monkeypatch, capsys, tmp_path, flags
):
    expected = lines(back(*flags, output="whole") / "train.de")
    monkeypatch.setattr("keras_transformer.translation.lines.CHUNK", 3)
    reverse.asked, reverse.is_interrupted = [], True
    with pytest.raises(SystemExit) as caught:
        back(*flags)
    assert caught.value.code == 130 and capsys.readouterr().err.splitlines()[-1] == "interrupted"
    assert not (tmp_path / "bt" / "train.de").exists()
    reverse.asked, reverse.is_interrupted = [], False
    assert lines(back(*flags) / "train.de") == expected
    assert list(map(len, reverse.asked)) == [3, 3]  # the two chunks of three that were not done
    assert sorted(path.name for path in (tmp_path / "bt").iterdir()) == [pairs.RECORD, "train.de", "train.en"]
    back(*flags)
    assert "bt is complete" in capsys.readouterr().out and len(reverse.asked) == 2


@pytest.mark.parametrize("change", ["text", "seed", "tag", "method"])
def test_pairs_of_another_text_or_another_way_are_never_mixed(back, first, text, mistake, change):
    directory = back()
    before = {path: path.read_bytes() for path in directory.iterdir()}
    flags = {"seed": ["--seed", 5], "tag": ["--tag"], "method": ["--method", "noised"]}.get(change, [])
    if change == "text":
        text.write_text("one\n", encoding="utf-8")
    line = mistake(back_translate, *first, *flags)
    assert line == f"error: {directory} has pairs of another {change}: remove it, or choose another --output"
    assert {path: path.read_bytes() for path in directory.iterdir()} == before


@pytest.mark.parametrize("name", ["train.en", "train.de", "train.tsv"])
def test_a_corpus_that_is_there_already_stays_as_it_is(first, mistake, tmp_path, name):
    (tmp_path / "bt").mkdir()
    (tmp_path / "bt" / name).write_text("mine\n")
    assert mistake(back_translate, *first) == f"error: {tmp_path}/bt/{name} exists: choose another --output"
    assert [path.name for path in (tmp_path / "bt").iterdir()] == [name]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--tag", "B T"], "--tag must be one word without spaces. Received: 'B T'"),
        (["--tag", ""], "--tag must be one word"),
        (["--top_k", "3"], "--top_k needs --method sample"),
        (["--method", "sample", "--beam_size", "3"], "--beam_size does not go with --method sample"),
        (["--engine", "beam", "--no_such", "3"], "neither this program nor Apache Beam has a flag --no_such"),
        (["--batch_size", "0"], "--batch_size must be between 1 and"),
        (["--monolingual", "nowhere.en"], "cannot read nowhere.en"),
        (["--model_dir", "nowhere"], "no run in nowhere: nowhere/corpus.json does not tell its languages"),
    ],
    ids=str,
)
def test_a_mistake_is_one_line_and_writes_nothing(first, mistake, tmp_path, flags, message):
    assert message in mistake(back_translate, *first, *flags)
    assert not (tmp_path / "bt").exists()


DAMAGED = gzip.compress(b"one\n" * 50, mtime=0)[:-20]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("mono", b"\n  \n", "has no text to translate"),
        ("mono.gz", b"no gzip", "cannot read"),
        ("mono.gz", DAMAGED, "cannot read"),
    ],
)
def test_a_file_without_text_or_damaged_is_one_line(first, mistake, tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    assert message in mistake(back_translate, *first, "--monolingual", tmp_path / name)
    assert not list(tmp_path.glob("bt/train.*"))


def test_a_compressed_text_is_read(back, text, tmp_path):
    whole = lines(back(output="plain") / "train.de")
    with gzip.open(tmp_path / "mono.en.gz", "wb") as file:
        file.write(text.read_bytes())
    assert lines(back("--monolingual", tmp_path / "mono.en.gz", output="packed") / "train.de") == whole
    assert (tmp_path / "packed" / "train.en").read_bytes() == (tmp_path / "plain" / "train.en").read_bytes()


TAGGED = Tokenizer(train_tokenizer([f"<BT> {text}" for text in LINES] + LINES, 331))


@pytest.mark.parametrize("tokenizer", [tiny.tokenizer(), TAGGED], ids=["never seen", "trained on it"])
@settings(max_examples=20)
@given(text=st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\uffff\u2581"), max_size=23))
def test_a_tag_is_the_same_pieces_before_every_text_and_comes_back(tokenizer, text):
    tag, whole = (tokenizer.encode(tf.constant([line])) for line in ("<BT>", f"<BT> {text}"))
    assert whole[0].numpy()[: len(tag[0])].tolist() == tag[0].numpy().tolist()
    assert tokenizer.decode(whole).numpy()[0].decode() == mend(f"<BT> {text}")
