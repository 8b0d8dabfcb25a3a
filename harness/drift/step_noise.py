"""The rounding noise of a training step: how far rounding alone moves its values. Drift is measured in this unit.

A step is repeated N times: on its tape with random rounding after every op (Monte Carlo arithmetic), or by N runs that
start from a state that is one ULP off. The noise of a value x of the step is

    rms = sqrt(mean_i ||x_i - x||_2**2)        over the elements that are finite on both sides

and, for a tensor of integers, the number of repetitions in which the tensor differed at all (flips).

The results of ReLUs and maxima jump if an input passes a kink. A different kernel may move an input past a kink that no
input passes in 8 repetitions; the kernel's error is then several times the noise. So suspicious steps are repeated with
rounding 16 times as strong (`reach` is the largest distance). If a value then moves by more than 3 * 16 times its rms,
its drift is compared with this jump. Measured on a residual network of 16 ReLUs under Inductor: 4 of 30 steps had such
a kink, with drifts of 250 to 2,600 times rms, and the other 26 had drifts of 1.3 to 5.5 times rms.

Sources: D. S. Parker, Monte Carlo Arithmetic, UCLA CSD-970002, 1997; C. Denis, P. de Oliveira Castro and E. Petit,
    Verificarlo, ARITH 2016 (arXiv 1509.01347).
"""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import JournalError
from ..runs.mapped_tensors import TensorFile
from ..runs.step_outcomes import noise_path, noise_steps, read_noise_record
from .norms import Array, Norm, as_float, difference, is_floating, norm, root_mean_square

JUMP_SHARE = 4.0
"""The divisor of a jump: drift is compared with a quarter of the jump.

With the usual threshold of 16, a drift may be as large as 4 jumps, because several may coincide.
"""

JUMP = 3.0
"""A movement is a jump if it exceeds this multiple of `strength * rms`, the distance in proportion to the rounding.

The farthest of 16 replays without a jump moves by 0.7 to 2 times that distance.
"""


SECOND_MOMENT = re.compile(r"state (?P<parameter>.+)\.[^.]+")
"""The pattern of the names of optimizer states that may be second moments."""


@dataclass(frozen=True, slots=True)
class TensorNoise:
    """The noise of one value; `norm` is ||x||_2 of the undisturbed value.

    `reach` is the largest distance under rounding `strength` times as strong as usual, 0 if that was not tried.
    If the step does not repeat, `spread` is the distance between further executions of it, on either side (see
    `own_spread`).
    """

    rms: float
    norm: float
    flips: int = 0
    reach: float = 0.0
    strength: float = 16.0
    spread: float = 0.0

    @property
    def jumps(self) -> bool:
        """Check whether stronger rounding moves the value much farther than in proportion to the rounding.

        If so, a discrete choice depends on rounding.
        """
        return self.reach > JUMP * self.strength * self.rms

    @property
    def size(self) -> float:
        """The size with which a drift is compared.

        It is rms, or a part of the jump if a discrete choice depends on rounding, together with the spread.
        """
        return math.hypot(self.reach / JUMP_SHARE if self.jumps else self.rms, self.spread)

    @property
    def relative(self) -> float | None:
        """rms / norm; None for a value that is zero."""
        return self.rms / self.norm if self.norm else None


