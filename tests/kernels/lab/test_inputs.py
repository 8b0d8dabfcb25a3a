from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import torch

from numdrift.harness.errors import UsageError
from numdrift.kernels.lab.formats import format_of
from numdrift.kernels.lab.input_sets import INPUT_SETS, parse_inputs
from numdrift.kernels.lab.inputs import InputPart, source

from ...row_by_row import table

DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)


def elements(inputs: str, dtype: torch.dtype, part: InputPart = InputPart.REAL, count: int = 4000) -> torch.Tensor:
    return source(inputs, "tanh_backward", dtype, count, 0).elements(count, part=part)


@pytest.mark.parametrize("inputs", INPUT_SETS)
def test_equal_seeds_give_equal_bits_and_leave_the_global_generator_alone(inputs: str) -> None:
    # given
    torch.manual_seed(3)
    state = torch.get_rng_state()
    # when
    one, again = (elements(inputs, torch.float32) for _ in range(2))
    other = source(inputs, "tanh_backward", torch.float32, 4000, 1).elements(4000)
    # then
    assert torch.equal(one.view(torch.int32), again.view(torch.int32))
    assert not torch.equal(one.view(torch.int32), other.view(torch.int32))
    assert torch.equal(torch.get_rng_state(), state)


@table("dtype", DTYPES, ids=str)
@table("inputs", INPUT_SETS)
@table(("part", "low"), [(InputPart.TANH, -1), (InputPart.SIGMOID, 0)])
def test_saved_outputs_are_within_the_range_of_their_activation(
    inputs: str, dtype: torch.dtype, part: InputPart, low: int
) -> None:
    drawn = elements(inputs, dtype, part)
    numbers = drawn[~drawn.isnan()]
    assert numbers.min() >= low and numbers.max() <= 1
    assert inputs == "special" or len(numbers) == len(drawn)


@pytest.mark.parametrize("part", [InputPart.TANH, InputPart.SIGMOID])
def test_a_third_of_the_saturated_outputs_is_saturated_up_to_the_last_step(part: InputPart) -> None:
    y = elements("saturated", torch.float32, part).double()
    edge = torch.minimum((1 - y).abs(), y.abs()) if part is InputPart.SIGMOID else 1 - y.abs()
    assert (edge < 1e-3).double().mean() > 0.3
    assert (y == 1 - 2.0**-24).any()


def test_offset_has_a_mean_that_dwarfs_the_deviation() -> None:
    drawn = elements("offset", torch.float64)
    assert abs(drawn.mean() - 100) < 0.02
    assert 0.09 < drawn.std() < 0.11


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_range_covers_what_the_format_holds(dtype: torch.dtype) -> None:
    about = torch.finfo(dtype)
    magnitudes = elements("range", dtype).double().abs()
    assert magnitudes.isfinite().all()
    assert magnitudes.max() > min(1e28, about.max / 100)
    assert magnitudes[magnitudes > 0].min() < max(1e-28, about.tiny)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_half_of_the_subnormal_set_is_subnormal(dtype: torch.dtype) -> None:
    drawn = elements("subnormal", dtype).double()
    share = ((drawn.abs() < torch.finfo(dtype).tiny) & (drawn != 0)).double().mean()
    assert 0.45 < share < 0.55


def test_zero_and_special_hold_every_kind() -> None:
    zeros = elements("zero", torch.float32)
    assert {float(torch.copysign(torch.tensor(1.0), one)) for one in zeros[zeros == 0]} == {-1.0, 1.0}
    special = elements("special", torch.float32)
    about = torch.finfo(torch.float32)
    for wanted in (float("inf"), -float("inf"), about.max, -about.max, about.tiny, 2.0**-149, 0.0):
        assert (special == wanted).any(), wanted
    assert special.isnan().any()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_squares_of_ties_lie_half_way_between_two_numbers(dtype: torch.dtype) -> None:
    # given
    squares = [Fraction(one) ** 2 for one in elements("ties", dtype, InputPart.TANH).tolist()]
    gaps = format_of(dtype).ulp(np.array([float(one) for one in squares]))
    # when each is counted in halves of the gap between the numbers around it
    halves = [square / (Fraction(float(gap)) / 2) for square, gap in zip(squares, gaps, strict=True)]
    # then three of four are odd: the others are there to be added to 1
    assert 0.7 < np.mean([one.denominator == 1 and one.numerator % 2 == 1 for one in halves]) < 0.85


def test_rows_have_at_most_one_special_number_and_some_have_none() -> None:
    drawn = source("special", "mm", torch.float32, 1000, 0).rows(40, 50)
    counts = (~drawn.isfinite()).sum(1)
    assert counts.max() == 1
    assert (counts == 0).sum() >= 20


def test_input_lists_are_read_and_refused() -> None:
    assert parse_inputs("random, ties,random") == ("random", "ties")
    with pytest.raises(UsageError, match="no input set 'saturatd'; did you mean 'saturated'"):
        parse_inputs("saturatd")
