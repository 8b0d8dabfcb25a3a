"""What all engines do with tasks: each is executed, a killed one again, and none twice."""

from __future__ import annotations

import os
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest

from numdrift.harness.engines import engine as engine_module
from numdrift.harness.engines.engine import (
    Ended,
    EngineSettings,
    chosen_engine,
    engine_words,
)
from numdrift.harness.engines.engine_task import LOG, EngineTask, execute_task
from numdrift.harness.errors import UsageError

from .recorded_ends import KILLED_ONCE, ONCE, driver_program, executed, executions, heeding, shell_task, until

ENGINES = [
    pytest.param("local", {}, id="local"),
    pytest.param("submitit", {"cluster": "local"}, id="submitit local"),
    pytest.param("submitit", {"cluster": "debug"}, id="submitit debug"),
]


@pytest.fixture(autouse=True)
def has_library(request: pytest.FixtureRequest) -> None:
    """Skip what needs a library that is not installed."""
    parameters = getattr(getattr(request.node, "callspec", None), "params", {})
    if parameters.get("engine") in ("submitit", "ray"):
        pytest.importorskip(parameters["engine"])


@pytest.mark.parametrize(("engine", "options"), ENGINES)
def test_each_task_is_executed_and_reported_once(engine: str, options: dict[str, str], tmp_path: Path) -> None:
    # given an answer, a failure, a command killed once, one killed always, and one that cannot be started
    tasks = [
        shell_task(tmp_path, "answer", f"{ONCE} echo some output; exit 1"),
        shell_task(tmp_path, "failure", f"{ONCE} echo numdrift: no such script >&2; exit 2"),
        shell_task(tmp_path, "once", f"{ONCE}{KILLED_ONCE}"),
        shell_task(tmp_path, "always", f"{ONCE} echo last words; kill -9 $$"),
    ]
    absent = EngineTask("absent", ["/no/such/program"], tmp_path / "absent", tmp_path)
    absent.write()

    ends = executed(chosen_engine(engine, EngineSettings(tmp_path, 2, 1, options)), tmp_path, [*tasks, absent])

    assert {name: end.exit_code for name, end in ends.items()} == {
        "answer": 1, "failure": 2, "once": 0, "always": -signal.SIGKILL, "absent": 127,
    }  # fmt: skip
    assert {name: executions(tmp_path, name) for name in ends} == {
        "answer": 1, "failure": 1, "once": 2, "always": 2, "absent": 0,
    }  # fmt: skip
    assert {name: end.attempts for name, end in ends.items()} == {
        "answer": 1, "failure": 1, "once": 2, "always": 2, "absent": 1,
    }  # fmt: skip
    assert ends["failure"].message == "numdrift: no such script" and ends["always"].message == "last words"
    assert ends["answer"].message == "" and (tmp_path / "answer" / LOG).read_text() == "some output\n"
    assert "/no/such/program cannot be started" in ends["absent"].message
    assert not list(tmp_path.glob(".shared-*"))


def test_a_finished_task_is_not_executed_again(tmp_path: Path) -> None:
    task = shell_task(tmp_path, "a", f"{ONCE} exit 1")

    ends = [execute_task(task.folder), execute_task(task.folder)]

    assert ends[0] == ends[1] and executions(tmp_path, "a") == 1


def test_a_worker_with_a_thousand_open_files_executes_a_task(tmp_path: Path) -> None:
    # given a process whose next descriptor is above 1024, the end of what select() takes
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096) if hard > 0 else 4096, hard))
    with ExitStack() as opened:
        opened.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        descriptor = opened.enter_context(Path(os.devnull).open("rb")).fileno()
        while descriptor <= 1024:
            descriptor = os.dup(descriptor)
            opened.callback(os.close, descriptor)
        # when it executes a task
        end = execute_task(shell_task(tmp_path, "a", f"{ONCE} exit 0").folder)
    # then the command ran once
    assert end.exit_code == 0 and executions(tmp_path, "a") == 1


def test_a_task_that_still_runs_is_waited_for(tmp_path: Path) -> None:
    # given a process that a killed driver has left, with the command still running
    task = shell_task(tmp_path, "a", f"{ONCE} until test -e go; do sleep 0.01; done")
    module = "numdrift.harness.engines.engine_task"
    left = subprocess.Popen([sys.executable, "-m", module, str(task.folder)])
    until(lambda: executions(tmp_path, "a") == 1)
    left.kill()  # the command itself goes on
    # when another process executes the task
    other = subprocess.Popen([sys.executable, "-m", module, str(task.folder)])
    time.sleep(0.5)
    assert executions(tmp_path, "a") == 1, "it was executed twice at the same time"
    (task.folder / "go").touch()
    # then it is executed after the first command has ended
    assert other.wait(20) == 0 and executions(tmp_path, "a") == 2
    left.wait()


