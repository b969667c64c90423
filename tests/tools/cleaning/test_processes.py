import os
import random
from collections import Counter

import pytest

from keras_transformer.errors import UserError
from keras_transformer.tools.cleaning import processes
from keras_transformer.tools.cleaning.examination import STEPS, Examiner, HeldOut
from keras_transformer.tools.cleaning.processes import clean_in_processes
from keras_transformer.tools.cleaning.settings import CleaningSettings
from tests import tiny
from tests.tools.cleaning.test_rules import DIRTY, GOOD

QUICK = CleaningSettings(language_odds=0, max_ratio=0, near_duplicates=0.8)


def dirty_pairs(seed=0):
    """Pairs with copies, near copies and blank sides, in an order that the seed decides."""
    pairs = [(f"{source}, number {n}.", f"{target}, Nummer {n}.") for n, (source, target) in enumerate(tiny.pairs(150))]
    pairs += pairs[:7] * 3 + [(source.upper(), f" {target}") for source, target in pairs[20:50]]
    pairs += [(source, "") for source, _ in pairs[60:71]] + [("same words in", "same words in")] * 5
    random.Random(seed).shuffle(pairs)
    return pairs


def decided(pairs, directory, workers=1, settings=QUICK):
    directory.mkdir()
    examiner = Examiner(settings, "en", "de", ["eight seven six"])
    return list(clean_in_processes(pairs, examiner, workers, directory))


def test_every_pair_is_decided_once_by_a_copy_that_it_names_whatever_the_order_and_the_chunks(tmp_path, monkeypatch):
    first = decided(dirty_pairs(), tmp_path / "first")
    assert Counter(one.received for one in first) == Counter(dirty_pairs())
    monkeypatch.setattr(processes, "CHUNK", 17)
    assert decided(dirty_pairs(seed=5), tmp_path / "second") == first
    steps = Counter(one.step for one in first)
    assert steps["duplicates"] == 21 and steps["blank"] == 11 and steps["copied"] == 5
    assert steps["near_duplicates"] >= 30
    kept = [str(one.pair).casefold() for one in first if not one.step]  # of each group of copies one stays
    assert len({*kept}) == len(kept) and {*kept} <= {str(pair).casefold() for pair in dirty_pairs()}
    for one in first:
        if one.step == "near_duplicates":
            like = tuple(one.detail)
            assert like in dirty_pairs() and like != one.received
            assert one.pair[0].split()[0].casefold() in like[0].casefold()


def test_without_these_steps_every_copy_stays_and_no_pairs_give_nothing(tmp_path):
    assert decided([], tmp_path / "nothing") == []
    settings = CleaningSettings(language_odds=0, max_ratio=0, near_duplicates=0, duplicates=False)
    steps = Counter(one.step for one in decided(dirty_pairs(), tmp_path / "work", settings=settings))
    assert not steps.keys() & {"duplicates", "near_duplicates"} and steps[""] == 150 + 21 + 30


@pytest.mark.slow
def test_several_processes_decide_as_one_does_and_one_that_dies_is_one_line(tmp_path, monkeypatch):
    monkeypatch.setattr(processes, "CHUNK", 19)
    assert decided(dirty_pairs(), tmp_path / "two", workers=2) == decided(dirty_pairs(), tmp_path / "one")
    monkeypatch.setattr(processes, "_examine_here", os._exit)
    monkeypatch.setattr(processes, "in_chunks", lambda pairs: iter([9]))  # its exit status
    with pytest.raises(UserError, match="a process that examined text was killed.* `workers` 1"):
        decided([], tmp_path / "work", workers=2)


LENIENT = CleaningSettings(language_odds=0, min_script=0, max_ratio=0)
LINE = "We went to the station together."


def test_each_pair_has_the_first_step_that_finds_fault():
    pairs = [*DIRTY.values(), *GOOD]
    examined, bands = Examiner(CleaningSettings(), "en", "de").examine(pairs)
    assert [one.step for one in examined] == [*DIRTY, *[""] * len(GOOD)]
    assert [one.received for one in examined] == pairs and len(bands) == len(pairs)
    assert [name for name in STEPS if name in DIRTY] == list(DIRTY)


def test_a_pair_is_judged_by_its_mended_text():
    (one,), _ = Examiner(LENIENT, "en", "de").examine([("Where\u200b is it?", "Wo ist es?\r")])
    assert one.pair == ("Where is it?", "Wo ist es?") and not one.step
    raw = CleaningSettings(language_odds=0, normalize=False)
    (one,), _ = Examiner(raw, "en", "de").examine([("A\u200b\nb", "C\rd")])
    assert one.pair == ("A\u200b b", "C d")  # a line end would shift the files


def test_a_pair_with_a_held_out_line_on_either_side_goes_and_every_near_copy_is_found():
    examiner = Examiner(LENIENT, "en", "de", [LINE, "..."])
    pairs = [("we went to the station together", "Ja."), ("Ja.", "We went to the stations together."), ("We", "...")]
    *near, third = examiner.examine(pairs)[0]
    assert [(one.step, one.detail) for one in near] == [("near_held_out", LINE)] * 2
    assert third.step == "min_letters"  # what has no words is like no line
    lines = [source for source, _ in tiny.pairs(200, seed=1)]
    assert [set(one) for one in HeldOut(lines, 0.99).find(lines)] == [set(line) for line in lines]
    assert HeldOut(lines, 0.8).find(["another sentence altogether", ""]) == ["", ""]
