"""A process that has imported torch and forks the processes that would otherwise import it again.

`python preloaded_process.py CONNECTION MODULE,...` takes the file descriptor of an open socket, and modules to import
while it is idle. `launch/preloaded.py` has the client. The exchange for each requested process:

    the client sends two streams and a connection   -->  this process imports the modules, forks, sends the process id
    the client sends the instructions               -->  the fork runs `bootstrap.py`, or another program, with them
    the client waits                                <--  this process sends the exit code of the fork

A program other than `bootstrap.py` is one for which `python -I` would otherwise be started. It is refused unless this
process is like such an interpreter. A fork has the streams, session, variables, arguments and generators of a newly
started process. This process runs no op and starts no thread, so a fork can take over its whole state. If an import
fails, starts a thread or opens a device, this process no longer forks: it closes the connection of each request without
an answer.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import itertools
import json
import os
import random
import runpy
import select
import signal
import site
import socket
import sys
import time
import traceback
import types
import warnings
from pathlib import Path
from typing import Any

DIE_WITH_PARENT = 1
"""PR_SET_PDEATHSIG of prctl(2)."""

BOOTSTRAP = Path(__file__).with_name("bootstrap.py")

INDUCTOR_START = Path(__file__).parents[1] / "torch_private/compiler/inductor_start.py"

HARMLESS = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/shm", "/dev/pts", "/dev/tty")


class Preloaded:
    """The server in the preloaded process. It imports modules and forks processes on request.

    under_way: the process id and connection of each running fork, by the descriptor that reports the fork's end.
    is_fit: whether a fork would still be like a newly started process.
    imported: the modules that it has imported by name.
    """

    def __init__(self, asking: socket.socket) -> None:
        self.asking = asking
        self.under_way: dict[int, tuple[int, socket.socket]] = {}
        self.asker = os.pidfd_open(os.getppid())
        self.watched = select.poll()
        for descriptor in (asking.fileno(), self.asker):
            self.watched.register(descriptor, select.POLLIN)
        self.is_fit = False
        self.imported: set[str] = set()
        self.filling: list[object] = []

    def serve(self, ahead: list[str]) -> dict[str, Any]:
        """Answer requests until the asking process has ended. Return only in a fork, with the fork's instructions."""
        while True:
            ready = [number for number, _ in self.watched.poll(0 if ahead else None)]
            for number in self.under_way.keys() & set(ready):
                self.tell_end(number)
            if self.asker in ready:
                os._exit(0)  # the kernel signals the forks
            if self.asking.fileno() in ready:
                message, streams, _, _ = socket.recv_fds(self.asking, 65536, 3)
                if not message:
                    os._exit(0)
                instructions = self.answer(json.loads(message), streams)
                if instructions is not None:
                    return instructions
            elif ahead and not ready and not self.load([ahead.pop(0)]):
                ahead = []

    def load(self, names: list[str]) -> bool:
        """Import modules. Return whether a fork would still be like a newly started process."""
        missing = [name for name in names if name not in sys.modules]
        if not missing:
            return self.is_fit
        try:
            for name in missing:
                importlib.import_module(name)
            self.imported.update(missing)
            if "torch._inductor.compile_fx" in missing:
                runpy.run_path(str(INDUCTOR_START))["start_inductor"]()
        except Exception:  # noqa: BLE001, a process that needs the module meets the error itself
            traceback.print_exc()
            self.is_fit = False
            return False
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        gc.collect()
        self.filling += fill_pools()
        gc.freeze()  # so that no collection in a fork touches, and thereby copies, the shared objects
        self.is_fit = is_alone() and not has_device()
        return self.is_fit

    def answer(self, request: dict[str, Any], descriptors: list[int]) -> dict[str, Any] | None:
        """Fork the requested process, or silently close its connection.

        Return the instructions in the fork, and None in this process.
        """
        *streams, connection_number = descriptors
        connection = socket.socket(fileno=connection_number)
        process, parent = -1, os.getpid()
        imports = request["imports"]
        if self.load(imports) and (not request["isolated"] or (self.imported <= set(imports) and is_like_isolated())):
            process = fork()
        if process == 0:
            ctypes.CDLL(None).prctl(DIE_WITH_PARENT, signal.SIGTERM)
            if os.getppid() != parent:
                os._exit(1)
            for number, (_, fork_connection) in self.under_way.items():
                os.close(number)
                fork_connection.close()
            os.close(self.asker)
            self.asking.close()
            return begin(connection, streams)
        for stream in streams:
            os.close(stream)
        if process > 0:
            end = os.pidfd_open(process)
            self.under_way[end] = process, connection
            self.watched.register(end, select.POLLIN)
            with contextlib.suppress(OSError):  # if the asking process has ended, the fork notices that, too
                connection.sendall(str(process).encode())
        else:
            connection.close()
        return None

    def tell_end(self, number: int) -> None:
        """Report how a fork ended."""
        process, connection = self.under_way.pop(number)
        self.watched.unregister(number)
        os.close(number)
        _, status = os.waitpid(process, 0)
        with connection, contextlib.suppress(OSError):
            connection.sendall(str(os.waitstatus_to_exitcode(status)).encode())


