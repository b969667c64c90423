import json
from collections import Counter

import pytest

from keras_transformer.data.corpora import open_corpus, pairs_corpus
from keras_transformer.errors import CorpusError, FileError
from keras_transformer.tools.cleaning.examination import STEPS, Examined
from keras_transformer.tools.cleaning.output import write_clean_corpus
from keras_transformer.tools.cleaning.report import EXAMPLES, Tally, report_page
from keras_transformer.tools.cleaning.settings import HELP, CleaningSettings
from tests.tools import pages

EXAMINED = [
    Examined(("one", "eins"), ("one", "eins")),
    Examined(("two\u200b", "zwei"), ("two", "zwei")),
    Examined(("three", ""), ("three", ""), "blank"),
    Examined(("four", "quatre"), ("four", "quatre"), "language_odds", "fr"),
]


def write(directory, examined=EXAMINED, corpus=None):
    corpus = corpus or pairs_corpus(iter([("a", "b")]), [("val\u200b", "gültig\r")], [("te\nst", "x")], "en", "de")
    return write_clean_corpus(directory, corpus, CleaningSettings(), ["held.en"], lambda scratch: iter(examined))


def test_a_prepared_corpus_opens_as_a_corpus_with_the_other_splits_untouched_and_everything_is_counted(tmp_path):
    about = write(tmp_path / "clean")
    corpus = open_corpus(f"files:{tmp_path / 'clean'}", "en", "de")
    assert list(corpus.train) == [("one", "eins"), ("two", "zwei")]
    assert list(corpus.validation) == [("val\u200b", "gültig ")] and list(corpus.test) == [("te st", "x")]
    lines = (tmp_path / "clean/dropped.jsonl").read_text("utf-8").splitlines()
    assert list(map(json.loads, lines)) == [
        {"step": "blank", "source": "three", "target": ""},
        {"step": "language_odds", "source": "four", "target": "quatre", "detail": "fr"},
    ]
    assert about["pairs"] == {"read": 4, "kept": 2, "mended": 1} and about["without"] == ["held.en"]
    assert Counter(about["dropped"]).total() == 2 and about["dropped"]["blank"] == 1
    assert json.loads((tmp_path / "clean/clean.json").read_text("utf-8")) == about
    assert about["settings"]["near_duplicates"] == 0.9


def test_held_out_pairs_are_no_split_of_the_output(tmp_path):
    (tmp_path / "other").mkdir()  # an empty directory is filled
    write(tmp_path / "other", corpus=pairs_corpus([("a", "b"), ("c", "d")], source_lang="en", target_lang="de"))
    names = {"clean.json", "dropped.jsonl", "report.html", "train.de", "train.en"}
    assert {path.name for path in (tmp_path / "other").iterdir()} == names


def test_after_an_error_nothing_is_left(tmp_path):
    def interrupted():
        yield EXAMINED[0]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write(tmp_path / "clean", interrupted())
    with pytest.raises(CorpusError, match=r"no pair of pairs stays \(blank 1, language_odds 1\)"):
        write(tmp_path / "clean", EXAMINED[2:])
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").touch()
    with pytest.raises(FileError, match="cannot write .*file/clean: Not a directory"):
        write(tmp_path / "file" / "clean")


EVIL = pages.EVIL.rstrip()


def data_of(examined):
    tally = Tally()
    for one in examined:
        tally.count(one)
    pairs = {"read": tally.read, "kept": tally.kept, "mended": tally.mended}
    about = {"corpus": "files:raw", "source_lang": "en", "target_lang": "de", "pairs": pairs}
    about["settings"] = dict.fromkeys(HELP, True)
    return pages.data_of(report_page(about, tally))


def test_each_step_has_its_count_its_share_and_examples():
    dropped = [Examined((f"{EVIL} {n}", "b"), ("a", "b"), "language_odds", "fr") for n in range(EXAMPLES + 3)]
    data = data_of([*dropped, Examined(("c\u200b", "d"), ("c", "d")), Examined(("e", "f"), ("e", "f"))])
    steps = {step["name"]: step for step in data["steps"]}
    assert list(steps) == ["normalize", *STEPS]
    odds = steps["language_odds"]
    assert (odds["count"], odds["share"], len(odds["examples"])) == (EXAMPLES + 3, (EXAMPLES + 3) / 15, EXAMPLES)
    assert odds["examples"][0] == {"source": f"{EVIL} 0", "target": "b", "detail": "fr"}
    assert steps["normalize"]["examples"] == [{"source": "c[U+200B]", "target": "d", "detail": "c | d"}]
    assert data["about"] == "2 pairs of 15 stay. The text of 1 of these was mended."
    # A near duplicate shows the pair that it is like.
    data = data_of([Examined(("a", "b"), ("a", "b"), "near_duplicates", ["c", "d"])])
    (step,) = (step for step in data["steps"] if step["count"])
    assert step["examples"] == [{"source": "a", "target": "b", "detail": "c | d"}]


def test_the_distributions_count_all_pairs_before_and_those_that_stay_after():
    kept = Examined(("a" * 15, "b" * 30), ("a" * 15, "b" * 30))
    long = Examined(("a" * 5000, "b"), ("a", "b"), "max_ratio")
    data = data_of([kept, long, Examined(("", "b"), ("", "b"), "blank")])
    source, target, ratio = [{name: counts for name, *counts in chart["bars"]} for chart in data["charts"]]
    assert source["10 to 19"] == [1, 1] and source["300 or more"] == [1, 0] and source["0 to 9"] == [1, 0]
    assert target["30 to 39"] == [1, 1] and target["0 to 9"] == [2, 0]
    assert ratio["2"] == [1, 1] and sum(before for before, _ in ratio.values()) == 2
    assert data_of([])["charts"][0]["bars"] == [["0 to 9", 0, 0]]  # a corpus without a pair has a report
