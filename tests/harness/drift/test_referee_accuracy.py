from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from numdrift.harness.drift.referee_accuracy import StepErrors, accuracy, sign_test, step_errors
from numdrift.harness.runs.mapped_tensors import TensorFile

from .recordings import Array, tensors

KNOWN = [(8, 0, 2 / 256), (0, 8, 2 / 256), (5, 5, 1.0), (0, 0, 1.0), (9, 1, 22 / 1024)]


@pytest.mark.parametrize(("positive", "negative", "p"), KNOWN)
def test_sign_test_known_values(positive: int, negative: int, p: float) -> None:
    assert sign_test(positive, negative) == pytest.approx(p)


@given(st.integers(0, 200), st.integers(0, 200))
def test_sign_test_sums_the_tails_of_the_binomial(positive: int, negative: int) -> None:
    count = positive + negative
    far = [k for k in range(count + 1) if abs(2 * k - count) >= abs(positive - negative)]
    expected = math.fsum(math.exp(math.lgamma(count + 1) - math.lgamma(k + 1) - math.lgamma(count - k + 1)
                                  - count * math.log(2)) for k in far)  # fmt: skip
    assert sign_test(positive, negative) == pytest.approx(min(1.0, expected), rel=1e-9)


def test_errors_agree_with_numpy() -> None:
    # given
    rng = np.random.default_rng(0)
    exact = rng.normal(size=100)
    a = (exact + rng.normal(size=100) * 1e-5).astype(np.float32)
    b = (exact + rng.normal(size=100) * 4e-5).astype(np.float32)
    # when
    files = [tensors({"gradient 0 w": one}) for one in (a, b, exact)]
    step = step_errors(files[0], files[1], files[2], 2)
    # then
    errors = np.array([np.linalg.norm(one - exact) for one in (a, b)])
    assert step.step == 2
    assert step.ratios == {"gradient 0 w": pytest.approx(np.log2(errors[1] / errors[0]))}


def test_below_the_rounding_of_the_result_nobody_is_better() -> None:
    # given a correctly rounded value and one that is off by one ULP, of a number that float32 holds
    exact = np.ones(50)
    near = np.ones(50, np.float32)
    far = np.nextafter(near, np.float32(2))
    ratio = _ratio(near, far, exact)
    # then the floor, not zero, stands for the error of the exact one: 2u against u / 2
    assert ratio == pytest.approx(2.0)
    assert _ratio(far, near, exact) == -ratio
    assert _ratio(far, np.nextafter(near, np.float32(0)), exact) == pytest.approx(-1.0)


def _ratio(a: Array, b: Array, exact: Array) -> float:
    files = [tensors({"loss 0": one}) for one in (a, b, exact)]
    (ratio,) = step_errors(files[0], files[1], files[2], 0).ratios.values()
    return ratio


def test_what_is_not_compared() -> None:
    # given values that are equal, integers, of another shape, or lacking in double
    a = tensors({"same": [1.0], "n": np.array([1]), "shape": [1.0], "lacking": [1.0], "nan": [math.nan, 1.0]})
    b = tensors({"same": [1.0], "n": np.array([2]), "shape": [2.0], "lacking": [2.0], "nan": [1.0, 1.0]})
    exact = tensors({"same": [2.0], "n": np.array([3]), "shape": [1.0, 2.0], "nan": [1.0, 1.0]})
    # when
    step = step_errors(a, b, exact, 0)
    # then
    assert step.ratios.keys() == {"nan"} and math.isnan(step.ratios["nan"])
    assert accuracy([step]) is None


def steps(*ratios: Sequence[float]) -> list[StepErrors]:
    return [
        StepErrors(number, {f"w{place}": ratio for place, ratio in enumerate(of_step)})
        for number, of_step in enumerate(ratios)
    ]


