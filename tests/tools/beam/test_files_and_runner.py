import gzip
import os
from types import SimpleNamespace

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import DirectOptions, StandardOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.runners.runner import create_runner

from keras_transformer.errors import FileError, UserError
from keras_transformer.process import available_cores
from keras_transformer.tools.beam import files, runner
from keras_transformer.tools.beam.cleaning import clean_on_beam
from keras_transformer.tools.beam.files import find_files, new_file, open_text
from keras_transformer.tools.beam.private_api import LOCAL_RUNNER
from keras_transformer.tools.beam.runner import pipeline_options, run
from keras_transformer.tools.cleaning import processes
from keras_transformer.tools.cleaning.examination import Examiner
from keras_transformer.tools.cleaning.settings import CleaningSettings
from keras_transformer.tools.lines import packed
from tests.tools.cleaning.test_processes import QUICK, decided, dirty_pairs

ASKED = {"beam_size": 3}


@pytest.fixture
def texts(tmp_path):
    for name in ("b.txt", "a.txt", "c.txt.gz", "deep/a.txt", "other.md"):
        (tmp_path / "in" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "in" / name).write_bytes(b"one\n")
    return tmp_path


def targets(texts, pattern):
    files = find_files(str(texts / pattern), str(texts / "out"), ASKED)
    return {os.path.relpath(file.source, texts): os.path.relpath(file.target, texts) for file in files}


def test_translations_stand_where_their_sources_stand_below_the_pattern(texts, monkeypatch):
    assert targets(texts, "in/*.txt*") == {f"in/{name}": f"out/{name}" for name in ("a.txt", "b.txt", "c.txt.gz")}
    assert targets(texts, "in/**/a.txt") == {"in/deep/a.txt": "out/deep/a.txt"}
    assert targets(texts, "*/*/a.txt") == {"in/deep/a.txt": "out/in/deep/a.txt"}
    assert targets(texts, "in/b.txt") == {"in/b.txt": "out/b.txt"}
    # A relative path is that of this directory.
    monkeypatch.chdir(texts / "in")
    (file,) = find_files("b*.txt", "../out", ASKED)
    assert (file.source, file.target) == (str(texts / "in/b.txt"), str(texts / "out/b.txt"))
    assert file.errors == str(texts / "out/errors-b.txt.jsonl")
    # What is in the output directory is no input of a second start.
    before = targets(texts, "**.txt")
    files.prepare_output(str(texts / "out"))
    (texts / "out" / "a.txt").write_bytes(b"eins\n")
    assert targets(texts, "**.txt") == before and len(before) == 3
    below = find_files(str(texts / "in/deep/*"), str(texts / "in"), ASKED)  # an output directory above the input
    assert [file.target for file in below] == [str(texts / "in/a.txt")]


def test_files_that_cannot_be_found_or_would_be_lost_are_refused(texts):
    for pattern, output, said in (
        ("in/*.tsv", "out", r"no file matches .*\*\.tsv"),
        ("in", "out", r".*in is a directory: name the files in it, such as '.*in/\*\.txt'"),
        ("in/*.txt", "in", "would take the place of its source. Received: .*a.txt for both"),
    ):
        with pytest.raises(UserError, match=said):
            find_files(str(texts / pattern), str(texts / output), ASKED)
    with pytest.raises(FileError, match="cannot list nowhere://b"):
        find_files("nowhere://b/*", "out", ASKED)
    (texts / "out").write_bytes(b"a file")
    with pytest.raises(FileError, match="cannot write into .*out: Not a directory"):
        files.prepare_output(str(texts / "out"))


def test_a_file_is_finished_when_translation_and_errors_are_as_recorded_and_others_have_other_parts(texts):
    def find(asked=ASKED):
        (file,) = find_files(str(texts / "in/a.txt"), str(texts / "out"), asked)
        return file

    file = find()
    assert not file.is_finished() and file.size() is None
    contents = {file.target: b"eins\n", file.record: b'{"bytes": 5, "errors": true}', file.errors: b"{}\n"}
    for path, content in contents.items():
        assert not file.is_finished()
        with new_file(path, file.work) as target:
            target.write(content)
    assert file.is_finished()
    (texts / "out/a.txt").write_bytes(b"edited by hand\n")
    assert not file.is_finished() and file.work == find().work != find({"beam_size": 5}).work
    os.utime(texts / "in/a.txt", ns=(0, 0))
    assert find().work != file.work


def test_a_new_file_appears_complete_takes_the_place_of_another_and_leaves_nothing(tmp_path):
    path, work = tmp_path / "deep" / "file", tmp_path / "work"
    for content in (b"one", b"two"):
        with new_file(str(path), str(work)) as file:
            file.write(content)
            assert not path.exists() or path.read_bytes() == b"one"
        assert path.read_bytes() == content
    assert os.listdir(path.parent) == ["file"] and os.listdir(work) == []
    with pytest.raises(ZeroDivisionError), new_file(str(path), str(work)) as file:
        file.write(b"half")
        raise ZeroDivisionError
    assert path.read_bytes() == b"two" and os.listdir(path.parent) == ["file"]
    files.remove_directory(str(work))
    files.remove_directory(str(work))
    assert os.listdir(tmp_path) == ["deep"]


