"""The interface of engines, their names, and the checks before an engine executes anything."""

from __future__ import annotations

import importlib
import secrets
import socket
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from ..errors import UsageError, nearest
from .engine_task import EngineTask, TaskEnd

Ended = Callable[[EngineTask, TaskEnd], None]
"""A function that is called with each task that has ended, and how it ended, in the process that drives the engine."""


class Engine(Protocol):
    """Executes tasks. It is a context manager; at the end of the context, none of its tasks runs."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def hosts_without(self, marker: str, python: str) -> Sequence[str]:
        """Return the machines that do not see a file or the interpreter, each with the path that it does not see.

        The file is a path or a URL.
        """

    def execute(self, tasks: Iterable[EngineTask], ended: Ended) -> None:
        """Execute tasks, and report each as it ends. Take tasks only as they can be executed: there may be many.

        A task whose command is killed, or whose machine is lost, is executed again, at most `retries` times. Raises
        UsageError for a task that needs more than any machine has. Ctrl-C is passed on to the tasks that run, and then
        raised.
        """


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """The settings of an engine.

    folder: the folder of the engine's own files, which all machines share
    jobs: the maximum number of tasks at the same time, None for as many as the machines have room for
    retries: how often a task whose command was killed is executed again
    options: settings of the engine itself, as its library names them
    shared: a URL by which tasks travel to machines that do not share the folders of the tasks, "" if all share them
    """

    folder: Path
    jobs: int | None = None
    retries: int = 1
    options: Mapping[str, str] = field(default_factory=dict)
    shared: str = ""


@dataclass(frozen=True, slots=True)
class EngineEntry:
    """An engine in the table: the module and the class that implement it, and what it is.

    queues: whether its tasks wait in a queue that other people share
    """

    module: str
    name: str
    text: str
    queues: bool = False


LATE_SECONDS = 5.0
"""The seconds after which a new file must be visible on all machines."""

LOCAL = "local"

ENGINES = {
    LOCAL: EngineEntry("local_engine", "LocalEngine", "processes of this machine"),
    "submitit": EngineEntry(
        "submitit_engine", "SubmititEngine", "jobs of Slurm, or of submitit's local executors", queues=True
    ),
    "ray": EngineEntry("ray_engine", "RayEngine", "tasks of a Ray cluster"),
}


def chosen_engine(name: str, settings: EngineSettings) -> Engine:
    """Return an engine by its name. Raises UsageError, and ExtraNotFound for an engine whose library is missing."""
    if name not in ENGINES:
        raise UsageError(f"there is no engine {name!r}; {nearest(name, ENGINES)}")
    entry = ENGINES[name]
    # imported here because an engine's library may be missing, and takes long to import
    engine: Callable[[EngineSettings], Engine] = getattr(
        importlib.import_module(f".{entry.module}", __package__), entry.name
    )
    return engine(settings)


def require_shared(engine: Engine, settings: EngineSettings, python: Path) -> None:
    """Check with a marker file that all machines see the folder of the settings, or their URL, and an interpreter.

    Raises UsageError.
    """
    name = f".shared-{secrets.token_hex(8)}"
    if settings.shared:
        marker = f"{settings.shared.rstrip('/')}/{name}"
        _moved().put_at(marker, b"")
    else:
        marker = str(settings.folder / name)
        Path(marker).touch()
    try:
        lacking = engine.hosts_without(marker, str(python))
    finally:
        if settings.shared:
            _moved().remove(marker)
        else:
            with suppress(OSError):
                Path(marker).unlink()
    if lacking:
        host, path = lacking[0].split(": ", 1)
        more = f", and neither do {len(lacking) - 1} other machines" if len(lacking) > 1 else ""
        if path == marker:
            place = settings.shared or settings.folder
            remedy = "another URL" if settings.shared else "a folder of a shared file system with --out, or a URL"
            raise UsageError(
                f"{host} does not see what this machine writes to {place}{more}; name {remedy} with --shared"
            )
        raise UsageError(f"{host} does not have {path}{more}; install numdrift at the same path on all machines")


def missing_paths(*paths: str) -> list[str]:
    """Return `HOST: PATH` for the first of the paths that the machine of this process does not have.

    An engine executes this on its machines for `hosts_without`. A network file system may show a new file late.
    """
    deadline = time.monotonic() + LATE_SECONDS
    while (missing := [path for path in paths if not _exists(path)]) and time.monotonic() < deadline:
        time.sleep(0.2)
    return [f"{socket.gethostname()}: {path}" for path in missing[:1]]


def _exists(path: str) -> bool:
    return bool(_moved().is_at(path)) if "://" in path else Path(path).exists()


def _moved() -> Any:
    # imported here because the commands read the names of engines, and need no library of file systems for that
    return importlib.import_module(".moved_task", __package__)


def engine_words(words: Sequence[str]) -> dict[str, str]:
    """Read settings of an engine, such as `partition=gpu`. Raises UsageError."""
    return dict(key_value("--engine-option", word, "cluster=local") for word in words)


def key_value(flag: str, word: str, example: str) -> tuple[str, str]:
    """Return the two parts of KEY=VALUE. Raises UsageError."""
    key, equals, value = word.partition("=")
    if not (key and equals):
        raise UsageError(f"{flag} {word!r} is not KEY=VALUE, as in {flag} {example}")
    return key, value
