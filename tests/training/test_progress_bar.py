import re
import time

from keras_transformer.training.progress_bar import ProgressBar

LOGS = {"accuracy": 0.5, "loss": 3.25, "padding": 0.125, "perplexity": 7.0}


def lines(monkeypatch, capsys):
    """What a bar prints during an epoch of 7 updates of 2 seconds, and at its end; without colours."""
    now = [1000.0]
    monkeypatch.setattr(time, "time", lambda: now[0])
    bar = ProgressBar()
    bar.set_params({"verbose": 1, "epochs": 3, "steps": 7})
    bar.on_epoch_begin(1)
    printed = []
    for batch in range(7):
        now[0] += 2
        bar.on_train_batch_end(batch, {**LOGS, **({"tokens/s": 13000.0} if batch >= 3 else {})})
        printed.append(capsys.readouterr().out)
    bar.on_epoch_end(1, {**LOGS, "val_loss": 5.5, "val_bleu": 11.0})
    printed.append(capsys.readouterr().out)
    return [re.sub("\x1b\\[[0-9]*m|\x08|\r", "", line) for line in printed]


def test_loss_speed_and_time_left_are_in_one_line_that_fits_a_terminal(monkeypatch, capsys):
    first, *_, sixth, _, _ = lines(monkeypatch, capsys)
    assert first.startswith("Epoch 2/3\n1/7") and "tokens/s" not in first
    assert re.fullmatch(r"6/7 ━+ 2s 2s/step - loss: 3\.2500 - tokens/s: 13000\.0000 *", sixth)  # one update left
    assert len(sixth.rstrip()) < 80


def test_all_measures_are_shown_at_the_end_of_an_epoch(monkeypatch, capsys):
    *_, end = lines(monkeypatch, capsys)
    assert end.endswith("\n")
    for measure in ("loss: 3.2500", "tokens/s: 13000", "accuracy: 0.5", "perplexity: 7.0", "val_bleu: 11.0"):
        assert f" - {measure}" in end
