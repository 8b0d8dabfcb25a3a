"""The hyper-parameters that two runs gave to their optimizers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..runs.recorded_run import RecordedRun
from .setup_difference import SetupDifference

SAME = 1e-6
"""Numbers this close, relatively, are the same: a mode may keep them as float32."""

DRIFTING = 1e-2
"""A number that comes apart by less than this, after the training has, is computed from the training (as the step
size of an adaptive method is) and follows the drift."""

IMPLEMENTATION = frozenset({"foreach", "fused", "capturable", "differentiable"})
"""Keys that say how an optimizer computes and not what: they belong to the mode."""

Optimizers = Sequence[Mapping[str, Any]]


def hyper_differences(a: RecordedRun, b: RecordedRun, drifting_from: int | None) -> list[SetupDifference]:
    """The first difference of each hyper-parameter; `drifting_from` is the first step that computed something else."""
    left, right = a.journal.hyper(), b.journal.hyper()
    if not left or not right:
        return []
    found: dict[str, SetupDifference] = {}
    # What a schedule does after one of the runs has ended is no difference.
    reached = min(max((one.step for one in run.journal.steps), default=0) for run in (a, b))
    for step in sorted({step for step, _ in (*left, *right) if step <= reached}):
        ours, theirs = _at(left, step), _at(right, step)
        if ours is None or theirs is None:
            continue
        late = drifting_from is not None and step > drifting_from
        for one in _differences(step, ours, theirs, late):
            found.setdefault(one.name, one)
    return list(found.values())


def _at(changes: Sequence[tuple[int, Any]], step: int) -> Optimizers | None:
    """What was in force in a step; None before the first optimizer stepped."""
    known: list[Optimizers] = [optimizers for since, optimizers in changes if since <= step]
    return known[-1] if known else None


def _differences(step: int, a: Optimizers, b: Optimizers, late: bool) -> Iterator[SetupDifference]:
    if len(a) != len(b):
        yield _said(step, "optimizers", f"{len(a)} against {len(b)} optimizers (from step {step})")
    for left, right in zip(a, b, strict=False):
        if left["class"] != right["class"]:
            text = f"optimizer {left['class']} against {right['class']} (from step {step})"
            yield _said(step, "optimizer", text)
            continue
        if len(left["groups"]) != len(right["groups"]):
            counts = f"{len(left['groups'])} against {len(right['groups'])} groups"
            yield _said(step, "groups", f"{counts} ({left['class']}, from step {step})")
        for number, (ours, theirs) in enumerate(zip(left["groups"], right["groups"], strict=False)):
            yield from _of_group(step, f"{left['class']}, group {number}", ours, theirs, late)


def _of_group(
    step: int, where: str, a: Mapping[str, Any], b: Mapping[str, Any], late: bool
) -> Iterator[SetupDifference]:
    """A key that one side lacks says nothing: other versions of torch know other keys."""
    for key in a:
        if key in IMPLEMENTATION or key not in b or _same(a[key], b[key]):
            continue
        place = f"({where}, from step {step})"
        if key == "params":
            yield _said(step, key, f"other parameters: {len(a[key])} against {len(b[key])} {place}")
            continue
        size = _relative(a[key], b[key])
        yield SetupDifference(
            "hyper-parameter",
            step,
            key,
            f"{key} {_shown(a[key])} against {_shown(b[key])} {place}",
            size,
            follows=late and size is not None and size < DRIFTING,
        )


def _said(step: int, name: str, text: str) -> SetupDifference:
    return SetupDifference("hyper-parameter", step, name, text)


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(_same(x, y) for x, y in zip(a, b, strict=True))
    size = _relative(a, b)
    return bool(a == b) if size is None else size <= SAME


def _relative(a: Any, b: Any) -> float | None:
    """|a - b| / max(|a|, |b|); None for what is no number."""
    if any(isinstance(one, bool) or not isinstance(one, (int, float)) for one in (a, b)):
        return None
    x, y = float(a), float(b)
    if x == y or (math.isnan(x) and math.isnan(y)):
        return 0.0
    return abs(x - y) / max(abs(x), abs(y))


def _shown(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
