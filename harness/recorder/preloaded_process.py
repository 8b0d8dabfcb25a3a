"""A process that has torch imported and forks the processes that would import it once more.

`python preloaded_process.py CONNECTION MODULE,...`: the number of an open socket, and what is imported while nobody
asks for anything. `launch/preloaded.py` is the other side. What happens for each process that is asked for:

    asks with two streams and a connection  -->  imports what it is to have, forks, tells the process id
    tells what it is to be                  -->  the fork takes `bootstrap.py` for its program
    waits                                   <--  tells how the fork has ended

A fork has the streams, session, variables, arguments and generators of a started process. This process runs no op and
starts no thread, so there is nothing in it that a fork could not take over; where that is not so it answers nothing.
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
import select
import signal
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

HARMLESS = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/shm", "/dev/pts", "/dev/tty")


class Preloaded:
    """What this process has imported, and the forks that have not ended; each by the descriptor that tells its end."""

    def __init__(self, asking: socket.socket) -> None:
        self.asking = asking
        self.under_way: dict[int, tuple[int, socket.socket]] = {}
        self.asker = os.pidfd_open(os.getppid())
        self.watched = select.poll()
        for one in (asking.fileno(), self.asker):
            self.watched.register(one, select.POLLIN)
        self.is_fit = False
        self.filling: list[object] = []

    def serve(self, ahead: list[str]) -> dict[str, Any]:
        """Answer until nobody is there to ask; comes back in forks alone, with what each is to be."""
        while True:
            ready = [number for number, _ in self.watched.poll(0 if ahead else None)]
            for number in self.under_way.keys() & set(ready):
                self.tell_end(number)
            if self.asker in ready:
                os._exit(0)  # the forks are told by the kernel
            if self.asking.fileno() in ready:
                message, streams, _, _ = socket.recv_fds(self.asking, 65536, 3)
                if not message:
                    os._exit(0)
                told = self.answer(json.loads(message), streams)
                if told is not None:
                    return told
            elif ahead and not ready and not self.load([ahead.pop(0)]):
                ahead = []

    def load(self, names: list[str]) -> bool:
        """Import modules; says whether a fork would still be like a started process."""
        missing = [name for name in names if name not in sys.modules]
        if not missing:
            return self.is_fit
        try:
            for name in missing:
                importlib.import_module(name)
        except Exception:  # noqa: BLE001, whoever needs the module meets the error in a process of its own
            traceback.print_exc()
            self.is_fit = False
            return False
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        gc.collect()
        self.filling += fill_pools()
        gc.freeze()  # no collection of a fork touches, and so copies, what is shared
        self.is_fit = is_alone() and not has_device()
        return self.is_fit

    def answer(self, imports: list[str], given: list[int]) -> dict[str, Any] | None:
        """Fork what was asked for, or close its connection without a word. Gives, in the fork, what it is to be."""
        *streams, own = given
        connection = socket.socket(fileno=own)
        process, parent = -1, os.getpid()
        if self.load(imports):
            process = fork()
        if process == 0:
            ctypes.CDLL(None).prctl(DIE_WITH_PARENT, signal.SIGTERM)
            if os.getppid() != parent:
                os._exit(1)
            for number, (_, other) in self.under_way.items():
                os.close(number)
                other.close()
            os.close(self.asker)
            self.asking.close()
            return begin(connection, streams)
        for stream in streams:
            os.close(stream)
        if process > 0:
            end = os.pidfd_open(process)
            self.under_way[end] = process, connection
            self.watched.register(end, select.POLLIN)
            with contextlib.suppress(OSError):  # who asked has gone: the fork sees it, too
                connection.sendall(str(process).encode())
        else:
            connection.close()
        return None

    def tell_end(self, number: int) -> None:
        """A fork has ended: say how."""
        process, connection = self.under_way.pop(number)
        self.watched.unregister(number)
        os.close(number)
        _, status = os.waitpid(process, 0)
        with connection, contextlib.suppress(OSError):
            connection.sendall(str(os.waitstatus_to_exitcode(status)).encode())


def fork() -> int:
    with warnings.catch_warnings():
        # Python warns where there are threads. Those of OpenBLAS, the only ones here, end themselves before a fork.
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def is_alone() -> bool:
    """Whether a fork leaves no thread behind: who knows of forks, as OpenBLAS does, has ended its threads by now."""
    trial = fork()
    if trial == 0:
        os._exit(0)
    os.waitpid(trial, 0)
    for _ in range(20):
        threads = [one.name for one in Path("/proc/self/task").iterdir()]
        if len(threads) == 1:
            return True
        time.sleep(0.005)  # the kernel takes a thread that has ended off the list a little later
    print(f"threads: {threads}", file=sys.stderr)
    return False


def has_device() -> bool:
    """Whether an accelerator's driver is in use, which no fork can take over: it has a device open."""
    for descriptor in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            path = str(descriptor.readlink())
            if path.startswith("/dev/") and not path.startswith(HARMLESS):
                print(f"open: {path}", file=sys.stderr)
                return True
    return False


