"""The accuracy of two modes: which of them is nearer to the exact result, the same step computed in double.

    err_x = ||X - E||_2        E: the value in double, X: the value of mode A or B
    r = log2(max(err_b, f) / max(err_a, f))        f = u * ||E||_2 / 2

f is about the error of a correctly rounded result (half a unit roundoff u of the coarser dtype): neither side can be
better. r is computed for every floating value that differs between A and B, in all steps with a referee.

One side is called closer if one of these rules holds; otherwise both are called equal:

1. all values: the median of r is at least 1 in size (the typical error of one side is twice the other's), a two-sided
   sign test (W. J. Dixon and A. M. Mood, JASA 41, 1946) over the r that are not 0 has p < 0.01, and no single step has
   a median of the opposite sign that is at least 1 in size;
2. several steps: each of two or more steps has at least four values with |r| >= 0.25; in each step, nine in ten of
   these r have the same sign, and their median is at least 0.5 in size; and all steps favour the same side.

The values of one step share their causes, so the sign test alone would call chance differences significant, and a
median alone would rest on two or three values. For two orders of summation in a chain of 12 small layers, rule 1
wrongly called one order closer in less than 1 of 100 cases with one step, and rule 2 in none of 200 cases with three
steps. Rule 2 detects the effect of a single inaccurate kernel: such a kernel worsens some values of every step, and
does not change the other values.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..runs.mapped_tensors import TensorFile
from .norms import Norm, difference, is_floating
from .step_score import unit_roundoff

MEDIAN = 1.0
"""One side is closer if the median log2 ratio is at least this in size: a factor of 2."""

MATERIAL = 0.25
"""The errors of a value differ materially if r is at least this in size: they then differ by about a fifth."""

LEAST_MATERIAL = 4
ONE_SIDED = 0.9
"""The share of a step's materially different values that must favour the same side."""

SIGNIFICANCE = 0.01
"""The p below which the sign test is significant. If all values have the same sign, 8 values are needed."""


@dataclass(frozen=True, slots=True)
class StepErrors:
    """r of each value that differs between A and B in one step, keyed by the value's name.

    If a side is not finite, r is infinite or NaN and does not count.
    """

    step: int
    ratios: Mapping[str, float]

    @property
    def finite(self) -> list[float]:
        return [ratio for ratio in self.ratios.values() if math.isfinite(ratio)]

    @property
    def median(self) -> float | None:
        """The median r; None without values."""
        return statistics.median(self.finite) if self.finite else None


@dataclass(frozen=True, slots=True)
class Accuracy:
    """The side that is closer to the exact result: `a`, `b` or `equal`.

    median: the median of r over all steps, positive where A is closer; if rule 2 decides, only over the materially
        different values
    values: the number of values in the median
    significance: the p of the sign test over all values
    reference_worse: whether A, the reference, is less accurate by a factor of 2 or more
    """

    closer: str
    median: float
    values: int
    significance: float
    reference_worse: bool
    text: str


def step_errors(a: TensorFile, b: TensorFile, exact: TensorFile, step: int) -> StepErrors:
    """Measure the errors of both modes in one step against the same step in double."""
    ratios = {}
    for name, own in a.tensors.items():
        versions = [file.tensors.get(name) for file in (a, b, exact)]
        if all(version is not None and is_floating(version) and version.shape == own.shape for version in versions):
            ratios[name] = _ratio(name, a, b, exact)
    return StepErrors(step, {name: ratio for name, ratio in ratios.items() if ratio is not None})


def accuracy(steps: Sequence[StepErrors], a: str = "the reference", b: str = "the other mode") -> Accuracy | None:
    """Decide which side is closer over all steps. Return None if no value differs.

    `a` and `b` are the names of the sides.
    """
    ratios = [ratio for step in steps for ratio in step.finite]
    if not ratios:
        return None
    middle = statistics.median(ratios)
    significance = sign_test(sum(ratio > 0 for ratio in ratios), sum(ratio < 0 for ratio in ratios))
    sided = _side_of_every_step(steps)
    # If one step clearly favours the other side, the agreement of the values in the remaining steps counts as chance.
    opposed = any(math.copysign(1, middle) * (step.median or 0.0) <= -MEDIAN for step in steps)
    clear = abs(middle) >= MEDIAN and significance < SIGNIFICANCE and not opposed
    closer = ("a" if middle > 0 else "b") if clear else "equal"
    telling = ratios
    if closer == "equal" and sided:
        closer, telling = sided, [ratio for ratio in ratios if abs(ratio) >= MATERIAL]
        middle = statistics.median(telling)
    worse = closer == "b" and middle <= -MEDIAN
    text = _text(closer, middle, (len(telling), len(ratios)), a, b)
    return Accuracy(closer, middle, len(telling), significance, worse, text)


def _side_of_every_step(steps: Sequence[StepErrors]) -> str:
    """Return the side that is closer in each of several steps by the second rule, or "" if there is none."""
    sides = set()
    for step in steps:
        telling = [ratio for ratio in step.finite if abs(ratio) >= MATERIAL]
        if len(telling) < LEAST_MATERIAL or abs(statistics.median(telling)) < MEDIAN / 2:
            return ""
        closer_a = sum(ratio > 0 for ratio in telling)
        if max(closer_a, len(telling) - closer_a) < ONE_SIDED * len(telling):
            return ""
        sides.add("a" if 2 * closer_a > len(telling) else "b")
    return sides.pop() if len(steps) > 1 and len(sides) == 1 else ""


def sign_test(positive: int, negative: int) -> float:
    """Return the two-sided p of these numbers of positive and negative signs when both are equally likely.

    2 * sum_{i <= min} C(n, i) / 2**n, at most 1.
    """
    count, ways, tail = positive + negative, 1, 0
    for i in range(min(positive, negative) + 1):
        tail += ways
        ways = ways * (count - i) // (i + 1)
    return min(1.0, 2 * tail / int(2**count))


def _text(closer: str, middle: float, values: tuple[int, int], a: str, b: str) -> str:
    times, (telling, count) = 2.0 ** min(abs(middle), 1000.0), values
    if closer == "equal":
        judged = f"{count} value{'s' if count > 1 else ''}"
        return f"compared with the step in double, {a} and {b} are equally accurate, judged by {judged}"
    winner, loser = (a, b) if closer == "a" else (b, a)
    where = "" if telling == count else f"in {telling} of {count} values that differ, "
    text = (
        f"{winner} is closer to the step in double: {where}the typical error of {loser} is {times:.2g} times as large"
    )
    if closer == "b" and middle <= -MEDIAN:
        text += f"; so {a}, the reference, is the less accurate side"
    return text


def _ratio(name: str, a: TensorFile, b: TensorFile, exact: TensorFile) -> float | None:
    """Return r of a value; None if it is the same on both sides."""
    left, right, true = (file.tensors[name] for file in (a, b, exact))
    if not difference(left, right).differing:
        return None
    difference_a, difference_b = difference(true, left), difference(true, right)
    if not (difference_a.same_places and difference_b.same_places):
        return math.nan
    # Half a unit roundoff is the error of a correctly rounded result: neither side can be better.
    lowest = _log2(difference_a.norm) + math.log2(unit_roundoff(name, a, b) / 2)
    error_a, error_b = (max(_log2(side.distance), lowest) for side in (difference_a, difference_b))
    return error_b - error_a if error_b != error_a else 0.0


def _log2(norm: Norm) -> float:
    return math.log2(norm.mantissa) + norm.exponent if norm.mantissa else -math.inf
