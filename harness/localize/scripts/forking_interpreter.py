"""`python -I forking_interpreter.py LISTENING LIFELINE MODULE...`: imports modules, then executes scripts in forks.

LISTENING is the file descriptor of a listening socket, and `script_interpreter.py` has the client. The exchange for
each script:

    the client asks, and passes a socket for the answers  -->  this process forks a process, which forks the script
    the client waits                                      <--  the fork answers with the script's process id,
                                                          <--  and later with the script's exit code

LIFELINE is the file descriptor of a socket to the parent process. When the socket closes, this process and its forks
end.
"""

import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import sys
from pathlib import Path
from typing import Any

INDUCTOR_START = Path(__file__).parents[2] / "torch_private/compiler/inductor_start.py"


def main() -> None:
    listening, lifeline = (socket.socket(fileno=int(number)) for number in sys.argv[1:3])
    asking: dict[int, socket.socket] = {}
    watched = select.poll()
    for endpoint in (listening, lifeline):
        watched.register(endpoint, select.POLLIN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the operating system reaps the forks
    signal.signal(signal.SIGTERM, lambda *_: os.killpg(0, signal.SIGKILL))  # a preloaded process has forked this one
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"  # do not start Inductor's pool of compile processes
    config: Any = sys.modules.get("torch._inductor.config")
    if config is not None:  # it has read the variable
        config.compile_threads = 1
    ahead = sys.argv[3:]
    while True:
        ready = {number for number, _ in watched.poll(0 if ahead else None)}
        if lifeline.fileno() in ready:
            os.killpg(0, signal.SIGKILL)
        # Import everything before serving a client: otherwise each fork would have to import it.
        if ahead:
            name = ahead.pop(0)
            if name in sys.modules:
                continue
            importlib.import_module(name)
            if name == "torch._inductor.compile_fx":
                runpy.run_path(str(INDUCTOR_START))["start_inductor"]()
            gc.collect()
            gc.freeze()  # a garbage collection in a fork would write to the shared pages, and so copy them
            continue
        if listening.fileno() in ready:
            connection, _ = listening.accept()
            asking[connection.fileno()] = connection
            watched.register(connection, select.POLLIN)
        for number in asking.keys() & ready:
            message, descriptors, _, _ = socket.recv_fds(asking[number], 65536, 1)
            if not message:
                watched.unregister(number)
                asking.pop(number).close()
            elif not os.fork():
                for endpoint in (listening, lifeline, *asking.values()):
                    endpoint.close()
                execute(json.loads(message), socket.socket(fileno=descriptors[0]))
                return
            else:
                os.close(descriptors[0])


def execute(request: dict[str, str], answers: socket.socket) -> None:
    """Execute a script in a fork. Only that fork returns from this function."""
    for handled in (signal.SIGCHLD, signal.SIGTERM):
        signal.signal(handled, signal.SIG_DFL)
    process = os.fork()
    if process:
        answers.send(str(process).encode())
        answers.send(str(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])).encode())
        os._exit(0)
    answers.close()
    for path, numbers, flags in ((os.devnull, (0,), os.O_RDONLY), (request["output"], (1, 2), os.O_WRONLY)):
        opened = os.open(path, flags)
        for number in numbers:
            os.dup2(opened, number)
    sys.path.extend(folder for folder in request["packages"].split(os.pathsep) if folder and folder not in sys.path)
    os.chdir(request["folder"])
    sys.argv = [request["script"]]
    runpy.run_path(request["script"], run_name="__main__")


if __name__ == "__main__":
    main()
