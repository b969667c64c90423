import json
from datetime import datetime, timedelta, timezone

import pytest

from keras_transformer.cli.export import summarise
from keras_transformer.config import Config
from keras_transformer.export.manifest import describe_run, read_manifest, write_manifest
from keras_transformer.export.parity import Loading, Parity
from keras_transformer.training.run_directory import RunDirectory

PARITY, LOADING = Parity(beam_size=5, sentences=53, equal=47, largest_score_difference=0.25), Loading(1.5, 17_000_000)


@pytest.fixture
def manifest(tmp_path):
    (tmp_path / "variables").mkdir()
    (tmp_path / "variables" / "data").write_bytes(b"abc")
    (tmp_path / "graph").write_bytes(b"")
    write_manifest(tmp_path, 7, {"format": "some"}, {"corpus": "other"}, PARITY, LOADING)
    return read_manifest(tmp_path)


def test_every_file_has_its_size_and_checksum(manifest):
    """The checksums are those of FIPS 180's examples."""
    assert manifest["files"] == {
        "graph": {"bytes": 0, "sha256": "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
        "variables/data": {"bytes": 3, "sha256": "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
    }


def test_version_format_run_parity_and_time_are_there(manifest):
    assert (manifest["version"], manifest["format"], manifest["run"]) == (7, "some", {"corpus": "other"})
    assert manifest["parity"]["equal"] == 47 and manifest["parity"]["largest_score_difference"] == 0.25
    assert manifest["loading"] == {"seconds": 1.5, "memory_bytes": 17_000_000}
    assert abs(datetime.fromisoformat(manifest["created"]) - datetime.now(timezone.utc)) < timedelta(minutes=5)


def test_the_summary_is_what_a_person_asks_first(manifest):
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