def fork() -> int:
    with warnings.catch_warnings():
        # Python warns if there are threads. This process has no threads but OpenBLAS's, which end before a fork.
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def is_alone() -> bool:
    """Check that no thread remains after a fork: a library that handles forks, such as OpenBLAS, ends its threads."""
    trial = fork()
    if trial == 0:
        os._exit(0)
    os.waitpid(trial, 0)
    for _ in range(20):
        threads = [thread.name for thread in Path("/proc/self/task").iterdir()]
        if len(threads) == 1:
            return True
        time.sleep(0.005)  # the kernel removes an ended thread from the list a little later
    print(f"threads: {threads}", file=sys.stderr)
    return False


def has_device() -> bool:
    """Check whether a device file is open. An accelerator's driver opens one, and no fork can take it over."""
    for descriptor in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            path = str(descriptor.readlink())
            if path.startswith("/dev/") and not path.startswith(HARMLESS):
                print(f"open: {path}", file=sys.stderr)
                return True
    return False


def ignored_folders() -> set[str]:
    """Return the folders in which `python -I` finds no module: those of PYTHONPATH, and the user's site-packages."""
    folders = [site.getusersitepackages(), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    return {str(Path(folder).absolute()) for folder in folders}


def is_like_isolated() -> bool:
    """Check whether `python -I` would have imported the same files, and would execute a program in the same way."""
    ignored = ignored_folders()
    for name, module in list(sys.modules.items()):
        path = getattr(module, "__file__", None)
        if path and "." not in name and name != "__main__":
            file = Path(path).absolute()
            if str(file.parents[1] if hasattr(module, "__path__") else file.parent) in ignored:
                return False
    return not sys.flags.optimize and not sys.warnoptions


def begin(connection: socket.socket, streams: list[int]) -> dict[str, Any]:
    """Become a separate process with these streams. Return its instructions."""
    os.setsid()
    with connection:
        message, passed, _, _ = socket.recv_fds(connection, 1 << 20, 8)
    if not message:  # nobody waits for this process any longer
        os._exit(1)
    for number, stream in zip((1, 2), streams, strict=True):
        # Repeat the output of modules at import, because a newly started process would have this output, too.
        printed = os.pread(number, os.fstat(number).st_size, 0)
        os.dup2(stream, number)
        os.close(stream)
        while printed:
            printed = printed[os.write(number, printed) :]
    instructions: dict[str, Any] = json.loads(message)
    instructions["arguments"][:0] = map(str, passed)
    return instructions


POOL, HEAD = 16384, 48
"""Sizes in bytes of a pool of CPython's allocator and of its header (Python 3.10 on).

A pool holds objects of one size, up to 512 bytes.
"""


def objects(size: int, count: int) -> list[object]:
    """Create `count` new objects of `size` bytes each."""
    if size == 16:
        return [object() for _ in itertools.repeat(None, count)]
    if size == 32:
        return list(map(float, itertools.repeat("1", count)))
    return list(map(bytes, itertools.repeat(size - 33, count)))


def fill_pools() -> list[object]:
    """Fill the existing pools, so that the next new object of any size is the first of a new pool."""
    fillers: list[object] = []
    for size in range(16, 513, 16):
        room = (POOL - HEAD) // size
        for _ in range(50):
            batch = objects(size, room)
            fillers += batch
            if len({id(filler) // POOL for filler in batch}) <= 2:  # consecutive objects in new pools
                fillers += objects(size, room - 1 - (id(batch[-1]) % POOL - HEAD) // size)
                break
    return fillers


def elsewhere() -> list[object]:
    """Occupy a random number of pools and fill those before them, so that later addresses differ from fork to fork.

    The kernel assigns each newly started process different addresses; they differ by whole pages. A script whose bits
    depend on addresses, for example through the order of a large set of parameters, is not deterministic, and its runs
    must reveal this. Return the objects that occupy the pools.
    """
    pools = objects(512, random.SystemRandom().randrange(128) * ((POOL - HEAD) // 512))
    return [pools, fill_pools()]


def main() -> None:
    folder = sys.path.pop(0)  # this folder: the imports must not find numdrift's files
    preloaded = Preloaded(socket.socket(fileno=int(sys.argv[1])))
    instructions = preloaded.serve(sys.argv[2].split(","))
    path = Path(instructions["program"] or BOOTSTRAP)
    if path == BOOTSTRAP:
        sys.path.insert(0, folder)
    else:
        ignored = ignored_folders()
        sys.path[:] = [entry for entry in sys.path if entry not in ignored]
    os.environ.update(instructions["variables"])
    sys.argv = [str(path), *instructions["arguments"]]
    sys.orig_argv = [sys.executable, *sys.argv]
    program = types.ModuleType("__main__")
    program.__dict__.update(__file__=str(path), __builtins__=__builtins__, _elsewhere=elsewhere())
    sys.modules["__main__"] = program
    exec(compile(path.read_bytes(), str(path), "exec"), program.__dict__)  # noqa: S102, our own program


if __name__ == "__main__":
    main()
