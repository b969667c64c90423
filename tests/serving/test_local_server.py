import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest

from serving.client import Client
from serving.languages import Languages
from serving.local_server import InProcess, in_process_clients, run
from serving.predictor import ModelSpec
from serving.server import parse_settings
from tests.serving import toy
from tests.serving.live import DEADLINE_SECONDS, HOST, METRICS, accepts, ask, backend, free_port, refusal, wait_for

ROOT = Path(__file__).parents[2]
CONFIG = 'model_config_list {{ config {{ name: "{name}" base_path: "{path}" model_platform: "tensorflow" }} }}'


def start(*flags):
    command = [sys.executable, "-m", "serving.server", *map(str, flags)]
    return subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True, env=os.environ | {"COLUMNS": "80"})


def last_words(*flags):
    """The line with which a server ends that is started wrongly."""
    process = start(*flags)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 2, errors
    *before, last = errors.splitlines()
    assert [line for line in before if not re.match(r"\d{4}-\d\d-\d\d .* (INFO|WARNING|ERROR) ", line)] == []
    return last


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    directory = tmp_path_factory.mktemp("served")
    toy.warm_up(toy.write(directory / "toy", 3), toy.record("wait 1"))
    config = directory / "models.config"
    config.write_text(CONFIG.format(name="toy", path=directory / "toy"))
    port, grpc_port = free_port(), free_port()
    ports = ("--rest_api_port", port, "--port", grpc_port)
    batching = ("--enable_batching", "--rest_api_timeout_in_ms=20000")
    process = start("--model_config_file", config, "--model_config_file_poll_wait_seconds=1", *ports, *batching)
    lines = []
    reader = threading.Thread(target=lambda: lines.extend(process.stderr), daemon=True)
    reader.start()
    wait_for(lambda: accepts(port) or process.poll() is not None)
    first_status = ask(port, "GET", "/v1/models/toy")
    yield SimpleNamespace(**locals())
    if process.poll() is None:
        process.kill()
    process.wait()
    process.stderr.close()


def test_the_port_opens_only_when_the_model_is_available(server):
    status, _, reply = server.first_status
    assert status == 200 and [version["state"] for version in reply["model_version_status"]] == ["AVAILABLE"]
    first, second = (line.split(" INFO ")[1] for line in server.lines[:2])  # said before the long work
    assert first.startswith("loading TensorFlow") and second.startswith("loading the models")
    loaded = next(line for line in server.lines if "loaded version 3" in line)
    assert float(re.search(r"in ([\d.]+) s", loaded)[1]) >= 1, "the warm-up takes a second, before which nothing opens"


def test_rest_and_grpc_answer_alike(server):
    for address in ({"url": f"http://{HOST}:{server.port}"}, {"grpc": f"{HOST}:{server.grpc_port}"}):
        with Client(model="toy", **address) as client:
            assert [found.text for found in client.translate(["a", "ö"])] == ["3:A", "3:Ö"]


def test_a_changed_model_file_is_followed(server):
    toy.write(server.directory / "other", 7)
    text = server.config.read_text()
    server.config.write_text(
        text[:-2]
        + f'config {{ name: "new" base_path: "{server.directory / "other"}" model_platform: "tensorflow" }} }}'
    )
    predict = "/v1/models/new:predict", {"instances": ["a"]}
    wait_for(lambda: ask(server.port, "POST", *predict)[0] == 200)
    reply = ask(server.port, "POST", *predict)[2]
    assert reply["predictions"][0]["translation"] == "7:A"
    assert ask(server.port, "GET", "/page/models")[2] == {"models": ["new", "toy"]}
    server.config.write_text("nonsense {")
    wait_for(lambda: any("is not followed" in line for line in server.lines))
    assert ask(server.port, "GET", "/v1/models/toy")[0] == 200


def test_sigterm_answers_what_is_under_way_and_ends_in_order(server):
    def begun():
        content = ask(server.port, "GET", METRICS)[2].decode()
        return sum(map(float, re.findall(r"queuing_latency_count\{.*\} (.*)", content)))

    before = begun()
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(ask, server.port, "POST", "/v1/models/toy:predict", {"instances": ["wait 2"]})
        wait_for(lambda: begun() > before)
        server.process.send_signal(signal.SIGTERM)
        wait_for(lambda: not accepts(server.port))
        assert not asked.done()
        status, _, reply = asked.result(DEADLINE_SECONDS)
    assert server.process.wait(DEADLINE_SECONDS) == 0
    server.reader.join(DEADLINE_SECONDS)
    assert status == 200 and reply["predictions"][0]["translation"] == "3:WAIT 2"
    assert server.lines[-1].endswith(" INFO stopped\n")
    assert "wait 2" not in "".join(server.lines)


def test_a_mistake_is_one_line():
    with socket.create_server((HOST, 0)) as listener:
        port = listener.getsockname()[1]
        line = last_words("--model_config_file", __file__, "--rest_api_port=0", "--port", port)
    assert line.startswith(f"error: cannot listen on {HOST}:{port}: ")


def test_a_model_that_cannot_be_loaded_is_a_mistake_of_the_user(tmp_path):
    (tmp_path / "3").mkdir()
    (tmp_path / "3" / "saved_model.pb").write_bytes(b"nonsense")
    settings, _ = parse_settings(["--model_base_path", str(tmp_path), "--max_num_load_retries=0"])
    with pytest.raises(ValueError, match="name: default version: 3 due to error: DATA_LOSS"):
        run(settings)


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    path = tmp_path_factory.mktemp("models")
    (toy.write(path / "b", 5) / "export.json").write_text(
        json.dumps({"run": {"source_lang": "en", "target_lang": "de"}})
    )
    toy.write(path / "a", 3)
    with backend({name: path / name for name in "ab"}) as found:
        yield found


def test_clients_ask_the_models_in_this_process_and_the_languages_of_the_flags_are_for_models_that_name_none(two):
    clients = in_process_clients(two.predictor, two.models)
    ((languages, client),) = clients().items()
    assert languages == ("en", "de") and clients()[languages] is client
    assert [found.text for found in client.translate(["ü", "a"])] == ["5:Ü", "5:A"]
    clients = in_process_clients(two.predictor, two.models, Languages("fr", "it"))()
    translations = {pair: client.translate(["x"])[0].text for pair, client in clients.items()}
    assert translations == {("fr", "it"): "3:X", ("en", "de"): "5:X"}


def test_a_model_that_has_gone_or_takes_too_long_is_an_error(two):
    gone, slow = (InProcess(two.predictor, ModelSpec(name)).predict for name in ("gone", "a"))
    assert refusal(gone, "translate", toy.texts("a"), 5) == (
        "NOT_FOUND",
        "Servable not found for request: Latest(gone)",
    )
    code, message = refusal(slow, "translate", toy.texts("wait 1"), 0.1)
    assert code == "DEADLINE_EXCEEDED" and "no answer in time" in message
