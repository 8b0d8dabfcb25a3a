"""The envelope of a loss curve: how far rounding alone moves the loss, and whether a run stays within that distance.

The reference A is run N more times with its initial parameters changed by one unit in the last place (ULP). With u the
unit roundoff of the loss's dtype:

    e(t) = |L_A(t)| * max( max over s <= t and i of |L_i(s) - L_A(s)| / |L_A(s)|, 2 u )        the envelope
    R(t) = |L_B(t) - L_A(t)| / e(t)                                               the ratio
    horizon = first t with e(t) / |L_A(t)| > 0.01        onset = first t before the horizon with R(t) > 3

Deviations are relative to the loss of their own step. An absolute envelope would keep the width of the first steps
while the loss falls, and hide later deviations. (Measured on a tanh MLP under SAM: with absolute deviations a bfloat16
kernel reached R = 4 and one-ULP changes 1.0; with relative deviations they reached 39 and 1.7.)

Steps from the horizon on are not judged: the script is chaotic then, and R saturates. The factor 3 with N = 8 detected
92 % of planted faults and flagged none of 65 harmless variants. A test of single steps is more sensitive; the envelope
is easier for people to read. Where L_A is zero or not finite, the last finite non-zero |L_A| before that step is used
in place of |L_A|.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .loss_distance import Floats, LossSeries, Steps, absolute_difference
from .step_score import UNIT_ROUNDOFF

FACTOR = 3.0
"""A ratio above this is outside of the envelope."""

CHAOS = 1e-2
"""The horizon is the first step at which the envelope is wider than this share of the loss. Only steps before it are
judged."""

MEMBERS = 8
"""The default number of perturbed runs. With 3 or 4, about 2 % of harmless variants leave the envelope."""


@dataclass(frozen=True, slots=True, eq=False)
class Envelope:
    """A run compared with the envelope of its reference, at the steps where both have a loss.

    envelope: e(t); NaN after the end of the last perturbed run, where it is unknown.
    ratio: R(t), including the steps from the horizon on; NaN where it is unknown.
    onset, horizon: step numbers; None if there is none.
    worst_ratio, worst_step: the largest ratio before the horizon; None if no step can be judged.
    members: the number of perturbed runs that form the envelope, 0 if it is not known.
    """

    steps: Steps
    reference: Floats
    run: Floats
    envelope: Floats
    ratio: Floats
    onset: int | None
    horizon: int | None
    worst_ratio: float | None
    worst_step: int | None
    members: int

    @property
    def judged(self) -> Steps:
        """The steps that are judged: those before the horizon at which the envelope is known."""
        steps: Steps = self.steps[_judged(self.steps, self.ratio, self.horizon)]
        return steps

    @property
    def relative(self) -> Floats:
        """e(t) / |L_A(t)|."""
        return _divided(self.envelope, _scale(self.reference))

    @property
    def difference(self) -> Floats:
        """|L_B(t) - L_A(t)| / |L_A(t)|."""
        return _divided(absolute_difference(self.run, self.reference), _scale(self.reference))

    def words(self, mode: str) -> str:
        """Describe how the run relates to the envelope; `mode` names the run."""
        if not self.steps.size:
            return f"no step has a loss in both {mode} and its reference"
        sentences, judged, onset = [], self.judged, self.onset
        if judged.size and onset is None:
            moved = float(np.max(self.relative[np.isin(self.steps, judged)], initial=0.0))
            sentences.append(
                f"up to step {int(judged[-1])}, a one-ULP change of the initial parameters moves the loss by at most "
                f"{moved:.2g} of its value; {mode} stays inside this envelope"
            )
        elif judged.size and onset is not None:
            place = int(np.searchsorted(self.steps, onset))
            ratio, loss = float(self.ratio[place]), float(self.run[place])
            leaves = f"{mode} leaves the envelope at step {onset}"
            if not np.isfinite(ratio):
                sentences.append(f"{leaves}: its loss is {loss:.6g}, the reference's {self.reference[place]:.6g}")
            elif self.worst_ratio is not None and self.worst_ratio > ratio:
                sentences.append(
                    f"{leaves}: its deviation is {ratio:.3g} times the envelope ({self.worst_ratio:.3g} times at "
                    f"step {self.worst_step})"
                )
            else:
                sentences.append(f"{leaves}: its deviation is {ratio:.3g} times the envelope")
        # Say where judging ends, and why.
        covered = self.steps[~np.isnan(self.ratio)]
        if self.horizon is not None and not judged.size:
            sentences.append(f"from the first step on, this script cannot distinguish {mode} from a one-ULP change")
        elif self.horizon is not None and onset is not None:
            sentences.append(
                f"from step {self.horizon} on, a one-ULP change alone moves the loss by more than {100 * CHAOS:g} %, "
                "so these steps are not judged"
            )
        elif self.horizon is not None:
            sentences.append(f"after step {judged[-1]}, this script cannot distinguish {mode} from a one-ULP change")
        elif not covered.size:
            sentences.append(f"no perturbed run has a loss at a step of {mode}, so nothing is judged")
        elif covered[-1] < self.steps[-1]:
            sentences.append(f"later steps are not judged: the perturbed runs end at step {covered[-1]}")
        if 0 < self.members < MEMBERS:
            runs = "1 perturbed run" if self.members == 1 else f"{self.members} perturbed runs"
            sentences.append(f"the envelope comes from only {runs} (the default is {MEMBERS})")
        return "; ".join(sentences)

    def to_json(self) -> dict[str, object]:
        """Return the fields as plain values, with None where the envelope is unknown."""
        return {
            "horizon": self.horizon,
            "onset": self.onset,
            "worst_ratio": self.worst_ratio,
            "worst_step": self.worst_step,
            "members": self.members,
            "steps": self.steps.tolist(),
            "reference": self.reference.tolist(),
            "run": self.run.tolist(),
            "envelope": [None if np.isnan(value) else value for value in self.envelope.tolist()],
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Envelope:
        """Read the result of `to_json`; numbers may be strings, such as "inf".

        Raises KeyError, TypeError or ValueError for anything else.
        """
        steps = np.array([int(step) for step in data["steps"]], dtype=np.int64)
        reference, run = _floats(data["reference"]), _floats(data["run"])
        envelope = _floats(data["envelope"])
        if not steps.size == reference.size == run.size == envelope.size:
            raise ValueError("steps, reference, run and envelope have different lengths")
        if (np.diff(steps) <= 0).any():
            raise ValueError("steps do not increase")
        onset, horizon = (None if data[name] is None else int(data[name]) for name in ("onset", "horizon"))
        ratio = _ratio(reference, run, envelope)
        worst = _worst(steps, ratio, horizon)
        return cls(steps, reference, run, envelope, ratio, onset, horizon, *worst, int(data.get("members") or 0))


def loss_envelope(
    reference: LossSeries, run: LossSeries, perturbed: Sequence[LossSeries], *, dtype: str = "float32"
) -> Envelope:
    """Compare a run with the envelope of its reference.

    perturbed: runs of the reference with initial parameters changed by one ULP. They may end early or lack losses. A
        run with a non-finite loss where the reference has a finite one (or the reverse) makes the envelope infinite.
    dtype: the dtype of the loss, a name in `UNIT_ROUNDOFF`.

    Raises ValueError if `UNIT_ROUNDOFF` lacks the dtype, or if there is no perturbed run.
    """
    if not perturbed:
        raise ValueError("an envelope needs at least one perturbed run of the reference")
    if dtype not in UNIT_ROUNDOFF:
        raise ValueError(f"no unit roundoff is known for {dtype} (known: {', '.join(UNIT_ROUNDOFF)})")
    steps_a, a = reference.recorded()
    steps_b, b = run.recorded()
    # The largest relative deviation of any perturbed run up to each step, and the last step that a perturbed run
    # reached
    scale, widest, end = _scale(a), np.zeros(steps_a.size), -1
    for series in perturbed:
        own, losses = series.recorded()
        _, at_a, at_own = np.intersect1d(steps_a, own, assume_unique=True, return_indices=True)
        deviation = _divided(absolute_difference(a[at_a], losses[at_own]), scale[at_a])
        widest[at_a] = np.maximum(widest[at_a], deviation)
        end = max(end, int(own[-1])) if own.size else end
    widest = np.maximum.accumulate(widest)
    steps, in_a, in_b = np.intersect1d(steps_a, steps_b, assume_unique=True, return_indices=True)
    # 0 * inf = inf here: an infinite envelope stays infinite.
    widest = np.maximum(widest, 2 * UNIT_ROUNDOFF[dtype])
    with np.errstate(invalid="ignore", over="ignore"):
        envelope = np.where(np.isinf(widest), np.inf, scale * widest)[in_a]
    envelope[steps > end] = np.nan
    beyond = np.flatnonzero(_divided(envelope, scale[in_a]) > CHAOS)
    horizon = int(steps[beyond[0]]) if beyond.size else None
    ratio = _ratio(a[in_a], b[in_b], envelope)
    outside = np.flatnonzero(_judged(steps, ratio, horizon) & (ratio > FACTOR))
    onset = int(steps[outside[0]]) if outside.size else None
    worst = _worst(steps, ratio, horizon)
    return Envelope(steps, a[in_a], b[in_b], envelope, ratio, onset, horizon, *worst, len(perturbed))


def _scale(losses: Floats) -> Floats:
    """Return |L| at each step.

    Where |L| is zero or not finite, return the last usable |L| before that step, or 0 if there is none.
    """
    size = np.abs(losses)
    usable = np.isfinite(size) & (size > 0)
    last = np.maximum.accumulate(np.where(usable, np.arange(size.size), -1))
    return np.where(last >= 0, size[last], 0.0) if size.size else size


def _ratio(reference: Floats, run: Floats, envelope: Floats) -> Floats:
    ratio = _divided(absolute_difference(run, reference), envelope)
    return np.where(np.isnan(envelope), np.nan, ratio)


def _divided(a: Floats, b: Floats) -> Floats:
    """Return a / b for non-negative numbers, with 0 / 0 = 0 and x / inf = 0 for every x."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        return np.where((a == 0) | np.isinf(b), 0.0, a / b)


def _judged(steps: Steps, ratio: Floats, horizon: int | None) -> NDArray[np.bool_]:
    before = np.ones(steps.size, np.bool_) if horizon is None else steps < horizon
    return np.asarray(before & ~np.isnan(ratio), np.bool_)


def _worst(steps: Steps, ratio: Floats, horizon: int | None) -> tuple[float | None, int | None]:
    judged = _judged(steps, ratio, horizon)
    if not judged.any():
        return None, None
    place = int(np.argmax(np.where(judged, ratio, -1.0)))
    return float(ratio[place]), int(steps[place])


def _floats(values: Sequence[Any]) -> Floats:
    return np.array([np.nan if value is None else float(value) for value in values], dtype=np.float64)
