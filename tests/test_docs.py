"""Every code block of the pages runs: on a tiny corpus, with trainings cut short and the ports that are free.

A training or an export that no other command needs only has its flags checked.
"""

import collections
import contextlib
import functools
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from tests import tiny
from tests.test_scripts import made_by_programs

ROOT = Path(__file__).parents[1]
WARM_START = ROOT / "tests/warm_start.py"
GUIDE = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md"))
PAGES = [*GUIDE, "serving/README.md", "README.md"]

# What stands before the blocks. Programs that need an installation, a browser or hours do nothing; servers run in the
# background; a training without a corpus takes the tiny one. A sweep lists its runs. A command that has trained,
# exported or evaluated for an earlier page is not run again, and one local server serves all pages. Of a recipe, of a
# training or export that no other command needs or that the fixture `desk` brings, and of all trainings and evaluations
# for figures (of DIR), the flags are checked, and no more. Programs run as forks of a process that has imported
# TensorFlow: see warm_start.py.
PRELUDE = """
set -euo pipefail
pip() { :; }
docker() { :; }
kubectl() { :; }
tensorboard() { :; }
xdg-open() { :; }
curl() { local words=("${@//8501/$REST}"); command curl "${words[@]//5000/${GATEWAY:-5000}}"; }
parsed() {  # PROGRAM FLAGS
  local call="parse_arguments(program.make_parser())"
  [[ "$1" != train ]] || call="parse_training(sys.argv[1:], '')"
  warm - "${@:2}" <<<"import sys; from keras_transformer.cli import $1 as program; program.$call"
}
is_parsed() {  # FLAGS
  [[ "$*" != *--dry_run* ]] || return 1
  local made="train.py .*runs/mine|export_dir exports/(mine|quickstart)|_dir ($NAMED_ONCE)"
  [[ "$PARSED" || "$*" = *--config* || "$*" = *" files:DIR"* ]] || grep -qE "($made)( |$)" <<<"$*"
}
warm() { command python -S "$WARM_START" run "$WARM" "$@"; }
python() {
  local words=("${@//8501/$REST}") corpus=()
  words=("${words[@]//8500/$GRPC}")
  grep -qxF -- "$*" "$RAN" && return
  case "$*" in
    "-m pytest"* | "-m sphinx"* | "-m benchmarks"*) ;;
    "-m serving.server"*)
      if [[ ! -e server.pid ]]; then
        command python "${words[@]}" --port $GRPC --rest_api_port $REST >server.txt 2>&1 &
        echo $! >server.pid
        disown
      fi
      for _ in {1..120}; do
        curl -s localhost:8501/v1/models/translator | grep -q AVAILABLE && return
        sleep 1
      done
      cat server.txt
      return 1 ;;
    "-m serving.gateway"* | "-m keras_transformer gateway"*)
      command python "${words[@]}" --port 0 2>gateway.txt &
      trap 'kill $(jobs -p)' EXIT
      for _ in {1..60}; do
        GATEWAY=$(grep -oE '127.0.0.1:[0-9]+' gateway.txt | cut -d : -f 2 || true)
        [[ "$GATEWAY" ]] && return
        sleep 1
      done
      return 1 ;;
    train.py*)
      ! is_parsed "$@" || { parsed train "${@:2}"; return; }
      local short=$SHORT
      [[ "$*" = *--dataset* ]] || corpus=(--dataset files:data/mine --source_lang en --target_lang de)
      if [[ "$*" = *--init_from* ]]; then
        short="--epochs ${SHORT#*--epochs }"  # the shape is that of the run
      elif [[ "$*" != *"--preset gru"* ]]; then
        corpus+=($OF_TRANSFORMER)
      fi
      words=("${@//2222..2223/$PAIR}")
      warm "${words[@]}" "${corpus[@]}" $short && echo "$*" >>"$RAN" ;;
    "-m keras_transformer sweep"*) warm "${words[@]}" --dry_run ;;
    "-m keras_transformer recipe"*)
      warm - "${@:4}" <<<"from keras_transformer.cli import recipe as program; program.make_parser().parse_args()" ;;
    evaluate.py*)
      [[ ! "$PARSED" && "$*" != *" DIR/"* ]] || { parsed evaluate "${@:2}"; return; }
      warm "$@" && echo "$*" >>"$RAN" ;;
    export.py*)
      ! is_parsed "$@" || { parsed export "${@:2}"; return; }
      warm "$@" && echo "$*" >>"$RAN" ;;
    "-m serving"*) command python "${words[@]}" ;;
    *) warm "${words[@]}" ;;
  esac
}
"""
SHORT = {"vocabulary_size": tiny.VOCABULARY, **tiny.SIZES, "d_key": 12}  # even, for the rotary positions of tiny
SHORT |= {"epochs": 1, "max_length": 31, "batch_tokens": 401, "warmup_steps": 11, "average_epochs": 1}
OF_TRANSFORMER = ("num_heads", "d_ff", "d_key")
IMPORTED = {"opus-mt-en-de": "hf_marian", "m2m100_418M": "hf_m2m100", "onmt-en-de": "opennmt"}
IMPORTED |= {"nllb-200-distilled-600M": "hf_nllb"}