def begin(connection: socket.socket, streams: list[int]) -> dict[str, Any]:
    """Be a process of one's own, with these streams; gives what it is to be."""
    os.setsid()
    with connection:
        message = connection.recv(1 << 20)
    if not message:  # nobody waits for it any longer
        os._exit(1)
    for number, stream in zip((1, 2), streams, strict=True):
        # What a module has printed when it was imported belongs to each process that would have imported it.
        said = os.pread(number, os.fstat(number).st_size, 0)
        os.dup2(stream, number)
        os.close(stream)
        while said:
            said = said[os.write(number, said) :]
    told: dict[str, Any] = json.loads(message)
    return told


POOL, HEAD = 16384, 48
"""Bytes of a pool of CPython's allocator, of objects of one size up to 512 bytes, and of its head (Python 3.10 on)."""


def objects(size: int, count: int) -> list[object]:
    """So many new objects that take so many bytes each."""
    if size == 16:
        return [object() for _ in itertools.repeat(None, count)]
    if size == 32:
        return list(map(float, itertools.repeat("1", count)))
    return list(map(bytes, itertools.repeat(size - 33, count)))


def fill_pools() -> list[object]:
    """Leave no room in the pools that there are: a new object of any size is the first of a new pool."""
    kept: list[object] = []
    for size in range(16, 513, 16):
        room = (POOL - HEAD) // size
        for _ in range(50):
            made = objects(size, room)
            kept += made
            if len({id(one) // POOL for one in made}) <= 2:  # one after the other, in new pools
                kept += objects(size, room - 1 - (id(made[-1]) % POOL - HEAD) // size)
                break
    return kept


def elsewhere() -> list[object]:
    """Take some pools, and fill those before them: objects made from here on have other addresses than in another fork.

    The kernel gives each started process other addresses, which differ by whole pages. A training whose bits depend on
    them, by the order of a large set of parameters for one, is not deterministic, and is to be found out as such.
    """
    taken = objects(512, random.SystemRandom().randrange(128) * ((POOL - HEAD) // 512))
    return [taken, fill_pools()]


def main() -> None:
    own = sys.path.pop(0)  # this folder: what is imported is not to find our files
    preloaded = Preloaded(socket.socket(fileno=int(sys.argv[1])))
    told = preloaded.serve(sys.argv[2].split(","))
    sys.path.insert(0, own)
    os.environ.update(told["variables"])
    sys.argv = [str(BOOTSTRAP), *told["arguments"]]
    sys.orig_argv = [sys.executable, *sys.argv]
    program = types.ModuleType("__main__")
    program.__dict__.update(__file__=str(BOOTSTRAP), __builtins__=__builtins__, _elsewhere=elsewhere())
    sys.modules["__main__"] = program
    exec(compile(BOOTSTRAP.read_bytes(), str(BOOTSTRAP), "exec"), program.__dict__)  # noqa: S102, our own program


if __name__ == "__main__":
    main()
