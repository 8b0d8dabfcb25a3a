"""Run tests in forks of one process, which has loaded the modules that the tests load, except numdrift.

Before a fork, torch must not compute anything, because its threads would be missing in the child.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from . import probe

LOADED = (
    "hypothesis.strategies",
    "numpy",
    "torch",
    "torch._dynamo",
    "torch._inductor.compile_fx",
    "pandas",
    "matplotlib.figure",
    "click.testing",
    "rich.progress",
    "rich.table",
    "networkx",
    "mpmath",
    "onnx",
    "playwright.sync_api",
)

EVERYWHERE = Path(__file__).parent / "everywhere"
"""The folder that is put on Python's module path, for the processes that tests start, while sources have probes."""

SUBREAPER = 36
"""PR_SET_CHILD_SUBREAPER of Linux's prctl: processes that a killed test leaves behind become children of this one."""


@dataclass(slots=True)
class Outcome:
    """The results of the tests of one fork.

    seconds: the CPU time of each test that ended, including its fixtures and the processes that it waited for. This
    time does not depend on how busy the machine was.
    failed: the tests that failed, with the first line of the error; a file that cannot be imported counts as a test.
    numbers: the number of each test that began. The file of the test's hits is named by this number.
    """

    seconds: dict[str, float] = field(default_factory=dict)
    passed: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    numbers: dict[str, int] = field(default_factory=dict)
    timed_out: bool = False
    code: int = 0


