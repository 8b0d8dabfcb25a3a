"""The location of the drift: by module, and by tensor and step."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ..records.results.findings import PairFindings, StepFindings

MOST_TENSORS = 40
"""The largest number of rows of the heat map. They are the tensors that drift most."""

MOST_STEPS = 64
"""The largest number of columns of the heat map. They are the steps that drift most."""

LEVELS = (0.0, 1.0, 4.0)
"""The largest z of each of the first three levels: equal bits, below the noise of rounding, ordinary rounding. Two more
levels follow: a drift worth a look (up to the threshold), and a drift beyond the threshold."""


@dataclass(frozen=True, slots=True)
class ModuleRow:
    """A module of the model at `depth`.

    score: the largest z of the tensors of the module and of its submodules
    tensor, step: the tensor and the step with that score
    level: the level of the score, from 0 (equal) to 4 (beyond the threshold)
    """

    name: str
    depth: int
    score: float
    tensor: str
    step: int
    level: int


@dataclass(frozen=True, slots=True)
class HeatCell:
    """The z of a tensor in a step, and the level of this z."""

    score: float
    level: int


@dataclass(frozen=True, slots=True)
class HeatMap:
    """The scores of `tensors` (rows) in `steps` (columns). `left_out` is the number of tensors that are not shown,
    because they drift less than the others."""

    steps: Sequence[int]
    tensors: Sequence[tuple[str, Sequence[HeatCell]]]
    left_out: int


def level_of(score: float, threshold: float | None) -> int:
    """Return the level of a score: 0 equal, 1 below the noise, 2 ordinary, 3 worth a look, 4 beyond the threshold."""
    if threshold is not None and score > threshold:
        return 4
    return next((level for level, limit in enumerate(LEVELS) if score <= limit), 3)


def heat_map(pair: PairFindings) -> HeatMap:
    """Return the scores of the tensors that drift most, in the resynced steps."""
    steps = _spread(sorted(pair.steps, key=lambda item: item.step))
    worst: dict[str, float] = {}
    for step in pair.steps:
        for tensor_score in step.tensors:
            worst[tensor_score.name] = max(worst.get(tensor_score.name, 0.0), tensor_score.score)
    differing = sorted((name for name in worst if worst[name]), key=lambda name: -worst[name])
    scores = [{scored.name: scored.score for scored in step.tensors} for step in steps]
    rows = []
    for name in differing[:MOST_TENSORS]:
        cells = [of_step.get(name, 0.0) for of_step in scores]
        rows.append((name, [HeatCell(z, level_of(z, pair.threshold)) for z in cells]))
    return HeatMap([step.step for step in steps], rows, max(0, len(differing) - MOST_TENSORS))


def module_rows(pair: PairFindings) -> list[ModuleRow]:
    """Return every module that drifts, in the order of a tree: a module comes directly before its submodules."""
    worst: dict[tuple[str, ...], tuple[float, str, int]] = {}
    for step in pair.steps:
        for tensor_score in step.tensors:
            if not tensor_score.score:
                continue
            path = tuple(module_of(tensor_score.name).split("."))
            for depth in range(1, len(path) + 1):
                module_path = path[:depth]
                if tensor_score.score > worst.get(module_path, (0.0, "", 0))[0]:
                    worst[module_path] = (tensor_score.score, tensor_score.name, step.step)
    rows = []
    for path in sorted(worst, key=lambda path: [_natural(part) for part in path]):
        if path == ("",):
            continue
        score, tensor, at = worst[path]
        rows.append(ModuleRow(path[-1], len(path) - 1, score, tensor, at, level_of(score, pair.threshold)))
    return rows


def module_drift(pair: PairFindings) -> dict[str, tuple[float, int]]:
    """For each module that drifts, return the largest z of its parameters, gradients and states, and the level of this
    z. The tensors of submodules are not included."""
    worst: dict[str, float] = {}
    for step in pair.steps:
        for tensor_score in step.tensors:
            if tensor_score.score and not tensor_score.name.startswith("loss"):
                module = module_of(tensor_score.name)
                worst[module] = max(worst.get(module, 0.0), tensor_score.score)
    return {module: (score, level_of(score, pair.threshold)) for module, score in worst.items()}


def module_of(tensor: str) -> str:
    """Return the module to which a value belongs; "" for a loss.

    For `gradient 0 layers.1.weight` and `state layers.1.weight.exp_avg` it is `layers.1`.
    """
    kind, _, name = tensor.partition(" ")
    if kind == "loss":
        return ""
    if kind == "gradient":
        name = name.partition(" ")[2]
    if kind == "state":
        name = name.rpartition(".")[0]
    return name.rpartition(".")[0]


def _natural(part: str) -> tuple[int, int, str]:
    return (0, int(part), "") if part.isdigit() else (1, 0, part)


def _spread(steps: Sequence[StepFindings]) -> Sequence[StepFindings]:
    """Return the MOST_STEPS steps that drift most, in step order; if there are not more steps than that, return all."""
    if len(steps) <= MOST_STEPS:
        return steps
    most = sorted(steps, key=lambda step: -(step.score if math.isfinite(step.score) else math.inf))[:MOST_STEPS]
    return sorted(most, key=lambda step: step.step)
