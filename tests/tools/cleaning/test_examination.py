import pytest

from keras_transformer.tools.cleaning.examination import STEPS, Examined, Examiner, HeldOut, digest
from keras_transformer.tools.cleaning.settings import CleaningSettings
from tests import tiny
from tests.tools.cleaning.test_rules import DIRTY, GOOD

QUICK = CleaningSettings(language_odds=0, min_script=0, max_ratio=0)
LINE = "We went to the station together."


def test_each_pair_has_the_first_step_that_finds_fault():
    examined, bands = Examiner(CleaningSettings(), "en", "de").examine([*DIRTY.values(), *GOOD])
    assert [one.step for one in examined] == [*DIRTY, *[""] * len(GOOD)]
    assert [one.received for one in examined] == [*DIRTY.values(), *GOOD] and len(bands) == len(examined)
    assert [name for name in STEPS if name in DIRTY] == list(DIRTY)


def test_a_pair_is_judged_by_its_mended_text():
    (one,), _ = Examiner(QUICK, "en", "de").examine([("Where\u200b is it?", "Wo ist es?\r")])
    assert one.pair == ("Where is it?", "Wo ist es?") and not one.step
    raw = CleaningSettings(language_odds=0, normalize=False)
    (one,), _ = Examiner(raw, "en", "de").examine([("A\u200b\nb", "C\rd")])
    assert one.pair == ("A\u200b b", "C d")  # a line end would shift the files


@pytest.mark.parametrize("near", [LINE, "we went to the station together", "We went to the stations together."])
def test_a_pair_with_a_held_out_line_on_either_side_goes(near):
    examiner = Examiner(QUICK, "en", "de", [LINE, "..."])
    (one, other, third), _ = examiner.examine([(near, "Ja."), ("Ja.", near), ("We went home.", "...")])
    assert (one.step, one.detail) == (other.step, other.detail) == ("near_held_out", LINE)
    assert third.step == "min_letters"  # what has no words is like no line


def test_every_near_copy_of_a_held_out_line_is_found():
    lines = [source for source, _ in tiny.pairs(200, seed=1)]
    found = HeldOut(lines, 0.99).find(lines)
    assert [set(one) for one in found] == [set(line) for line in lines]
    assert HeldOut(lines, 0.8).find(["another sentence altogether", ""]) == ["", ""]


def test_a_line_brings_the_pair_back():
    one = Examined(("a\u2028\udc80", "b\n"), ("a", "b"), "language_odds", "fr")
    assert Examined.from_line(one.to_line()) == one and one.to_line().count(b"\n") == 1
    # A key tells the sides apart.
    assert len({digest(pair) for pair in [("a", "b"), ("b", "a"), ("a\nb", ""), ("", "a\nb"), ("a", "\nb")]}) == 5
