"""A process that has torch and numdrift's commands imported, and forks a child for each command of the tests.

Started by `forked.Nursery`. What happens for `numdrift run script.py --modes cpu,compile`:

    nursery            has imported torch, Inductor and the commands, has run nothing, and waits for requests
      minder           waits for one command and tells how it ended
        command        `python -m numdrift run ...`; a process that it starts comes from its cradle
          cradle       has forgotten all of numdrift; for each training it forks a child that forks the training
          training     `python bootstrap.py ...` of cpu; the command's own child, as it would be without a nursery
          training     ... of compile

The child between cradle and training ends at once, so that the training becomes a child of the command (which is its
reaper, see prctl(2)): process ids, groups, signals and exit statuses are as of a process that was started.

A training whose environment differs in a variable that Python, torch or a library may read when it is loaded is
started as a process of its own; so is every other program.

The interpreter of .venv-xla has two further nurseries: `xla` for trainings in mode `xla`, with torch_xla imported, and
`beside` for its other modes. They import when the first request comes. A child of theirs cannot be the command's child.
So the command's child is a relay: it has the training forked there, passes on the signals that it is sent, and ends as
the training ends. If the relay is killed, the training is killed too.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import fcntl
import gc
import importlib
import json
import logging
import os
import pkgutil
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import types
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

BE_REAPER = 36
"""PR_SET_CHILD_SUBREAPER of prctl(2)."""

DIE_WITH_PARENT = 1
"""PR_SET_PDEATHSIG of prctl(2)."""

READ_LATE = (
    "LTC_SAVE_TENSORS_FILE", "LTC_SAVE_TENSORS_FMT", "COLUMNS", "DEVICE", "PWD", "OLDPWD", "PYTHONPATH", "SHLVL", "_",
    "A", "AT", "ATTENTION", "BARE", "BARE_COMPILE", "BARE_MODE", "BARE_RESULT", "CASE", "COMPILE", "DISTURBED", "FAULT", "HERE",
    "HF_HUB_OFFLINE", "ME",
    "NAME", "NUMDRIFT_PRELOAD", "OTHER", "PIDS", "REPRODUCERS", "WAY", "X",
    "RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE", "ROLE_NAME", "ROLE_RANK",
    "ROLE_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT",
    "TORCHELASTIC_MAX_RESTARTS", "TORCHELASTIC_USE_AGENT_STORE", "TORCHELASTIC_SIGNALS_TO_HANDLE",
    "TORCHELASTIC_ERROR_FILE", "TORCH_NCCL_ASYNC_ERROR_HANDLING", "NUMDRIFT_AGENT", "NUMDRIFT_MEETING_SECONDS",
    "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_JOB_ID", "SLURM_STEP_ID",
    "BACKEND", "DRAW", "EPS", "FORM", "FROM", "LATE", "LIMIT", "MEDIUM", "PLAIN", "PLANT", "SCALE", "STEPS",
    "UNREPEATABLE",
    "CC", "GRAPH_VISUALIZATION", "NUMDRIFT_CACHE",
    "_TORCHINDUCTOR_PYOBJECT_TENSOR_DATA_PTR", "CUBLAS_WORKSPACE_CONFIG", "DISABLE_CUPTI_LAZY_REINIT", "TEARDOWN_CUPTI",
    "TORCHINDUCTOR_COMPILE_THREADS",
    "STANDIN_COUNT", "STANDIN_EAGER", "STANDIN_LEDGER", "STANDIN_LOST_AT", "STANDIN_MEMORY", "STANDIN_UNREPEATABLE",
)  # fmt: skip
"""Variables that nothing reads when it is loaded, or that are set right here, and those of the scripts of the tests; besides
those of pytest. The lazy core reads its own at its first graph, torch.distributed those of the ranks when they meet; those of
the last line but two Inductor and the profiler set in the process of the tests itself, for what it has loaded or for CUDA. The
device of tests/accelerator is loaded behind a fork. `test_read_late.py` finds variables of scripts that are not listed."""

AS_GUESTS = {"PYTHONHASHSEED": "0", "PYTHONUNBUFFERED": "1", "OMP_WAIT_POLICY": "passive"}
"""What numdrift sets for its trainings; everything is imported with it."""

BEFORE = (
    "torch._dynamo", "torch._inductor.compile_fx", "torch._inductor.codegen.cpp", "torch._functorch.aot_autograd",
    "torch.utils.data", "sklearn.datasets",
)  # fmt: skip
"""What trainings import, in the order in which they do: torch first."""

GUESTS = (
    "recorder.script_process", "recorder.own_folder", "backends.cpu_draws", "backends.eager.mode", "hooks.graph_capture",
    "observers.values.step_writer", "observers.calls.compilation_events", "observers.calls.operations",
    "observers.state.script_generators", "observers.state.batches", "observers.state.setup_facts",
    "observers.experiments.step_experiments", "observers.experiments.tape_recording", "tape.files.tape_file",
    "localize.localizer_process",
)  # fmt: skip
"""Modules of numdrift's harness, whose imports are most of what its own processes import. Importing them does nothing else."""

