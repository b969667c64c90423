"""A version of an export, from its temporary name to its proof and its manifest."""

import contextlib
import errno
import json
import os
from datetime import datetime, timedelta, timezone
from types import SimpleNamespace

import pytest
import tensorflow as tf

from keras_transformer.cli.export import summarise
from keras_transformer.config import Config
from keras_transformer.errors import ExportError, FileError
from keras_transformer.export.manifest import describe_run, read_manifest, write_manifest
from keras_transformer.export.parity import PROBES, Loading, Parity, prove
from keras_transformer.export.versions import export_version, new_version
from keras_transformer.runs import Run
from keras_transformer.training.run_directory import RunDirectory

SENTENCES = ["one", "two", "three"]


class Reversing:
    """Of an export and its run: both reverse texts and score their length, but for what a test changes."""

    libraries = ("pytest", "no-such-library")

    def __init__(self, least_equal=1.0, score_tolerance=0.1, texts=(), added=0.0):
        self.least_equal, self.score_tolerance = least_equal, score_tolerance
        self.reference, self.expected = SimpleNamespace(settings={"beam_size": 7}), self.reverse
        self.advice = "try again"
        self.texts, self.added = dict(texts), added

    def write(self, directory):
        (directory / "weights").write_text("5")

    def describe(self, directory):
        return {"format": "reversing"}

    def reverse(self, texts):
        return [text[::-1] for text in texts], [-float(len(text)) for text in texts]

    @contextlib.contextmanager
    def opened(self, directory):
        yield lambda texts: (
            [self.texts.get(text, text[::-1]) for text in texts],
            [self.added - len(text) for text in texts],
        )


def test_equal_translations_are_counted_with_the_probes_and_the_score_of_a_different_one_is_not_compared():
    parity, loading = prove(Reversing(added=0.0625), None, SENTENCES)
    assert (parity.sentences, parity.equal) == (len(PROBES) + 3,) * 2
    assert (parity.beam_size, parity.largest_score_difference) == (7, 0.0625)
    assert loading.seconds >= 0 and loading.memory_bytes >= 0
    everything = dict.fromkeys((*PROBES, *SENTENCES), "else")
    parity, _ = prove(Reversing(0.0, texts=everything, added=53.0), None, SENTENCES)
    assert (parity.equal, parity.largest_score_difference) == (0, 0)


def test_a_different_translation_is_named_unless_the_format_allows_it():
    with pytest.raises(ExportError, match="'two' to 'else', the run directory to 'owt'; they agree on 8 of 9 .* again"):
        prove(Reversing(texts={"two": "else"}), None, SENTENCES)
    assert prove(Reversing(8 / 9, texts={"two": "else"}), None, SENTENCES)[0].equal == 8
    with pytest.raises(ExportError, match="90.0% would do"):
        prove(Reversing(0.9, texts={"two": "else"}), None, SENTENCES)


@pytest.mark.parametrize("added", [0.11, -0.11, float("nan")])
def test_another_score_is_refused(added):
    with pytest.raises(ExportError, match="scores a translation otherwise"):
        prove(Reversing(added=added), None, SENTENCES)


