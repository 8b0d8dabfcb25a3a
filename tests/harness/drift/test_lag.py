from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from numdrift.harness.drift.lag import LagTest, lag_test, relative_lag, signed_rank_p
from numdrift.harness.drift.loss_distance import LossSeries

Losses = Sequence[float | None]


def series(losses: Losses) -> LossSeries:
    return LossSeries(range(len(losses)), losses)


def decay(slower: float = 1.0, *, start: float = 1.0, steps: int = 1000) -> LossSeries:
    """A loss that falls by a factor of e in 200 steps, or in `slower` times as many."""
    return series([start * math.exp(-step / 200 / slower) for step in range(steps)])


def lag_of(slower: Sequence[float], *, comparisons: int = 1, steps: int = 1000) -> LagTest:
    """Seeds of which B is so many times slower than A; each seed has a first loss of its own."""
    pairs = [
        (decay(start=1 + seed / 10, steps=steps), decay(one, start=1 + seed / 10, steps=steps))
        for seed, one in enumerate(slower)
    ]
    return lag_test(pairs, mode="compile", comparisons=comparisons)


def by_enumeration(differences: Sequence[float]) -> float:
    """The definition: over all signs of the mean ranks, how often is the smaller sum not larger than this one."""
    values = [one for one in differences if one != 0]
    sizes = [abs(one) for one in values]
    ranks = [sum(b < a for b in sizes) + (sum(b == a for b in sizes) + 1) / 2 for a in sizes]

    def smaller(signs: Sequence[bool]) -> float:
        positive = sum(rank for rank, sign in zip(ranks, signs, strict=True) if sign)
        return min(positive, sum(ranks) - positive)

    ours = smaller([one > 0 for one in values])
    every = [smaller(signs) <= ours for signs in itertools.product([True, False], repeat=len(values))]
    return sum(every) / len(every)


@given(st.lists(st.integers(-4, 4).map(float), max_size=9))
def test_p_is_that_of_the_definition_with_ties_and_zeros(differences: list[float]) -> None:
    assert signed_rank_p(differences) == pytest.approx(by_enumeration(differences))


@pytest.mark.parametrize(
    ("differences", "p"),
    [
        ([1, 2, 3, 4, 5], 0.0625),
        ([1, 2, 3, 4, 5, 6], 0.03125),
        # Wilcoxon's table: 8 pairs, a rank sum of 3
        ([-1, -2, 3, 4, 5, 6, 7, 8], 10 / 256),
        ([], 1.0),
        ([0.0, 0.0], 1.0),
    ],
)
def test_p_of_known_cases(differences: list[float], p: float) -> None:
    assert signed_rank_p(differences) == pytest.approx(p)


def test_p_of_many_seeds_is_near_the_normal_approximation() -> None:
    # given 60 differences with a small positive mean
    values = np.random.default_rng(0).normal(0.3, 1, 60)
    ranks = np.argsort(np.argsort(np.abs(values))) + 1
    mean, deviation = 60 * 61 / 4, math.sqrt(60 * 61 * 121 / 24)
    z = abs(ranks[values > 0].sum() - mean) / deviation
    assert signed_rank_p(values.tolist()) == pytest.approx(math.erfc(z / math.sqrt(2)), rel=0.2)


def test_the_lag_is_the_share_of_additional_steps() -> None:
    lag = relative_lag(decay(steps=4000), decay(1.05, steps=4000))
    assert lag == pytest.approx(0.05, abs=0.005)
    back = relative_lag(decay(1.05, steps=4000), decay(steps=4000))
    assert back == pytest.approx(1 / 1.05 - 1, abs=0.005)


