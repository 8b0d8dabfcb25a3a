"""The time that the search for causes may take, and what it did not reach in that time."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
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


STARTS_AGAIN, OWN_SECONDS = 0.8, 2.0
"""The start of a second run in multiples of the start of the first one (imports are shared, compilations repeated), and
the seconds that numdrift itself needs."""

VERDICT_STEPS, CAUSES_STEPS = 40, 110
"""The work beside the second runs in multiples of one step: replays with random rounding and the referee, and hybrids
of a step. On 2 cores, the seconds that these numbers give were between 0.6 and 1.9 times the measured ones, for the six
scripts of docs/reference/performance.md and a ResNet-18 (measured on 2026-11-25 and 2026-11-29)."""


def expected_seconds(runs: Sequence[RecordedRun], *, differs: bool, causes: bool, confirm: bool) -> float:
    """Return about how long an investigation takes after its first runs, from their starts and their steps.

    differs: whether any run differs from the reference
    causes: whether causes are looked for
    confirm: whether a mode is trained once more without its causes
    """
    longest = max(run.manifest.seconds for run in runs)
    steps = max(len(run.journal.steps) for run in runs)
    step = max(_step_seconds(run) for run in runs)
    start = max(0.0, longest - steps * step)
    seconds = STARTS_AGAIN * start + steps * step
    if differs:
        seconds += OWN_SECONDS + VERDICT_STEPS * step
    if differs and causes:
        seconds += CAUSES_STEPS * step + (longest if confirm else 0.0)
    return seconds


def _step_seconds(run: RecordedRun) -> float:
    """Return the median time of a step, without those that compile; 0 for a run of fewer than three steps."""
    ends = [record.seconds for record in run.journal.steps]
    return statistics.median(end - begin for begin, end in pairwise(ends)) if len(ends) > 2 else 0.0


def default_budget(runs: Sequence[RecordedRun]) -> float:
    """Return the seconds that an investigation of these runs may take if its user sets no `--budget`."""
    return max(LEAST_SECONDS, BARE_FACTOR * sum(run.manifest.seconds for run in runs) + EXTRA_SECONDS)