@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_while_the_command_is_being_started_reaches_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task = shell_task(tmp_path, "a", f"trap 'echo told > told; exit 130' INT; {ONCE} while true; do sleep 0.02; done")
    start = subprocess.Popen

    def started(*arguments: Any, **facts: Any) -> subprocess.Popen[bytes]:
        process = start(*arguments, **facts)
        until(lambda: executions(tmp_path, "a") == 1)
        os.kill(os.getpid(), signal.SIGINT)
        return process

    monkeypatch.setattr(subprocess, "Popen", started)
    with pytest.raises(KeyboardInterrupt):
        execute_task(task.folder)
    assert (task.folder / "told").exists()


def test_a_command_heeds_ctrl_c_even_if_its_engine_does_not(tmp_path: Path) -> None:
    task = replace(shell_task(tmp_path, "a", ""), command=["grep", "SigBlk", "/proc/self/status"])
    task.write()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # as in a worker of Ray
    try:
        execute_task(task.folder)
        assert signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, ())
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    blocked = int((task.folder / LOG).read_text().split()[1], 16)
    assert not blocked & 1 << (signal.SIGINT - 1)


def test_eight_tasks_take_one_of_eight_devices_each(tmp_path: Path) -> None:
    together = "touch ../here-$$; until test $(ls .. | grep -c here-) = 8; do sleep 0.01; done; "
    tasks = [
        shell_task(tmp_path, f"t{number}", f"{together} echo $CUDA_VISIBLE_DEVICES", devices=1) for number in range(8)
    ]
    settings = EngineSettings(tmp_path, 16, 0, {"devices": "0,1,2,3,4,5,6,7"})

    executed(chosen_engine("local", settings), tmp_path, tasks)

    assert sorted((task.folder / LOG).read_text().strip() for task in tasks) == list("01234567")


def test_tasks_wait_for_the_devices_that_others_use(tmp_path: Path) -> None:
    alone = "mkdir ../busy || exit 3; sleep 0.1; rmdir ../busy; exit 0"
    tasks = [shell_task(tmp_path, f"t{number}", alone, devices=2) for number in range(3)]

    ends = executed(chosen_engine("local", EngineSettings(tmp_path, 8, 0, {"devices": "0,1,2"})), tmp_path, tasks)

    assert [end.exit_code for end in ends.values()] == [0, 0, 0]


@pytest.mark.parametrize(
    ("processors", "jobs", "most"), [(10_000, None, 1), (10_000, 3, 3)], ids=["by processors", "by jobs"]
)
def test_as_many_tasks_run_as_there_is_room_for(processors: int, jobs: int | None, most: int, tmp_path: Path) -> None:
    script = "touch ../here-$$; ls .. | grep -c here-; sleep 0.2; rm ../here-$$; exit 0"
    tasks = [shell_task(tmp_path, f"t{number}", script, processors) for number in range(6)]

    executed(chosen_engine("local", EngineSettings(tmp_path, jobs)), tmp_path, tasks)

    assert max(int((task.folder / LOG).read_text()) for task in tasks) == most


@pytest.mark.parametrize("engine", ["local", "submitit"])
def test_ctrl_c_is_passed_on_to_the_commands(engine: str, tmp_path: Path) -> None:
    script = f"trap 'echo interrupted > told; exit 130' INT; {ONCE} while true; do sleep 0.05; done"
    program = driver_program(tmp_path, engine, ["a", "b"], script, jobs=1)
    if engine == "submitit":
        program = program.replace("EngineSettings(folder, 1)", "EngineSettings(folder, 1, 1, {'cluster': 'local'})")
    process = subprocess.Popen([sys.executable, "-c", heeding(program)], stderr=subprocess.PIPE)
    until(lambda: executions(tmp_path, "a") == 1)

    process.send_signal(signal.SIGINT)

    _, told = process.communicate(timeout=30)
    assert b"KeyboardInterrupt" in told
    until((tmp_path / "a/told").exists)  # submitit ends its own processes without waiting for the command
    assert (tmp_path / "a/told").read_text() == "interrupted\n"
    assert executions(tmp_path, "b") == 0