def test_gzip_is_read_and_written_and_a_file_that_is_damaged_or_no_text_is_named(tmp_path):
    for name in ("a.gz", "b.gz", "c.txt"):
        with open(tmp_path / name, "wb") as file, packed(file, name) as text:
            text.write(b"one\ntwo")
        with open_text(str(tmp_path / name)) as text:
            assert list(text) == [b"one\n", b"two"]
    first, second, plain = ((tmp_path / name).read_bytes() for name in ("a.gz", "b.gz", "c.txt"))
    assert first == second != plain == gzip.decompress(first) == b"one\ntwo"
    path, whole = tmp_path / "in.gz", gzip.compress(b"one\n" * 99)
    for damaged in (whole[:-9], whole + b"x" * 9, b"no", whole[:10] + b"\xff" * 9 + whole[19:]):
        path.write_bytes(damaged)
        with pytest.raises(FileError, match="cannot read .*in.gz"), open_text(str(path)) as text:
            list(text)
    with pytest.raises(FileError, match="cannot read .*missing"), open_text(str(tmp_path / "missing")) as text:
        list(text)
    (tmp_path / "b.odt").write_bytes(b"PK\x03\x04one")
    of_text, of_none = (find_files(str(tmp_path / f"*.{end}"), str(tmp_path / "out"), []) for end in ("txt", "odt"))
    files.check_texts(of_text)
    with pytest.raises(UserError, match=r"b.odt is no text: it is a zip archive"):
        files.check_texts(of_text + of_none)


def chosen(*flags):
    """(runner, number of workers, running mode) of flags."""
    options = pipeline_options(list(flags))
    direct = options.view_as(DirectOptions)
    return options.view_as(StandardOptions).runner, direct.direct_num_workers, direct.direct_running_mode


def test_a_process_for_each_core_is_the_default_and_flags_are_stronger():
    """DirectRunner by its own name would download another runner."""
    assert chosen() == chosen("--runner", "DirectRunner") == ("FnApiRunner", available_cores(), "multi_processing")
    assert chosen("--runner=direct", "--direct_num_workers", "3") == ("FnApiRunner", 3, "multi_processing")
    assert chosen("--direct_num_workers=1") == ("FnApiRunner", 1, "multi_processing")
    assert chosen("--direct_running_mode", "in_memory")[2] == "in_memory"
    assert chosen("--runner", "FlinkRunner") == ("FlinkRunner", 1, "in_memory")
    assert type(create_runner(LOCAL_RUNNER)).__name__ == LOCAL_RUNNER


def test_flags_and_runners_that_beam_does_not_know_are_one_line_unless_a_remote_runner_may_know_them():
    for flags, said in (
        (["--direct_workers", "3"], "has a flag --direct_workers"),
        (["--direct_num_workers", "two"], "Apache Beam: .*--direct_num_workers: invalid int value: 'two'"),
        (["--runner", "NoRunner"], "Unexpected pipeline runner: NoRunner"),
        (["--runner", "DataflowRunner"], "option: temp_location"),
    ):
        with pytest.raises(UserError, match=said) as caught:
            run(lambda pipeline: None, pipeline_options(flags), "no.module")
        assert "\n" not in str(caught.value)
    assert pipeline_options(["--runner", "PortableRunner", "--of_the_job_server", "3"])


ALONE = ["--direct_running_mode", "in_memory", "--direct_num_workers", "1"]  # another mode changes the environment


@pytest.mark.parametrize("error", [UserError("mend this"), ZeroDivisionError("mend that")])
def test_a_users_mistake_in_a_worker_is_one_line_and_a_bug_keeps_its_traceback(error):
    def fail(number):
        raise error

    with pytest.raises(type(error), match="^mend this$" if isinstance(error, UserError) else "mend that"):
        run(lambda pipeline: pipeline | beam.Create([1]) | beam.Map(fail), pipeline_options(ALONE), "no.module")


def test_worker_processes_share_the_cores_and_find_the_package(monkeypatch):
    for name in ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS", "PYTHONPATH"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.setattr(runner, "available_cores", lambda: 7)
    done = SimpleNamespace(wait_until_finish=lambda: None)
    monkeypatch.setattr(FnApiRunner, "run_pipeline", lambda self, pipeline, options: done)
    run(lambda pipeline: None, pipeline_options(["--direct_num_workers", "3"]), "no.module")
    assert runner.os.environ["TF_NUM_INTRAOP_THREADS"] == runner.os.environ["TF_NUM_INTEROP_THREADS"] == "2"
    assert runner.os.environ["PYTHONPATH"] == str(runner.PACKAGES)


WITHOUT_DUPLICATES = CleaningSettings(language_odds=0, max_ratio=0, near_duplicates=0, duplicates=False)


@pytest.mark.parametrize("settings", [QUICK, WITHOUT_DUPLICATES])
def test_beam_decides_as_one_process_does_whatever_the_order_of_the_input(tmp_path, monkeypatch, settings):
    monkeypatch.setattr(processes, "CHUNK", 23)
    (tmp_path / "work").mkdir()
    examiner = Examiner(settings, "en", "de", ["eight seven six"])
    found = list(clean_on_beam(dirty_pairs(seed=7), examiner, tmp_path / "work", []))
    assert found == decided(dirty_pairs(), tmp_path / "other", settings=settings)