def blocks(text, language):
    """The code blocks of a page, a list of str."""
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def named_once():
    """The directories of runs and exports that a single line of all pages names."""
    texts = [(ROOT / page).read_text(encoding="utf-8").replace("\\\n", "") for page in PAGES]
    code = [block for text in texts for language in ("bash", "python") for block in blocks(text, language)]
    lines = {line for block in code for line in block.splitlines()}
    named = collections.Counter(name for line in lines for name in set(re.findall(r"(?:runs|exports)/\w+", line)))
    return [name for name, count in named.items() if count == 1]


def new_in(page):
    """The text of a page, without the blocks that stand in a page before it as well."""
    texts = [(ROOT / name).read_text(encoding="utf-8") for name in PAGES[: PAGES.index(page) + 1]]
    known = {f"```{x}\n{block}```" for text in texts[:-1] for x in ("bash", "python") for block in blocks(text, x)}
    return functools.reduce(lambda text, block: text.replace(block, ""), known, texts[-1])


def script_of(text):
    """One shell script of all blocks: those in Python come last, as one program. curl ends no line: `echo` does."""
    python = "\n".join(blocks(text, "python"))
    return "\n".join([PRELUDE, *blocks(text, "bash"), *([f"echo\npython - <<'END'\n{python}\nEND"] if python else [])])


def free_ports(count):
    sockets = [socket.create_server(("localhost", 0)) for _ in range(count)]
    ports = [free.getsockname()[1] for free in sockets]
    for free in sockets:
        free.close()
    return map(str, ports)


def pair_of_ports():
    """Two free ports, one after the other, such as "2222..2223"."""
    while True:
        (first,) = free_ports(1)
        with contextlib.suppress(OSError, OverflowError), socket.create_server(("localhost", int(first) + 1)):
            return f"{first}..{int(first) + 1}"


@functools.cache
def ports_of(server):
    """REST and GRPC of the local server of a directory, and PAIR for the workers of a training."""
    return {**dict(zip(("REST", "GRPC"), free_ports(2), strict=True)), "PAIR": pair_of_ports()}


def run(script, directory, warm, is_parsed=False):
    """Runs a script; returns its status and what it printed. `warm` is the socket of warm_start.py."""
    ports = ports_of(directory)
    for name in ("REST", "GRPC"):  # in Python, which the functions of the shell do not see
        script = re.sub(r"(?<=localhost:)" + {"REST": "8501", "GRPC": "8500"}[name] + r'(?=")', ports[name], script)
    flags = {name: f"--{name} {value}" for name, value in SHORT.items()}
    of_transformer = " ".join(flags.pop(name) for name in OF_TRANSFORMER)
    flags = {"SHORT": " ".join(flags.values()), "OF_TRANSFORMER": of_transformer}
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    ran = directory / "ran.txt"
    ran.touch()
    environment = {"PYTHONPATH": str(ROOT), "PATH": path, "RAN": str(ran), **flags, **ports}
    environment |= {"WARM_START": str(WARM_START), "WARM": str(warm), "PARSED": "1" * is_parsed}
    environment["NAMED_ONCE"] = "|".join(named_once())
    how = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return subprocess.run(["bash", "-c", script], cwd=directory, env=os.environ | environment, timeout=500, **how)


