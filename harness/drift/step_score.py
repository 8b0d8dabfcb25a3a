"""The drift of one training step in units of the reference's rounding noise.

For each value of the step (losses, gradients, parameters, buffers, and the optimizer's state)

    z = ||B - A||_2 / (rms + u * ||A||_2 + tiny)

A is the reference's value and B the other mode's value, computed from the same state. rms is how far random rounding
moves A (see `step_noise`). u is half the spacing of numbers at 1 in the coarser of both dtypes (the rounding of the
value itself). tiny = 1e-43 is far below the smallest normal float32. z is 0 if and only if the values are equal.
Multiplying A, B and rms by the same factor does not change z, except for the effect of tiny.

A NaN or an infinity on one side only, a value that one side lacks, and different shapes count as infinitely far apart.
Where stronger rounding makes a value jump (a ReLU or a maximum next to its kink), a quarter of the jump replaces rms.
An optimizer's state that is nowhere negative is treated as a second moment, which is a square: its z is that of the
gradient that was squared (`Noise.of_gradient`). Integers have no rounding: they are equal, or they differ. If replays
with random rounding changed them as well, a discrete choice depends on rounding, and a difference proves nothing.

The script may compute a value outside of torch, for instance in NumPy, from results that ops leave to it. Replays do
not move such a value. Each of its elements counts as at least as noisy as an element of those results (`Noise.left`).

Sources: the study behind the threshold is described in docs/reference/score.md; the idea of a tolerance measured by
    perturbation is also that of TTrace (arXiv 2506.09280) and of CESM-ECT (Baker et al., GMD 8, 2015).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from ..records.results.findings import TensorScore
from ..records.run.step_files import OF_SCRIPT, is_lacking
from ..runs.mapped_tensors import TensorFile
from .norms import Array, as_float, difference, is_floating
from .step_noise import Noise

TINY = 1e-43
"""A number five orders of magnitude below the smallest normal float32, so that zero over zero has a value."""

UNIT_ROUNDOFF = {
    "float64": 2.0**-53, "complex128": 2.0**-53,
    "float32": 2.0**-24, "complex64": 2.0**-24,
    "float16": 2.0**-11, "complex32": 2.0**-11,
    "bfloat16": 2.0**-8,
    "float8_e4m3fn": 2.0**-4, "float8_e4m3fnuz": 2.0**-4,
    "float8_e5m2": 2.0**-3, "float8_e5m2fnuz": 2.0**-3,
}  # fmt: skip
"""Half of torch.finfo(dtype).eps."""

EDGE = "a discrete choice depends on rounding"

KINDS = ("loss", "gradient", "parameter", "buffer", "state")
"""The order in which equally bad values are named: the order of their computation in a step."""


@dataclass(frozen=True, slots=True)
class StepScore:
    """The drift of one step: the worst floating value's `score`, and all values, the worst first.

    discrete: the names of integer values that differ although rounding never changed them
    taped: whether the noise was measured at this very step
    replays: the number of repetitions that measured the noise; with 0 the noise is unmeasured, and z is an upper bound
    looked_closer: whether stronger rounding was tried as well
    ill_conditioned: whether all of the drift is the effect of rounded inputs in the ops that cause it
    """

    step: int
    score: float
    tensor: str
    taped: bool
    tensors: tuple[TensorScore, ...]
    discrete: tuple[str, ...] = ()
    replays: int = 0
    looked_closer: bool = False
    ill_conditioned: bool = False

    @property
    def on_edge(self) -> bool:
        """Check whether stronger rounding makes one of the differing values jump."""
        return any(tensor.why == EDGE and tensor.score for tensor in self.tensors)

    @property
    def why(self) -> str:
        """The explanation of the worst value's score, if the score is not simply a distance."""
        return next((tensor.why for tensor in self.tensors if tensor.name == self.tensor), "")


def score_step(a: TensorFile, b: TensorFile, noise: Noise) -> StepScore:
    """Score the results of a step in mode B against those of the reference A."""
    names = [*a.tensors, *(name for name in b.tensors if name not in a.tensors)]
    compared = [name for name in names if not is_lacking(name, a.tensors.get(name), b.tensors.get(name))]
    unscored = StepScore(
        step=noise.step,
        score=0.0,
        tensor="",
        taped=noise.taped and noise.measured,
        tensors=(),
        replays=noise.replays if noise.measured else 0,
        looked_closer=noise.edge_replays > 0,
    )
    return with_values(unscored, [_score(name, a, b, noise) for name in compared])


