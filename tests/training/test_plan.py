import pytest

from keras_transformer.config import Config
from keras_transformer.training.plan import as_before, make_plan, suited
from keras_transformer.training.preparation import Data
from keras_transformer.training.run_directory import RunDirectory
from tests import tiny


def data(count, length=7):
    return Data(None, None, None, tiny.encoded_pairs([length] * count, [length] * count, 97), None)


@pytest.mark.parametrize("count", [1, 12, 100, 600, 3000, 36_000])
@pytest.mark.parametrize("accumulate_steps", [1, 3])
def test_an_epoch_has_about_a_hundred_updates_or_more_and_a_warm_up_is_a_tenth_at_most(count, accumulate_steps):
    config, some = suited(Config(preset="quickstart", accumulate_steps=accumulate_steps), data(count))
    plan = make_plan(config, some)
    assert plan.steps_per_epoch >= 90 and plan.last_step == 6 * plan.steps_per_epoch
    assert config.warmup_steps == min(150, plan.last_step // 10)
    assert config.batch_tokens <= 2048
    assert config.peak_learning_rate**2 == pytest.approx(0.003**2 * config.batch_tokens / 2048)
    if plan.steps_per_epoch > 110:
        assert config.batch_tokens == 2048


def test_sizes_that_are_set_stay():
    asked = Config(preset="quickstart", batch_tokens=997, warmup_steps=53)
    config, some = suited(asked, data(12))
    assert (config.batch_tokens, config.warmup_steps, config.peak_learning_rate) == (997, 53, 0.003)
    assert make_plan(config, some).steps_per_epoch == 1
    config, _ = suited(Config(peak_learning_rate=0.004), data(12))
    assert config.batch_tokens < 2048 and config.peak_learning_rate == 0.004


def test_a_shorter_warm_up_does_not_raise_the_paper_s_peak():
    config, _ = suited(Config(preset="base", batch_tokens=25_000, epochs=30), data(12))
    assert config.warmup_steps < 4000 and config.peak_learning_rate == pytest.approx((512 * 4000) ** -0.5)


def test_a_run_that_ends_within_its_warm_up_says_so():
    config, some = suited(Config(batch_tokens=4096, warmup_steps=150, epochs=3), data(600))
    assert "THE RUN ENDS WITHIN ITS WARM-UP" in make_plan(config, some).describe(config)
    config, some = suited(Config(epochs=3), data(600))
    assert "WARM-UP" not in make_plan(config, some).describe(config)


def test_a_run_goes_on_with_the_sizes_that_it_began_with(tmp_path):
    run = RunDirectory(tmp_path)
    assert as_before(Config(), run) == Config()
    Config(batch_tokens=2048, warmup_steps=150).save(run.config)  # as versions before 0.2 wrote them
    assert as_before(Config(), run) == Config(batch_tokens=2048, warmup_steps=150)
    assert as_before(Config(batch_tokens=512), run) == Config(batch_tokens=512, warmup_steps=150)
    Config(tokenize="13a").save(run.config)  # the default of earlier versions
    assert as_before(Config(), run).tokenize == "13a" and as_before(Config(tokenize="zh"), run).tokenize == "zh"
