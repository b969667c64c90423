import math

import pytest
from keras_transformer.training.progress import Plan, Progress


def test_a_new_run_stands_at_the_start():
    assert Progress() == Progress(step=0, ended=0, best=-math.inf, best_epoch=0, metrics={})
    Progress().metrics["loss"] = 1.0
    assert Progress().metrics == {}


@pytest.mark.parametrize(("step", "epoch"), [(0, 0), (1, 1), (6, 1), (7, 1), (8, 2), (14, 2), (15, 3)])
def test_epochs_are_counted_from_1(step, epoch):
    assert Plan(steps_per_epoch=7, last_step=21).epoch(step) == epoch


def test_epochs_end_after_their_last_update_and_with_the_run():
    plan = Plan(steps_per_epoch=5, last_step=13)
    assert [step for step in range(1, 14) if plan.ends_epoch(step)] == [5, 10, 13]


@pytest.mark.parametrize(
    ("progress", "is_over"),
    [
        (Progress(step=13, ended=10), False),  # not validated yet
        (Progress(step=13, ended=13), True),
        (Progress(step=17, ended=15), True),  # it has been longer before
        (Progress(), False),
    ],
)
def test_a_run_is_over_when_its_last_update_is_validated(progress, is_over):
    assert Plan(steps_per_epoch=5, last_step=13).is_over(progress) == is_over


@pytest.mark.parametrize(
    ("ended", "best_epoch", "is_over"),
    [(15, 1, False), (20, 1, True), (25, 3, False), (30, 3, True), (15, 0, True), (10, 0, False)],
)
def test_a_run_is_over_when_no_epoch_was_better_for_as_many_as_its_patience(ended, best_epoch, is_over):
    progress = Progress(step=ended, ended=ended, best_epoch=best_epoch)
    plan = Plan(steps_per_epoch=5, last_step=1000, patience=3)
    assert plan.is_over(progress) == plan.has_lost_patience(progress) == is_over
    assert not Plan(steps_per_epoch=5, last_step=1000).is_over(progress)