def test_a_manifest_has_all_that_proves_an_export_and_its_summary_is_what_a_person_asks_first(tmp_path):
    """The checksums are those of FIPS 180's examples."""
    (tmp_path / "variables").mkdir()
    (tmp_path / "variables" / "data").write_bytes(b"abc")
    (tmp_path / "graph").write_bytes(b"")
    parity = Parity(beam_size=5, sentences=53, equal=47, largest_score_difference=0.25)
    write_manifest(tmp_path, 7, {"format": "some"}, {"corpus": "other"}, parity, Loading(1.5, 17_000_000))
    manifest = read_manifest(tmp_path)
    assert manifest["files"] == {
        "graph": {"bytes": 0, "sha256": "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
        "variables/data": {"bytes": 3, "sha256": "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
    }
    assert (manifest["version"], manifest["format"], manifest["run"]) == (7, "some", {"corpus": "other"})
    assert manifest["parity"]["equal"] == 47 and manifest["parity"]["largest_score_difference"] == 0.25
    assert manifest["loading"] == {"seconds": 1.5, "memory_bytes": 17_000_000}
    assert abs(datetime.fromisoformat(manifest["created"]) - datetime.now(timezone.utc)) < timedelta(minutes=5)
    summary = summarise(manifest)
    for part in ("47 of 53 sentences", "beam of 5", "0.0 MB on disk", "in 1.5 s", "17 MB of memory"):
        assert part in summary


def test_a_run_is_described_by_settings_and_evaluation(tmp_path):
    run = RunDirectory(tmp_path / "run")
    run.path.mkdir()
    Config(dataset="cldr:en-fr", d_model=34, num_heads=2).save(run.config)
    run.corpus.write_text('{"languages": "en to fr"}')  # as of a run that has not ended
    unfinished = describe_run(run)
    assert [unfinished[name] for name in ("source_lang", "target_lang", "evaluation")] == ["en", "fr", None]
    run.results.write_text("source_lang: en\ntarget_lang: fr\nset: test\nbleu: 53.5\nbleu_signature: tok:13a\n")
    described = json.loads(json.dumps(describe_run(run)))
    assert (described["corpus"], described["source_lang"], described["target_lang"]) == ("cldr:en-fr", "en", "fr")
    assert (described["evaluation"]["bleu"], described["evaluation"]["bleu_signature"]) == (53.5, "tok:13a")
    assert described["settings"]["d_model"] == 34 and described["settings"]["preset"] == "quickstart"


def names(directory):
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*"))


NO_SPACE = os.strerror(errno.ENOSPC)


def test_what_forbids_to_write_is_one_line_and_a_mistake_of_the_program_keeps_its_traceback(tmp_path):
    full = tf.errors.ResourceExhaustedError(None, None, f"weights; {NO_SPACE}")
    for error in (OSError(errno.ENOSPC, NO_SPACE), full):
        with pytest.raises(FileError) as caught, new_version(tmp_path):
            raise error
        assert str(caught.value) == f"cannot write {tmp_path / '1'}: {NO_SPACE}"
    for error in (FileNotFoundError(errno.ENOENT, "no"), tf.errors.ResourceExhaustedError(None, None, "out of memory")):
        with pytest.raises(type(error)) as caught, new_version(tmp_path):
            raise error
        assert caught.value is error
    assert names(tmp_path) == []
    (tmp_path / "file").touch()
    with pytest.raises(FileError, match="^cannot write .*file/1: Not a directory$"), new_version(tmp_path / "file"):
        pass


def test_a_version_is_a_positive_number_and_an_existing_one_is_never_overwritten(tmp_path):
    (tmp_path / "5").mkdir()
    (tmp_path / "5" / "precious").write_text("text")
    with pytest.raises(ExportError, match="5 exists.*`version`"):
        export_version(Reversing(), tmp_path, version=5)
    for version in (0, -3, 2**63):
        with pytest.raises(ExportError, match=f"positive.*{version}"):
            export_version(Reversing(), tmp_path / "new", version=version)
    assert names(tmp_path) == ["5", "5/precious"]


def test_a_version_has_its_name_when_it_is_complete_and_not_before(tmp_path):
    (left_over := tmp_path / f".3.{os.getpid()}.0a1b.partial").mkdir()
    (left_over / "left").write_text("by one that was killed")
    with new_version(tmp_path, 3) as (directory, final):
        (directory / "weights").write_text("5")
        assert not final.exists()
    assert final == tmp_path / "3" and names(tmp_path) == ["3", "3/weights"]
    for name in ("11", ".18.partial", "notes", "2²", "2٣", f"{2**63}"):
        (tmp_path / name).mkdir()
    with new_version(tmp_path) as (_, final):
        assert final == tmp_path / "12"  # above all others


def test_a_version_that_exists_is_refused_before_the_model_is_loaded(tmp_path):
    (tmp_path / "exports" / "1").mkdir(parents=True)
    with pytest.raises(ExportError, match="never overwritten"):
        Run(tmp_path / "no run").export(tmp_path / "exports", version=1)


def test_an_export_is_written_proven_and_described_and_one_that_differs_leaves_nothing(tmp_path):
    path = export_version(Reversing(), tmp_path / "new", sentences=SENTENCES, origin={"corpus": "some"})
    assert names(tmp_path / "new") == ["1", "1/export.json", "1/weights"]
    manifest = json.loads((path / "export.json").read_text())
    assert (manifest["version"], manifest["format"], manifest["run"]) == (1, "reversing", {"corpus": "some"})
    assert manifest["parity"]["equal"] == 9
    assert {"pytest", "tensorflow"} < manifest["libraries"].keys() and "no-such-library" not in manifest["libraries"]
    with pytest.raises(ExportError, match="'eerht'"):
        export_version(Reversing(texts={"three": "else"}), tmp_path / "other", sentences=SENTENCES)
    assert names(tmp_path / "other") == []
