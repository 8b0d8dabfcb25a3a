"""The spread of a mode that does not repeat itself: the distance of its executions of one step from each other.

A kernel that adds atomically computes different bits each time. The spread of its results is not a drift. It is added
to the step's rounding noise, with which another mode's drift is compared.

    noise of a value    sqrt(rms**2 + spread**2 + other spread**2)      rms: of random rounding; both modes' spreads

A spread far beyond rounding has another cause: a draw without a seed, a race, or memory that was never filled.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from ...drift.norms import as_float, difference, is_floating, norm
from ...drift.recorded_drift import common_records
from ...drift.step_noise import Noise
from ...drift.step_score import unit_roundoff
from ...records.run.step_files import is_lacking
from ...runs.journal import Journal
from ...runs.mapped_tensors import TensorFile
from ...runs.recorded_run import RecordedRun


@dataclass(frozen=True, slots=True)
class OwnSpread:
    """The spread of one mode's values, each relative to its norm; `steps` were executed several times.

    `largest` is the value whose spread is the largest multiple of its rounding noise; `score` is that multiple.
    """

    relative: Mapping[str, float]
    steps: tuple[int, ...]
    score: float = 0.0
    largest: str = ""

    def scored(self, noise: Noise, units: Mapping[str, float]) -> OwnSpread:
        """Return the spread with its score against the rounding noise of the reference's step.

        `units` are the unit roundoffs of the values.
        """
        worst, largest = 0.0, ""
        for name, relative in self.relative.items():
            tensor = noise.of(name)
            rounding = (tensor.relative or 0.0) if tensor is not None else 0.0
            score = relative / (rounding + units.get(name, 0.0)) if relative else 0.0
            if score > worst:
                worst, largest = score, name
        return replace(self, score=worst, largest=largest)


def joined(spreads: Iterable[OwnSpread]) -> OwnSpread | None:
    """Return, for each value, the largest spread over all these steps; None if there are no spreads."""
    relative: dict[str, float] = {}
    steps: set[int] = set()
    for spread in spreads:
        steps |= set(spread.steps)
        for name, size in spread.relative.items():
            relative[name] = max(size, relative.get(name, 0.0))
    return OwnSpread(relative, tuple(sorted(steps))) if steps else None


def of_noise(noise: Noise) -> OwnSpread:
    """Return the spread that was measured by replays of a step's tape."""
    relative = {
        name: tensor.spread / tensor.norm for name, tensor in noise.tensors.items() if tensor.spread and tensor.norm
    }
    return OwnSpread(relative, (noise.step,))


def of_outcomes(step: int, first: TensorFile, second: TensorFile) -> OwnSpread:
    """Return the spread between two outcomes of a step that began in the same state."""
    relative: dict[str, float] = {}
    for name, value in first.tensors.items():
        other = second.tensors.get(name)
        if is_lacking(name, value, other):
            continue
        if other is None or other.shape != value.shape:
            relative[name] = math.inf
        elif is_floating(value):
            apart, size = difference(value, other), norm(value).value
            distance = as_float(apart.distance.exact) if apart.same_places else math.inf
            relative[name] = 0.0 if not distance else distance / size if size else math.inf
    return OwnSpread(relative, (step,))


def of_journals(step: int, first: Journal, second: Journal) -> OwnSpread:
    """Return a lower bound of the spread of a step that two runs began in the same state, from their journals.

    Journals contain the losses, and the norm of each gradient: two gradients are at least as far apart as their norms.
    """
    relative: dict[str, float] = {}
    for left_step, right_step, digests in common_records(first, second):
        if left_step.step != step:
            continue
        losses = zip(left_step.losses, right_step.losses, strict=False)
        relative = {f"loss {number}": _apart(left, right) for number, (left, right) in enumerate(losses)}
        for name, digest in (digests[0].gradients if digests else {}).items():
            other = digests[1].gradients.get(name) if digests else None
            if digest is not None and other is not None:
                relative[f"gradient 0 {name}"] = _apart(digest.l2, other.l2)
        break
    return OwnSpread(relative, (step,))


def of_kept_values(step: int, run: RecordedRun, outcome: TensorFile) -> OwnSpread | None:
    """Return the spread between a step of a run, of which only the parameters and buffers are kept, and an outcome of
    the step; None if they are not kept."""
    if step not in run.journal.value_steps:
        return None
    kept = kept_values(run, step, outcome)
    common = {name: outcome.tensors[name] for name in kept.tensors}
    return of_outcomes(step, TensorFile(common, {}, {}), kept)


def kept_values(run: RecordedRun, step: int, outcome: TensorFile) -> TensorFile:
    """Return the parameters and buffers that a run kept of a step, with the names and dtypes of an outcome's values."""
    kept = run.parameters(step)
    ends = {name: name.partition(" ") for name in outcome.tensors}
    tensors = {
        name: kept[end] for name, (kind, _, end) in ends.items() if kind in ("parameter", "buffer") and end in kept
    }
    return TensorFile(tensors, outcome.dtypes, {})


def _apart(first: float, second: float) -> float:
    if first == second or (math.isnan(first) and math.isnan(second)):
        return 0.0
    apart = abs(second - first) / abs(first) if first else math.inf
    return apart if math.isfinite(apart) else math.inf


def units_of(outcome: TensorFile) -> dict[str, float]:
    """Return the unit roundoff of each floating value of an outcome."""
    return {
        name: unit_roundoff(name, outcome, outcome) for name, value in outcome.tensors.items() if is_floating(value)
    }
