import contextlib
from dataclasses import replace
from types import SimpleNamespace

import pytest
import yaml

from keras_transformer.data.corpora import Corpus
from keras_transformer.evaluation import Evaluation, measure
from keras_transformer.training import final_score
from keras_transformer.training.final_score import score_model, write_results
from keras_transformer.training.run_directory import RunDirectory
from keras_transformer.training.tensorboard import EventWriter
from keras_transformer.training.validation import Part, ValidationBleu
from keras_transformer.training.watchers import Progress
from tests import tiny
from tests.training.curves import read_events

MODEL = SimpleNamespace(averaged=contextlib.nullcontext)
PAIRS = [(f"source {n}", f"reference {n}") for n in range(7)]


def test_translations_are_scored_against_the_references_and_the_first_are_shown_as_a_table(tmp_path):
    few = [("a|b", "c | d"), *PAIRS[:1]]
    for name, pairs, shown in (("many", [*few, *PAIRS[1:]], 5), ("fewer than the table has room for", few, 2)):
        writer, scored, logs = EventWriter(tmp_path / name), [], {"val_loss": 3.0}

        def score(translations, references, scored=scored):
            scored.append((translations, references))
            return 12.5

        part = Part("", lambda texts: [text.upper() for text in texts], score, pairs, samples=5, said=2)
        ValidationBleu([part], writer, Progress(step=17))(MODEL, logs)
        writer.close()
        assert logs == {"val_loss": 3.0, "val_bleu": 12.5}
        assert scored == [([source.upper() for source, _ in pairs], [reference for _, reference in pairs])]
        ((step, table),) = read_events(tmp_path / name)["samples"]
        header, line, *rows = table.splitlines()
        assert (step, header, line) == (17, "| source | reference | translation |", "|---|---|---|")
        assert rows[:2] == ["| a/b | c / d | A/B |", "| source 0 | reference 0 | SOURCE 0 |"]
        assert len(rows) == shown


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


# The score of the finished model.


@pytest.fixture
def run(tmp_path, monkeypatch):
    """A `RunDirectory` whose model repeats its input."""
    echo = SimpleNamespace(translate=lambda texts, on_progress: list(texts))
    monkeypatch.setattr(final_score, "load_translator", lambda run, strategy: echo)
    return RunDirectory(tmp_path)


@pytest.fixture
def config(tmp_path):
    return tiny.config("corpus", tmp_path, beam_size=3, length_penalty=0.7)


def data_of(test, *others):
    validation = [("one", "one"), ("two", "zwei")]
    corpora = [Corpus(f"files:{name}", "en", "de", [], validation, split, {}) for name, split in others]
    return SimpleNamespace(corpus=Corpus("files:a", "en", "de", [], validation, test, {}, others=tuple(corpora)))


def exactly_right(translations, references, target_lang):
    """An `Evaluation` whose BLEU is the share of texts that are right."""
    right = sum(one == other for one, other in zip(translations, references, strict=True))
    return Evaluation(*[100 * right / len(references)] + [None] * 5)


def test_results_name_the_scored_set_and_the_search(run, config):
    evaluation = measure(["one two"] * 7, ["one three"] * 7)
    write_results(config, run, data_of(None), "validation", evaluation)
    results = yaml.safe_load(run.results.read_text(encoding="utf-8"))
    assert [results.pop(name) for name in ("source_lang", "target_lang", "set")] == ["en", "de", "validation"]
    assert [results.pop(name) for name in ("beam_size", "length_penalty")] == [3, 0.7]
    assert Evaluation(**results) == evaluation


@pytest.mark.parametrize(
    ("test", "expected"), [([("one", "one")], ("test", 100)), (None, ("validation", 50)), ([], ("validation", 50))]
)
def test_the_test_set_is_scored_or_else_the_validation_set(run, config, test, expected):
    split, evaluation = score_model(config, run, data_of(test), exactly_right)
    assert (split, evaluation.bleu) == expected
    results = yaml.safe_load(run.results.read_text(encoding="utf-8"))
    assert (results["set"], results["bleu"]) == expected and "other_corpora" not in results


def test_every_corpus_of_a_mixture_is_scored_on_its_own_set(run, config, capsys, caplog):
    data = data_of([("one", "eins")], ("b", [("one", "one")]), ("c", None))
    with caplog.at_level("INFO", logger="keras_transformer"):
        split, evaluation = score_model(config, run, data, exactly_right)
    assert (split, evaluation.bleu) == ("test", 0)
    results = yaml.safe_load(run.results.read_text(encoding="utf-8"))
    assert (results["corpus"], results["set"], results["bleu"]) == ("files:a", "test", 0)
    others = [(scores["corpus"], scores["set"], scores["bleu"]) for scores in results["other_corpora"]]
    assert others == [("files:b", "test", 100), ("files:c", "validation", 50)]
    assert "scored      files:b: BLEU 100.0 on its test set" in caplog.messages
    assert "scored      files:c: BLEU 50.0 on its validation set" in caplog.messages


def test_each_direction_is_translated_and_measured_in_its_own_languages(run, config, monkeypatch):
    asked = []

    def translate(texts, on_progress, **languages):
        asked.append(languages)
        return list(texts)

    monkeypatch.setattr(final_score, "load_translator", lambda run, strategy: SimpleNamespace(translate=translate))
    data = data_of([("one", "eins")], ("b", [("one", "one")]))
    back = replace(data.corpus.others[0], source_lang="de", target_lang="en")
    data.corpus = replace(data.corpus, others=(back,))

    def evaluate(translations, references, target_lang):
        return replace(exactly_right(translations, references, target_lang), bleu={"de": 20.0, "en": 50.0}[target_lang])

    assert score_model(config, run, data, evaluate)[1].bleu == 20
    assert asked == [{"source_lang": "en", "target_lang": "de"}, {"source_lang": "de", "target_lang": "en"}]
    results = yaml.safe_load(run.results.read_text(encoding="utf-8"))
    assert (results["bleu"], results["other_corpora"][0]["bleu"], results["mean_bleu"]) == (20, 50, 35)
