import json
import re

from keras_transformer.tools.cleaning.examination import STEPS, Examined
from keras_transformer.tools.cleaning.report import EXAMPLES, Tally, report_page
from keras_transformer.tools.cleaning.settings import HELP

SETTINGS = {name: True for name in HELP}
NASTY = "</script><script>alert(1)"


def data_of(examined):
    tally = Tally()
    for one in examined:
        tally.count(one)
    pairs = {"read": tally.read, "kept": tally.kept, "mended": tally.mended}
    about = {"corpus": "files:raw", "source_lang": "en", "target_lang": "de", "settings": SETTINGS, "pairs": pairs}
    page = report_page(about, tally)
    assert page.count("</script>") == 2 and "http-equiv" in page and "://" not in page.replace("http://www.w3.org", "")
    return json.loads(re.search(r'id="data">(.*?)</script>', page)[1])


def test_each_step_has_its_count_its_share_and_examples():
    dropped = [Examined((f"{NASTY} {n}", "b"), ("a", "b"), "language_odds", "fr") for n in range(EXAMPLES + 3)]
    data = data_of([*dropped, Examined(("c\u200b", "d"), ("c", "d")), Examined(("e", "f"), ("e", "f"))])
    steps = {step["name"]: step for step in data["steps"]}
    assert list(steps) == ["normalize", *STEPS]
    odds = steps["language_odds"]
    assert (odds["count"], odds["share"], len(odds["examples"])) == (EXAMPLES + 3, (EXAMPLES + 3) / 15, EXAMPLES)
    assert odds["examples"][0] == {"source": f"{NASTY} 0", "target": "b", "detail": "fr"}
    assert steps["normalize"]["examples"] == [{"source": "c[U+200B]", "target": "d", "detail": "c | d"}]
    assert data["about"] == "2 pairs of 15 stay. The text of 1 of these was mended."


def test_the_distributions_count_all_pairs_before_and_those_that_stay_after():
    kept = Examined(("a" * 15, "b" * 30), ("a" * 15, "b" * 30))
    long = Examined(("a" * 5000, "b"), ("a", "b"), "max_ratio")
    data = data_of([kept, long, Examined(("", "b"), ("", "b"), "blank")])
    source, target, ratio = [{name: counts for name, *counts in chart["bars"]} for chart in data["charts"]]
    assert source["10 to 19"] == [1, 1] and source["300 or more"] == [1, 0] and source["0 to 9"] == [1, 0]
    assert target["30 to 39"] == [1, 1] and target["0 to 9"] == [2, 0]
    assert ratio["2"] == [1, 1] and sum(before for before, _ in ratio.values()) == 2


def test_a_near_duplicate_shows_the_pair_that_it_is_like_and_a_corpus_without_a_pair_has_a_report():
    data = data_of([Examined(("a", "b"), ("a", "b"), "near_duplicates", ["c", "d"])])
    (step,) = (step for step in data["steps"] if step["count"])
    assert step["examples"] == [{"source": "a", "target": "b", "detail": "c | d"}]
    assert data_of([])["charts"][0]["bars"] == [["0 to 9", 0, 0]]
