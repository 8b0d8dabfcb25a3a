"""How the Python interface waits for runs: what it tells of them on standard error, and that their threads sleep."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from ..launch.running_process import JournalProgress, ProcessEnd
from ..launch.supervise import Reporter

POLICY = "OMP_WAIT_POLICY"


class Silent:
    """Tells nothing; takes rounds of runs and runs alike. `said` is what there was to tell."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def started(self, name: str) -> None:
        """A run has begun."""

    def progressed(self, name: str, progress: JournalProgress) -> None:
        """A run has got on."""

    def ended(self, name: str, end: ProcessEnd) -> None:
        """A run has ended."""

    def say(self, text: str) -> None:
        """Something happens that whoever waits should know."""
        self.said.append(text)

    @contextmanager
    def round(self, title: str, names: Sequence[str]) -> Iterator[Reporter]:
        """A round of runs begins."""
        self.say(f"{title}: {', '.join(names)}")
        yield self


class Lines(Silent):
    """Tells in a line of each round, and of each run that has ended."""

    def __init__(self) -> None:
        super().__init__()
        self._last: dict[str, JournalProgress] = {}

    def progressed(self, name: str, progress: JournalProgress) -> None:
        self._last[name] = progress

    def ended(self, name: str, end: ProcessEnd) -> None:
        last = self._last.pop(name, None)
        steps = "no step" if last is None else f"{last.steps:,} steps"
        self.say(f"  {name}: {steps}, {end.seconds:.1f} s")

    def say(self, text: str) -> None:
        super().say(text)
        print(text, file=sys.stderr, flush=True)


def told(shown: bool) -> Silent:
    """Who is told: nobody, unless progress is to be shown."""
    return Lines() if shown else Silent()


@contextmanager
def passive_threads() -> Iterator[None]:
    """Have OpenMP threads of processes that are started within sleep while they wait; it changes no result."""
    given = POLICY in os.environ
    os.environ.setdefault(POLICY, "passive")
    try:
        yield
    finally:
        if not given:
            os.environ.pop(POLICY, None)
