"""The display of runs under way: a bar for each mode in a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from ..launch.journal_tail import JournalProgress, Understood
from ..launch.running_process import ProcessEnd
from .output import console

PLAIN_EVERY_SECONDS = 5.0

SILENT_EVERY_SECONDS = 60.0
"""The time between two plain lines that report that the same step is still under way."""

COMPILING_EVERY_SECONDS = 30.0
"""The time between two plain lines that report that the same graph is still being compiled."""


def describe(progress: JournalProgress, expected: int = 0) -> str:
    """Return a phrase on a run: its steps, loss and speed, or the slow work under way in its current step.

    expected: the number of graphs that an earlier run of the mode compiled, 0 if there was no earlier run
    """
    under_way = progress.compilations
    if under_way.under_way:
        of_expected = f" of {expected}" if expected >= under_way.graphs else ""
        place = ", ".join(
            part for part in ("backward" if under_way.backward else "", Path(under_way.line).name) if part
        )
        seconds = time.monotonic() - under_way.since
        graph = f"{under_way.again} again, to look inside it" if under_way.again else f"{under_way.graphs}{of_expected}"
        return f"step {progress.steps:,}  compiling graph {graph} ({place}), {seconds:.0f} s so far"
    if progress.silent_since is not None:
        return f"step {progress.steps:,}  {time.monotonic() - progress.silent_since:.0f} s so far"
    loss = "no loss" if progress.loss is None else f"loss {progress.loss:.6g}"
    text = f"step {progress.steps:,}  {loss}"
    if not (progress.steps and progress.seconds):
        return text
    rate = progress.steps / progress.seconds
    return f"{text}  {rate:,.1f} steps/s" if rate >= 1 else f"{text}  {1 / rate:,.1f} s/step"


def how_it_ended(end: ProcessEnd) -> str:
    """Return a few words on how a run ended, based only on its process. The run's manifest says more."""
    if end.why not in ("exited", "out-of-memory"):
        return {"timeout": "timed out", "lost": "lost"}.get(end.why, "interrupted")
    if end.returncode < 0:
        return "killed for lack of memory" if end.why == "out-of-memory" else "killed"
    return "failed" if end.returncode else "ended"


class TerminalReporter:
    """A live bar for each mode. Once a run has ended well, the other runs are expected to take as many steps."""

    def __init__(self, console: Console, names: Sequence[str], understood: UnderstoodLines) -> None:
        self._understood = understood
        self._progress = Progress(
            SpinnerColumn(finished_text=" "),
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[text]}"),
            TimeElapsedColumn(),
            console=console,
        )
        width = max(len(name) for name in names)
        self._tasks: dict[str, TaskID] = {
            name: self._progress.add_task(name.ljust(width), total=None, start=False, text="waiting") for name in names
        }
        self._steps: dict[str, int] = {}

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def started(self, name: str) -> None:
        self._progress.start_task(self._tasks[name])
        self._progress.update(self._tasks[name], text="starting")

    def progressed(self, name: str, progress: JournalProgress) -> None:
        for line in self._understood.block(name, progress.understood):
            self._progress.console.print(line, soft_wrap=True)
        if progress.silent_since is not None:
            return  # the bar shows the seconds
        self._steps[name] = progress.steps
        text = describe(progress, self._understood.graphs(name, progress))
        self._progress.update(self._tasks[name], completed=progress.steps, text=text)

    def ended(self, name: str, end: ProcessEnd) -> None:
        task = self._tasks[name]
        self._progress.stop_task(task)
        steps = self._steps.get(name, 0)
        self._progress.update(task, total=steps or 1, completed=steps or 1)  # a bar at 0 of 0 would pulse forever
        ending = how_it_ended(end)
        if not steps or ending != "ended":
            at = f"step {steps:,}" if steps else "no step"
            self._progress.update(task, text=at if ending == "ended" else f"{ending}, {at}")
        if end.returncode == 0:  # all modes run one script, so the others should take as many steps
            for other_name, other_task in self._tasks.items():
                if other_name != name and self._progress.tasks[other_task].total is None:
                    self._progress.update(other_task, total=steps)