class Forks:
    """Run tests of a copy of a checkout, each time in a new fork.

    caches: the folder of compiled code; a fork gets links to its files, so that files that the fork adds are its own.
    """

    def __init__(self, copy: Path, work: Path) -> None:
        self.copy, self.work = copy, work
        self.caches = work / "caches"
        self.caches.mkdir(exist_ok=True)
        _load()

    def run(
        self,
        files: Sequence[str],
        names: Sequence[str] | None,
        limit: float,
        *,
        hits: Path | None = None,
        slow: bool = False,
    ) -> Outcome:
        """Run the tests with these names, in the order of the names, until one fails. Without names, run all tests of
        these files, and keep the code that they compile for all later forks.

        hits: a folder for the mutants that each test reaches. slow: whether "all tests" includes the slow ones.
        """
        keeps = names is None
        own = self.work / "own"
        shutil.rmtree(own, ignore_errors=True)
        (own / "tmp").mkdir(parents=True)
        if not keeps:
            shutil.copytree(self.caches, own / "caches", copy_function=_link, symlinks=True)
        report = own / "report.jsonl"
        found = [self.copy / "src", *([EVERYWHERE] if hits else [])]
        environment = {
            "PYTHONPATH": os.pathsep.join(map(str, found)),
            "TMPDIR": str(own / "tmp"),
            "TORCHINDUCTOR_CACHE_DIR": str((self.caches if keeps else own / "caches") / "inductor"),
            "NUMDRIFT_CACHE": str((self.caches if keeps else own / "caches") / "numdrift"),
            "TORCHINDUCTOR_COMPILE_THREADS": "1",
            "OMP_WAIT_POLICY": "passive",
            "HYPOTHESIS_STORAGE_DIRECTORY": str(own / "hypothesis"),
        }
        options = ["-x"] if names is not None else [] if slow else ["-m", "not slow"]
        child = os.fork()
        if child == 0:
            code = 70
            try:
                code = self._child([*options, *files], Told(report, names, hits), environment, own)
            finally:
                os._exit(code)
        outcome = Outcome()
        outcome.code, outcome.timed_out = _wait(child, limit)
        _end_left_over()
        _read(report, outcome)
        with contextlib.suppress(OSError):
            shutil.copyfile(own / "log", self.work / "log")
        return outcome

    def _child(self, arguments: list[str], told: Told, environment: dict[str, str], own: Path) -> int:
        os.setsid()
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        sys.dont_write_bytecode = False
        os.environ |= environment
        log = os.open(own / "log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        nowhere = os.open(os.devnull, os.O_RDONLY)
        for number, to in ((0, nowhere), (1, log), (2, log)):
            os.dup2(to, number)
        sys.stdout, sys.stderr = open(1, "w", closefd=False), open(2, "w", closefd=False)  # noqa: SIM115
        os.chdir(self.copy)
        here = str(Path(__file__).parent.parent)
        sys.path[:] = [str(self.copy / "src"), *(one for one in sys.path if one != here)]
        sys.argv = ["pytest"]
        options = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--hypothesis-seed=0", "--tb=short"]
        options += [f"--rootdir={self.copy}", f"--basetemp={own / 'tests'}"]
        return int(pytest.main([*options, *arguments], plugins=[told]))


class Told:
    """A pytest plug-in that selects and orders the tests, and records the outcome of each as soon as it ends."""

    def __init__(self, report: Path, names: Sequence[str] | None, hits: Path | None) -> None:
        self._file = report.open("a", encoding="utf-8")
        self._order = None if names is None else {name: number for number, name in enumerate(names)}
        self._hits = hits
        self._began = 0.0
        self._failed: set[str] = set()
        self._begun: list[str] = []
        if hits is not None:
            probe.lead_to(hits / "import")

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        order = self._order
        if order is None:
            return
        config.hook.pytest_deselected(items=[one for one in items if one.nodeid not in order])
        items[:] = sorted((one for one in items if one.nodeid in order), key=lambda one: order[one.nodeid])

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logstart(self, nodeid: str) -> None:
        number = len(self._begun)
        self._begun.append(nodeid)
        self._write(begun=nodeid, number=number)
        if self._hits is not None:
            probe.lead_to(self._hits / str(number))
        self._began = _computed()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        name = report.nodeid
        if report.failed and name not in self._failed:
            self._failed.add(name)
            self._write(failed=name, said=_first_error(report))
        if report.when == "teardown":
            spent = round(_computed() - self._began, 3)
            self._write(ended=name, seconds=spent, passed=name not in self._failed)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._write(failed=f"{report.nodeid} (collection)", said=_first_error(report))

    def _write(self, **facts: object) -> None:
        self._file.write(json.dumps(facts) + "\n")
        self._file.flush()


def _computed() -> float:
    """Return the CPU time in seconds of this process and of those that it waited for."""
    return sum(os.times()[:4])


def _first_error(report: Any) -> str:
    lines = [line for line in str(report.longrepr).splitlines() if line.startswith("E ")] or [str(report.longrepr)]
    return " ".join(lines[0].removeprefix("E ").split())[:200]


def _read(report: Path, outcome: Outcome) -> None:
    if not report.exists():
        return
    for line in report.read_text(encoding="utf-8").splitlines():
        facts = json.loads(line)
        if "begun" in facts:
            outcome.numbers[facts["begun"]] = facts["number"]
        elif "ended" in facts:
            outcome.seconds[facts["ended"]] = facts["seconds"]
            if facts["passed"]:
                outcome.passed.append(facts["ended"])
        elif "failed" in facts:
            outcome.failed[facts["failed"]] = facts["said"]


def _load() -> None:
    for name in LOADED:
        with contextlib.suppress(ImportError):
            import_module(name)
    gc.collect()
    gc.freeze()
    ctypes.CDLL(None).prctl(SUBREAPER, 1, 0, 0, 0)


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def _wait(child: int, limit: float) -> tuple[int, bool]:
    """Return the exit code of a child, and whether it was killed at the time limit."""
    until = time.monotonic() + limit
    while time.monotonic() < until:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status), False
        time.sleep(0.02)
    with contextlib.suppress(ProcessLookupError):
        os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return -signal.SIGKILL, True


def _end_left_over() -> None:
    """Kill the processes that a fork has started and left behind: all of them are descendants of this process now."""
    while left := list(_descendants(os.getpid(), _parents())):
        for one in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(one, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        time.sleep(0.01)


def _parents() -> dict[int, int]:
    found = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):
                found[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
    return found


def _descendants(of: int, parents: dict[int, int]) -> Iterator[int]:
    for one, parent in parents.items():
        if parent == of:
            yield one
            yield from _descendants(one, parents)
