import keras
import numpy as np
import pytest

from keras_transformer.training.updates import (
    CosineDecay,
    InverseSquareRoot,
    LinearDecay,
    make_schedule,
    paper_peak_rate,
)

D_MODEL, WARMUP = 514, 4001


def equation_3(d_model, n, warmup_steps):
    return d_model**-0.5 * min(n**-0.5, n * warmup_steps**-1.5)


def paper_schedule():
    return InverseSquareRoot(paper_peak_rate(D_MODEL, WARMUP), WARMUP)


@pytest.mark.parametrize("n", [1, 2, WARMUP // 2, WARMUP - 1, WARMUP, WARMUP + 1, 4 * WARMUP, 10**6])
def test_the_paper_s_peak_gives_equation_3(n):
    """Keras counts updates from 0, the paper from 1."""
    assert float(paper_schedule()(n - 1)) == pytest.approx(equation_3(D_MODEL, n, WARMUP), rel=1e-6)


def test_by_hand():
    schedule = InverseSquareRoot(peak_rate=0.5, warmup_steps=10)
    assert [float(schedule(n - 1)) for n in (1, 5, 10, 40, 90)] == pytest.approx([0.05, 0.25, 0.5, 0.25, 0.5 / 3])


def test_rate_is_positive_at_the_first_update():
    assert float(paper_schedule()(0)) > 0


def test_rate_rises_to_its_peak_at_the_end_of_the_warm_up_and_falls_after():
    schedule = InverseSquareRoot(peak_rate=0.7, warmup_steps=13)
    rates = [float(schedule(n - 1)) for n in range(1, 53)]
    assert np.argmax(rates) == 12 and rates[12] == pytest.approx(0.7)
    assert (np.diff(rates[:13]) > 0).all() and (np.diff(rates[12:]) < 0).all()


def test_a_warm_up_of_one_update_starts_at_the_peak():
    assert float(InverseSquareRoot(peak_rate=0.3, warmup_steps=1)(0)) == pytest.approx(0.3)


def test_optimizer_takes_the_rate_of_the_update_it_is_about_to_make():
    weight = keras.Variable([0.0])
    optimizer = keras.optimizers.SGD(InverseSquareRoot(peak_rate=0.5, warmup_steps=5))
    for _ in range(3):
        optimizer.apply([np.array([1.0], "float32")], [weight])
    assert weight.numpy()[0] == pytest.approx(-(0.1 + 0.2 + 0.3))


def test_config_makes_the_same_schedule_again():
    schedule = InverseSquareRoot(peak_rate=0.7, warmup_steps=13)
    twin = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(schedule))
    assert type(twin) is InverseSquareRoot
    assert twin.get_config() == schedule.get_config() == {"peak_rate": 0.7, "warmup_steps": 13}
    assert float(twin(40)) == float(schedule(40))


def numpy_rate(name, n, peak, warmup, last):
    if n <= warmup:
        return peak * n / warmup
    done = (n - warmup) / (last + 1 - warmup)
    return peak * (1 - done if name == "linear" else np.cos(np.pi * done / 2) ** 2)


@pytest.mark.parametrize("name", ["linear", "cosine"])
def test_linear_and_cosine_rise_to_the_peak_and_reach_0_after_the_last_update(name):
    schedule = make_schedule(name, 0.7, 13, 60)
    rates = [float(schedule(n - 1)) for n in range(1, 62)]
    np.testing.assert_allclose(rates, [numpy_rate(name, n, 0.7, 13, 60) for n in range(1, 62)], atol=1e-7)
    assert rates[12] == pytest.approx(0.7) and rates[59] > 0 and rates[60] == pytest.approx(0, abs=1e-7)
    assert float(schedule(200)) == pytest.approx(0, abs=1e-7)  # a step that should not be never gets a negative rate


@pytest.mark.parametrize("name", ["linear", "cosine"])
def test_a_run_that_ends_in_the_warm_up_only_rises(name):
    schedule = make_schedule(name, 0.5, 10, 4)
    assert [float(schedule(n)) for n in range(4)] == pytest.approx([0.05, 0.1, 0.15, 0.2])


@pytest.mark.parametrize("schedule", [LinearDecay(0.7, 13, 60), CosineDecay(0.7, 13, 60)])
def test_config_makes_the_same_falling_schedule_again(schedule):
    twin = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(schedule))
    assert type(twin) is type(schedule)
    assert twin.get_config() == schedule.get_config() == {"peak_rate": 0.7, "warmup_steps": 13, "last_step": 60}


def test_the_paper_s_schedule_has_its_name():
    assert type(make_schedule("inverse_square_root", 0.5, 10, 60)) is InverseSquareRoot
