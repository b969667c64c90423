import json
import os
import re
import shutil
import signal
import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from serving.gateway import connected, parse_arguments
from tests.serving.fake import serve
from tests.serving.live import HOST, accepts, ask, free_port, wait_for

SERVING = Path(__file__).parents[2] / "serving"
BACKEND = ["--backend", "grpc://localhost:8500"]
EN_DE = ["--source_lang=en", "--target_lang=de"]


@pytest.mark.parametrize(
    ("arguments", "wish"),
    [
        (EN_DE, "--backend"),
        (["--backend=localhost:8500", *EN_DE], "must be grpc://HOST:PORT or http://HOST:PORT"),
        (BACKEND, "both --source_lang and --target_lang, or --model_base_path"),
        ([*BACKEND, "--source_lang=en"], "both --source_lang and --target_lang, or --model_base_path"),
        ([*BACKEND, *EN_DE, "--model_base_path=x"], "both --source_lang and --target_lang, or --model_base_path"),
        ([*BACKEND, *EN_DE, "--port=70000"], "--port must be between 0 and 65535. Received: 70000"),
    ],
)
def test_a_wrong_flag_is_told_in_one_line(capsys, arguments, wish):
    with pytest.raises(SystemExit, match="2"):
        parse_arguments(arguments)
    assert wish in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize("api", ["rest", "grpc"])
def test_the_model_and_the_label_of_the_flags_are_asked(api, tmp_path):
    def answer(model, signature_name, inputs):
        asked.append(model)
        return {"translation": [b"b"], "score": [0.5]}

    (tmp_path / "3").mkdir()
    (tmp_path / "3" / "export.json").write_text('{"run": {"source_lang": "en", "target_lang": "de"}}')
    asked, where = [], ["--model_base_path", str(tmp_path), "--model_name=m", "--label=stable"]
    with serve(api, answer) as address:
        backend = address["url"] if api == "rest" else f"grpc://{address['grpc']}"
        ((languages, client),) = connected(parse_arguments(["--backend", backend, *where])).items()
        with client:
            assert [found.text for found in client.translate(["a"])] == ["b"]
    assert languages == ("en", "de") and asked == [("m", None, "stable")]


def closure(requirements):
    """The names of all distributions that a list of requirements installs."""
    found, todo = set(), [Requirement(line) for line in requirements]
    while todo:
        requirement = todo.pop()
        name, marker = canonicalize_name(requirement.name), requirement.marker
        if name not in found and (marker is None or marker.evaluate({"extra": ""})):
            found.add(name)
            todo += map(Requirement, distribution(name).requires or [])
    return found


@pytest.fixture(scope="module")
def image(tmp_path_factory):
    """A directory with what the Dockerfile installs: the requirements, the messages of two packages, and serving/."""
    directory = tmp_path_factory.mktemp("image")
    lines = (SERVING / "requirements.txt").read_text(encoding="utf-8").splitlines()
    for name in closure(line for line in lines if not line.startswith("#")):
        for top in {file.parts[0] for file in distribution(name).files} - {"..", "__pycache__"}:
            (directory / top).symlink_to(distribution(name).locate_file(top))
    site, dockerfile = Path(distribution("tensorflow").locate_file("")), (SERVING / "Dockerfile").read_text("utf-8")
    for folder in re.search(r"find (.*) -name '\*_pb2.py'", dockerfile)[1].split():
        for path in (site / folder).rglob("*_pb2.py"):
            target = directory / path.relative_to(site)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target)
    (directory / "serving").mkdir()
    for path in SERVING.glob("*.py"):
        shutil.copy(path, directory / "serving")
    return directory


def start(image, *flags):
    """The gateway in a process that sees nothing but the image."""
    command = [sys.executable, "-S", "-s", "-m", "serving.gateway", *flags]
    environment = os.environ | {"PYTHONPATH": str(image)}
    return subprocess.Popen(command, cwd=image, env=environment, stderr=subprocess.PIPE, text=True)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_image_needs_no_tensorflow_and_ends_in_order(image, number):
    def answer(model, signature_name, inputs):
        return {"translation": [text + b"!" for text in inputs["text"]], "score": [0.5]}

    port = free_port()
    with serve("grpc", answer) as address:
        process = start(image, "--backend", f"grpc://{address['grpc']}", *EN_DE, "--port", str(port))
        wait_for(lambda: accepts(port) or process.poll() is not None)
        body = json.dumps({"q": "süß", "source": "auto", "target": "de"}).encode()
        found, _, reply = ask(port, "POST", "/translate", body, {"Content-Type": "application/json"})
        process.send_signal(number)
        _, errors = process.communicate(timeout=60)
    assert (found, reply["translatedText"]) == (200, "süß!")
    assert errors == f"en to de on http://{HOST}:{port}/translate\n" and process.returncode == 0


@pytest.mark.slow
def test_a_mistake_that_the_flags_do_not_show_is_one_line(image, tmp_path):
    process = start(image, *BACKEND, "--model_base_path", str(tmp_path))
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 2 and errors.startswith("error: no export.json in ") and errors.count("\n") == 1
