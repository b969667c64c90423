"""back_translate and distil: programs that write sentence pairs, with translators that need no model."""

import shutil
from types import SimpleNamespace

import pytest

from keras_transformer import runs
from keras_transformer.cli import back_translate, distil
from keras_transformer.data.corpora import open_corpus
from keras_transformer.tags import check_direction
from keras_transformer.tools.back_translation import pairs
from keras_transformer.tools.back_translation.noise import add_noise
from keras_transformer.translation.results import Translation
from tests import tiny

PAIRS = tiny.learned_pairs()[:11]
LINES = [source for source, _ in PAIRS]
TEXTS = [*LINES[:5], "", *LINES[5:]]
CORPUS = [*PAIRS[:5], ("", ""), PAIRS[0]]
COMPLETE = {back_translate: [pairs.RECORD, "train.de", "train.en"]}
COMPLETE[distil] = ["distillation.json", "test.de", "test.en", "train.de", "train.en", "val.de", "val.en"]


class Writer:
    """A translator that notes what it is asked, and may be interrupted when it is asked for the third time."""

    tags, width, languages = None, 4, ("en", "de")

    def __init__(self, path):
        self.files, self.asked, self.is_interrupted = [path / "weights"], [], False

    def between(self, **languages):
        self.tags = languages and SimpleNamespace(default_codes=tuple(languages.values()))
        return self

    def translate(self, texts, on_progress):
        return [row[0].text.replace("\n", " ") for row in self.alternatives(texts, on_progress)]

    def alternatives(self, texts, on_progress):
        self.note(texts)
        return [[Translation(f"{text}\n{n}" if text else "", -n) for n in range(self.width)] for text in texts]

    def sample(self, texts, on_progress, seed, temperature=1.0):
        self.note(texts)
        rows = zip(texts, seed, strict=True)
        return [Translation(f"{text} {number} {temperature}" if text else "", 0.0) for text, number in rows]

    def note(self, texts):
        if self.is_interrupted and len(self.asked) == 2:
            raise KeyboardInterrupt
        self.asked.append(texts)


@pytest.fixture
def writer(tmp_path, monkeypatch):
    """A `Writer` instead of the model of every run; `run` is a directory of one from English to German."""
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "corpus.json").write_text('{"languages": "en to de"}')
    (tmp_path / "run" / "weights").write_text("weights")
    writer = Writer(tmp_path / "run")

    def load(path, checkpoint, batch_size, **search):
        writer.path = path
        return writer

    monkeypatch.setattr(runs, "load", load)
    return writer


@pytest.fixture
def first(tmp_path):
    """The flags that each program needs: its text has a blank line."""
    text = "\ufeff" + "\n".join(TEXTS) + "\r\n"
    (tmp_path / "mono.en").write_text(text, encoding="utf-8", newline="")
    (tmp_path / "mine").mkdir()
    for stem, some in {"train": CORPUS, "val": PAIRS[5:8], "test2016": PAIRS[8:]}.items():
        tiny.write_pairs(tmp_path / "mine", stem, some)
    flags = {back_translate: ["--model_dir", tmp_path / "run", "--monolingual", tmp_path / "mono.en"]}
    flags[distil] = ["--teacher", tmp_path / "run", "--dataset", f"files:{tmp_path}/mine@en-de"]
    return {program: [*own, "--output", tmp_path / "out"] for program, own in flags.items()}


@pytest.fixture
def written(run, writer, first, tmp_path):
    """A function from a program and more flags to the directory that the program writes."""

    def run_here(program, *flags, output="out"):
        run(program, *first[program], *flags, "--output", tmp_path / output)
        return tmp_path / output

    return run_here