class PlainReporter:
    """Print a line when a run starts, a line when it ends, and a line every few seconds in between."""

    def __init__(self, console: Console, understood: UnderstoodLines, *, quiet: bool = False) -> None:
        self._console = console
        self._understood = understood
        self._quiet = quiet
        self._printed_at: dict[str, float] = {}
        self._last: dict[str, str] = {}
        self._compiling: dict[str, tuple[int, int]] = {}
        self._silent_step: dict[str, int] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def started(self, name: str) -> None:
        self._say(f"{name}: started")
        self._printed_at[name] = time.monotonic()

    def progressed(self, name: str, progress: JournalProgress) -> None:
        for line in self._understood.block(name, progress.understood):
            self._say(line)
        now, under_way = time.monotonic(), progress.compilations
        expected = self._understood.graphs(name, progress)
        if progress.silent_since is not None:
            is_new = self._silent_step.get(name) != progress.steps
            if is_new or now - self._printed_at[name] >= SILENT_EVERY_SECONDS:
                self._printed_at[name], self._silent_step[name] = now, progress.steps
                self._say(f"{name}: {describe(progress)}")
            return
        if not under_way.under_way:
            self._last[name] = describe(progress)
        elif now - under_way.since < PLAIN_EVERY_SECONDS:
            return  # a quick compilation is not worth a line
        graph = (under_way.graphs, under_way.again)
        is_known = under_way.under_way and graph == self._compiling.get(name)
        every = COMPILING_EVERY_SECONDS if is_known else PLAIN_EVERY_SECONDS
        if now - self._printed_at[name] >= every:
            self._printed_at[name] = now
            self._compiling[name] = graph
            self._say(f"{name}: {describe(progress, expected)}")

    def ended(self, name: str, end: ProcessEnd) -> None:
        self._say(f"{name}: {how_it_ended(end)}, {self._last.get(name, 'no step')}  {end.seconds:.1f} s")

    def _say(self, text: str) -> None:
        if not self._quiet:
            self._console.print(text, soft_wrap=True)


def reporter_for(
    names: Sequence[str], *, quiet: bool = False, understood: UnderstoodLines | None = None
) -> TerminalReporter | PlainReporter:
    """Return a reporter that shows bars if standard error is a terminal, otherwise one that prints lines.

    Facts that `understood` has already printed in an earlier round of the script's runs are not printed again.
    """
    errors, lines = console(stderr=True), understood or UnderstoodLines()
    if sys.stderr.isatty() and not quiet:
        return TerminalReporter(errors, names, lines)
    return PlainReporter(errors, lines, quiet=quiet)


class UnderstoodLines:
    """The facts to print for each run, without those already printed for an earlier run.

    It also counts the graphs that a mode's earlier runs compiled.
    """

    def __init__(self) -> None:
        self._printed: set[tuple[str, str]] = set()
        self._graphs: dict[str, int] = {}

    def graphs(self, name: str, progress: JournalProgress) -> int:
        """Store how many graphs this run has compiled. Return how many an earlier run of its mode compiled.

        For example, the run `compile` is an earlier run of the mode of `compile-from-cpu`. Return 0 if there is no
        earlier run.
        """
        self._graphs[name] = progress.compilations.graphs
        return max((self._graphs[mode] for mode in self._graphs if name.startswith(f"{mode}-")), default=0)

    def block(self, name: str, understood: Sequence[Understood]) -> list[str]:
        """Return the lines to print for a run, a title first; none if there is nothing new."""
        # all modes run one script, and most find the same facts in it: only facts not printed yet are new
        new = [fact for fact in understood if (fact.kind, fact.text) not in self._printed]
        if not new:
            return []
        title = f"{name} also:" if self._printed else f"{name} understood the script as follows:"
        self._printed |= {(fact.kind, fact.text) for fact in new}
        return [
            title,
            *(f"  {fact.kind:<12}{fact.text}{f' ({Path(fact.source).name})' if fact.source else ''}" for fact in new),
        ]
