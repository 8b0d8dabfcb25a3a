"""Tests of causes: the drift of one hybrid of the two tapes from the reference, in units of the reference's noise.

A cause is swapped in if side a is executed with the cause from side b. It is swapped out if side b is executed with the
cause from side a.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

import torch

from ...drift.distance import native_distance
from ...drift.step_noise import Noise
from ...drift.step_score import z_score
from ...records.run.step_files import is_lacking
from ...tape.tape import in_words
from ..align.storage_flow import Side
from ..errors.result_distances import unit_roundoff_of
from ..execute.hybrid import Hybrid, Values, execute
from ..execute.tape_pair import TapePair
from .site_causes import Cause

LARGE = 1e12

AFTER_PROOFS = 5
"""The number of executions of a step that follow the proofs: of the reference, with the reference's choices, for the
net effects, and for the values of the scripts."""

LARGE_TENSOR = 1 << 20
"""The number of elements from which a tensor is compared in native code."""


@dataclass(frozen=True, slots=True)
class Drift:
    """The drift of a step's values.

    scores: z of every floating value (see `harness.drift.step_score`).
    discrete: the number of integer tensors that differ.
    score: the largest of the scores.
    amount: the root mean square of the scores, with infinite ones counted as LARGE.
    """

    scores: Mapping[str, float]
    discrete: int

    @property
    def score(self) -> float:
        return max(self.scores.values(), default=0.0)

    @property
    def amount(self) -> float:
        squares = [min(score, LARGE) ** 2 for score in self.scores.values()]
        return math.sqrt(sum(squares) / max(1, len(squares)))

    @property
    def distance(self) -> float:
        """The score; infinite if integers differ."""
        return math.inf if self.discrete else self.score

    @property
    def is_none(self) -> bool:
        return not self.discrete and not any(self.scores.values())

    def moved(self, threshold: float) -> int:
        """Count the floating values with a score above the threshold."""
        return sum(score > threshold for score in self.scores.values())


class Scorer:
    """Scores values by their distance from the reference's."""

    def __init__(self, reference: Values, noise: Noise) -> None:
        self._reference = reference
        self._noise = noise
        self._norms: dict[str, float] = {}

    def drift(self, values: Values) -> Drift:
        scores: dict[str, float] = {}
        discrete = 0
        for name in {**self._reference, **values}:
            a, b = self._reference.get(name), values.get(name)
            if is_lacking(name, a, b):
                continue
            if a is None or b is None:
                scores[name] = math.inf
            elif a.is_floating_point() or a.is_complex():
                scores[name] = self._floating(name, a, b)
            else:
                noise = self._noise.of(name)
                discrete += not (noise is not None and noise.flips) and (
                    a.shape != b.shape or not torch.equal(a.to(b.device), b)
                )
        return Drift(scores, discrete)

    def _floating(self, name: str, a: torch.Tensor, b: torch.Tensor) -> float:
        """Return z of two tensors, computed in double (see `drift.step_score`)."""
        if a.shape != b.shape or b.is_floating_point() != a.is_floating_point():
            return math.inf
        a = a.to(b.device)  # recorded values are on the CPU
        if a.dtype == b.dtype and torch.equal(a, b):
            return 0.0
        within_memory = a.device.type == b.device.type == "cpu" and a.numel() >= LARGE_TENSOR
        if within_memory and a.dtype == b.dtype == torch.float32:
            native = native_distance(a.detach().numpy(), b.detach().numpy())
            if native is not None:
                self._norms.setdefault(name, native.reference_norm)
                return self._z(name, a, b, native.difference_norm)
        # a complex number counts as two
        left, right = (
            (torch.view_as_real(value) if value.is_complex() else value).double().reshape(-1) for value in (a, b)
        )
        distance = float((right - left).norm())
        if not math.isfinite(distance):
            finite = torch.isfinite(left)
            places = torch.equal(finite, torch.isfinite(right))
            # NaN is unequal to itself, so only the infinities are compared among non-finite elements
            if not places or not torch.equal(left[~finite].nan_to_num(), right[~finite].nan_to_num()):
                return math.inf
            left, right = left[finite], right[finite]
            distance = float((right - left).norm())
        if name not in self._norms:
            self._norms[name] = float(left.norm())  # of the finite elements
        return self._z(name, a, b, distance)

    def _z(self, name: str, a: torch.Tensor, b: torch.Tensor, distance: float) -> float:
        if not distance:
            return 0.0
        if math.isinf(distance) or math.isinf(self._norms[name]):
            return math.inf
        size = Fraction(self._norms[name])
        unit = max(unit_roundoff_of(tensor.dtype, unknown=2.0**-24) for tensor in (a, b))
        z = z_score(Fraction(distance), size, self._noise.rms_of(name, size), unit)
        if z > 1 and name.startswith("state ") and not a.is_complex() and not bool((a < 0).any() | (b < 0).any()):
            z = self._noise.of_gradient(name, z)
        return z