def without_values(step: StepScore, names: Collection[str]) -> StepScore:
    """Return the score of a step without these values."""
    return with_values(step, [tensor for tensor in step.tensors if tensor.name not in names])


def with_values(step: StepScore, scores: Iterable[TensorScore]) -> StepScore:
    """Return the score of a step whose values have these scores."""
    tensors = sorted(scores, key=_rank)
    floating = [tensor for tensor in tensors if not tensor.discrete]
    worst = floating[0] if floating and floating[0].score > 0 else None
    return replace(
        step,
        score=worst.score if worst else 0.0,
        tensor=worst.name if worst else "",
        tensors=tuple(tensors),
        discrete=tuple(tensor.name for tensor in tensors if tensor.discrete and tensor.score > 0),
    )


def unit_roundoff(name: str, a: TensorFile, b: TensorFile) -> float:
    """Return u of the coarser of both sides' dtypes."""
    return max(_unit(name, a), _unit(name, b))


def _unit(name: str, file: TensorFile) -> float:
    unit = UNIT_ROUNDOFF.get(file.dtypes.get(name, ""))
    return float(np.finfo(file.tensors[name].dtype).eps) / 2 if unit is None else unit


def _rank(tensor: TensorScore) -> tuple[bool, float, int]:
    kind = tensor.name.split(" ", 1)[0]
    return tensor.discrete, -tensor.score, KINDS.index(kind) if kind in KINDS else len(KINDS)


def _score(name: str, a: TensorFile, b: TensorFile, noise: Noise) -> TensorScore:
    left, right = a.tensors.get(name), b.tensors.get(name)
    if left is None or right is None:
        array = left if left is not None else right
        assert array is not None
        side = "the reference" if right is None else "the other mode"
        return _apart(name, f"only {side} has it", discrete=not is_floating(array))
    if left.shape != right.shape:
        return _apart(name, f"shape {list(left.shape)} against {list(right.shape)}")
    if is_floating(left) != is_floating(right):
        return _apart(name, f"{left.dtype} against {right.dtype}")
    its_noise = noise.of(name)
    if not is_floating(left):
        flips = its_noise.flips if its_noise else 0
        differing = int(np.count_nonzero(left != right))
        if not differing:
            return TensorScore(name, 0.0, 0.0, float(left.size), float(flips), discrete=True)
        if flips:
            replays = f"{flips} of {noise.replays} replays"
            why, score = f"a discrete choice depends on rounding: the value also differs in {replays}", 0.0
        else:
            why, score = f"{differing} of {left.size} integers differ", math.inf
        return TensorScore(name, score, float(differing), float(left.size), float(flips), why, discrete=True)
    apart = difference(left, right)
    unit = unit_roundoff(name, a, b)
    own, rms = name in noise.tensors, noise.rms_of(name, apart.norm.exact)
    if not own and name.startswith(OF_SCRIPT):
        rms = max(rms, noise.left * math.sqrt(left.size))
    if not apart.same_places:
        why = "NaN or infinity in different places"
        return TensorScore(name, math.inf, math.inf, apart.norm.value, rms, why)
    score = z_score(apart.distance.exact, apart.norm.exact, rms, unit)
    if score > 1 and own and name.startswith("state ") and _is_nowhere_negative(left) and _is_nowhere_negative(right):
        score = noise.of_gradient(name, score)
    why = "" if own else "the noise of this value is not known"
    if own and its_noise is not None and its_noise.jumps:
        why = EDGE
    return TensorScore(name, score, apart.distance.value, apart.norm.value, rms, why)


def _is_nowhere_negative(value: Array) -> bool:
    return value.dtype.kind == "f" and bool((value >= 0).all())


def _apart(name: str, why: str, discrete: bool = False) -> TensorScore:
    return TensorScore(name, math.inf, math.inf, 0.0, 0.0, why, discrete)


def z_score(distance: Fraction, size: Fraction, rms: float, unit: float) -> float:
    """Return z of a floating value from ||B - A||, ||A||, rms and u."""
    if not distance or math.isinf(rms):
        return 0.0
    # Unequal values never score 0: a quotient below the smallest float is rounded up to the smallest float.
    return as_float(distance / (Fraction(rms) + Fraction(unit) * size + Fraction(TINY))) or math.ulp(0.0)
