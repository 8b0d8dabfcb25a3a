"""Which steps of a training the experiments look at."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from ..drift.step_score import StepScore
from ..drift.verdict import worst_of
from ..records.step_selection import StepSelection
from ..runs.recorded_run import RecordedRun
from ..search import between, evenly

MOST_FORCED = 64
"""Steps that are started from the reference's state: enough to see a fault that begins late."""

MOST_TAPES = 4
"""Steps recorded as tapes: a tape with its replays costs about as much as 60 steps."""

STATE_SHARE = 9
"""State and outcome of a step over the bytes of its parameters and buffers: three times them for the state
(parameters and Adam's two moments), once for the gradients left over, five times for the outcome."""


def forced_steps(count: int, first_differing: Iterable[int], bytes_a_step: int, budget: int) -> tuple[int, ...]:
    """The steps of a training of `count` steps to start from the reference's state.

    The first ones, where pairs first differed, the last, and the rest evenly spaced, as many as
    MOST_FORCED and the `budget` in bytes allow; at least two.
    """
    most = max(2, min(MOST_FORCED, budget // max(1, bytes_a_step)))
    if count <= most:
        return tuple(range(count))
    wanted = [0, *sorted(set(first_differing)), 1, count - 1]
    chosen = list(dict.fromkeys(step for step in wanted if 0 <= step < count))[:most]
    for step in evenly(count, most):
        if len(chosen) >= most:
            break
        if step not in chosen:
            chosen.append(step)
    return tuple(sorted(chosen))


def taped_steps(forced: Sequence[int], first_differing: Iterable[int]) -> tuple[int, ...]:
    """The forced steps that are recorded as tapes: the first, where a pair first differed, the middle, the
    last."""
    wanted = [forced[0], *sorted(set(first_differing)), forced[len(forced) // 2], forced[-1]]
    return tuple(sorted(dict.fromkeys(step for step in wanted if step in forced)))[:MOST_TAPES]


def steps_between(steps: Sequence[StepScore], threshold: float, most: int) -> list[int]:
    """At most so many steps between the first one beyond the threshold and the scored one before it."""
    return between(((one.step, worst_of([one]) > threshold) for one in steps), most)


def most_states(run: RecordedRun, budget: int) -> int:
    """How many states of the run a round may keep."""
    return max(2, min(MOST_FORCED, budget // max(1, bytes_of_state(run) * STATE_SHARE)))


def bytes_of_state(run: RecordedRun) -> int:
    """What a state's parameters and buffers take."""
    sizes = {
        "float64": 8,
        "int64": 8,
        "complex64": 8,
        "complex128": 16,
        "bfloat16": 2,
        "float16": 2,
        "bool": 1,
    }
    entries = {entry.name: entry for table in run.journal.tables.values() for entry in table}
    return sum(math.prod(entry.shape) * sizes.get(entry.dtype, 4) for entry in entries.values())


def selection(steps: Iterable[int]) -> StepSelection:
    return StepSelection(tuple((step, step) for step in sorted(steps)))