def lines(path):
    return path.read_text(encoding="utf-8").split("\n")[:-1]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "flags"),
    [
        (back_translate, ["--method", "sample", "--tag"]),
        (distil, ["--teacher", "other", "--beam_size", 2, "--n_best", 2]),
    ],
)
def test_real_models_write_on_beam_what_they_write_here(learned, first, tmp_path, run, monkeypatch, program, flags):
    monkeypatch.chdir(tmp_path)
    for name in ("run", "other"):
        shutil.copytree(learned.path, name)
    (tmp_path / "run" / "corpus.json").write_text('{"languages": "en to de"}')
    for name, engine in {"here": [], "beam": ["--engine", "beam", "--direct_num_workers", 1]}.items():
        run(program, *first[program], *flags, "--output", tmp_path / name, *engine)
    for name in ("train.en", "train.de"):
        assert (tmp_path / "beam" / name).read_bytes() == (tmp_path / "here" / name).read_bytes()
    written = list(filter(None, lines(tmp_path / "here" / "train.de")))
    assert len(written) > len(CORPUS) / 2
    assert program is distil or all(line.startswith("<BT> ") for line in written)


def test_back_translated_pairs_are_a_corpus_whose_source_the_model_has_written(written):
    directory = written(back_translate, "--tag")
    assert lines(directory / "train.en") == TEXTS
    assert lines(directory / "train.de") == [f"<BT> {line} 0" if line else "" for line in TEXTS]
    corpus = open_corpus(f"files:{directory}", "de", "en")
    assert sum(1 for pair in (*corpus.train, *corpus.validation) if pair[0].startswith("<BT> ")) == len(LINES)
    # A model of many languages takes the direction that is given.
    directory = written(back_translate, "--source_lang", "fr", "--target_lang", "ja", output="many")
    assert (lines(directory / "train.fr")[0], lines(directory / "train.ja")[0]) == (LINES[0], f"{LINES[0]} 0")


def test_a_translation_may_have_noise_behind_the_tag_or_be_drawn_with_a_seed_of_its_own(written):
    noised = written(back_translate, "--tag", "[synth]", "--seed", "7", "--method", "noised", output="noised")
    clean = [f"{line} 0" if line else "" for line in TEXTS]
    assert lines(noised / "train.de") == [f"[synth] {add_noise(line, 7)}" if line else "" for line in clean]
    drawn = [written(back_translate, "--method", "sample", "--seed", seed, output=f"of {seed}") for seed in (1, 2)]
    numbers = [line.split()[-2] for directory in drawn for line in lines(directory / "train.de") if line]
    assert len(set(numbers)) == len(numbers) == 2 * len(LINES)


def test_distilled_pairs_are_a_corpus_of_the_training_text_and_what_the_teachers_write(written, writer, tmp_path):
    directory, texts = written(distil), lines(tmp_path / "mine" / "train.en")
    assert (directory / "train.en").read_bytes() == (tmp_path / "mine" / "train.en").read_bytes()
    assert lines(directory / "train.de") == [f"{line} 0" if line else "" for line in texts]
    whole = open_corpus(f"files:{directory}", "en", "de")
    assert (list(whole.validation), list(whole.test)) == (PAIRS[5:8], PAIRS[8:]) and not whole.held_out
    assert writer.path == tmp_path / "run"
    best = written(distil, "--n_best", 3, "--teacher", tmp_path / "b", output="best")
    assert writer.path == [tmp_path / "run", tmp_path / "b"]  # they are one ensemble
    assert lines(best / "train.en") == [text for text in texts for _ in range(3)]
    assert lines(best / "train.de") == [f"{text} {n}" if text else "" for text in texts for n in range(3)]


def test_a_text_without_validation_holds_some_out_for_good(written, tmp_path, capsys):
    for name in ("val.en", "val.de"):
        (tmp_path / "mine" / name).unlink()
    tiny.write_pairs(tmp_path / "mine", "train", tiny.pairs(60))
    real, whole = (open_corpus(f"files:{path}", "en", "de") for path in (tmp_path / "mine", written(distil)))
    assert real.held_out and "held out" in capsys.readouterr().out and list(whole.validation) == list(real.validation)
    assert [source for source, _ in whole.train] == [source for source, _ in real.train]


