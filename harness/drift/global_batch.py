"""A run of several processes held against one of a single process that takes the whole batch at each step.

The loss of the single run is held against the mean of the ranks' (they take equal parts of the batch), its
gradients and parameters against what the ranks' parts add up to. Distances are relative, ||a - b||_2 /
||a||_2, and come from the best that both recorded:

    values   kept parameter values, exact
    sketch   the difference of two linear sketches: within a factor of 0.52 to 1.48 of the distance for 95 of 100, and
             good from the sketches' own rounding on, 2 * ROUNDING * sqrt(n) relative to the norm
    norm     | ||a|| - ||b|| | / ||a||, a lower bound of the distance

What is given are distances. The sums over the batch are in another order, so they are never zero for long;
where they jump is where to look.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Literal

import numpy as np

from ..errors import JournalError, UsageError
from ..records.sketch_record import ROUNDING, norm_estimate
from ..runs.journal import Array
from ..runs.mapped_tensors import has_sketches
from ..runs.recorded_run import RecordedRun, ranks_of
from .loss_distance import LossDrift, loss_drift
from .run_comparison import RunComparison, compare_runs
from .wholes import What, block_of, whole_steps, whole_values

How = Literal["values", "sketch", "norm"]

SMALLEST = 2.0**-24
"""A distance below the roundoff of float32 is no ground to call the next one a jump."""


@dataclass(frozen=True, slots=True)
class TensorDistance:
    """How far a tensor is from the single run's after (gradient: in) a step. `rank` is the one whose part is
    farthest away, where the tensor is sharded and its values are kept (of a gradient: whose part of the value
    that it moved); `nonfinite` tells of other numbers of NaNs or infinities.
    """

    step: int
    what: What
    tensor: str
    relative_l2: float
    how: How
    rank: int | None = None
    nonfinite: bool = False


@dataclass(frozen=True, slots=True)
class Jump:
    """The step at which the largest distance grows the most: from `before` (at least SMALLEST) to `at`'s."""

    before: float
    at: TensorDistance


@dataclass(frozen=True, slots=True)
class GlobalBatchComparison:
    """`single` and `several` are the runs' labels, `losses` the single run's against the mean of the ranks'.

    `largest` has the farthest tensor of each step, `final` every tensor of the last step. `lacking` says what
    would tell more.
    """

    single: str
    several: str
    world_size: int
    losses: LossDrift
    largest: Sequence[TensorDistance]
    final: Sequence[TensorDistance]
    jump: Jump | None
    lacking: Sequence[str]

    def to_json(self) -> dict[str, object]:
        return asdict(self)


def compare_global_batch(single: RecordedRun, ranks: Sequence[RecordedRun]) -> GlobalBatchComparison:
    """Hold the ranks of one run against a run of one process. Raises UsageError where a run has no step."""
    for run in (single, *ranks):
        if not run.journal.steps:
            raise UsageError(f"{run.path} has no recorded step ({run.manifest.status})")
    by_step = [sorted(found, key=_order) for found in _distances(single, ranks)]
    largest = [found[0] for found in by_step if found]
    final = by_step[-1] if by_step else []
    # Where the largest distance grows the most; None where it never exceeds the roundoff of float32
    found, before = None, SMALLEST
    for one in largest:
        if one.relative_l2 > before and (
            found is None or one.relative_l2 / before > found.at.relative_l2 / found.before
        ):
            found = Jump(before, one)
        before = max(before, one.relative_l2)
    lacking = []
    if not largest:
        lacking.append("no step of which both recorded digests (--record params or above)")
    elif any(one.how == "norm" for one in largest):
        without = [run for run in (single, *ranks) if not has_sketches(run)]
        if without:
            lacking.append(
                f"{without[0].path} has no sketches, so gradients are compared by their norms: run it with --sketches"
            )
    return GlobalBatchComparison(
        single.manifest.label,
        ranks[0].manifest.label,
        len(ranks),
        _losses(single, ranks),
        largest,
        final,
        found,
        lacking,
    )


def whole_batch_compared(single: RecordedRun, several: RecordedRun) -> RunComparison:
    """Two runs compared as any two are, but with the mean of the ranks' losses, and without tensors of one rank alone.

    Never identical: what the ranks recorded together has no bits to hold against those of one process.
    """
    losses = _losses(single, ranks_of(several))
    compared = compare_runs(single, several)
    return replace(compared, losses=losses, first_tensor=None, parameters=None, whole_batch=True)


