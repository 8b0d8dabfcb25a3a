"""A progress bar for work that is often over before one is wanted."""

from __future__ import annotations

import sys
import time
from typing import Self

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from ..output import console

PATIENCE = 2.0
"""Seconds without a bar."""


class LateBar:
    """Shows how much is done once it takes longer than `PATIENCE`, and only where standard error is a terminal."""

    def __init__(self) -> None:
        columns = (
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
        )
        self._bar = Progress(*columns, console=console(stderr=True), transient=True)
        self._task = self._bar.add_task("", total=None)
        self._since = time.monotonic()
        self._shown = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._shown:
            self._bar.stop()

    def update(self, done: int, total: int, what: str) -> None:
        """Tell how many of how many pieces are done, and which is next."""
        self._bar.update(self._task, completed=done, total=total, description=what.ljust(32))
        if not self._shown and sys.stderr.isatty() and time.monotonic() - self._since > PATIENCE:
            self._shown = True
            self._bar.start()