SOURCES = Path(__file__).parents[2] / "src"

INDUCTOR_START = Path(__file__).parents[2] / "harness/torch_private/compiler/inductor_start.py"

BEFORE_XLA = (
    "torch", "torch_xla", "torch._dynamo", "torch.utils.data", "torch_xla.core.xla_model", "torch_xla.runtime",
    "torch_xla.debug.metrics", "torch_xla.debug.profiler", "torch_xla.distributed.parallel_loader",
)  # fmt: skip
"""What trainings in mode `xla` import. torch_xla starts no thread and no runtime before a device is asked for."""

BEFORE_BESIDE = ("torch", "torch._dynamo", "torch.utils.data")

GUESTS_XLA = ("backends.xla.mode", "backends.xla.adapter", "backends.xla.capture", "backends.xla.taped_step")

SET_BY_IMPORTS: dict[str, str] = {}
"""The variables that torch_xla sets when it is imported; its runtime reads them."""

EXECUTE = subprocess.Popen._execute_child  # type: ignore[attr-defined]


def main() -> None:
    listener, alive, kind = socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2]), "".join(sys.argv[3:])
    watched: list[int] = [listener.fileno(), alive]
    if kind and alive in select.select(watched, [], [])[0]:
        return
    for name in {"": BEFORE, "beside": BEFORE_BESIDE, "xla": BEFORE_XLA}[kind]:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    if kind == "xla":
        SET_BY_IMPORTS.update((name, value) for name, value in os.environ.items() if START.get(name) != value)
        logging.root.handlers.clear()  # as numdrift does behind this import
    if not kind:
        # as launch/preloaded.py does for trainings that it forks
        runpy.run_path(str(INDUCTOR_START))["start_inductor"]()
    of_scripts = set(sys.modules)
    sys.path.insert(1, str(SOURCES))  # numdrift is not installed beside torch_xla
    for name in (*GUESTS, *GUESTS_XLA) if kind == "xla" else GUESTS:
        importlib.import_module(f"numdrift.harness.{name}")
    # No test shall fail by chance where two threads make the first call of a function (pytorch/pytorch#188792).
    sys.modules["numdrift.harness.torch_private.first_calls"].settle_first_calls()
    of_guests = set(sys.modules)
    del sys.path[1]
    if not kind:
        commands = importlib.import_module("numdrift.harness.cli")
        for found in pkgutil.walk_packages(commands.__path__, "numdrift.harness.cli."):
            importlib.import_module(found.name)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # minders leave nothing to wait for
    gc.collect()
    gc.freeze()  # no collection touches, and so copies, what is shared
    while True:
        ready, _, _ = select.select(watched, [], [])
        if alive in ready:  # its other end has closed: the tests have ended
            return
        connection, _ = listener.accept()
        if os.fork() == 0:
            mind(connection, of_scripts, of_guests)
        connection.close()


