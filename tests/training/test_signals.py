import signal
import threading

import pytest
from keras_transformer.training.signals import NOTICE, STOP_SIGNALS, HeldSignals


class Ended(Exception):
    """What the program's own handlers raise, with the number of the signal."""


@pytest.fixture(autouse=True)
def own_handlers():
    """Handlers of the program's own; those of the tests come back."""

    def end(number, frame):
        raise Ended(number)

    before = {number: signal.signal(number, end) for number in STOP_SIGNALS}
    yield end
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", STOP_SIGNALS)
def test_a_signal_waits_for_the_release_and_is_then_delivered_once(number, capfd):
    signals = HeldSignals()
    signals.hold()
    signals.hold()
    signal.raise_signal(number)
    assert signals.arrived == number
    assert capfd.readouterr().err.encode() == NOTICE
    with pytest.raises(Ended) as ended:
        signals.release()
    assert ended.value.args == (number,)
    signals.release()


@pytest.mark.parametrize("number", STOP_SIGNALS)
def test_a_second_signal_is_delivered_at_once(number):
    signals = HeldSignals()
    signals.hold()
    signal.raise_signal(signal.SIGTERM)
    with pytest.raises(Ended):
        signal.raise_signal(number)


@pytest.mark.parametrize("end", ["release", "restore"])
def test_afterwards_signals_do_what_they_did_before(end, own_handlers):
    signals = HeldSignals()
    signals.hold()
    assert all(signal.getsignal(number) != own_handlers for number in STOP_SIGNALS)
    getattr(signals, end)()
    assert all(signal.getsignal(number) == own_handlers for number in STOP_SIGNALS)
    with pytest.raises(Ended):
        signal.raise_signal(signal.SIGINT)


def test_what_is_ignored_stays_ignored():
    """As Ctrl-C is by a program that a shell script started in the background."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signals = HeldSignals()
    signals.hold()
    signal.raise_signal(signal.SIGINT)
    assert signals.arrived is None
    signals.release()


def test_outside_of_the_main_thread_nothing_is_held(own_handlers):
    signals, found = HeldSignals(), []

    def hold():
        signals.hold()
        found.append(signal.getsignal(signal.SIGINT))
        signals.release()

    thread = threading.Thread(target=hold)
    thread.start()
    thread.join()
    assert found == [own_handlers]
