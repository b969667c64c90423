"""A server as a process, and versions for it: good ones that score otherwise, and broken ones."""

import json
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import psutil

MODEL = "translator"
PATIENCE = 300  # seconds for a version to be loaded
METRICS_PATH = "/monitoring/prometheus/metrics"


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


class Server:
    """`python -m serving.server` on ports of its own, from `with` until its end.

    Args:
        base_path: directory of the model's versions.
        log: path that its output goes to.
        batching: path of the batching parameters.
        timeout_s: longest time for a request to arrive, and for its answer.
    """

    def __init__(self, base_path, log, batching, timeout_s=30):
        self.base_path, self.log = Path(base_path), Path(log)
        self.rest, self.grpc = free_port(), free_port()
        flags = {
            "model_base_path": base_path,
            "model_name": MODEL,
            "rest_api_port": self.rest,
            "port": self.grpc,
            "rest_api_timeout_in_ms": 1000 * timeout_s,
            "max_num_load_retries": 0,
            "enable_batching": "true",
            "batching_parameters_file": batching,
        }
        self.command = [sys.executable, "-m", "serving.server", *(f"--{name}={value}" for name, value in flags.items())]

    def __enter__(self):
        """Starts it; it is ready."""
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(self.command, stdout=log, stderr=subprocess.STDOUT)
        self.wait_for("AVAILABLE", {"AVAILABLE"})
        return self

    def __exit__(self, *error):
        """Ends it."""
        self.process.terminate()
        self.process.wait(PATIENCE)

    def get(self, path):
        """The body that a GET is answered with, str."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.rest}{path}", timeout=30) as answer:
            return answer.read().decode()

    def states(self):
        """version -> (state, code, message); {} while the server does not answer."""
        try:
            statuses = json.loads(self.get(f"/v1/models/{MODEL}"))["model_version_status"]
        except (urllib.error.URLError, ConnectionError):
            return {}
        return {
            int(each["version"]): (each["state"], each["status"]["error_code"], each["status"]["error_message"])
            for each in statuses
        }

    def wait_for(self, what, states, version=None):
        """The (state, code, message) of a version (any, if it is None) as soon as its state is one of `states`."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise SystemExit(f"the server has ended with status {self.process.returncode}: see {self.log}")
            for number, status in self.states().items():
                if version in (None, number) and status[0] in states:
                    return status
            time.sleep(0.1)
        raise SystemExit(f"version {version or ''} is not {what} after {PATIENCE} s: {self.states()}; see {self.log}")

    def translate(self, text):
        """The translation of a text, by REST."""
        body = json.dumps({"instances": [text]}).encode()
        url = f"http://127.0.0.1:{self.rest}/v1/models/{MODEL}:predict"
        with urllib.request.urlopen(url, body, timeout=30) as answer:
            return json.load(answer)["predictions"][0]["translation"]

    def remove(self, version):
        """Takes a version away."""
        shutil.rmtree(self.base_path / str(version))

    def memory(self):
        """Resident memory in MB."""
        return psutil.Process(self.process.pid).memory_info().rss / 1e6

    def failed_loads(self, version):
        """What the metrics say of a version: how often its loading or its warm-up has failed."""
        found = re.findall(r":(load_attempt_count|model_warmup_latency_count)\{(.*?)\} (\S+)", self.get(METRICS_PATH))
        failed = {"load_attempt_count": 'status="fail"', "model_warmup_latency_count": 'status="[^O]'}
        counts = [
            float(count)
            for name, labels, count in found
            if f'/{version}"' in labels and re.search(failed[name], labels)
        ]
        return int(sum(counts))


def copy_export(export, target):
    """A directory of links to the files of an export."""
    return Path(
        shutil.copytree(
            Path(export).resolve(), target, copy_function=lambda source, copy: Path(copy).symlink_to(source)
        )
    )


def publish(export, base_path, version, change=None):
    """Makes BASE_PATH/VERSION appear, complete, after `change(directory)`."""
    directory = copy_export(export, Path(base_path) / f"tmp-{version}")
    if change:
        change(directory)
    directory.rename(Path(base_path) / str(version))


def edit_graph(directory, edit):
    """Replaces saved_model.pb by what `edit(nodes)` has made of all its nodes."""
    from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

    path = directory / "saved_model.pb"
    model = SavedModel.FromString(path.read_bytes())
    graph = model.meta_graphs[0].graph_def
    edit([*graph.node, *(node for function in graph.library.function for node in function.node_def)])
    path.unlink()
    path.write_bytes(model.SerializeToString())


def score_otherwise(number):
    """A change after which the same translations have other scores: the length penalty is a little higher."""

    def change(directory):
        alpha = json.loads((directory / "export.json").read_text())["search"]["length_penalty"]
        changed = []

        def edit(nodes):
            for node in nodes:
                values = node.attr["value"].tensor.float_val if node.op == "Const" else []
                if len(values) == 1 and abs(values[0] - alpha) < 1e-6:
                    values[0] = alpha + 0.02 * (1 + number % 7)
                    changed.append(node.name)

        edit_graph(directory, edit)
        if not changed:
            raise SystemExit("the export has no length penalty that could be changed")

    return change


def truncate_weights(directory):
    """The file of the weights ends in its middle."""
    (path,) = (directory / "variables").glob("*.data-*")
    content = path.read_bytes()
    path.unlink()
    path.write_bytes(content[: len(content) // 2])


def miss_variable(directory):
    """The graph asks for a variable that the checkpoint does not have."""

    def edit(nodes):
        for node in nodes:
            names = node.attr["value"].tensor.string_val if node.op == "Const" else []
            if len(names) > 1 and names[0].endswith(b"VARIABLE_VALUE"):
                names[0] = b"nowhere/.ATTRIBUTES/VARIABLE_VALUE"

    edit_graph(directory, edit)


def use_unknown_op(directory):
    """The graph has an op that TensorFlow does not."""

    def edit(nodes):
        for node in nodes:
            if node.op == "BatchMatMulV2":
                node.op = "NoSuchOp"

    edit_graph(directory, edit)


def spoil_warm_up(directory):
    """A request of the warm-up has a damaged record."""
    path = directory / "assets.extra" / "tf_serving_warmup_requests"
    content = path.read_bytes() if path.exists() else b""
    path.unlink(missing_ok=True)
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content[:-5] + b"spoilt")


# A SavedModel with its warm-up is meant: without one, TensorFlow does not look at the ops before the first request.
BROKEN = {
    "truncated weights": truncate_weights,
    "missing variable": miss_variable,
    "unknown op": use_unknown_op,
    "damaged warm-up": spoil_warm_up,
    "no graph": lambda directory: (directory / "saved_model.pb").unlink(),
}