@pytest.fixture(scope="module")
def desk(tmp_path_factory, warm):
    """A directory with what the pages assume: the project, a corpus, a run, its exports, and what README.md made."""
    directory, made = tmp_path_factory.mktemp("desk"), made_by_programs(warm)
    for path in ROOT.iterdir():
        if not path.name.startswith(".") and path.name not in ("runs", "exports", "data", "build"):
            (directory / path.name).symlink_to(path)
    copies = {"data/mine": "corpus", "runs/mine": "run", "runs/multi30k": "run"}
    copies |= {"exports/mine": "export", "exports/quickstart": "export"}
    for name, original in copies.items():
        shutil.copytree(made / original, directory / name)
    corpus = directory / "data/mine"
    (directory / "DIR").symlink_to(corpus)
    tiny.write_corpus(directory / "data/talks", train=53)
    (directory / "data/news.en").write_text("one two\n\nthree\n" * 5, encoding="utf-8")
    tiny.write_pairs(corpus, "test2016", tiny.pairs(5, seed=9))
    (directory / "new.en").write_text("one two\n\nthree\n", encoding="utf-8")
    for name, fixture in IMPORTED.items():
        with tarfile.open(ROOT / f"tests/tools/importing/{fixture}.tar.xz") as archive:
            archive.extractall(directory, filter="data")
        (directory / fixture).rename(directory / name)
    yield directory
    with contextlib.suppress(FileNotFoundError):  # no page has started the server
        os.kill(int((directory / "server.pid").read_text()), signal.SIGTERM)


WITH_BLOCKS = [page for page in PAGES if "```" in (ROOT / page).read_text(encoding="utf-8")]


@pytest.mark.slow
@pytest.mark.parametrize("page", WITH_BLOCKS)
def test_every_block_of_a_page_runs_and_prints_what_it_shows(page, desk, warm):
    text = new_in(page)
    done = run(script_of(text), desk, warm, is_parsed=page.startswith("docs/figures"))
    assert done.returncode == 0 and "Traceback" not in done.stdout, done.stdout
    shown = re.findall(r"^print\(.*\)  # (.+)$", "\n".join(blocks(text, "python")), re.MULTILINE)
    assert [line for line in shown if line not in done.stdout.splitlines()] == [], done.stdout
    assert shown or page != "README.md"


@pytest.mark.slow
def test_a_block_that_fails_fails_its_page(desk, warm):
    """So that the test above means something."""
    failing = {
        "```bash\npython translate.py --model_dir nowhere < new.en\ntrue\n```": False,
        "```bash\npython train.py --preset tiny --bogus 3\ntrue\n```": True,  # flags alone
        "```python\n1 / 0\n```": False,
    }
    for block, is_parsed in failing.items():
        assert run(script_of(block), desk, warm, is_parsed).returncode != 0


def test_every_block_is_of_a_kind_that_runs_and_the_readme_shows_how_to_train_translate_and_export():
    *_, readme = texts = [(ROOT / page).read_text("utf-8") for page in PAGES]
    programs = re.findall(r"\bpython (\S+)", "".join(blocks(readme, "bash")))
    assert {"train.py", "translate.py", "export.py"} <= {*programs}
    text = "".join(texts)
    assert set(re.findall(r"^```(\S+)$", text, re.MULTILINE)) <= {"bash", "python", "{toctree}", "{eval-rst}"}
