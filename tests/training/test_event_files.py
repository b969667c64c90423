import contextlib
import resource

import pytest
import tensorflow as tf
from keras_transformer.training.event_files import EventWriter, forget_after, read_records, write_records

from tests.training.curves import read_events


@pytest.fixture
def logs(tmp_path):
    """A directory with two event files, as a run that was stopped after update 5 and went on leaves it."""
    for first, last in ((1, 5), (6, 11)):
        writer = tf.summary.create_file_writer(str(tmp_path), filename_suffix=f".{first}")
        for step in range(first, last + 1):
            with writer.as_default(step=step):
                tf.summary.scalar("loss", 1 / step)
        with writer.as_default(step=last):
            tf.summary.text("samples", f"after {last}")
        writer.close()
    return tmp_path


def loss(last):
    return [(step, pytest.approx(1 / step)) for step in range(1, last + 1)]


def found(logs):
    """Points and texts in their order; files made in the same second TensorBoard reads in that of their names."""
    return {name: sorted(points) for name, points in read_events(logs).items()}


def contents(logs):
    return {path.name: path.read_bytes() for path in logs.iterdir()}


@pytest.mark.parametrize("step", [7, 3])
def test_points_after_the_update_are_gone_and_the_others_stay(logs, step):
    forget_after(logs, step)
    events = found(logs)
    assert events["loss"] == loss(step)
    assert events.get("samples", []) == ([(5, "after 5")] if step == 7 else [])
    assert all(read_records(path)[1] for path in logs.iterdir()) and len(list(logs.iterdir())) == 2


def test_where_there_is_nothing_to_forget_nothing_changes(logs, tmp_path):
    before = contents(logs)
    forget_after(logs, 11)
    assert contents(logs) == before
    forget_after(tmp_path / "none", 0)


@pytest.mark.parametrize("cut", [1, 3, 30])
def test_a_record_cut_short_is_gone(logs, cut):
    """Of the last file the last record is the text, which is longer than what is cut off."""
    (last,) = logs.glob("*.6")
    last.write_bytes(last.read_bytes()[:-cut])
    assert not read_records(last)[1]
    forget_after(logs, 11)
    events = found(logs)
    assert events["loss"] == loss(11) and events["samples"] == [(5, "after 5")]
    assert read_records(last)[1]


def test_points_written_once_more_are_there_once(logs):
    forget_after(logs, 7)
    writer = tf.summary.create_file_writer(str(logs), filename_suffix=".8")
    for step in range(8, 14):
        with writer.as_default(step=step):
            tf.summary.scalar("loss", 1 / step)
    writer.close()
    assert found(logs)["loss"] == loss(13)


def test_a_point_is_on_disk_when_it_has_been_written(tmp_path):
    writer = EventWriter(tmp_path)
    for step in (1, 2, 3):
        with writer.as_default(step=step):
            tf.summary.scalar("loss", 1 / step)
        assert read_events(tmp_path)["loss"] == loss(step)
    writer.close()


@contextlib.contextmanager
def no_room():
    """No file may grow beyond 300 bytes; not that either which pytest reports to once the test is over."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (300, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_is_an_error_of_the_system_that_names_the_place(tmp_path):
    writer = EventWriter(tmp_path)
    with no_room(), pytest.raises(OSError, match=f"^cannot write {tmp_path}: File too large$"):
        for step in range(1, 11):
            with writer.as_default(step=step):
                tf.summary.scalar("loss", 1 / step)
    with no_room(), pytest.raises(OSError, match=f"^cannot write {tmp_path / 'some'}: File too large$"):
        write_records(tmp_path / "some", [b"record"] * 100)