@pytest.mark.parametrize(
    ("program", "flags", "left"),
    [(back_translate, ["--method", "sample", "--temperature", "3"], [3, 3]), (distil, ["--n_best", 2], [1])],
)
def test_an_interrupted_text_goes_on_and_is_as_if_it_never_was_interrupted(
    written, writer, monkeypatch, capsys, tmp_path, program, flags, left
):
    expected = {path.name: path.read_bytes() for path in written(program, *flags, output="whole").iterdir()}
    monkeypatch.setattr("keras_transformer.tools.lines.CHUNK", 3)
    writer.asked, writer.is_interrupted = [], True
    with pytest.raises(SystemExit) as caught:
        written(program, *flags)
    printed = capsys.readouterr()
    assert caught.value.code == 130 and "the same command goes on from here" in printed.out
    assert printed.err.splitlines()[-1] == "interrupted" and not (tmp_path / "out" / "train.de").exists()
    writer.asked, writer.is_interrupted = [], False
    assert {path.name: path.read_bytes() for path in written(program, *flags).iterdir()} == expected
    assert list(map(len, writer.asked)) == left  # the chunks of three that were not done
    assert sorted(expected) == COMPLETE[program]
    written(program, *flags)
    assert "out is complete" in capsys.readouterr().out and len(writer.asked) == len(left)


def test_pairs_of_another_text_or_another_way_are_never_mixed(written, first, writer, mistake, tmp_path):
    directories = {program: written(program, output=program.__name__) for program in first}
    (tmp_path / "mono.en").write_text("one\n", encoding="utf-8")
    writer.files[0].write_text("other weights")
    for program, flags, change in (
        (back_translate, ["--tag"], "text, model, tag"),
        (distil, ["--n_best", 3], "teacher, n_best"),
    ):
        before = {path: path.read_bytes() for path in directories[program].iterdir()}
        line = mistake(program, *first[program], *flags, "--output", directories[program])
        assert line.endswith(f" has pairs of another {change}: remove it, or choose another --output")
        assert {path: path.read_bytes() for path in directories[program].iterdir()} == before


def test_a_corpus_that_is_there_already_stays_as_it_is(writer, first, mistake, tmp_path):
    (tmp_path / "out").mkdir()
    files = {"train.en": back_translate, "train.tsv": back_translate, "train.de": distil, "val.en": distil}
    for name, program in files.items():
        (tmp_path / "out" / name).write_text("mine\n")
        assert mistake(program, *first[program]) == f"error: {tmp_path}/out/{name} exists: choose another --output"
        (tmp_path / "out" / name).unlink()
        assert not [*(tmp_path / "out").iterdir()]


def test_a_mistake_is_one_line_and_writes_no_pairs(writer, first, mistake, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "blank").write_bytes(b"\n  \n")
    for program, flags, message in (
        (back_translate, ["--tag", "B T"], "--tag must be one word without spaces. Received: 'B T'"),
        (back_translate, ["--tag", ""], "--tag must not be empty"),
        (back_translate, ["--top_k", "3"], "--top_k needs --method sample"),
        (back_translate, ["--method", "sample", "--beam_size", "3"], "--beam_size does not go with --method sample"),
        (back_translate, ["--direct_num_workers", "2"], "unrecognized arguments: --direct_num_workers 2"),
        (back_translate, ["--batch_size", "0"], "--batch_size must be between 1 and"),
        (back_translate, ["--monolingual", "nowhere.en"], "cannot read nowhere.en"),
        (back_translate, ["--monolingual", "blank"], "has no text to translate"),
        (distil, ["--n_best", "5"], "--n_best must be at most the model's beam size, 4. Received: 5"),
        (distil, ["--n_best", "0"], "--n_best must be between 1 and"),
        (distil, ["--dataset", "files:more"], "--dataset names one corpus: distil each by itself. Received: files:"),
        (distil, ["--engine", "beam", "--no_such", "3"], "neither this program nor Apache Beam has a flag --no_such"),
    ):
        assert message in mistake(program, *first[program], *flags) and not list(tmp_path.glob("out/train.*"))


def test_a_corpus_that_the_teacher_cannot_translate_is_one_line(writer, mistake, tmp_path, monkeypatch, first):
    monkeypatch.setattr(Writer, "between", lambda self, **given: check_direction(self.languages, **given))
    flags = ["--teacher", "a", "--dataset", f"files:{tmp_path}/mine@de-en", "--output", tmp_path / "out"]
    message = "the model has one direction, and its --source_lang is en. Received: source_lang=de"
    assert message in mistake(distil, *flags) and not (tmp_path / "out").exists()