def mind(connection: socket.socket, of_scripts: set[str], of_guests: set[str]) -> NoReturn:
    """Fork the command that is asked for, and say its process id and then its exit status."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    request, streams = received(connection)
    if not request["command"]:  # the trainings of a process that was not forked here
        rock(socket.socket(fileno=streams[0]), of_scripts, of_guests)
    command = os.fork()
    if command == 0:
        connection.close()
        keep = put_in_cradle(of_scripts, of_guests, request.get("further", ()))
        if request.get("session"):
            os.setsid()
        if request["command"][1:3] != ["-m", "numdrift"]:
            forget(of_guests if is_guest(request["command"]) else of_scripts)
        become(request, streams, keep=keep)
    for stream in streams:
        os.close(stream)
    connection.sendall(f"{command}\n".encode())
    ended = os.pidfd_open(command)
    ready, _, _ = select.select([connection.fileno(), ended], [], [])
    if ended not in ready:  # who asked for it is gone
        os.kill(-command if request.get("session") else command, signal.SIGKILL)
    _, status, used = os.wait4(command, 0)
    seconds = used.ru_utime + used.ru_stime
    with contextlib.suppress(BrokenPipeError):  # nobody waits for it any longer
        connection.sendall(f"{os.waitstatus_to_exitcode(status)} {seconds}\n".encode())
    os._exit(0)


def put_in_cradle(of_scripts: set[str], of_guests: set[str], further: Sequence[Any] = ()) -> int:
    """Have what this process starts forked off a cradle, its child. Gives the number of the file that has to stay open."""
    ctypes.CDLL(None).prctl(BE_REAPER, 1)
    mine, its = socket.socketpair()
    if os.fork() == 0:
        mine.close()
        rock(its, of_scripts, of_guests)
    its.close()
    Cradle(mine, START, further).install()
    return mine.fileno()


def rock(connection: socket.socket, of_scripts: set[str], of_guests: set[str]) -> NoReturn:
    """Fork the trainings of one command, until it has ended."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal; trainings heed it
    forget(of_guests)
    while True:
        request, streams = received(connection)
        if not request:
            os._exit(0)
        reading, writing = os.pipe()
        between = os.fork()
        if between == 0:
            parent = os.getpid()
            training = os.fork()
            if training:
                os.write(writing, str(training).encode())
                os._exit(0)
            while os.getppid() == parent:
                time.sleep(0.0005)
            if request["session"]:
                os.setsid()
            signal.signal(signal.SIGINT, signal.default_int_handler)
            if request["nursery"]:
                relay(request, streams)
            keep = -1
            if request["command"][1:3] == ["-m", "numdrift"]:  # a command of torchrun's agent, which starts trainings
                keep = put_in_cradle(of_scripts, of_guests)
            if not is_guest(request["command"]):
                forget(of_scripts)
            become(request, streams, keep=keep)
        os.waitpid(between, 0)  # from here on the training is the command's child
        for stream in streams:
            os.close(stream)
        connection.sendall(os.read(reading, 32) + b"\n")
        os.close(reading)
        os.close(writing)


def relay(request: Mapping[str, Any], streams: Sequence[int]) -> NoReturn:
    """Have the training forked in another nursery, and be in its place until it ends."""
    code = 1
    ctypes.CDLL(None).prctl(DIE_WITH_PARENT, signal.SIGTERM)  # as the training's own start does
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(request["nursery"])
            send(connection, request, streams)
            for stream in streams:
                os.close(stream)
            with connection.makefile("r") as answer:
                training = int(answer.readline())
                for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                    signal.signal(number, lambda number, _: os.kill(training, number))
                code = int(answer.readline().split()[0])
        if code < 0:
            with contextlib.suppress(OSError):  # SIGKILL has no handler
                signal.signal(-code, signal.SIG_DFL)
            os.kill(os.getpid(), -code)
    finally:
        os._exit(code & 0xFF)