@dataclass(frozen=True, slots=True)
class Noise:
    """The noise of one step's values, from `replays` repetitions.

    equal: whether the unchanged replay returned the step's own bits; if not, nothing was measured
    reason, differs: why the unchanged replay returned different bits, and the values that differed
    taped: whether the noise was measured on a tape of this very step
    unrepeatable: the calls of the step that compute different bits each time, as the step's noise file describes them
    settled: whether such calls were looked for
    doubted: the number of other calls that may add atomically, although they repeated when they were executed again
    adding: the calls of a compiled step that may add atomically, of which it is not known whether they repeat
    unwritten: the reads of memory that no op has written, as the step's noise file describes them; None if they were
        not looked for
    left: the largest rms of an element among the results that the step's ops leave to the script, which may compute
        with them outside of torch
    """

    step: int
    replays: int
    tensors: Mapping[str, TensorNoise]
    equal: bool = True
    reason: str | None = None
    differs: tuple[str, ...] = ()
    taped: bool = True
    edge_replays: int = 0
    unrepeatable: tuple[Mapping[str, Any], ...] = ()
    settled: bool = False
    doubted: int = 0
    adding: tuple[Mapping[str, Any], ...] = ()
    unwritten: tuple[Mapping[str, Any], ...] | None = None
    left: float = 0.0

    @property
    def measured(self) -> bool:
        return self.replays > 0 and bool(self.tensors)

    def at(self, step: int, outcome: TensorFile) -> Noise:
        """Return the noise of another step, whose values are `outcome`.

        It is computed as if each value's relative noise were the same as in this step. The noise of a value that is
        zero in this step is used unscaled.
        """
        moved = {}
        for name, noise in self.tensors.items():
            if name in outcome.tensors and is_floating(outcome.tensors[name]):
                scale = norm(outcome.tensors[name])
                # In proportion: a value twice as large is rounded by twice as much.
                rms = noise.rms if noise.relative is None else _times(noise.relative, scale)
                spread = noise.spread if not noise.norm else _times(noise.spread / noise.norm, scale)
                moved[name] = TensorNoise(rms, scale.value, noise.flips, spread=spread)
            elif name in outcome.tensors:
                moved[name] = noise
        return replace(self, step=step, tensors=moved, taped=False, edge_replays=0)

    def of(self, name: str) -> TensorNoise | None:
        """Return the noise of one value.

        For a value that was not measured, return the median relative noise of the measured values of its kind
        (gradient, parameter and so on), as the noise of a value of norm 1. Return None if none was measured.
        """
        if name in self.tensors:
            return self.tensors[name]
        kind = name.split(" ", 1)[0]
        relatives = [
            noise.relative
            for measured_name, noise in self.tensors.items()
            if measured_name.split(" ", 1)[0] == kind and noise.relative is not None
        ]
        return TensorNoise(statistics.median(relatives), 1.0) if relatives else None

    def rms_of(self, name: str, size: Fraction) -> float:
        """Return the noise with which the drift of a value of norm `size` is compared; 0 if none is known.

        The noise of an unmeasured value is that of a value of norm 1, multiplied by `size`.
        """
        noise = self.of(name)
        if noise is None:
            return 0.0
        return noise.size if name in self.tensors else as_float(Fraction(noise.rms) * size)

    def of_gradient(self, state: str, z: float) -> float:
        """Return the score of a gradient whose square, in an optimizer's second moment, has the score z.

        If a gradient g with noise n moves by k n, its square moves by 2 g k n + (k n)**2. Rounding alone moves the
        square by 2 g n + n**2. With r = g / n

            z = (2 r k + k**2) / (2 r + 1)        k = sqrt(r**2 + z (2 r + 1)) - r

        k is z for a gradient far above its noise. k is sqrt(z) for a gradient that consists only of rounding, such as
        that of a bias before a batch normalization: if such a gradient is rounded 10 times as coarsely, its square
        moves by 100 times the noise.

        `state` is the name of a value that is nowhere negative, such as `state net.weight.exp_avg_sq`. For a name that
        is not a state, and for a gradient whose noise is unknown, z itself is returned.
        """
        state_name = SECOND_MOMENT.fullmatch(state)
        of = f" {state_name['parameter']}" if state_name else ""
        gradients = [
            noise for name, noise in self.tensors.items() if of and name.startswith("gradient ") and name.endswith(of)
        ]
        ratios = [noise.norm / noise.rms for noise in gradients if noise.rms]
        if not ratios or len(ratios) < len(gradients) or not 1 < z < math.inf:
            return z
        r = max(ratios)
        # The difference of two large, almost equal numbers, computed without subtracting them
        return z * (2 * r + 1) / (math.sqrt(r * r + z * (2 * r + 1)) + r)

    def with_spread(self, relative: Mapping[str, float]) -> Noise:
        """Return the noise with one more spread added; `relative` has each value's spread, relative to its norm."""
        tensors = {
            name: replace(tensor, spread=math.hypot(tensor.spread, relative.get(name, 0.0) * tensor.norm))
            for name, tensor in self.tensors.items()
        }
        return replace(self, tensors=tensors)

    @classmethod
    def from_runs(cls, step: int, reference: TensorFile, perturbed: Sequence[TensorFile]) -> Noise:
        """Measure the noise from repetitions of the reference's step that began in a state one ULP off.

        Without repetitions nothing is measured, and a score takes only the rounding of the values themselves into
        account.
        """
        tensors = {
            name: _measured(value, [file.tensors[name] for file in perturbed if name in file.tensors])
            for name, value in reference.tensors.items()
        }
        return cls(step, len(perturbed), tensors if perturbed else {}, taped=False)


