"""A comparison of a run of several processes with a run of a single process that takes the whole batch at each step.

The loss of the single run is compared with the mean of the ranks' losses (the ranks take equal parts of the batch). The
single run's gradients and parameters are compared with the sum of the ranks' parts. Distances are relative,
||a - b||_2 / ||a||_2, and use the best record that both runs have:

    values   kept parameter values, exact
    sketch   the difference of two linear sketches: 0.52 to 1.48 times the distance in 95 of 100 cases;
             a difference below the sketches' own rounding, 2 * ROUNDING * sqrt(n) of the norm, counts as 0
    norm     | ||a|| - ||b|| | / ||a||, a lower bound of the distance

The results are distances, not verdicts. The two runs sum over the batch in different orders, so the distances soon
exceed zero; a jump shows where to look.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Literal

import numpy as np

from ..errors import JournalError, UsageError
from ..records.values.sketch_record import ROUNDING, norm_estimate
from ..runs.mapped_tensors import has_sketches
from ..runs.numpy_values import Array
from ..runs.recorded_run import RecordedRun, ranks_of
from .loss_distance import LossDrift, loss_drift
from .run_comparison import RunComparison, compare_runs
from .wholes import What, block_of, whole_steps, whole_values

How = Literal["values", "sketch", "norm"]

SMALLEST = 2.0**-24
"""The distance below which growth is ignored: the roundoff of float32."""


@dataclass(frozen=True, slots=True)
class TensorDistance:
    """The distance of a tensor from the single run's tensor, after a step or, for a gradient, in a step.

    rank: if the tensor is sharded and its values are kept, the rank whose part is farthest away. A gradient has the
        rank of the parameter that it changed
    nonfinite: whether NaNs or infinities differ between the runs
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
    """The step at which the largest distance grows the most, from `before` (at least SMALLEST) to the distance `at`."""

    before: float
    at: TensorDistance


@dataclass(frozen=True, slots=True)
class GlobalBatchComparison:
    """The comparison of a run of several processes with a run of a single process.

    single, several: the labels of the runs
    losses: the single run's losses compared with the mean of the ranks' losses
    largest: the tensor with the largest distance in each step
    final: every tensor of the last step
    lacking: sentences about missing records that would show more
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
    """Compare the ranks of one run with a run of one process. Raises UsageError if a run has no step."""
    for run in (single, *ranks):
        if not run.journal.steps:
            raise UsageError(f"{run.path} has no recorded step ({run.manifest.status})")
    by_step = [sorted(distances, key=_order) for distances in _distances(single, ranks)]
    largest = [distances[0] for distances in by_step if distances]
    final = by_step[-1] if by_step else []
    # The step at which the largest distance grows the most; None if it never exceeds the roundoff of float32
    jump, before = None, SMALLEST
    for distance in largest:
        if distance.relative_l2 > before and (
            jump is None or distance.relative_l2 / before > jump.at.relative_l2 / jump.before
        ):
            jump = Jump(before, distance)
        before = max(before, distance.relative_l2)
    lacking = []
    if not largest:
        lacking.append("no step has digests in both runs (--record params or above records them)")
    elif any(tensor_distance.how == "norm" for tensor_distance in largest):
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
        jump,
        lacking,
    )


def whole_batch_compared(single: RecordedRun, several: RecordedRun) -> RunComparison:
    """Compare two runs as usual, but with the mean of the ranks' losses, and without tensors.

    Tensors are left out because the run `several` has only those of rank 0. The result never counts as identical,
    since what several ranks record together cannot be compared bit for bit with the record of one process.
    """
    losses = _losses(single, ranks_of(several))
    compared = compare_runs(single, several)
    return replace(compared, losses=losses, first_tensor=None, parameters=None, whole_batch=True)


def _losses(single: RecordedRun, ranks: Sequence[RecordedRun]) -> LossDrift:
    # The ranks take equal parts of the batch, so the mean of their losses is the batch's loss. Steps at which a rank
    # has no loss are left out.
    losses = [{record.step: record.loss for record in run.journal.steps if record.loss is not None} for run in ranks]
    common = sorted(set.intersection(*(set(losses_of_rank) for losses_of_rank in losses)))
    means = {step: math.fsum(losses_of_rank[step] for losses_of_rank in losses) / len(losses) for step in common}
    steps = single.journal.steps
    return loss_drift(
        [record.step for record in steps], [record.loss for record in steps], list(means), list(means.values())
    )


def _distances(single: RecordedRun, ranks: Sequence[RecordedRun]) -> Iterator[list[TensorDistance]]:
    """Yield, for each step, the distances of every tensor that both runs have.

    The exact distance of a value replaces its estimate, and a gradient gets the rank of the parameter that it changed.
    """
    several = dict(whole_steps(ranks))
    how: How
    for step, single_tensors in whole_steps([single]):
        whole_tensors = several.get(step)
        if whole_tensors is None:
            continue
        exact, distances = _exact(single, ranks, step), []
        for (what, name), a in single_tensors.items():
            b = whole_tensors.get((what, name))
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
            unlike = None not in (a.nan, b.nan) and (a.nan, a.inf) != (b.nan, b.inf)
            relative = math.inf if unlike else _relative(distance, norm)
            tensor_distance, value = TensorDistance(step, what, name, relative, how, None, unlike), exact.get(name)
            if value is not None:
                tensor_distance = (
                    value if what == "value" else replace(tensor_distance, rank=value.rank if relative else None)
                )
            distances.append(tensor_distance)
        yield distances


def _relative(distance: float, norm: float) -> float:
    if distance == 0.0:
        return 0.0
    return distance / norm if norm else math.inf


def _exact(single: RecordedRun, ranks: Sequence[RecordedRun], step: int) -> Mapping[str, TensorDistance]:
    """Return the distances of the parameters and buffers whose values both runs kept."""
    try:
        single_values = single.journal.values(step)
        values, places = whole_values(ranks, step)
    except (KeyError, JournalError):
        return {}
    distances = {}
    for name, a in single_values.items():
        b = values.get(name)
        if b is not None and a.shape == b.shape and a.dtype.kind in "fc":
            apart = _norm(a, b)
            distance = _relative(apart, _norm(a))
            # The rank whose part of a sharded tensor is farthest away; copies have no such rank.
            parts = {}
            for rank, shard in enumerate(places[name] if distance else ()):
                if shard is None or shard.offset is None or all(word == "replicate" for word in shard.placements):
                    continue
                tables = ranks[rank].journal.tables.values()
                block = block_of(
                    shard, next(entry for table in tables for entry in table if entry.shard == shard).shape
                )
                parts[rank] = _norm(a[block], b[block])
            farthest = max(parts, key=lambda rank: parts[rank], default=None)
            distances[name] = TensorDistance(
                step, "value", name, distance, "values", farthest, not math.isfinite(apart)
            )
    return distances


def _norm(a: Array, b: Array | None = None) -> float:
    """Return ||a|| over the finite elements or, with b, ||a - b||, infinite if non-finite elements differ."""
    wide = np.complex128 if a.dtype.kind == "c" else np.float64
    if b is None:
        return float(np.linalg.norm(a.astype(wide)[np.isfinite(a)]))
    with np.errstate(invalid="ignore"):
        apart = np.where(a == b, 0.0, a.astype(wide) - b.astype(wide))
    apart = np.where(np.isnan(a) & np.isnan(b), 0.0, apart)
    return float(np.linalg.norm(apart)) if np.isfinite(apart).all() else math.inf


def _order(distance: TensorDistance) -> tuple[float, bool, str]:
    return (-distance.relative_l2, distance.what == "value", distance.tensor)