def forget(but: set[str]) -> None:
    """Be as if no other modules had ever been imported."""
    for name in sys.modules.keys() - but - {"__main__"}:
        del sys.modules[name]


def is_guest(command: Sequence[str]) -> bool:
    """Whether a process is numdrift's own, of the very package that was imported here."""
    package = sys.modules["numdrift.harness"].__file__
    return (
        command[1].endswith("/recorder/bootstrap.py")
        and package is not None
        and Path(command[2]) == Path(package).parent.parent
    )


class Cradle:
    """The command's side: where it starts a training, a forked one takes its place if it can.

    `start` is the environment that everything was imported in. Each of `further` has the kind, the interpreter,
    the address and the environment of a further nursery.
    """

    def __init__(self, connection: socket.socket, start: Mapping[str, str], further: Sequence[Any]) -> None:
        self.connection = connection
        self.start = start
        self.further = further
        self.turn = threading.Lock()

    def install(self) -> None:
        cradle = self

        def execute(process: Any, args: Any, *given: Any) -> None:
            names = EXECUTE.__code__.co_varnames[2 : EXECUTE.__code__.co_argcount]
            options = dict(zip(names, given, strict=True))
            command = [os.fspath(one) for one in args] if not isinstance(args, str | bytes) else []
            environment = dict(os.environ if options["env"] is None else options["env"])
            there = cradle.further_nursery(command)
            if not cradle.can_fork(command, environment, options, there):
                EXECUTE(process, args, *given)
                return
            streams = [options["p2cread"], options["c2pwrite"], options["errwrite"]]
            files = [place if stream == -1 else stream for place, stream in enumerate(streams)]
            request = {
                "command": command,
                "folder": os.fspath(options["cwd"] or Path.cwd()),
                "environment": environment,
                "session": options["start_new_session"],
                "passed": list(options["pass_fds"]),
                "nursery": there["address"] if there else "",
            }
            process.pid = cradle.fork(request, [*files, *options["pass_fds"]])
            process._child_created = True
            process._close_pipe_fds(*(options[one] for one in names if one[:3] in ("p2c", "c2p", "err")))

        subprocess.Popen._execute_child = execute  # type: ignore[attr-defined]

    def further_nursery(self, command: Sequence[str]) -> Any:
        """The nursery of another interpreter for one of numdrift's own processes, whose configuration names the mode."""
        if len(command) < 4 or not command[1].endswith("/recorder/bootstrap.py"):
            return None
        kind = "beside"
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            if json.loads(Path(command[3]).read_text(encoding="utf-8"))["mode"]["base"] == "xla":
                kind = "xla"
        return next((one for one in self.further if (one["kind"], one["python"]) == (kind, command[0])), None)

    def can_fork(
        self, command: Sequence[str], environment: Mapping[str, str], options: Mapping[str, Any], there: Any
    ) -> bool:
        """Whether it is one of numdrift's own processes or scripts, in an environment like the nursery's."""
        kind = command[1] if len(command) > 1 and (command[0] == sys.executable or there) else ""
        own = kind.endswith("/recorder/bootstrap.py") or (kind == "-m" and command[2].split(".")[0] == "numdrift")
        if not own and kind != "-I":  # a culprit's standalone script, or the interpreter that forks these
            return False
        if options["preexec_fn"] or options["shell"]:
            return False
        return is_alike(environment, there["environment"] if there else self.start)

    def fork(self, request: Mapping[str, Any], files: Sequence[int]) -> int:
        """Have a process forked with these files: its streams, then those that keep their numbers. Gives its id."""
        with self.turn:
            send(self.connection, request, files)
            return int(self.connection.recv(32))