def test_a_killed_driver_loses_nothing(tmp_path: Path) -> None:
    names = [f"t{number}" for number in range(12)]
    program = driver_program(tmp_path, "local", names, f"{ONCE} sleep 0.3", jobs=3)
    process = subprocess.Popen([sys.executable, "-c", program])
    until(lambda: sum(executions(tmp_path, name) for name in names) >= 5)
    process.kill()
    process.wait()

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)

    assert {name: executions(tmp_path, name) for name in names} == dict.fromkeys(names, 1)
    executed_later = done.stdout.count("'t")
    assert 1 <= executed_later < len(names)


@pytest.mark.parametrize(
    ("engine", "options", "said"),
    [
        ("slurm", {}, "there is no engine 'slurm'; known: local, ray, submitit"),
        ("local", {"device": "0"}, "the engine local has no option 'device'; did you mean 'devices'?"),
        ("submitit", {"cluster": "lokal"}, "submitit has no executor 'lokal'; did you mean 'local'?"),
        ("submitit", {"cluster": "local", "queue": "gpu"}, "submitit does not take queue: "),
        ("submitit", {}, "there is no Slurm on this machine"),
        ("ray", {"adress": "auto"}, "the engine ray has no option 'adress'; did you mean 'address'?"),
        ("ray", {"num_cpus": "many"}, "num_cpus=many is not a number of processors"),
        ("ray", {"address": "127.0.0.1:9"}, "there is no Ray cluster at 127.0.0.1:9 ("),
    ],
)
def test_an_engine_that_cannot_be_used_is_refused(
    engine: str, options: dict[str, str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nothing")  # no srun on any machine
    with pytest.raises(UsageError) as refused:
        chosen_engine(engine, EngineSettings(tmp_path, options=options))
    assert said in str(refused.value)


@pytest.mark.parametrize("engine", ["submitit", "ray"])
def test_a_missing_library_is_named_with_its_extra(
    engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, engine, None)
    with pytest.raises(UsageError, match=rf"{engine} cannot be imported .*: pip install 'numdrift\[{engine}\]'"):
        chosen_engine(engine, EngineSettings(tmp_path))


@pytest.mark.parametrize(("needs", "said"), [({"devices": 3}, "3 devices"), ({"memory": 1 << 60}, "MiB of memory")])
def test_a_task_that_needs_more_than_the_machine_has_is_refused(
    needs: dict[str, int], said: str, tmp_path: Path
) -> None:
    task = shell_task(tmp_path, "large", ONCE, **needs)
    with pytest.raises(UsageError, match=f"large needs .*{said}.*--engine-option devices=0,1"):
        executed(chosen_engine("local", EngineSettings(tmp_path, options={"devices": "0,1"})), tmp_path, [task])
    assert executions(tmp_path, "large") == 0


class Elsewhere:
    """An engine whose machines lack a path."""

    def __init__(self, lacking: Callable[[str, str], Sequence[str]]) -> None:
        self.lacking = lacking

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def hosts_without(self, marker: str, python: str) -> Sequence[str]:
        assert Path(marker).exists()
        return self.lacking(marker, python)

    def execute(self, tasks: object, ended: Ended) -> None:
        raise AssertionError("nothing is executed")


@pytest.mark.parametrize(
    ("lacking", "said"),
    [
        (lambda marker, python: [f"node7: {marker}"], "node7 does not see what this machine writes to .*with --out"),
        (lambda marker, python: [f"node7: {python}", "node8: x"], "node7 does not have .*, and neither do 1 other"),
    ],
)
def test_a_folder_that_is_not_shared_is_refused(
    lacking: Callable[[str, str], Sequence[str]], said: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=said):
        executed(Elsewhere(lacking), tmp_path, [])
    assert not list(tmp_path.iterdir()), "the marker is left"


def test_a_path_that_a_machine_lacks_is_named_with_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_module, "LATE_SECONDS", 0.3)
    (tmp_path / "there").touch()
    late = threading.Timer(0.1, (tmp_path / "late").touch)
    late.start()
    assert engine_module.missing_paths(str(tmp_path / "there"), str(tmp_path / "late")) == []
    absent = str(tmp_path / "absent")
    assert engine_module.missing_paths(absent, "/no/python") == [f"{socket.gethostname()}: {absent}"]


def test_an_option_without_value_is_refused() -> None:
    assert engine_words(["a=1", "b=c=d"]) == {"a": "1", "b": "c=d"}
    with pytest.raises(UsageError, match="is not KEY=VALUE"):
        engine_words(["cluster"])
