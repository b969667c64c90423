import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from keras_transformer.cli import clean
from tests import tiny

QUICK = ["--language_odds", 0, "--max_ratio", 0, "--workers", 1]

ROOT = Path(__file__).parents[2]


@pytest.fixture
def raw(tmp_path):
    """A directory with a dirty corpus."""
    directory = tiny.write_corpus(tmp_path / "raw")
    with open(directory / "train.en", "a", encoding="utf-8") as file:
        file.write("a line that is all alone\n")
    with open(directory / "train.de", "a", encoding="utf-8") as file:
        file.write("\n")
    return directory


def test_the_program_writes_a_corpus_and_says_what_it_dropped(raw, tmp_path, run, capsys):
    output = tmp_path / "deep" / "clean"
    held_out = ["--without", raw / "test.en", raw / "test.de"]
    run(clean, "--input", f"files:{raw}", "--output", output, *held_out, "--numbers", "false", *QUICK)
    printed = capsys.readouterr()
    about = json.loads((output / "clean.json").read_text("utf-8"))
    assert (about["source_lang"], about["target_lang"]) == ("de", "en")  # found in the directory
    assert about["settings"]["numbers"] is False and about["dropped"]["blank"] == 1
    assert about["pairs"]["read"] == 212 and about["without"] == [str(raw / "test.en"), str(raw / "test.de")]
    lines = printed.out.splitlines()
    assert lines[-2].split() == ["kept", str(about["pairs"]["kept"]), "of", "212", "pairs"]
    assert lines[-1] == f"report           {output / 'report.html'}"
    assert (output / "val.en").read_bytes() == (raw / "val.en").read_bytes()
    held = set((raw / "test.en").read_text("utf-8").splitlines())
    assert not held & set((output / "train.en").read_text("utf-8").splitlines())


def test_mistakes_are_one_line_before_any_work(raw, tmp_path, mistake):
    output = tmp_path / "clean"
    asked = ["--input", f"files:{raw}", "--output", output]
    assert "--workers must be at least 1" in mistake(clean, *asked, "--workers", 0)
    assert "--workers needs --engine local" in mistake(clean, *asked, "--workers", 2, "--engine", "beam")
    assert "cannot read nowhere" in mistake(clean, *asked, "--without", "nowhere")
    assert "leave one out" in mistake(clean, *asked, "--without", raw / "val.en", "--near_held_out", 0)
    assert "--max_ratio must be at least 1, or 0" in mistake(clean, *asked, "--max_ratio", 0.5)
    assert "it exists already" in mistake(clean, "--input", f"files:{raw}", "--output", raw)
    assert "unknown corpus 'raw'" in mistake(clean, "--input", "raw", "--output", output)
    assert "no such directory" in mistake(clean, "--input", "files:nowhere", "--output", output)
    assert "no pair of files:" in mistake(clean, *asked, *QUICK, "--max_characters", 1)
    assert not output.exists() and not (tmp_path / "clean.unfinished").exists()


def test_bad_lines_are_skipped_counted_and_written_if_the_user_wants_that(tmp_path, run, capsys, mistake):
    (tmp_path / "raw").mkdir()
    pairs = [f"{source}\t{target}\n" for source, target in tiny.pairs(40)]
    (tmp_path / "raw/train.tsv").write_text("".join([*pairs, "no tab\n"]), encoding="utf-8")
    asked = ["--input", f"files:{tmp_path / 'raw'}", "--source_lang", "en", "--target_lang", "de", *QUICK]
    assert "With --skip_bad_lines, bad lines are" in mistake(clean, *asked, "--output", tmp_path / "clean")
    cldr = ["--input", "cldr:en-de", "--output", tmp_path / "clean", "--skip_bad_lines"]
    assert "--skip_bad_lines needs a corpus files:DIR" in mistake(clean, *cldr)
    run(clean, *asked, "--output", tmp_path / "clean", "--skip_bad_lines")
    assert "bad lines are skipped: 1 of train.tsv. The first one is line 41 " in capsys.readouterr().out
    assert json.loads((tmp_path / "clean/clean.json").read_text("utf-8"))["bad_lines"] == 1
    (bad,) = map(json.loads, (tmp_path / "clean/bad_lines.jsonl").read_text("utf-8").splitlines())
    assert (bad["file"], bad["line"], bad["text"]) == ("train.tsv", 41, "no tab")


def test_a_flag_that_nobody_knows_is_refused_and_beam_has_more(mistake, tmp_path):
    flags = ["--input", "files:raw", "--output", str(tmp_path / "clean"), "--runner", "DirectRunner"]
    assert "unrecognized arguments: --runner DirectRunner" in mistake(clean, *flags)
    _, rest = clean.parse_arguments(clean.make_parser(), [*flags, "--engine", "beam"])
    assert rest == ["--runner", "DirectRunner"]


@pytest.mark.slow
def test_ctrl_c_ends_all_processes_with_one_line_and_leaves_nothing(tmp_path):
    (tmp_path / "raw").mkdir()
    tiny.write_pairs(tmp_path / "raw", "train", tiny.pairs(5000) * 40)
    command = [sys.executable, "-m", "keras_transformer", "clean", "--input", f"files:{tmp_path}/raw"]
    command += ["--output", str(tmp_path / "clean"), "--language_odds", "0", "--workers", "2"]
    program = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    pattern = ".clean.*.partial/scratch/examined"
    while not any(path.stat().st_size for path in tmp_path.glob(pattern)) and program.poll() is None:
        time.sleep(0.1)
    os.kill(program.pid, signal.SIGINT)
    out, err = program.communicate(timeout=300)
    assert (program.returncode, out, err) == (130, "", "interrupted\n")
    assert [path.name for path in tmp_path.iterdir()] == ["raw"]
