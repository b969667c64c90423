import os
import re
import signal
from concurrent.futures import ThreadPoolExecutor

import pytest

from serving import local_server
from serving.local_server import run
from serving.server import parse_settings
from tests.serving import toy
from tests.serving.live import DEADLINE_SECONDS, METRICS, accepts, ask, process_of, wait_for

CONFIG = 'model_config_list {{ config {{ name: "{name}" base_path: "{path}" model_platform: "tensorflow" }} }}'


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    directory = tmp_path_factory.mktemp("served")
    toy.warm_up(toy.write(directory / "toy", 3), toy.record("wait 1"))
    config = directory / "models.config"
    config.write_text(CONFIG.format(name="toy", path=directory / "toy"))
    with process_of("--model_config_file", config, "--model_config_file_poll_wait_seconds=1") as found:
        found.first_status, found.config = ask(found.port, "GET", "/v1/models/toy"), config
        yield found


@pytest.mark.slow
def test_the_port_opens_only_when_the_model_is_available(server):
    status, _, reply = server.first_status
    assert status == 200 and [version["state"] for version in reply["model_version_status"]] == ["AVAILABLE"]
    first, second = (line.split(" INFO ")[1] for line in server.lines[:2])  # said before the long work
    assert first.startswith("loading TensorFlow") and second.startswith("loading the models")
    loaded = next(line for line in server.lines if "loaded version 3" in line)
    assert float(re.search(r"in ([\d.]+) s", loaded)[1]) >= 1, "the warm-up takes a second, before which nothing opens"


@pytest.mark.slow
def test_a_changed_model_file_is_followed(server, tmp_path):
    toy.write(tmp_path / "other", 7)
    more = f'config {{ name: "new" base_path: "{tmp_path / "other"}" model_platform: "tensorflow" }} }}'
    server.config.write_text(server.config.read_text()[:-2] + more)
    predict = "/v1/models/new:predict", {"instances": ["a"]}
    wait_for(lambda: ask(server.port, "POST", *predict)[0] == 200)
    assert ask(server.port, "POST", *predict)[2]["predictions"][0]["translation"] == "7:A"
    assert ask(server.port, "GET", "/page/models")[2] == {"models": ["new", "toy"]}
    server.config.write_text("nonsense {")
    wait_for(lambda: any("is not followed" in line for line in server.lines))
    assert ask(server.port, "GET", "/v1/models/toy")[0] == 200


@pytest.mark.slow
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


def test_a_model_that_cannot_be_loaded_is_a_mistake_of_the_user(tmp_path):
    (tmp_path / "3").mkdir()
    (tmp_path / "3" / "saved_model.pb").write_bytes(b"nonsense")
    settings, _ = parse_settings(["--model_base_path", str(tmp_path), "--max_num_load_retries=0"])
    with pytest.raises(ValueError, match="model default .* version 3: DATA_LOSS"):
        run(settings)


@pytest.mark.parametrize("given, executor", [("", "SINGLE_THREADED_EXECUTOR"), (os.devnull, "")])
def test_a_session_is_that_of_the_kit_unless_a_file_is_given(tmp_path, monkeypatch, given, executor):
    (tmp_path / "3").mkdir()
    monkeypatch.setattr(local_server, "Loader", lambda has_warm_up, metrics, config: config)

    def told(configs, config, *_):
        pytest.fail(config.experimental.executor_type)

    monkeypatch.setattr(local_server, "Models", told)
    flags = ["--model_base_path", str(tmp_path), f"--tensorflow_session_config_file={given}"]
    with pytest.raises(pytest.fail.Exception, match=f"^{executor}$"):
        run(parse_settings(flags)[0])
    with pytest.raises(ValueError, match="must be a tensorflow.ConfigProto in text form"):
        run(parse_settings([*flags[:2], f"--tensorflow_session_config_file={__file__}"])[0])