def read_early(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that may be read when something is loaded."""
    return {
        name: value for name, value in environment.items() if name not in READ_LATE and not name.startswith("PYTEST_")
    }


def is_alike(environment: Mapping[str, str], start: Mapping[str, str]) -> bool:
    """Whether all that is loaded would read the same; without a hash seed any will do, and streams are made anew."""
    lacking = read_early(dict.fromkeys(start.keys() - environment.keys(), "")).keys()
    return read_early({**start, **environment}) == read_early(start) and lacking <= AS_GUESTS.keys()


START = dict(os.environ)
"""The environment that everything was imported in."""


def become(request: Mapping[str, Any], streams: Sequence[int], *, keep: int = -1) -> NoReturn:
    """Go on as `python` would, with these three streams, and the files behind them under the numbers `passed`."""
    command, folder, environment = (request[one] for one in ("command", "folder", "environment"))
    numbers = (0, 1, 2, *request.get("passed", ()))
    aside = [fcntl.fcntl(stream, fcntl.F_DUPFD, max(numbers) + 1) for stream in streams]
    for number, stream in zip(numbers, aside, strict=True):
        os.dup2(stream, number)
    for number in {int(one.name) for one in Path("/proc/self/fd").iterdir()} - {*numbers, keep}:
        with contextlib.suppress(OSError):
            os.close(number)
    if "PYTHONUNBUFFERED" not in environment:
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115, it lives as long as the process
    os.chdir(folder)
    os.environ.clear()
    os.environ.update({**SET_BY_IMPORTS, **environment})
    isolated = command[1] == "-I"
    set_path("" if isolated else environment.get("PYTHONPATH", ""))
    if threads := environment.get("TORCHINDUCTOR_COMPILE_THREADS"):
        sys.modules["torch._inductor.config"].compile_threads = int(threads)  # type: ignore[attr-defined]
    importlib.invalidate_caches()
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed()  # from the operating system, as at its import
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    arguments = list(command[2 if isolated else 1 :])
    try:
        if arguments[0] == "-m":
            sys.argv, sys.path[0] = arguments[1:], folder
            runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
        else:
            path = Path(folder, arguments[0])
            sys.argv, sys.path[0] = arguments, str(path.parent)
            if isolated:
                del sys.path[0]  # the folder of an isolated script is not looked into
            main.__dict__.update(__file__=str(path), __builtins__=__builtins__)
            exec(compile(path.read_bytes(), str(path), "exec"), main.__dict__)  # noqa: S102, as the interpreter
    except BaseException as error:  # noqa: BLE001, the interpreter would end with it
        end(error)
    end(None)


def set_path(wanted: str) -> None:
    """Have the folders of PYTHONPATH where the interpreter puts them, behind that of the script."""
    before = [one for one in START.get("PYTHONPATH", "").split(os.pathsep) if one]
    after = [one for one in wanted.split(os.pathsep) if one]
    sys.path[1 : 1 + len(before)] = after
    if after != before:
        with contextlib.suppress(ImportError):
            importlib.import_module("sitecustomize")


def end(error: BaseException | None) -> NoReturn:
    """End as the interpreter does: threads, what is registered for the end, streams, exit code."""
    code = 0
    if isinstance(error, SystemExit):
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
        if code and not isinstance(error.code, int):
            print(error.code, file=sys.stderr)
    elif error is not None:
        sys.excepthook(type(error), error, error.__traceback__)
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    if isinstance(error, KeyboardInterrupt):
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    os._exit(code & 0xFF)


def send(connection: socket.socket, request: Mapping[str, Any], streams: Sequence[int]) -> None:
    """A line of JSON behind its length, with open files."""
    text = json.dumps(request).encode()
    socket.send_fds(connection, [f"{len(text):10d}".encode()], list(streams))
    connection.sendall(text)


def received(connection: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """What `send` sent, or nothing when the other side has ended."""
    head, streams, _, _ = socket.recv_fds(connection, 10, 8)
    if not head:
        return {}, []
    wanted, text = int(head), b""
    while len(text) < wanted:
        text += connection.recv(wanted - len(text))
    return json.loads(text), list(streams)


if __name__ == "__main__":
    main()
