"""Show the progress of a sweep or a check as a bar in a terminal. Outside a terminal, a sweep prints plain lines."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Self

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from ..output import console

PLAIN_EVERY_SECONDS = 5.0

Counted = Callable[[int], None]


@contextmanager
def sweep_bar(label: str, total: int, measured: int) -> Iterator[Counted]:
    """Yield a function to call with the number of inputs, of `total`, that have been measured so far.

    An earlier sweep has measured `measured` inputs.
    """
    errors, began = console(stderr=True), time.monotonic()

    def rate(done: int) -> str:
        # inputs of an earlier sweep took no time in this one
        seconds = time.monotonic() - began
        return f"{(done - measured) / seconds / 1e6:,.3g} million inputs/s" if seconds else ""

    if not sys.stderr.isatty():
        reported_at = began

        def print_rate(done: int) -> None:
            nonlocal reported_at
            if time.monotonic() - reported_at >= PLAIN_EVERY_SECONDS:
                reported_at = time.monotonic()
                errors.print(f"{label}: {100 * done / total:.1f} %  {rate(done)}", soft_wrap=True)

        yield print_rate
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=32),
        TextColumn("{task.percentage:>5.1f} %  {task.fields[rate]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=errors, transient=True) as bar:
        task = bar.add_task(label, total=total, completed=measured, rate="")
        yield lambda done: bar.update(task, completed=done, rate=rate(done))


PATIENCE = 2.0
"""The seconds before a bar appears."""


class LateBar:
    """A bar that appears after `PATIENCE` seconds, and only if standard error is a terminal."""

    def __init__(self) -> None:
        columns = (TextColumn("{task.description}"), BarColumn(bar_width=24), MofNCompleteColumn(), TimeElapsedColumn())
        self._bar = Progress(*columns, console=console(stderr=True), transient=True)
        self._task = self._bar.add_task("", total=None)
        self._since = time.monotonic()
        self._shown = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._shown:
            self._bar.stop()

    def update(self, done: int, total: int, piece: str) -> None:
        """Show the number of finished pieces, of `total`, and the name of the next piece."""
        # padded, so that the bar does not jump from kernel to kernel
        self._bar.update(self._task, completed=done, total=total, description=piece.ljust(32))
        if not self._shown and sys.stderr.isatty() and time.monotonic() - self._since > PATIENCE:
            self._shown = True
            self._bar.start()
