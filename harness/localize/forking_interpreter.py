"""`python -I forking_interpreter.py MODULE...`: imports modules, then executes scripts, each in a fork.

Standard input is a socket; `script_interpreter.py` is the other side. What happens for each script:

    asks, with a connection  -->  forks a process that forks the script, and answers with the script's number
    waits                    <--  and then with its exit code
"""

import importlib
import json
import os
import runpy
import signal
import socket
import sys


def main() -> None:
    asking = socket.socket(fileno=os.dup(0))
    for name in sys.argv[1:]:
        importlib.import_module(name)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel buries the forks
    while True:
        message, given, _, _ = socket.recv_fds(asking, 65536, 1)
        if not message:
            return
        if not os.fork():
            asking.close()
            execute(json.loads(message), socket.socket(fileno=given[0]))
            return
        os.close(given[0])


def execute(asked: dict[str, str], answers: socket.socket) -> None:
    """Comes back in the fork that has executed the script."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    process = os.fork()
    if process:
        answers.send(str(process).encode())
        answers.send(str(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])).encode())
        os._exit(0)
    answers.close()
    for path, numbers, flags in ((os.devnull, (0,), os.O_RDONLY), (asked["output"], (1, 2), os.O_WRONLY)):
        opened = os.open(path, flags)
        for number in numbers:
            os.dup2(opened, number)
    os.chdir(asked["folder"])
    sys.argv = [asked["script"]]
    runpy.run_path(asked["script"], run_name="__main__")


if __name__ == "__main__":
    main()
