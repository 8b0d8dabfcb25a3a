"""The parameters and buffers that two runs start from."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ..records.digest_record import Digest
from ..runs.journal import InitialTensor
from ..runs.mapped_tensors import TensorFile
from ..runs.recorded_run import RecordedRun
from .norms import Array, as_float, difference, is_floating
from .recorded_drift import bits
from .setup_difference import SetupDifference
from .step_score import UNIT_ROUNDOFF
from .ulp import max_ulp

ROUNDING_ULP = 4
"""Initial values that are at most so many ULP apart are the same up to rounding."""

ROUNDING_RELATIVE = 1e-6
"""So are tensors whose relative L2 distance is no more than this: 17 units of float32 rounding."""

MOST_NAMED = 3
"""Tensors that are named one by one; more are one difference."""


@dataclass(frozen=True, slots=True)
class _Other:
    """A tensor that starts from other values; `text` goes after its name."""

    name: str
    text: str
    size: float | None
    rounding: bool


def initial_differences(
    a: RecordedRun, b: RecordedRun, state_a: TensorFile | None, state_b: TensorFile | None
) -> list[SetupDifference]:
    """What differs before step 0; distances come from the states of step 0 where both are given."""
    left, right = a.journal.initial(), b.journal.initial()
    if not left or not right:
        return []
    found = []
    for here, there, side in ((left, right, b), (right, left, a)):
        lacking = [name for name in here if name not in there]
        if lacking:
            text = f"{_listed(lacking)} {_is_are(lacking)} missing in {side.manifest.label}"
            found.append(SetupDifference("initial", 0, lacking[0], text))
    states = (state_a, state_b) if _of_the_beginning(state_a) and _of_the_beginning(state_b) else (None, None)
    others = [
        other
        for name in left
        if name in right and (other := _other(left[name], right[name], *states)) is not None
    ]
    found += _grouped([one for one in others if not one.rounding], "")
    found += _grouped([one for one in others if one.rounding], "rounding")
    return found


def _of_the_beginning(state: TensorFile | None) -> bool:
    return state is not None and state.facts.get("step") == 0


def _other(
    a: InitialTensor, b: InitialTensor, state_a: TensorFile | None, state_b: TensorFile | None
) -> _Other | None:
    """How two tensors of one name differ; None when they do not, or when nobody can tell."""
    if a.shape != b.shape:
        return _Other(a.name, f"is of shape {list(a.shape)} against {list(b.shape)}", None, False)
    if not a.digest.readable or not b.digest.readable:
        return None
    if a.dtype == b.dtype and bits(a.digest) == bits(b.digest):
        return None
    key = f"{a.kind} {a.name}"
    left = state_a.tensors.get(key) if state_a else None
    right = state_b.tensors.get(key) if state_b else None
    tolerance = max(ROUNDING_RELATIVE, 4 * max(UNIT_ROUNDOFF.get(one.dtype, 0.0) for one in (a, b)))
    if left is None or right is None or left.shape != right.shape:
        return _by_digest(a, b, tolerance)
    if not (is_floating(left) and is_floating(right)):
        equal = bool((left == right).all())
        return None if equal else _Other(a.name, "starts from other values", None, False)
    return _by_values(a.name, left, right, tolerance)


def _by_values(name: str, a: Array, b: Array, tolerance: float) -> _Other | None:
    apart = difference(a, b)
    if not apart.same_places:
        return _Other(name, "starts from other values, not all of them finite", math.inf, False)
    if not apart.differing:
        return None
    size = as_float(apart.distance.exact / apart.norm.exact) if apart.norm.mantissa else math.inf
    few_ulp = a.dtype == b.dtype and a.dtype.kind == "f" and max_ulp(a, b) <= ROUNDING_ULP
    text = f"starts from other values (relative L2 {size:.2g})"
    return _Other(name, text, size, few_ulp or size <= tolerance)


def _by_digest(a: InitialTensor, b: InitialTensor, tolerance: float) -> _Other | None:
    """Judge by statistics: all of them within rounding are rounding, though a permutation would look the same."""
    left, right = a.digest, b.digest
    if a.dtype != b.dtype and _close(left, right, 0.0):
        return None
    floating = all(one.dtype.startswith(("float", "bfloat", "complex")) for one in (a, b))
    text = f"starts from other values (norm {left.l2:.4g} against {right.l2:.4g})"
    return _Other(a.name, text, None, floating and _close(left, right, tolerance))


def _close(a: Digest, b: Digest, tolerance: float) -> bool:
    spread = a.l2 / math.sqrt(a.numel) if a.numel else 0.0
    pairs = [(a.l2, b.l2), (a.mean, b.mean), (a.minimum, b.minimum), (a.maximum, b.maximum)]
    return (a.nan, a.inf) == (b.nan, b.inf) and all(
        abs(x - y) <= tolerance * max(abs(x), spread) or (math.isnan(x) and math.isnan(y)) for x, y in pairs
    )


def _grouped(others: Sequence[_Other], harmless: str) -> list[SetupDifference]:
    if len(others) <= MOST_NAMED:
        return [
            SetupDifference("initial", 0, one.name, f"`{one.name}` {one.text}", one.size, harmless=harmless)
            for one in others
        ]
    worst = max(others, key=lambda one: -1.0 if one.size is None else one.size)
    more = f"`{worst.name}` {worst.text}, and so do {len(others) - 1} more tensors"
    return [SetupDifference("initial", 0, worst.name, more, worst.size, harmless=harmless)]


def _listed(names: Sequence[str]) -> str:
    quoted = [f"`{name}`" for name in names[:MOST_NAMED]]
    more = len(names) - len(quoted)
    return ", ".join(quoted) + (f" and {more} more tensors" if more else "")


def _is_are(names: Sequence[str]) -> str:
    return "is" if len(names) == 1 else "are"
