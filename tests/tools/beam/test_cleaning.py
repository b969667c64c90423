import pytest

from keras_transformer.errors import UserError
from keras_transformer.tools.beam.cleaning import clean_on_beam
from keras_transformer.tools.cleaning import processes
from keras_transformer.tools.cleaning.examination import Examiner
from keras_transformer.tools.cleaning.settings import CleaningSettings
from tests.tools.cleaning.test_processes import QUICK, decided, dirty_pairs

WITHOUT_DUPLICATES = CleaningSettings(language_odds=0, max_ratio=0, near_duplicates=0, duplicates=False)


@pytest.mark.parametrize("settings", [QUICK, WITHOUT_DUPLICATES])
def test_beam_decides_as_one_process_does_whatever_the_order_of_the_input(tmp_path, monkeypatch, settings):
    monkeypatch.setattr(processes, "CHUNK", 23)
    (tmp_path / "work").mkdir()
    examiner = Examiner(settings, "en", "de", ["eight seven six"])
    found = list(clean_on_beam(dirty_pairs(seed=7), examiner, tmp_path / "work", []))
    assert found == decided(dirty_pairs(), tmp_path / "other", settings=settings)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--max_ration", "3"], "neither this program nor Apache Beam has a flag --max_ration"),
        (["--runner", "WalkingRunner"], "Apache Beam: .*WalkingRunner"),
    ],
)
def test_flags_that_beam_does_not_know_are_one_line_before_any_work(tmp_path, flags, message):
    with pytest.raises(UserError, match=message):
        next(clean_on_beam(iter([]), None, tmp_path, flags))
    assert list(tmp_path.iterdir()) == []