def test_levels_run_over_the_range_that_both_reach_and_steps_are_counted_from_one() -> None:
    # given B halving its loss every second step, where A does every step
    a = series([2.0**-step for step in range(9)])
    b = series([2.0 ** -(step // 2) for step in range(9)])
    # then: B reaches 2^-4, t_A(v) = k + 1, t_B(v) = 2 k + 1 for v in [2^-k, 2^-(k-1)), 5 levels for each k
    assert relative_lag(a, b) == pytest.approx(np.mean([k / (k + 1) for k in (1, 2, 3, 4)]), abs=0.01)


def by_definition(a: Losses, b: Losses) -> float | None:
    """tau, step by step, of losses that are all positive; the first step is number 1."""

    def first_at_most(losses: Losses, level: float) -> int:
        reached = (number for number, one in enumerate(losses, 1) if one is not None and one <= level)
        return next(reached)

    (high, low), (high_b, low_b) = [
        (finite[0], min(finite))
        for finite in [[one for one in losses if one is not None and math.isfinite(one)] for losses in (a, b)]
    ]
    high, low = min(high, high_b), max(low, low_b)
    levels = [max(float(level), low) for level in np.geomspace(high, low, 21)[1:]]
    pairs = [(first_at_most(a, level), first_at_most(b, level)) for level in levels]
    return sum((t_b - t_a) / t_a for t_a, t_b in pairs) / 20 if low < high else None


def test_it_is_the_running_minimum_that_counts() -> None:
    smooth = [1.0, 0.8, 0.6, 0.4, 0.2]
    jumps = [1.0, 0.8, 5.0, math.nan, 0.3, None, 0.7, 0.2]
    assert relative_lag(series(smooth), series(jumps)) == pytest.approx(by_definition(smooth, jumps))
    assert relative_lag(series(jumps), series(jumps)) == 0


positive = st.lists(st.one_of(st.floats(0.01, 10), st.just(math.nan)), min_size=1, max_size=12)


@given(positive, positive, st.floats(0.01, 10), st.floats(0.01, 10))
def test_the_lag_is_that_of_the_definition(a: list[float], b: list[float], first: float, other: float) -> None:
    left, right = [first, *a], [other, *b]
    lag, expected = relative_lag(series(left), series(right)), by_definition(left, right)
    assert lag == (None if expected is None else pytest.approx(expected))


def test_losses_of_zero_and_below_are_spaced_evenly() -> None:
    a = series([2.0, 1.0, 0.0, -1.0, -2.0])
    b = LossSeries([0, 2, 4, 6, 8], [2.0, 1.0, 0.0, -1.0, -2.0])
    assert relative_lag(a, b) == pytest.approx(np.mean([1 / 2, 2 / 3, 3 / 4, 4 / 5]))


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ([], [1.0]),
        ([None, math.nan], [1.0, 0.5]),
        ([1.0, 2.0], [1.0, 0.5]),
        ([1.0, 0.9], [0.5, 0.4]),
    ],
)
def test_without_a_common_range_there_is_no_lag(a: Losses, b: Losses) -> None:
    assert relative_lag(series(a), series(b)) is None


def test_a_systematic_lag_is_found_and_said() -> None:
    found = lag_of([1.03, 1.02, 1.04, 1.025, 1.035, 1.03, 1.02, 1.04, 1.03, 1.02, 1.05, 1.03])
    assert found.significant
    assert (found.seeds, found.later, found.earlier) == (12, 12, 0)
    assert found.p == found.p_corrected == pytest.approx(2 / 2**12)
    assert found.median_lag == pytest.approx(0.03, abs=0.005)
    assert found.text == (
        "compile needs 3 % more steps to reach the same loss (12 seeds: 12 later, 0 earlier, 0 equal; p = 0.00049): "
        "a systematic lag"
    )


def test_a_mode_that_is_ahead_is_not_called_lagging() -> None:
    found = lag_of([0.97] * 6 + [0.96] * 6)
    assert found.significant and found.median_lag is not None and found.median_lag < 0
    assert "fewer steps" in found.text and found.text.endswith("a systematic lead")


def test_seeds_without_lag_are_no_evidence() -> None:
    """11 of 12 seeds are "not worse", a sign test of which gives p = 0.006; 9 of them are ties."""
    found = lag_of([1.02, 1.03] + [1.0] * 9 + [0.99])
    assert math.comb(12, 0) + math.comb(12, 1) == 13 and 2 * 13 / 2**12 < 0.01  # what the ties would prove
    assert not found.significant
    assert found.p == pytest.approx(0.5)
    assert found.median_lag == 0
    assert "3 seeds that differ cannot prove a lag" in found.text


def test_a_run_against_itself_is_no_lag() -> None:
    found = lag_of([1.0] * 12)
    assert (found.p, found.median_lag, found.significant) == (1.0, 0.0, False)
    assert found.text == (
        "no systematic lag: compile needs as many steps to reach the same loss "
        "(12 seeds: 0 later, 0 earlier, 12 equal; p = 1)"
    )


def test_one_of_several_comparisons_needs_more() -> None:
    """A control that was changed by one ULP only once gave p = 0.012: with 8 comparisons that is nothing."""
    slower = [1.03, 1.04, 1.05, 1.06, 1.07, 1.08, 1.09, 1.10, 1.11, 0.985, 0.975, 0.965]
    single, several = lag_of(slower), lag_of(slower, comparisons=8)
    assert 0.006 < single.p < 0.05 and single.significant
    assert several.p_corrected == pytest.approx(8 * single.p)
    assert not several.significant
    assert "after correction for 8 comparisons" in several.text


def test_controls_of_rounding_alone_are_rarely_called_significant() -> None:
    # given 200 controls of 12 seeds; the seeds differ by symmetric jitter, and a third of them by nothing
    random = np.random.default_rng(1)
    found = 0
    for _ in range(200):
        jitter = random.normal(0, 0.02, 12) * (random.random(12) > 1 / 3)
        found += lag_of((1 + jitter).tolist(), steps=300).significant
    # then 5 % are expected at most, and 20 of 200 has a chance below 0.002
    assert found < 20


@pytest.mark.parametrize("seeds", [1, 6, 9])
def test_few_seeds_prove_nothing_and_that_is_said(seeds: int) -> None:
    found = lag_of([1.03] * seeds)
    assert not found.significant
    assert "a claim needs at least 10 seeds" in found.text


def test_seeds_that_cannot_be_compared_are_left_out_and_counted() -> None:
    pairs = [(decay(), decay(1.02))] * 10 + [(decay(), series([math.nan]))]
    found = lag_test(pairs, mode="lazy")
    assert found.seeds == 10 and found.significant
    assert "1 seed left out" in found.text
    nothing = lag_test([], mode="lazy")
    assert (nothing.seeds, nothing.median_lag, nothing.p, nothing.significant) == (0, None, 1.0, False)
    assert nothing.text.startswith("no lag can be computed for lazy")


def test_comparisons_are_at_least_one() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        lag_test([], mode="lazy", comparisons=0)


@given(st.lists(st.floats(0.001, 10), min_size=2, max_size=30), st.data())
def test_swapping_the_sides_turns_the_lag_around(losses: list[float], data: st.DataObject) -> None:
    other = data.draw(st.lists(st.floats(0.001, 10), min_size=2, max_size=30))
    lag, back = relative_lag(series(losses), series(other)), relative_lag(series(other), series(losses))
    assert (lag is None) == (back is None)
    if lag is not None and back is not None:
        # with r = t_B / t_A at each level: the mean of r - 1 + 1 / r - 1, which is never negative
        assert lag + back >= -1e-12
