"""The float64 references of the activations against mpmath at 50 digits."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest
import torch
from mpmath import mp, mpf

from numdrift.kernels.registry import built_in, load_target

BOUND = 1e-14
SMALLEST_FLOAT32 = 2.0**-149
ZEROS_OF_DERIVATIVES = (-0.7517915246935645, -0.7524614220710163, -1.2784645427610737)
FORMS: list[dict[str, Any]] = [{"approximate": "none"}, {"approximate": "tanh"}]
CASES = [
    *[(op, {}) for op in ("tanh", "sigmoid", "silu", "tanh_backward", "sigmoid_backward", "silu_backward")],
    *[(op, form) for op in ("gelu", "gelu_backward") for form in FORMS],
]


def arguments() -> list[float]:
    """Everywhere, tiny, subnormal, saturated, and ever closer to the zeros of the derivatives."""
    made = random.Random(1)
    everywhere = [made.uniform(-40, 40) for _ in range(500)] + [made.gauss(0, 3) for _ in range(400)]
    small = [made.choice((-1, 1)) * 10 ** made.uniform(-46, 0) for _ in range(300)]
    subnormal = [made.choice((-1, 1)) * made.randint(1, 2**23) * SMALLEST_FLOAT32 for _ in range(100)]
    near = [
        zero + sign * 10 ** made.uniform(-17, -0.5)
        for zero in ZEROS_OF_DERIVATIVES
        for sign in (1, -1)
        for _ in range(100)
    ]
    edges = [
        zero + sign * (0.125 + nudge) for zero in ZEROS_OF_DERIVATIVES for sign in (1, -1) for nudge in (-1e-9, 1e-9)
    ]
    return [*everywhere, *small, *subnormal, *near, *edges, *ZEROS_OF_DERIVATIVES, 0.0, -0.0, 1e30, -1e30]


def outputs() -> list[float]:
    """What tanh gives: everything between -1 and 1, down to the last places below 1."""
    made = random.Random(2)
    saturated = [made.choice((-1, 1)) * (1 - made.randint(0, 5000) * 2.0 ** -made.choice((24, 53))) for _ in range(800)]
    return [math.tanh(one) for one in arguments()] + saturated + [1.0, -1.0]


def columns(op: str) -> list[list[float]]:
    """The op's arguments, a gradient first where it takes one."""
    values = arguments()
    if op == "tanh_backward":
        values = outputs()
    if op == "sigmoid_backward":
        values = [abs(y) for y in outputs()]
    made = random.Random(3)
    return [[made.gauss(0, 1) for _ in values], values] if op.endswith("backward") else [values]


@pytest.mark.parametrize(("op", "keywords"), CASES)
def test_the_reference_is_accurate_to_14_digits(op: str, keywords: dict[str, Any]) -> None:
    # given
    operation = built_in().operation(op)
    reference, exact = load_target(operation.reference), load_target(operation.exact)
    given = columns(op)
    # when
    result = reference(*[torch.tensor(column, dtype=torch.float64) for column in given], **keywords)
    # then
    assert result.dtype == torch.float64 and len(given[0]) > 1500
    with mp.workdps(50):
        for value, *point in zip(result.tolist(), *given, strict=True):
            expected = exact(*map(mpf, point), **keywords)
            error = abs(value - expected)
            assert error < SMALLEST_FLOAT32 or error < BOUND * abs(expected), (point, value, expected)


@pytest.mark.parametrize(("op", "keywords"), CASES)
def test_infinity_and_nan_give_what_the_definition_gives(op: str, keywords: dict[str, Any]) -> None:
    # given
    operation = built_in().operation(op)
    points = [math.inf, -math.inf, math.nan]
    given = [[1.0] * 3, points] if op.endswith("backward") else [points]
    # when
    result = load_target(operation.reference)(
        *[torch.tensor(column, dtype=torch.float64) for column in given], **keywords
    )
    # then
    exact = load_target(operation.exact)
    for value, *point in zip(result.tolist(), *given, strict=True):
        expected = float(exact(*map(mpf, point), **keywords))
        assert value == expected or (math.isnan(value) and math.isnan(expected)), point


@pytest.mark.parametrize(("op", "keywords"), CASES)
def test_the_exact_function_agrees_with_torch_in_float64(op: str, keywords: dict[str, Any]) -> None:
    # given ordinary numbers, where torch's own float64 is good
    made = random.Random(4)
    count = 2 if op.endswith("backward") else 1
    given = [[made.uniform(0.1, 0.9) for _ in range(50)] for _ in range(count)]
    # when
    expected = (
        built_in()
        .kernel(op, "aten")
        .load()(*[torch.tensor(column, dtype=torch.float64) for column in given], **keywords)
    )
    # then
    exact = load_target(built_in().operation(op).exact)
    for value, *point in zip(expected.tolist(), *given, strict=True):
        assert float(exact(*map(mpf, point), **keywords)) == pytest.approx(value, rel=1e-14)


def test_a_gradient_broadcasts() -> None:
    grad, x = torch.randn(3, 1, dtype=torch.float64), torch.randn(4, dtype=torch.float64)
    for op in ("tanh_backward", "sigmoid_backward", "silu_backward", "gelu_backward"):
        result = load_target(built_in().operation(op).reference)(grad, x)
        one = load_target(built_in().operation(op).reference)(grad[1], x[2:3])
        assert result.shape == (3, 4)
        assert torch.equal(result[1, 2], one[0])
