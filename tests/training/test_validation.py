import contextlib
from dataclasses import asdict, replace
from types import SimpleNamespace

import pytest
import yaml

from keras_transformer.data.corpora import Corpus
from keras_transformer.evaluation import Evaluation
from keras_transformer.training import final_score
from keras_transformer.training.final_score import score_model
from keras_transformer.training.run_directory import RunDirectory
from keras_transformer.training.tensorboard import EventWriter
from keras_transformer.training.validation import Part, ValidationBleu
from keras_transformer.training.watchers import Progress
from tests import tiny
from tests.training.curves import read_events

MODEL = SimpleNamespace(averaged=contextlib.nullcontext)
PAIRS = [(f"source {n}", f"reference {n}") for n in range(7)]


def validated(directory, *parts, model=MODEL):
    """(logs after an epoch, events)."""
    writer, logs = EventWriter(directory), {"val_loss": 3.0}
    ValidationBleu(parts, writer, Progress(step=17))(model, logs)
    writer.close()
    return logs, read_events(directory)


def test_translations_are_scored_against_the_references_and_the_first_are_shown_as_a_table(tmp_path):
    few = [("a|b", "c | d"), *PAIRS[:1]]
    for name, pairs, shown in (("many", [*few, *PAIRS[1:]], 5), ("fewer than the table has room for", few, 2)):
        scored = []

        def score(translations, references, scored=scored):
            scored.append((translations, references))
            return 12.5

        part = Part("", lambda texts: [text.upper() for text in texts], score, pairs, samples=5, said=2)
        logs, events = validated(tmp_path / name, part)
        assert logs == {"val_loss": 3.0, "val_bleu": 12.5}
        assert scored == [([source.upper() for source, _ in pairs], [reference for _, reference in pairs])]
        ((step, table),) = events["samples"]
        header, line, *rows = table.splitlines()
        assert (step, header, line) == (17, "| source | reference | translation |", "|---|---|---|")
        assert rows[:2] == ["| a/b | c / d | A/B |", "| source 0 | reference 0 | SOURCE 0 |"] and len(rows) == shown


def test_the_mean_of_all_directions_counts_and_each_is_shown_and_drawn(tmp_path, caplog):
    caplog.set_level("INFO", logger="keras_transformer")
    there = Part("en-de", lambda texts: [*map(str.upper, texts)], lambda *texts: 20.0, PAIRS[:3])
    back = Part("de-en", lambda texts: [*map(str.title, texts)], lambda *texts: 50.0, PAIRS[3:])
    logs, events = validated(tmp_path, there, back)
    assert logs == {"val_loss": 3.0, "val_bleu": 35.0, "val_bleu/en-de": 20.0, "val_bleu/de-en": 50.0}
    assert (events["bleu/en-de"], events["bleu/de-en"]) == ([(17, 20.0)], [(17, 50.0)])
    rows = ["| source 0 | reference 0 | SOURCE 0 |", "| source 3 | reference 3 | Source 3 |"]
    assert events["samples"][0][1].splitlines()[2:] == rows
    said = ["en-de: source 0 -> SOURCE 0", "de-en: source 3 -> Source 3"]
    assert [line.strip() for line in caplog.messages] == said


def test_another_corpus_is_measured_whole_and_has_no_share_in_the_bleu(tmp_path, caplog):
    caplog.set_level("INFO", logger="keras_transformer")
    measures = {"loss": 3.0, "accuracy": 0.5, "perplexity": 7.0}
    model = SimpleNamespace(averaged=contextlib.nullcontext, evaluate=lambda *_, **__: {**measures, "padding": 0.25})
    first = Part("", lambda texts: texts, lambda *texts: 20.0, PAIRS, samples=1, said=0)
    other = Part("other", lambda texts: texts, lambda *texts: 50.0, PAIRS, (None, 3), samples=0, said=0)
    logs, events = validated(tmp_path, first, other, model=model)
    found = {f"{name}/other": value for name, value in {**measures, "bleu": 50.0}.items()}
    assert logs == {"val_loss": 3.0, "val_bleu": 20.0, **{f"val_{name}": value for name, value in found.items()}}
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


def results_of(run):
    return yaml.safe_load(run.results.read_text(encoding="utf-8"))


def test_the_test_set_is_scored_or_else_the_validation_set_and_the_results_name_it_and_the_search(run, config):
    for test, expected in (([("one", "one")], ("test", 100)), (None, ("validation", 50)), ([], ("validation", 50))):
        split, evaluation = score_model(config, run, data_of(test), exactly_right)
        assert (split, evaluation.bleu) == expected
        how = {"source_lang": "en", "target_lang": "de", "set": split, "beam_size": 3, "length_penalty": 0.7}
        assert results_of(run) == {**how, **asdict(evaluation)}


def test_every_corpus_of_a_mixture_is_scored_on_its_own_set(run, config, capsys, caplog):
    data = data_of([("one", "eins")], ("b", [("one", "one")]), ("c", None))
    with caplog.at_level("INFO", logger="keras_transformer"):
        split, evaluation = score_model(config, run, data, exactly_right)
    assert (split, evaluation.bleu) == ("test", 0)
    results = results_of(run)
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
    results = results_of(run)
    assert (results["bleu"], results["other_corpora"][0]["bleu"]) == (20, 50)
