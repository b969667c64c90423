import contextlib
from types import SimpleNamespace

from keras_transformer.training.tensorboard import EventWriter
from keras_transformer.training.validation import Part, ValidationBleu
from keras_transformer.training.watchers import Progress
from tests.training.curves import read_events

MODEL = SimpleNamespace(averaged=contextlib.nullcontext)
PAIRS = [(f"source {n}", f"reference {n}") for n in range(7)]


def validation_bleu(log_dir, pairs=PAIRS, translate=lambda texts: [text.upper() for text in texts]):
    """The measure, and the arguments of every call of its score function."""
    scored = []

    def score(translations, references):
        scored.append((translations, references))
        return 12.5

    writer = EventWriter(log_dir)
    part = Part("", translate, score, pairs, samples=5, said=2)
    return ValidationBleu([part], writer, Progress(step=17)), scored


def test_translations_of_the_sources_are_scored_against_the_references(tmp_path):
    bleu, scored = validation_bleu(tmp_path)
    logs = {"val_loss": 3.0}
    bleu(MODEL, logs)
    assert logs == {"val_loss": 3.0, "val_bleu": 12.5}
    assert scored == [([f"SOURCE {n}" for n in range(7)], [f"reference {n}" for n in range(7)])]


def test_the_first_translations_are_shown_as_a_table(tmp_path):
    bleu, _ = validation_bleu(tmp_path, [("a|b", "c | d"), *PAIRS])
    bleu(MODEL, {})
    bleu.writer.close()
    ((step, table),) = read_events(tmp_path)["samples"]
    assert step == 17
    header, line, *rows = table.splitlines()
    assert header == "| source | reference | translation |" and line == "|---|---|---|"
    assert rows[:2] == ["| a/b | c / d | A/B |", "| source 0 | reference 0 | SOURCE 0 |"]
    assert len(rows) == 5


def test_the_mean_of_all_directions_counts_and_each_is_shown_and_drawn(tmp_path, caplog):
    directions = [
        ("en-de", str.upper, lambda *texts: 20.0, PAIRS[:3]),
        ("de-en", str.title, lambda *texts: 50.0, PAIRS[3:]),
    ]
    directions = [Part(name, lambda texts, f=f: [*map(f, texts)], *rest) for name, f, *rest in directions]
    writer, logs = EventWriter(tmp_path), {"val_loss": 3.0}
    with caplog.at_level("INFO", logger="keras_transformer"):
        ValidationBleu(directions, writer, Progress(step=17))(MODEL, logs)
    writer.close()
    assert logs == {"val_loss": 3.0, "val_bleu": 35.0, "val_bleu/en-de": 20.0, "val_bleu/de-en": 50.0}
    events = read_events(tmp_path)
    assert (events["bleu/en-de"], events["bleu/de-en"]) == ([(17, 20.0)], [(17, 50.0)])
    rows = ["| source 0 | reference 0 | SOURCE 0 |", "| source 3 | reference 3 | Source 3 |"]
    assert events["samples"][0][1].splitlines()[2:] == rows
    assert [line.split() for line in caplog.messages] == [
        ["en-de:", "source", "0", "->", "SOURCE", "0"],
        ["de-en:", "source", "3", "->", "Source", "3"],
    ]


def test_fewer_sentences_than_the_table_has_room_for_are_enough(tmp_path):
    bleu, scored = validation_bleu(tmp_path, PAIRS[:2])
    bleu(MODEL, {})
    bleu.writer.close()
    assert scored == [(["SOURCE 0", "SOURCE 1"], ["reference 0", "reference 1"])]
    assert len(read_events(tmp_path)["samples"][0][1].splitlines()) == 4


def test_another_corpus_is_measured_whole_and_has_no_share_in_the_bleu(tmp_path, caplog):
    measures = {"loss": 3.0, "accuracy": 0.5, "perplexity": 7.0}
    model = SimpleNamespace(averaged=contextlib.nullcontext, evaluate=lambda *_, **__: {**measures, "padding": 0.25})
    first = Part("", lambda texts: texts, lambda *texts: 20.0, PAIRS, samples=1, said=0)
    other = Part("other", lambda texts: texts, lambda *texts: 50.0, PAIRS, (None, 3), samples=0, said=0)
    writer, logs = EventWriter(tmp_path), {}
    with caplog.at_level("INFO", logger="keras_transformer"):
        ValidationBleu([first, other], writer, Progress(step=17))(model, logs)
    writer.close()
    found = {f"{name}/other": value for name, value in {**measures, "bleu": 50.0}.items()}
    assert logs == {"val_bleu": 20.0, **{f"val_{name}": value for name, value in found.items()}}
    events = read_events(tmp_path)
    assert len(events.pop("samples")[0][1].splitlines()) == 3 and not caplog.messages
    assert events == {name: [(17, value)] for name, value in found.items()}