def pooled(step: int, noises: Sequence[Noise]) -> Noise:
    """Return the noise with which a step without a tape is scored: that of the nearest taped step, but for each value
    at least the median of its relative noise in all taped steps.

    The noise of one step may be tiny by chance: where a value is exact, or where few elements are rounded. A median,
    because a single step in which rounding makes a value jump must not hide a fault in the others.
    """
    nearest = min(noises, key=lambda noise: abs(noise.step - step))
    tensors = dict(nearest.tensors)
    for noise in sorted(noises, key=lambda noise: abs(noise.step - step)):
        for name, tensor in noise.tensors.items():
            tensors.setdefault(name, tensor)
    for name, tensor in tensors.items():
        found = [noise.tensors[name].relative for noise in noises if name in noise.tensors]
        relatives = [relative for relative in found if relative is not None]
        if tensor.norm and relatives:
            tensors[name] = replace(tensor, rms=max(tensor.rms, statistics.median(relatives) * tensor.norm))
    left = max(nearest.left, statistics.median(noise.left for noise in noises))
    return replace(nearest, tensors=tensors, left=left)


def read_noise(run: Path, step: int) -> Noise | None:
    """Return the recorded noise of a step; None if the run recorded none. Raises JournalError for damage."""
    record = read_noise_record(run, step)
    if record is None:
        return None
    try:
        # Files of older versions lack `edge`.
        strength = _size((record.get("edge") or {}).get("strength", 16.0))
        tensors = {
            str(name): TensorNoise(
                _size(row["rms"]),
                _size(row["norm"]),
                int(row["flips"]),
                _size(row.get("reach", 0.0)),
                strength,
                _size(row.get("spread", 0.0)),
            )
            for name, row in record["tensors"].items()
        }
        equal, reason = record["equal"], record.get("reason")
        if not isinstance(equal, bool):
            raise TypeError(f"{equal!r} is neither true nor false")
        return Noise(
            step=int(record["step"]),
            replays=int(record["replays"]),
            tensors=tensors if equal and (record["replays"] or record.get("unrepeatable")) else {},
            equal=equal,
            reason=None if reason is None else str(reason),
            differs=tuple(map(str, record.get("differs", ()))),
            edge_replays=int((record.get("edge") or {}).get("replays", 0)),
            unrepeatable=tuple(dict(call) for call in record.get("unrepeatable", ())),
            settled=record.get("settled") is True,
            doubted=int(record.get("doubted", 0)),
            adding=tuple(dict(call) for call in record.get("adding", ())),
            unwritten=None if (reads := record.get("unwritten")) is None else tuple(dict(read) for read in reads),
            left=_size(record.get("left", 0.0)),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise JournalError(noise_path(run, step), f"is damaged ({type(error).__name__}: {error})") from error


def noises_of(run: Path) -> Iterator[Noise]:
    """Yield the recorded noise of each step of a run, in order. A damaged file yields nothing."""
    for step in noise_steps(run):
        with suppress(JournalError):
            noise = read_noise(run, step)
            if noise is not None:
                yield noise


def _size(value: Any) -> float:
    number = float(value)
    if math.isnan(number) or number < 0:
        raise ValueError(f"{value!r} is not a size")
    return number


def _times(factor: float, by: Norm) -> float:
    return as_float(Fraction(factor) * by.exact) if math.isfinite(factor) else math.inf


def _measured(value: Array, others: Sequence[Array]) -> TensorNoise:
    others = [repetition for repetition in others if repetition.shape == value.shape]
    if not is_floating(value):  # integers have no rounding error: they are equal, or they differ
        return TensorNoise(0.0, 0.0, sum(not np.array_equal(value, repetition) for repetition in others))
    moved = root_mean_square(difference(value, repetition).distance for repetition in others)
    return TensorNoise(moved.value, norm(value).value)