class Infeasible(Exception):
    """Raised for a hybrid that cannot be executed, with the reason in words."""


@dataclass(slots=True)
class HybridTests:
    """The executions of hybrids and their `count`; each hybrid is executed only once.

    scorers: by side, the scorer of the distance from the values that its tape recorded; side a is the reference
    deadline: the time of the monotonic clock at which the search should end
    seconds: the time that the executions have taken
    """

    pair: TapePair
    scorers: Mapping[Side, Scorer]
    deadline: float = math.inf
    count: int = 0
    seconds: float = 0.0
    _outcomes: dict[Hybrid, Drift | Infeasible] = field(default_factory=dict)
    _verified: dict[Hybrid, tuple[Drift, float]] = field(default_factory=dict)
    _from_themselves: dict[Side, Drift] = field(default_factory=dict)

    @property
    def scorer(self) -> Scorer:
        """The scorer of the distance from the reference."""
        return self.scorers["a"]

    def swapped_in(self, causes: Sequence[Cause]) -> Drift:
        """Execute side a with these causes from side b. Raises Infeasible."""
        return self._drift("a", causes)

    def swapped_out(self, causes: Sequence[Cause]) -> Drift:
        """Execute side b with these causes from side a. Raises Infeasible."""
        return self._drift("b", causes)

    def have_time_for(self, count: int) -> bool:
        """Check whether so many further executions, and those that follow the proofs, can end before the deadline."""
        each = self.seconds / max(1, self.count)
        return time.monotonic() + (count + AFTER_PROOFS) * each < self.deadline

    def of_itself(self, side: Side) -> Drift:
        """Execute a side with its own kernels, and return the drift from the values that its tape recorded.

        Raises NotReplayable, and any error that an op raises.
        """
        if side not in self._from_themselves:
            began = time.monotonic()
            drift = self._drift_of(Hybrid(side), execute(self.pair, Hybrid(side)))
            self._add(Hybrid(side), drift, time.monotonic() - began)
        return self._from_themselves[side]

    def verified(self, side: Side, values: Values, seconds: float) -> None:
        """Take over the values of a side that its verification has executed, with its own kernels, in this time."""
        self._verified[Hybrid(side)] = self._drift_of(Hybrid(side), values), seconds

    def _drift_of(self, hybrid: Hybrid, values: Values) -> Drift:
        drift, base = self.scorer.drift(values), hybrid.base
        if hybrid == Hybrid(base):
            self._from_themselves[base] = drift if base == "a" else self.scorers[base].drift(values)
        return drift

    def _add(self, hybrid: Hybrid, outcome: Drift | Infeasible, seconds: float) -> None:
        self.count += hybrid not in self._outcomes
        self.seconds += seconds
        self._outcomes[hybrid] = outcome

    def _executed(self, hybrid: Hybrid) -> tuple[Drift | Infeasible, float]:
        """Execute a hybrid, and return its outcome and the seconds that this took."""
        began = time.monotonic()
        outcome: Drift | Infeasible
        try:
            outcome = self._drift_of(hybrid, execute(self.pair, hybrid))
        except torch.OutOfMemoryError:
            raise
        except Exception as error:  # noqa: BLE001, an op may raise anything on values that are not its own
            outcome = Infeasible(in_words(error))
        return outcome, time.monotonic() - began

    def _drift(self, base: Side, causes: Sequence[Cause]) -> Drift:
        blocks = frozenset(block for cause in causes for block in cause.blocks)
        hybrid = Hybrid(base, blocks, frozenset(value for cause in causes for value in cause.inputs))
        if hybrid not in self._outcomes:
            self._add(hybrid, *(self._verified.pop(hybrid, None) or self._executed(hybrid)))
        outcome = self._outcomes[hybrid]
        if isinstance(outcome, Infeasible):
            raise outcome
        return outcome


def can_be_swapped(tests: HybridTests, causes: Sequence[Cause]) -> bool:
    """Check whether these causes can be swapped together, out of side b and into side a."""
    try:
        # swap out first: that is where an infeasible cause usually fails
        tests.swapped_out(causes)
        tests.swapped_in(causes)
    except Infeasible:
        return False
    return True