@pytest.mark.parametrize(
    ("ratios", "closer", "worse"),
    [
        ([[3.0] * 10], "a", False),
        ([[-3.0] * 10], "b", True),
        ([[-0.7] * 10], "equal", False),  # 1.6 times
        ([[0.3] * 100], "equal", False),  # significant, and nobody cares
        ([[3.0] * 7], "equal", False),  # seven coins fall on one side now and then
        ([[5.0] * 10 + [-1.0] * 6], "equal", False),
        ([[3.0] * 40, [-3.0] * 8], "equal", False),  # the steps contradict each other
        ([[3.0] * 40, [-0.1] * 8], "a", False),
        ([[0.0] * 50], "equal", False),
        ([[-2.0] * 10 + [math.nan]], "b", True),
        ([[1.2] * 5 + [0.0] * 9] * 3, "a", False),  # one kernel of many, in every step
        ([[-1.2] * 5 + [0.0] * 9] * 2, "b", True),
        ([[-0.7] * 5 + [0.0] * 9] * 2, "b", False),  # 1.6 times
        ([[1.2] * 5 + [0.0] * 9, [-1.2] * 5 + [0.0] * 9], "equal", False),
        ([[1.2] * 5 + [0.0] * 9, [0.1] * 14], "equal", False),  # the second step says nothing
        ([[1.2] * 3 + [0.0] * 9] * 3, "equal", False),  # too few values
        ([[1.2] * 5 + [-0.5] + [0.0] * 9] * 3, "equal", False),  # not one-sided
    ],
)
def test_the_rule(ratios: list[list[float]], closer: str, worse: bool) -> None:
    found = accuracy(steps(*ratios), "cpu", "compile")
    assert found is not None
    assert (found.closer, found.reference_worse) == (closer, worse)
    assert ("equally accurate" in found.text) == (closer == "equal")
    assert ("cpu, the reference, is the less accurate side" in found.text) == worse


@given(st.lists(st.lists(st.floats(-20, 20), min_size=1, max_size=12), min_size=1, max_size=4))
def test_exchanging_the_sides_exchanges_the_answer(ratios: list[list[float]]) -> None:
    here = accuracy(steps(*ratios))
    there = accuracy(steps(*([-one for one in step] for step in ratios)))
    assert here is not None
    assert there is not None
    assert {"a": "b", "b": "a", "equal": "equal"}[here.closer] == there.closer


def test_two_roundings_of_one_step_are_equally_accurate() -> None:
    # given a chain of layers, computed in float32 in two orders of summation
    wrong = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        weights, x = [rng.normal(size=(24, 24)) / 5 for _ in range(12)], rng.normal(size=24)
        exact, a, b = (_chain(weights, x, how) for how in ("exact", "forward", "backward"))
        found = accuracy([step_errors(a, b, exact, 0)])
        wrong += found is not None and found.closer != "equal"
    # then a side is seldom called closer by chance
    assert wrong <= 2


def test_two_roundings_of_several_steps_are_equally_accurate() -> None:
    wrong = 0
    for seed in range(0, 600, 3):
        measured = []
        for step in range(3):
            rng = np.random.default_rng(seed + step)
            weights, x = [rng.normal(size=(24, 24)) / 5 for _ in range(12)], rng.normal(size=24)
            exact, a, b = (_chain(weights, x, how) for how in ("exact", "forward", "backward"))
            measured.append(step_errors(a, b, exact, step))
        found = accuracy(measured)
        wrong += found is not None and found.closer != "equal"
    assert wrong <= 2, wrong


def test_a_coarser_kernel_is_the_less_accurate_side() -> None:
    rng = np.random.default_rng(0)
    weights, x = [rng.normal(size=(24, 24)) / 5 for _ in range(12)], rng.normal(size=24)
    exact, a, b = (_chain(weights, x, how) for how in ("exact", "coarse", "forward"))
    found = accuracy([step_errors(a, b, exact, 0)], "cpu", "compile")
    assert found is not None
    assert (found.closer, found.reference_worse) == ("b", True)
    assert "so cpu, the reference, is the less accurate side" in found.text


def _chain(weights: Sequence[Array], x: Array, how: str) -> TensorFile:
    """Layers of tanh; every layer's output is one value of the step."""
    dtype = np.dtype(np.float64 if how == "exact" else np.float32)
    order = slice(None, None, -1) if how == "backward" else slice(None)
    values, found = x.astype(np.float32).astype(dtype), {}
    for number, weight in enumerate(weights):
        products = weight.astype(np.float32).astype(dtype) * values
        values = np.tanh(np.add.accumulate(products[:, order], axis=1)[:, -1])
        if how == "coarse":
            values = values.astype(np.float16).astype(np.float32)
        found[f"gradient 0 layer{number}"] = values
    return tensors(found)
