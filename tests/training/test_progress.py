import itertools
import re
import time
import unittest.mock

import pytest

from keras_transformer.training import watchers as module
from keras_transformer.training.decide import Plan
from keras_transformer.training.watchers import Progress, ShowProgress

TRAINED = {"loss": 3.25, "accuracy": 0.5, "perplexity": 7.0, "padding": 0.125, "tokens/s": 13000.0}
VALIDATED = {"val_loss": 5.5, "val_accuracy": 0.25, "val_perplexity": 11.0, "val_bleu": 17.0}


def show(monkeypatch, plan, step=0, epoch=0, seconds=2):
    """Shows the rest of an epoch from update `step` on, of `seconds` an update and 9 seconds of validation."""
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    progress = Progress(step=step)
    shown = ShowProgress(progress, plan)
    shown.on_epoch_begin(epoch)
    for _ in range(min((epoch + 1) * plan.steps_per_epoch, plan.last_step) - step):
        progress.step += 1
        now[0] += seconds
        shown.on_train_batch_end(0, TRAINED)
    now[0] += 9
    shown.on_epoch_end(epoch, {**TRAINED, **VALIDATED})


def test_an_epoch_is_a_line_with_its_measures_and_its_time(monkeypatch, capsys):
    show(monkeypatch, Plan(steps_per_epoch=7, last_step=21), step=7, epoch=1)
    measures = "loss 3.250, accuracy 50.0%, perplexity 7.00; "
    measures += "validation: loss 5.500, accuracy 25.0%, perplexity 11.00, BLEU 17.0; 14 s and 9 s"
    assert capsys.readouterr() == (f"epoch 2/3   {measures}\n", "")


def test_a_long_epoch_is_a_line_every_half_minute(monkeypatch, capsys):
    show(monkeypatch, Plan(steps_per_epoch=50, last_step=100), step=0, seconds=2)
    *lines, _ = capsys.readouterr().out.splitlines()
    assert lines == [f"epoch 1/2   update {done} of 50, loss 3.250, 13,000 tokens/s" for done in (15, 30, 45)]


@pytest.mark.parametrize(
    ("plan", "step", "epoch", "name", "total", "first"),
    [
        (Plan(steps_per_epoch=7, last_step=4), 0, 0, "epoch 1/1", 4, 1),  # --max_steps
        (Plan(steps_per_epoch=7, last_step=18), 9, 1, "epoch 2/3", 7, 3),  # resumed within an epoch
        (Plan(steps_per_epoch=7, last_step=18), 14, 2, "epoch 3/3", 4, 1),
    ],
)
def test_a_bar_counts_to_the_updates_that_are_made(monkeypatch, capsys, plan, step, epoch, name, total, first):
    monkeypatch.setattr(module, "is_watched", lambda: True)
    bars = []

    class Bar(module.tqdm):
        def update(self, n=1):
            super().update(n)
            bars.append((self.desc, self.n, self.total, self.postfix))

    monkeypatch.setattr(module, "tqdm", Bar)
    show(monkeypatch, plan, step, epoch)
    now = "loss 3.250, 13,000 tokens/s"
    assert bars == [(f"{name}: ", n, total, now) for n in range(first, total + 1)] or bars == [
        (name, n, total, now) for n in range(first, total + 1)
    ]
    assert re.match(f"{name} ", capsys.readouterr().out)


@pytest.mark.parametrize(("seconds", "read"), [(0.25, [4, 8, 12]), (2, [*range(1, 15)])])
def test_a_bar_reads_the_loss_at_most_once_a_second(monkeypatch, seconds, read):
    """A float of the logs is a tensor on a GPU, and to format it is to wait for the GPU."""
    reads, bar = [], unittest.mock.Mock()
    bar.update.side_effect = lambda: reads.append(bar.set_postfix_str.call_count)
    monkeypatch.setattr(module, "is_watched", lambda: True)
    monkeypatch.setattr(module, "tqdm", lambda **_: bar)
    show(monkeypatch, Plan(steps_per_epoch=14, last_step=14), seconds=seconds)
    assert [n for n, (before, now) in enumerate(itertools.pairwise([0, *reads]), start=1) if now > before] == read


def test_a_file_gets_neither_colours_nor_carriage_returns(monkeypatch, capsys):
    show(monkeypatch, Plan(steps_per_epoch=50, last_step=100), step=0, seconds=2)
    out, err = capsys.readouterr()
    assert err == "" and not re.search("[\\r\\x08\\x1b]", out)


def test_every_other_corpus_of_a_mixture_is_a_line_of_its_own(monkeypatch, capsys):
    others = {
        "val_loss/files:a/b": 6.5,
        "val_accuracy/files:a/b": 0.125,
        "val_bleu/files:a/b": 3.0,
        "val_loss/cldr:x-y": 1.0,
    }
    monkeypatch.setitem(globals(), "VALIDATED", {**VALIDATED, **others})
    show(monkeypatch, Plan(steps_per_epoch=7, last_step=21), step=7, epoch=1)
    first, *rest = capsys.readouterr().out.splitlines()
    assert first.startswith("epoch 2/3 ") and "6.500" not in first
    assert rest == ["            files:a/b: loss 6.500, accuracy 12.5%, BLEU 3.0", "            cldr:x-y: loss 1.000"]
