"""The time that the search for causes may take, and what it did not reach in that time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ...runs.recorded_run import RecordedRun

BARE_FACTOR, EXTRA_SECONDS, LEAST_SECONDS = 4.0, 60.0, 300.0
"""The default budget: BARE_FACTOR times the first training runs plus EXTRA_SECONDS (issue 43), but at least
LEAST_SECONDS. Imports and compilations take most of the time for small scripts, and much longer on a busy machine."""

LEAST_FOR_A_STEP = 60.0
"""The time in seconds that the first step may take, even if the verdict took all of the budget."""


@dataclass
class SearchTime:
    """The seconds that an investigation may take, and the parts of the search that were left out, by run.

    budget: None until the first runs are known, which the default budget depends on
    """

    budget: float | None = None
    _left_out: dict[Path, list[str]] = field(default_factory=dict)

    @property
    def limit(self) -> float:
        """The budget; infinite as long as it is not known."""
        return math.inf if self.budget is None else self.budget

    def left(self, elapsed: float) -> float | None:
        """Return the seconds left for a step of the search, at least LEAST_FOR_A_STEP; None without a limit."""
        return None if math.isinf(self.limit) else max(self.limit - elapsed, LEAST_FOR_A_STEP)

    def leave_out(self, run: Path, part: str) -> None:
        """Note that the search for the causes of this run's drift left out a part."""
        parts = self._left_out.setdefault(run, [])
        if part not in parts:
            parts.append(part)

    def note_of(self, run: Path) -> str:
        """Return a sentence about the parts left out for this run and how to go on; "" if there are none."""
        parts = self._left_out.get(run)
        if not parts:
            return ""
        return (
            f"the search for causes began nothing new after {self.limit:.0f} s (--budget): {', '.join(parts)} "
            f"{'was' if len(parts) == 1 else 'were'} left out; `numdrift investigate {run.parent} --budget none` goes "
            "on from there"
        )


def default_budget(runs: Sequence[RecordedRun]) -> float:
    """Return the seconds that an investigation of these runs may take if its user sets no `--budget`."""
    return max(LEAST_SECONDS, BARE_FACTOR * sum(run.manifest.seconds for run in runs) + EXTRA_SECONDS)
