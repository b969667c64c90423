"""The page in a real browser, from a file; its data against sacreBLEU and by hand."""

import pytest
import sacrebleu
from playwright.sync_api import expect

from keras_transformer.evaluation import bleu_metric
from keras_transformer.tools.comparison.report import System, Task, report_data, write_report
from keras_transformer.tools.comparison.significance import compare, intervals
from tests.tools.pages import EVIL, PHONE, data_of

REFERENCES = ["the cat sat on the mat", "a dog runs over the green field", "two men stand on a hill by the sea"]
REFERENCES += ["يَقْرَأُ الْوَلَدُ كِتَابًا"]
ROWS = [[text] for text in REFERENCES]
SOURCES = ["die Katze saß auf der Matte", "ein Hund rennt über das Feld", "zwei Männer stehen am Meer", EVIL]
SYSTEM = ["the cat sat on the mat", "a dog runs over the the the field", "two men by the sea", "يَقْرَأُ الْوَلَدُ"]
BASELINE = ["the cat sat on a mat", "a dog runs over the green field", "zwei Männer stehen am Meer", f"x {EVIL}"]


def task(sources=SOURCES):
    return Task(ROWS, sources, bleu_metric("13a", [REFERENCES], None), {"sights": [0, 2], EVIL: [1, 3]})


@pytest.fixture(scope="module")
def scores():
    return compare(SYSTEM, BASELINE, REFERENCES, tokenize="13a", resamples=53)


@pytest.fixture(scope="module")
def written(scores, tmp_path_factory):
    path = tmp_path_factory.mktemp("report") / "report.html"
    systems = [System(f"runs/{EVIL}", SYSTEM, 0.81234), System("runs/old", BASELINE, 0.5)]
    write_report(path, systems, task(), scores, f"BLEU\n{EVIL}", comet="models/wmt22")
    return path


@pytest.fixture(scope="module")
def data(written):
    return data_of(written.read_text(encoding="utf-8"))


def test_no_text_of_the_corpus_is_markup(written, data):
    assert written.read_text(encoding="utf-8").isascii() and data["corpora"][1]["name"] == EVIL
    assert data["title"] == f"runs/{EVIL} against runs/old" and data["printed"] == f"BLEU\n{EVIL}"
    assert data["sentences"]["3"]["source"] == EVIL
    assert "".join(part for part, _ in data["sentences"]["3"]["systems"][1]["text"]) == f"x {EVIL}"


def test_one_system_is_told_by_its_references_where_no_source_and_no_training_corpus_is_known(data, tmp_path):
    scores = intervals(SYSTEM, REFERENCES, tokenize="13a", resamples=53)
    found = report_data([System("mine", SYSTEM)], task(sources=None), scores, model_dir=tmp_path)
    shown = [(score["signature"], score["p"]) for score in found["scores"][:3]]
    assert shown == [(score.signature, None) for score in scores]
    assert found["title"] == "mine" and found["length_of"] == "the reference"
    assert [fault["name"] for fault in found["faults"]] == ["repeats itself", "far too short", "far too long"]
    # What the reference has behind "the", the translation lacks; one more "the" is wrong.
    sentence = found["sentences"][1]
    (reference,) = sentence["references"]
    assert reference == [("a dog runs over the", 0), (" ", 0), ("green", 2), (" field", 0)]
    assert [part for part, mark in sentence["systems"][0]["text"] if mark == 2] == ["the the"]
    # Words are counted in the references where no training corpus is known.
    assert found["frequency_in"] == data["frequency_in"] and found["frequency_in"].startswith("the references")
    by_name = {group["name"]: (group["size"], group["recall"]) for group in data["frequencies"]}
    # More than once: four times "the", twice "on", twice "a".
    # The system lacks an "on" and an "a". The baseline lacks two "the" besides.
    assert by_name["2 to 9"] == (8, [6 / 8, 4 / 8])


def bleus_of(rows):
    """sacreBLEU's score of these rows for both systems."""
    *systems, references = ([of[row] for row in rows] for of in (SYSTEM, BASELINE, REFERENCES))
    return [sacrebleu.corpus_bleu(system, [references]).score for system in systems]


def test_bleu_of_each_length_and_the_precisions_are_those_of_sacrebleu(data):
    assert [(group["name"], group["size"]) for group in data["lengths"]] == [("3", 1), ("5", 1), ("6", 2)]
    for group, rows in zip(data["lengths"], ([3], [2], [0, 1]), strict=True):
        assert group["bleu"] == pytest.approx(bleus_of(rows))
        assert group["exact"] == [0.5 if group["name"] == "6" else 0] * 2
    assert [system["score"] for system in data["scores"][-1]["systems"]] == ["25.0%", "25.0%"]  # of all
    for texts, shown in zip((SYSTEM, BASELINE), data["precisions"], strict=True):
        bleu = sacrebleu.corpus_bleu(texts, [REFERENCES])
        assert shown["precisions"] == pytest.approx(bleu.precisions)
        assert shown["length"].startswith(f"{bleu.sys_len} words for {bleu.ref_len} ")
        assert shown["length"].endswith(f"{bleu.bp:.3f}")


def test_faults_are_counted_and_listed(data):
    faults = {"repeats itself": [1, 0], "far too short": [1, 1], "far too long": [0, 0], "left as the source": [0, 1]}
    assert {fault["name"]: fault["counts"] for fault in data["faults"]} == faults
    lists = {each["name"]: each["rows"] for each in data["lists"]}
    assert lists["the system: repeats itself"] == [1] and lists["the baseline: left as the source"] == [2]
    systems = [[*zip(of, ROWS, strict=True)] for of in (SYSTEM, BASELINE)]
    ours, theirs = ([sacrebleu.sentence_chrf(*pair).score for pair in pairs] for pairs in systems)
    order = sorted(range(4), key=lambda row: theirs[row] - ours[row])
    assert lists["the baseline is better"] == order[3:] == [1] and lists["the system is better"] == order[:3]


@pytest.mark.slow
def test_a_reader_sees_both_systems_and_one_without_a_mistake_on_a_phone(opened, written, tmp_path):
    opened.goto(written.as_uri())
    expect(opened.get_by_role("heading", level=1)).to_have_text(f"runs/{EVIL} against runs/old")
    expect(opened.locator("#scores .card")).to_have_count(5)
    expect(opened.locator("#faults td")).to_have_text(["1", "0", "1", "1", "0", "0", "0", "1"])
    opened.get_by_label("Show").select_option("the baseline is better (1)")
    expect(opened.locator("#sentences mark.right")).to_have_text(["green"])
    expect(opened.locator("#sentences mark.wrong")).to_have_text(["the the"])
    opened.get_by_label("Show").select_option("the system: lowest chrF (3)")
    right_to_left = opened.locator("dd[dir=auto]", has_text="الْوَلَدُ").first
    assert right_to_left.evaluate("text => getComputedStyle(text).direction") == "rtl"
    opened.get_by_text("What evaluate.py has printed").click()
    expect(opened.locator("#printed")).to_have_text(f"BLEU\n{EVIL}")
    assert opened.evaluate("document.documentElement.scrollWidth") == PHONE["width"]
    scores = intervals(REFERENCES, REFERENCES, tokenize="13a", resamples=53)
    write_report(tmp_path / "one.html", [System("mine", REFERENCES)], task(sources=None), scores)
    opened.goto((tmp_path / "one.html").as_uri())
    expect(opened.locator("#sentences-section")).to_be_hidden()
    expect(opened.locator("#scores .card").first).to_contain_text("100.0")
    assert opened.evaluate("document.documentElement.scrollWidth") == PHONE["width"]
