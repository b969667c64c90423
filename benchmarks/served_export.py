"""A server in a separate process, with good versions of other scores, and broken versions."""

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
PATIENCE = 300  # Seconds for a version to load.
METRICS_PATH = "/monitoring/prometheus/metrics"


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


class Server:
    """`python -m serving.server` on its own ports, from `with` to the end of the block.

    Args:
        base_path: directory of the model's versions.
        log: path of the server's log.
        batching: path of the batching parameters.
        timeout_s: float, the most seconds for a request to arrive, and for its answer.
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
        """Starts the server, and returns when it is ready."""
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(self.command, stdout=log, stderr=subprocess.STDOUT)
        self.wait_for("AVAILABLE", {"AVAILABLE"})
        return self

    def __exit__(self, *error):
        """Ends the server."""
        self.process.terminate()
        self.process.wait(PATIENCE)

    def get(self, path):
        """Sends a GET, and returns the body: str."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.rest}{path}", timeout=30) as answer:
            return answer.read().decode()

    def states(self):
        """Returns version -> (state, code, message), or {} while the server does not answer."""
        try:
            statuses = json.loads(self.get(f"/v1/models/{MODEL}"))["model_version_status"]
        except (urllib.error.URLError, ConnectionError):
            return {}
        return {
            int(each["version"]): (each["state"], each["status"]["error_code"], each["status"]["error_message"])
            for each in statuses
        }

    def wait_for(self, what, states, version=None):
        """Waits until a version (None: any version) is in one of `states`: (state, code, message)."""
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
        """Translates a text by REST."""
        body = json.dumps({"instances": [text]}).encode()
        url = f"http://127.0.0.1:{self.rest}/v1/models/{MODEL}:predict"
        with urllib.request.urlopen(url, body, timeout=30) as answer:
            return json.load(answer)["predictions"][0]["translation"]

    def remove(self, version):
        """Removes a version."""
        shutil.rmtree(self.base_path / str(version))

    def memory(self):
        """Returns the resident memory in MB."""
        return psutil.Process(self.process.pid).memory_info().rss / 1e6

    def failed_loads(self, version):
        """Returns the number of failed loads and warm-ups of a version, from the metrics."""
        found = re.findall(r":(load_attempt_count|model_warmup_latency_count)\{(.*?)\} (\S+)", self.get(METRICS_PATH))
        failed = {"load_attempt_count": 'status="fail"', "model_warmup_latency_count": 'status="[^O]'}
        counts = [
            float(count)
            for name, labels, count in found
            if f'/{version}"' in labels and re.search(failed[name], labels)
        ]
        return int(sum(counts))


def copy_export(export, target):
    """Makes a directory of links to the files of an export."""
    return Path(
        shutil.copytree(
            Path(export).resolve(), target, copy_function=lambda source, copy: Path(copy).symlink_to(source)
        )
    )


def publish(export, base_path, version, change=None):
    """Publishes BASE_PATH/VERSION, complete, after `change(directory)`."""
    directory = copy_export(export, Path(base_path) / f"tmp-{version}")
    if change:
        change(directory)
    directory.rename(Path(base_path) / str(version))


def edit_graph(directory, edit):
    """Replaces saved_model.pb after `edit(nodes)` of all its nodes."""
    from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

    path = directory / "saved_model.pb"
    model = SavedModel.FromString(path.read_bytes())
    graph = model.meta_graphs[0].graph_def
    edit([*graph.node, *(node for function in graph.library.function for node in function.node_def)])
    path.unlink()
    path.write_bytes(model.SerializeToString())


def score_otherwise(number):
    """Returns a change that gives the same translations other scores: a slightly higher length penalty."""

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
    """Cuts the file of the weights in half."""
    (path,) = (directory / "variables").glob("*.data-*")
    content = path.read_bytes()
    path.unlink()
    path.write_bytes(content[: len(content) // 2])


def miss_variable(directory):
    """Makes the graph ask for a variable that the checkpoint does not have."""

    def edit(nodes):
        for node in nodes:
            names = node.attr["value"].tensor.string_val if node.op == "Const" else []
            if len(names) > 1 and names[0].endswith(b"VARIABLE_VALUE"):
                names[0] = b"nowhere/.ATTRIBUTES/VARIABLE_VALUE"

    edit_graph(directory, edit)


def use_unknown_op(directory):
    """Gives the graph an op that TensorFlow does not have."""

    def edit(nodes):
        for node in nodes:
            if node.op == "BatchMatMulV2":
                node.op = "NoSuchOp"

    edit_graph(directory, edit)


def spoil_warm_up(directory):
    """Damages a record of the warm-up."""
    path = directory / "assets.extra" / "tf_serving_warmup_requests"
    content = path.read_bytes() if path.exists() else b""
    path.unlink(missing_ok=True)
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content[:-5] + b"spoilt")


# These changes need a SavedModel with a warm-up. Without one, TensorFlow checks the ops only at the first request.
BROKEN = {
    "truncated weights": truncate_weights,
    "missing variable": miss_variable,
    "unknown op": use_unknown_op,
    "damaged warm-up": spoil_warm_up,
    "no graph": lambda directory: (directory / "saved_model.pb").unlink(),
}
