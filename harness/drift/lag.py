"""A paired test, over seeds, of whether one mode needs more steps than another to reach the same loss.

With t_X(v) the number of steps until the running minimum of X's loss is <= v, the lag of seed s is

    tau_s = mean over v of (t_B(v) - t_A(v)) / t_A(v)

over 20 losses v, evenly spaced on a logarithmic scale, from just below both first losses down to the lowest loss that
both runs reach. The test over the seeds is Wilcoxon's signed-rank test: two-sided, without the seeds whose lag is 0,
and exact (over all signs of the ranks that occurred; equal |tau| share the mean of their ranks). The test's p is
multiplied by the number of comparisons (Bonferroni).

Seeds whose lag is 0 are evidence for neither side: when they counted as "not worse", a pure tie had p = 0.006.
Source: F. Wilcoxon, Individual Comparisons by Ranking Methods, Biometrics Bulletin 1(6), 1945.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .loss_distance import Floats, LossSeries, Steps

LEVELS = 20
"""The number of losses at which the steps are counted."""

SEEDS = 10
"""The number of paired seeds that a claim needs."""

SIGNIFICANCE = 0.05
"""A corrected p below this is significant."""


@dataclass(frozen=True, slots=True)
class LagTest:
    """The result of the test of whether B needs more (or fewer) steps than A to reach the same loss.

    seeds: the number of seeds compared; those without a loss that both runs reach are left out.
    lags: the lag of each of these seeds; 0.003 means 0.3 % more steps.
    later, earlier: the number of lags above and below 0.
    median_lag: the median of all lags, zeros included; None without lags.
    p, p_corrected: the p before and after the correction for several comparisons.
    significant: whether p_corrected is below 0.05 and there are at least 10 seeds.
    """

    seeds: int
    lags: tuple[float, ...]
    later: int
    earlier: int
    median_lag: float | None
    p: float
    p_corrected: float
    significant: bool
    text: str


def lag_test(pairs: Sequence[tuple[LossSeries, LossSeries]], *, mode: str, comparisons: int = 1) -> LagTest:
    """Test for a systematic lag.

    pairs: the losses of A and of B, for each seed.
    mode: the name of B in the text.
    comparisons: the number of tests like this one, by which the p of each is multiplied.
    """
    if comparisons < 1:
        raise ValueError(f"comparisons must be at least 1, not {comparisons}")
    lag_of_seeds = [relative_lag(a, b) for a, b in pairs]
    lags = tuple(lag for lag in lag_of_seeds if lag is not None)
    later, earlier = sum(lag > 0 for lag in lags), sum(lag < 0 for lag in lags)
    p = signed_rank_p(lags)
    corrected = min(1.0, p * comparisons)
    median = float(np.median(lags)) if lags else None
    significant = corrected < SIGNIFICANCE and len(lags) >= SEEDS
    counts = f"{_seeds(len(lags))}: {later} later, {earlier} earlier, {len(lags) - later - earlier} equal"
    after = f" after correction for {comparisons} comparisons" if comparisons > 1 else ""
    evidence = f"{counts}; p = {corrected:.2g}{after}"
    slower = later > earlier
    if median is None:
        text = f"no lag can be computed for {mode}: no seed has a loss that both runs reach"
    elif not significant:
        steps = f"{_percent(median)} steps" if median else "as many steps"
        text = f"no systematic lag: {mode} needs {steps} to reach the same loss ({evidence})"
    elif median == 0:
        change, lag = ("more", "lag") if slower else ("fewer", "lead")
        text = (
            f"{mode} needs {change} steps to reach the same loss, although the median is 0 ({evidence}): "
            f"a systematic {lag}"
        )
    else:
        lag = "lag" if median > 0 else "lead"
        text = f"{mode} needs {_percent(median)} steps to reach the same loss ({evidence}): a systematic {lag}"
    # Facts that weaken the test
    left_out = len(pairs) - len(lags)
    seeds = len(lags)
    unequal = later + earlier
    doubts = ""
    if left_out:
        doubts += f"; {_seeds(left_out)} left out, because their runs share no range of losses"
    least = 2 * 2.0**-unequal * comparisons
    if 0 < seeds < SEEDS:
        doubts += f"; a claim needs at least {SEEDS} seeds"
    elif unequal and least >= SIGNIFICANCE:
        doubts += f"; {_seeds(unequal)} that differ cannot prove a lag, even if all agree: more seeds are needed"
    text += doubts
    return LagTest(len(lags), lags, later, earlier, median, p, corrected, significant, text)


def relative_lag(a: LossSeries, b: LossSeries) -> float | None:
    """Return tau of one seed; None if there is no range of losses that both runs pass through.

    If that range includes zero or negative losses, the losses v are spaced evenly on a linear scale.
    """
    (count_a, best_a), (count_b, best_b) = _progress(a), _progress(b)
    if not (best_a.size and best_b.size):
        return None
    high, low = min(best_a[0], best_b[0]), max(best_a[-1], best_b[-1])
    if not low < high:
        return None
    spaced = np.geomspace if low > 0 else np.linspace
    levels = np.maximum(spaced(high, low, LEVELS + 1)[1:], low)
    t_a, t_b = _steps_to(levels, count_a, best_a), _steps_to(levels, count_b, best_b)
    return float(np.mean((t_b - t_a) / t_a))


def signed_rank_p(differences: Sequence[float]) -> float:
    """Return the exact two-sided p of Wilcoxon's signed-rank test on the non-zero differences; 1 if there are none.

    Under the null hypothesis each rank is positive or negative with probability 1/2. Differences of equal size share
    the mean of their ranks, so twice a rank is a whole number. The distribution of the sum over the positive ranks is
    built up rank by rank.
    """
    values = np.array([value for value in differences if value != 0], dtype=np.float64)
    if not values.size:
        return 1.0
    # Twice the ranks, which are counted from 1; ties share the mean of their ranks
    sizes = np.abs(values)
    ordered = np.sort(sizes)
    first = np.searchsorted(ordered, sizes, "left")
    last = np.searchsorted(ordered, sizes, "right")
    doubled = (first + last + 1).astype(np.int64)
    total = int(doubled.sum())
    chances = np.zeros(total + 1)
    chances[0] = 1.0
    for rank in doubled:  # either the rank is positive and added to the sum, or it is negative
        moved = np.zeros_like(chances)
        moved[rank:] = chances[: total + 1 - rank]
        chances = (chances + moved) / 2
    positive = int(doubled[values > 0].sum())
    smaller = min(positive, total - positive)
    return min(1.0, 2 * float(chances[: smaller + 1].sum()))


def _progress(series: LossSeries) -> tuple[Steps, Floats]:
    """Return, for each finite loss, the number of steps up to that loss (at least 1) and the lowest loss so far."""
    steps, losses = series.recorded()
    finite = np.isfinite(losses)
    counted = steps[finite] - (steps[0] if steps.size else 0) + 1
    return counted, np.minimum.accumulate(losses[finite])


def _steps_to(levels: Floats, counted: Steps, best: Floats) -> Steps:
    """Return t(v) for each level v; no level is below the lowest loss reached."""
    return counted[np.searchsorted(-best, -levels, "left")]


def _percent(lag: float) -> str:
    return f"{abs(100 * lag):.2g} % {'more' if lag >= 0 else 'fewer'}"


def _seeds(count: int) -> str:
    return "1 seed" if count == 1 else f"{count} seeds"
