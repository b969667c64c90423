"""Reads large JSON bodies in a process of its own, which holds up no request of the server.

Python's parser holds Python's global lock until it has read a whole document. A body of 100 MB can have 50 million
values. The process ends after one body, so the system has its memory back.
"""

import io
import math
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
from grpc import StatusCode

from serving.errors import ServingError
from serving.json_tensors import parse, read_request
from serving.messages import CHUNK

SHORT = 2**20  # Bytes that the server itself parses, in a twentieth of a second. A process takes longer to start.
MOST_HOLDERS = 2**22  # Lists, objects and members of a document. More would take gigabytes.


def read_large(body, signatures, timeout_s=math.inf):
    """Reads the body of a predict request as `read_request` does, within `timeout_s` seconds.

    Raises ServingError as `parse` and `read_request` do; RESOURCE_EXHAUSTED or DEADLINE_EXCEEDED.
    """
    if sum(map(body.count, (b"[", b"{", b":"))) > MOST_HOLDERS:
        message = f"A document may have {MOST_HOLDERS} lists, objects and members."
        raise ServingError(StatusCode.RESOURCE_EXHAUSTED, message)
    command, limit = [sys.executable, "-m", "serving.large_bodies"], None if timeout_s == math.inf else timeout_s
    how = {"cwd": Path(__file__).parents[1], "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    try:
        data = pickle.dumps((body, signatures))
        done = subprocess.run(command, input=data, timeout=limit, start_new_session=True, **how)
    except subprocess.TimeoutExpired:
        raise ServingError(StatusCode.DEADLINE_EXCEEDED, "Timed out reading the JSON document.") from None
    if done.returncode:
        raise ServingError(StatusCode.RESOURCE_EXHAUSTED, "The JSON document takes too much memory.")
    stream = io.BytesIO(done.stdout)
    error, name, shapes, is_rows = pickle.load(stream)
    if error:
        raise ServingError(StatusCode[error[0]], error[1])
    return name, {key: _load(stream, shape) for key, shape in shapes.items()}, is_rows


def _load(stream, shape):
    """Reads an array in chunks. Other threads can run between two chunks."""
    chunks = [pickle.load(stream) for _ in range(0, max(1, math.prod(shape)), CHUNK)]
    return np.concatenate(chunks).reshape(shape)


def main():
    """Reads a body and signatures from standard input, and writes what `read_large` returns, in pickles."""
    body, signatures = pickle.load(sys.stdin.buffer)
    try:
        name, inputs, is_rows = read_request(parse(body), signatures)
    except ServingError as error:
        pickle.dump(((error.code.name, error.message), None, None, None), sys.stdout.buffer)
        return
    pickle.dump((None, name, {key: array.shape for key, array in inputs.items()}, is_rows), sys.stdout.buffer)
    for array in inputs.values():
        flat = array.ravel()
        for start in range(0, max(1, len(flat)), CHUNK):
            pickle.dump(flat[start : start + CHUNK], sys.stdout.buffer, pickle.HIGHEST_PROTOCOL)


if __name__ == "__main__":
    main()