def _losses(single: RecordedRun, ranks: Sequence[RecordedRun]) -> LossDrift:
    # the ranks take equal parts of the batch, so the mean of their means, where all have one, is that of all
    losses = [{one.step: one.loss for one in run.journal.steps if one.loss is not None} for run in ranks]
    common = sorted(set.intersection(*(set(one) for one in losses)))
    means = {step: math.fsum(one[step] for one in losses) / len(losses) for step in common}
    steps = single.journal.steps
    return loss_drift([one.step for one in steps], [one.loss for one in steps], list(means), list(means.values()))


def _distances(single: RecordedRun, ranks: Sequence[RecordedRun]) -> Iterator[list[TensorDistance]]:
    """The distances of every tensor that both have, step by step: the exact one of a value in place of its estimate;
    a gradient has the rank of the value that it moved."""
    several = dict(whole_steps(ranks))
    how: How
    for step, ours in whole_steps([single]):
        theirs = several.get(step)
        if theirs is None:
            continue
        exact, found = _exact(single, ranks, step), []
        for (what, name), a in ours.items():
            b = theirs.get((what, name))
            if b is None or a.numel != b.numel:
                continue
            norm = a.l2 or 0.0
            if a.sketch is not None and b.sketch is not None:
                apart = norm_estimate([left - right for left, right in zip(a.sketch, b.sketch, strict=True)])
                least = 2 * ROUNDING * math.sqrt(a.numel) * norm
                distance, how = (0.0 if apart <= least else apart), "sketch"
            elif a.l2 is not None and b.l2 is not None:
                distance, how = abs(a.l2 - b.l2), "norm"
            else:
                continue
            other = None not in (a.nan, b.nan) and (a.nan, a.inf) != (b.nan, b.inf)
            relative = math.inf if other else _relative(distance, norm)
            one, value = TensorDistance(step, what, name, relative, how, None, other), exact.get(name)
            if value is not None:
                one = value if what == "value" else replace(one, rank=value.rank if relative else None)
            found.append(one)
        yield found


def _relative(distance: float, norm: float) -> float:
    if distance == 0.0:
        return 0.0
    return distance / norm if norm else math.inf


def _exact(single: RecordedRun, ranks: Sequence[RecordedRun], step: int) -> Mapping[str, TensorDistance]:
    """The distances of the parameters and buffers whose values both kept."""
    try:
        ours = single.journal.values(step)
        theirs, places = whole_values(ranks, step)
    except (KeyError, JournalError):
        return {}
    found = {}
    for name, a in ours.items():
        b = theirs.get(name)
        if b is not None and a.shape == b.shape and a.dtype.kind in "fc":
            distance = _relative(_norm(a, b), _norm(a))
            # Of a sharded tensor the rank whose part is farthest away; of copies none is
            parts = {}
            for rank, shard in enumerate(places[name] if distance else ()):
                if shard is None or shard.offset is None or all(word == "replicate" for word in shard.placements):
                    continue
                tables = ranks[rank].journal.tables.values()
                block = block_of(shard, next(one for table in tables for one in table if one.shard == shard).shape)
                parts[rank] = _norm(a[block], b[block])
            farthest = max(parts, key=lambda rank: parts[rank], default=None)
            found[name] = TensorDistance(step, "value", name, distance, "values", farthest, not math.isfinite(distance))
    return found


def _norm(a: Array, b: Array | None = None) -> float:
    """||a||, or ||a - b||: infinite where one is not finite and the other is not the same."""
    wide = np.complex128 if a.dtype.kind == "c" else np.float64
    if b is None:
        return float(np.linalg.norm(a.astype(wide)[np.isfinite(a)]))
    with np.errstate(invalid="ignore"):
        apart = np.where(a == b, 0.0, a.astype(wide) - b.astype(wide))
    apart = np.where(np.isnan(a) & np.isnan(b), 0.0, apart)
    return float(np.linalg.norm(apart)) if np.isfinite(apart).all() else math.inf


def _order(one: TensorDistance) -> tuple[float, bool, str]:
    return (-one.relative_l2, one.what == "value", one.tensor)
