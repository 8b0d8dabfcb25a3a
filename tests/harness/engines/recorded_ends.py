"""Tasks that are shell commands, and the ends that an engine reports of them."""

from __future__ import annotations

import sys
import textwrap
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from numdrift.harness.engines.engine import Engine, EngineSettings, chosen_engine, require_shared
from numdrift.harness.engines.engine_task import EngineTask, TaskEnd, TaskResources, passed_on

ONCE = "echo executed >> executed; "
"""Notes each execution in the task's folder, which is also its working folder."""

KILLED_ONCE = "test -e mark || { touch mark; kill -9 $$; }; "


def shell_task(
    folder: Path, name: str, script: str, processors: int = 1, devices: int = 0, memory: int = 0
) -> EngineTask:
    """Write a task whose command is a line of shell."""
    resources = TaskResources(processors, memory, devices)
    task = EngineTask(name, ["sh", "-c", script], folder / name, folder / name, passed_on(), resources)
    task.write()
    return task


def executions(folder: Path, name: str) -> int:
    """How often the command of a task has noted that it was executed."""
    path = folder / name / "executed"
    return len(path.read_text().splitlines()) if path.exists() else 0


@dataclass
class Ends:
    """The ends by the name of the task, in the order in which they were reported."""

    by_name: dict[str, TaskEnd] = field(default_factory=dict)

    def __call__(self, task: EngineTask, end: TaskEnd) -> None:
        assert task.name not in self.by_name, "reported twice"
        self.by_name[task.name] = end


def executed(
    engine: Engine, folder: Path, tasks: Iterable[EngineTask], settings: EngineSettings | None = None
) -> dict[str, TaskEnd]:
    """Execute tasks as a batch does, and return their ends."""
    ends = Ends()
    with engine:
        require_shared(engine, settings or EngineSettings(folder), Path(sys.executable))
        engine.execute(tasks, ends)
    return ends.by_name


def driver_program(folder: Path, engine: str, names: Iterable[str], script: str, jobs: int) -> str:
    """The program of a process that executes tasks which are not finished, and prints `ready` before it begins."""
    return textwrap.dedent(f"""
        import sys
        sys.path.insert(0, {str(Path(__file__).parent)!r})
        from pathlib import Path
        from recorded_ends import EngineSettings, Ends, chosen_engine, shell_task
        from numdrift.harness.engines.engine_task import read_end
        folder, ends = Path({str(folder)!r}), Ends()
        def waiting():
            for name in {list(names)!r}:
                end = read_end(folder / name)
                if end is None or not end.is_finished:
                    yield shell_task(folder, name, {script!r})
        with chosen_engine({engine!r}, EngineSettings(folder, {jobs})) as engine:
            print("ready", flush=True)
            engine.execute(waiting(), ends)
        print(sorted(ends.by_name), flush=True)
    """)


def until(holds: Callable[[], bool], seconds: float = 30) -> None:
    """Wait until something holds."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def heeding(program: str) -> str:
    """The program, heeding Ctrl-C: a shell's background jobs begin with it ignored."""
    return f"import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n{program}"


__all__ = ["EngineSettings", "chosen_engine"]
