"""Runs programs as `python PROGRAM ...` does, in forks of a process that has imported TensorFlow once for all of them.

    python tests/warm_start.py serve SOCKET PID      waits for programs as long as process PID runs; says so in a line
    python -S tests/warm_start.py run SOCKET PROGRAM ...    has the same input, output, directory and status as PROGRAM

It passes Ctrl-C and SIGTERM on to PROGRAM. If it is killed, PROGRAM is killed as well.

For tests that start dozens of programs. That a program starts by itself is a promise of tests/test_scripts.py.
"""

import atexit
import gc
import json
import os
import runpy
import select
import signal
import socket
import sys
import tempfile
import threading

FAILED = 1


def command(path):
    """The words of a command that runs the program behind them; `path` is the fixture `warm`."""
    return [sys.executable, "-S", __file__, "run", str(path)]


def serve(path, tests):
    """Forks a process for each program that is asked for, as long as the process with this number runs."""
    import keras  # noqa: F401
    import psutil
    import tensorflow
    import tensorflow_text  # noqa: F401

    spare_work(tensorflow)
    gc.freeze()  # a collection in a fork would copy every page that has an object of TensorFlow
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the system forgets forks that have ended
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        print("ready", flush=True)
        while psutil.pid_exists(int(tests)):
            if select.select([listener], [], [], 1)[0]:  # seconds
                connection, _ = listener.accept()
                if os.fork() == 0:
                    listener.close()
                    become(connection)
                connection.close()


def spare_work(tensorflow):
    """TensorFlow rewrites no graph: for the small ones of tests, that takes longer than it saves."""
    # Sessions, servers, the process that proves an export and programs that start by themselves still rewrite graphs.
    tensorflow.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})


def become(connection):
    """Turns this process into the program of a request; ends it."""
    message, files, *_ = socket.recv_fds(connection, 2**20, 3)
    request = json.loads(message)
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.chdir(request["directory"])
    os.environ.clear()
    os.environ.update(request["environment"])
    tempfile.tempdir = None  # that of the environment counts
    threading.Thread(target=obey, args=[connection], daemon=True).start()
    status = status_of(request["arguments"])
    atexit._run_exitfuncs()  # what the program has registered for its end; Python's own end takes longer
    sys.stdout.flush()
    sys.stderr.flush()
    connection.sendall(bytes([status]))
    os._exit(status)


def obey(connection):
    """Sends this process the signals that `run` passes on, and ends it when `run` is gone."""
    while number := connection.recv(1):
        os.kill(os.getpid(), ord(number))
    os.kill(os.getpid(), signal.SIGKILL)


def status_of(arguments):
    """Runs a program to its end; the status with which it exits."""
    program, *_ = sys.argv = arguments
    try:
        if program == "-":
            sys.path[0] = ""
            exec(compile(sys.stdin.read(), "<stdin>", "exec"), {"__name__": "__main__"})
        elif program == "-m":
            del sys.argv[0]
            sys.path[0] = os.getcwd()
            runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
        else:
            sys.path[0] = os.path.dirname(os.path.realpath(program))
            runpy.run_path(program, run_name="__main__")
    except SystemExit as ended:
        if isinstance(ended.code, str):
            print(ended.code, file=sys.stderr)
            return FAILED
        return ended.code or 0
    except BaseException:
        sys.excepthook(*sys.exc_info())
        return FAILED
    return 0


def run(path, arguments):
    """Has a program run; returns its status."""
    request = {"arguments": arguments, "directory": os.getcwd(), "environment": dict(os.environ)}
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        socket.send_fds(connection, [json.dumps(request).encode()], [0, 1, 2])
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda number, _: connection.sendall(bytes([number])))
        return (connection.recv(1) or [FAILED])[0]


if __name__ == "__main__":
    verb, path, *arguments = sys.argv[1:]
    sys.exit(serve(path, *arguments) if verb == "serve" else run(path, arguments))
