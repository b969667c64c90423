"""A server in a separate process, and versions of the model with different scores for it."""

import json
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


class Server:
    """`python -m serving.server` on its own ports, from `with` to the end of the block."""

    def __init__(self, base_path, log, batching):
        self.base_path, self.log = Path(base_path), Path(log)
        with socket.create_server(("", 0)) as rest, socket.create_server(("", 0)) as grpc:
            self.ports = {"REST": rest.getsockname()[1], "gRPC": grpc.getsockname()[1]}
        flags = {"model_base_path": base_path, "model_name": MODEL, "max_num_load_retries": 0}
        flags |= {"rest_api_port": self.ports["REST"], "port": self.ports["gRPC"]}
        flags |= {"enable_batching": "true", "batching_parameters_file": batching}
        self.command = [sys.executable, "-m", "serving.server", *(f"--{name}={value}" for name, value in flags.items())]

    def __enter__(self):
        """Starts the server, and returns when it is ready."""
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(self.command, stdout=log, stderr=subprocess.STDOUT)
        self.wait_for("AVAILABLE", 1)
        return self

    def __exit__(self, *error):
        """Ends the server."""
        self.process.terminate()
        self.process.wait(PATIENCE)

    def wait_for(self, state, version):
        """Waits until a version is in a state."""
        url, deadline = f"http://127.0.0.1:{self.ports['REST']}/v1/models/{MODEL}", time.monotonic() + PATIENCE
        while time.monotonic() < deadline and self.process.poll() is None:
            try:
                with urllib.request.urlopen(url, timeout=30) as answer:
                    statuses = json.load(answer)["model_version_status"]
            except (urllib.error.URLError, ConnectionError):
                statuses = []
            if (f"{version}", state) in [(status["version"], status["state"]) for status in statuses]:
                return
            time.sleep(0.1)
        raise SystemExit(f"version {version} is not {state}: see {self.log}")

    def memory(self):
        """Returns the resident memory in MB."""
        return psutil.Process(self.process.pid).memory_info().rss / 1e6


def publish(export, base_path, version):
    """Publishes BASE_PATH/VERSION, complete. Each version but 1 gives the same translations with other scores."""
    from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

    directory = Path(base_path) / f"tmp-{version}"
    shutil.copytree(export.resolve(), directory, copy_function=lambda source, copy: Path(copy).symlink_to(source))
    if version > 1:
        path = directory / "saved_model.pb"
        model = SavedModel.FromString(path.read_bytes())
        alpha = json.loads((directory / "export.json").read_text())["search"]["length_penalty"]
        graph = model.meta_graphs[0].graph_def
        for node in [*graph.node, *(node for function in graph.library.function for node in function.node_def)]:
            values = node.attr["value"].tensor.float_val if node.op == "Const" else []
            if len(values) == 1 and abs(values[0] - alpha) < 1e-6:
                values[0] = alpha + 0.02 * (1 + version % 7)
        path.unlink()
        path.write_bytes(model.SerializeToString())
    directory.rename(Path(base_path) / str(version))
