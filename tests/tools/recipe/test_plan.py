import pytest

from keras_transformer.tools.recipe.plan import FORMATS, MOST, Pace, Sizes, choose, fitted, order, seconds_of

PACES = {"tiny": Pace(61.0, 179), "tiny_6_1": Pace(47.0, 179)}
PAIRS, HOUR = 30_011, 3600


def chosen(hours, student="tiny_6_1", paces=PACES, teachers=("tiny",), back=False, pairs=PAIRS):
    return choose(HOUR * hours, paces, pairs, list(teachers), student, back, tuple(FORMATS))


def test_a_stage_stands_behind_all_that_it_reads():
    whole = Sizes("tiny", 20, True, "tiny_6_1", True, True, ("saved_model",))
    stages = order(whole)
    assert stages == [*dict.fromkeys(stages)] and {*stages} == {*seconds_of(whole, PACES, PAIRS)}
    reads = {"both": ["prepare"], "back_translate": ["both"], "teacher": ["both", "back_translate"]}
    reads |= {"second_both": ["both"], "second": ["second_both"], "distil": ["teacher", "second"]}
    reads |= {"student_both": ["both"], "student": ["student_both", "distil"], "evaluate": ["student"]}
    for name, read in {**reads, "export": ["student"], "card": ["export", "evaluate"]}.items():
        assert all(stages.index(each) < stages.index(name) for each in read)
    assert order(Sizes("tiny", 20, False, None, False, False, ())) == [
        "prepare",
        "teacher",
        "evaluate",
        "export",
        "card",
    ]


def test_more_hours_give_more_stages_and_then_more_epochs():
    chains = [chosen(hours) for hours in (0.2, 1, 2.5, 3, 6)]
    assert [len(order(sizes)) for sizes in chains] == [5, 6, 9, 9, 11]
    assert [sizes.student for sizes in chains] == [None, None, *["tiny_6_1"] * 3]
    assert chains[2].epochs < chains[3].epochs and chains[4].second
    assert chosen(100).epochs == MOST  # a model learns no more
    without = chosen(2.5, student=None)
    assert without.both and without.epochs > chains[2].epochs and "distil" not in order(without)


@pytest.mark.parametrize("hours", [0.05, 0.1, 0.3, 0.7, 1, 2, 3, 8, 24])
@pytest.mark.parametrize("seconds, updates", [(2.0, 101), (61.0, 179), (3000.0, 9001)])
@pytest.mark.parametrize("back", [False, True])
def test_the_stages_fit_into_the_hours_unless_one_epoch_alone_does_not(hours, seconds, updates, back):
    paces = {"tiny": Pace(seconds, updates), "tiny_6_1": Pace(0.7 * seconds, updates)}
    sizes = chosen(hours, paces=paces, back=back)
    fits = sum(seconds_of(sizes, paces, PAIRS).values()) <= HOUR * hours
    assert fits or (sizes.epochs, len(order(sizes))) == (1, 5)
    assert sizes.back == (back and sizes.both)


def test_a_larger_teacher_needs_the_time_for_its_whole_chain():
    paces = {**PACES, "small": Pace(400.0, 2003)}
    assert chosen(2, paces=paces, teachers=("tiny", "small")).teacher == "tiny"
    assert chosen(8, paces=paces, teachers=("tiny", "small")).teacher == "small"


def test_an_hour_of_the_table_of_the_guide_by_hand():
    """12 epochs: both 25 + 6 * 2 * 61, teacher 25 + 12 * 61, student the same with 47 s, distil 25 + 3 * 61."""
    sizes = fitted(Sizes("tiny", 0, True, "tiny_6_1", False, False, ("saved_model",)), 3040, PACES, 30_000)
    assert sizes.epochs == 12
    seconds = seconds_of(sizes, PACES, 30_000)
    assert [seconds[name] for name in ("both", "teacher", "distil", "student_both", "student")] == [
        757,
        757,
        208,
        589,
        589,
    ]
    assert (seconds["prepare"], seconds["export"]) == (40, 45)


def test_compiled_programs_need_a_tenth_of_the_time_at_most():
    assert "compiled" not in chosen(0.4).formats and "compiled" in chosen(0.5).formats
