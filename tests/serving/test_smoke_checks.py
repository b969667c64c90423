import pytest

from serving.smoke_checks import Shortfall, expect, expect_same

ROWS = [("a", -1.0), ("b", -20.0)]


def test_what_holds_passes_and_of_what_does_not_the_beginning_is_shown():
    expect(True, "x")
    with pytest.raises(Shortfall, match="^found xxx") as caught:
        expect([], "x" * 10**5)
    assert len(str(caught.value)) < 300


def test_scores_may_differ_by_rounding_and_by_no_more():
    expect_same([("a", -1.0005), ("b", -20.01)], ROWS)
    with pytest.raises(Shortfall, match="scores"):
        expect_same([("a", -1.01), ("b", -20.0)], ROWS)


@pytest.mark.parametrize("found", [[("a", -1.0), ("c", -20.0)], ROWS[:1], ROWS[::-1], []])
def test_other_texts_another_number_or_order_is_a_shortfall(found):
    with pytest.raises(Shortfall, match="not"):
        expect_same(found, ROWS)
