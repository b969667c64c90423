import os
import random
from collections import Counter

import pytest

from keras_transformer.errors import UserError
from keras_transformer.tools.cleaning import processes
from keras_transformer.tools.cleaning.examination import Examiner
from keras_transformer.tools.cleaning.processes import clean_in_processes
from keras_transformer.tools.cleaning.settings import CleaningSettings
from tests import tiny

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
    kept = [one.pair for one in first if not one.step]  # of each group of copies one stays
    texts = [(source.casefold(), target.casefold()) for source, target in kept]
    assert len(set(texts)) == len(texts)
    assert set(texts) <= {(source.casefold(), target.casefold()) for source, target in dirty_pairs()}
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
