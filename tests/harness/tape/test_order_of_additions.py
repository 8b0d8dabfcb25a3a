"""Calls that do not repeat: those that add in a different order, and those with which more is wrong."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from numdrift.harness.tape.replaying.ensemble import measure_settled

from .adding_anywhere import X, step_of, summed, summed_in_place

OPS = torch.library.Library("chance", "DEF")
CHANCE = torch.Generator().manual_seed(0)


def with_lost_rows(x: Tensor) -> Tensor:
    """Sum the rows without a few of them, as threads do that race."""
    return x[torch.rand(len(x), generator=CHANCE) > 0.01].sum(0)


def off_centre(x: Tensor) -> Tensor:
    """Sum the rows in a random order, and err in one direction unless the sum is in double."""
    total: Tensor = torch.ops.adding.anywhere(x)
    return total * (1.0 if x.dtype == torch.float64 else 1.003)


def with_lost_memory(x: Tensor) -> Tensor:
    """Add a number from the memory, which differs each time."""
    return x.sum(0) + torch.rand(1, generator=CHANCE, dtype=x.dtype) * 0.1


for function in (with_lost_rows, off_centre, with_lost_memory):
    OPS.define(f"{function.__name__}(Tensor x) -> Tensor")
    OPS.impl(function.__name__, function, "CPU")

ROWS = torch.randn(640, 16, generator=torch.Generator().manual_seed(2))


def rhos(op: Callable[[Tensor], Tensor], x: Tensor) -> tuple[float, float]:
    noise, _ = measure_settled(step_of(lambda x: op(x).tanh(), x), 1, always=True)
    [call] = noise.unrepeatable
    assert call.spread_rho is not None and call.error_rho is not None
    return call.spread_rho, call.error_rho


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("x", [ROWS, ROWS.abs(), ROWS - ROWS.mean(0)], ids=["signs", "no signs", "cancelling"])
def test_another_order_of_additions_is_rounding(x: Tensor, dtype: torch.dtype) -> None:
    spread, error = rhos(torch.ops.adding.anywhere, x.to(dtype))
    assert 0 < spread < 4 and error < 4


@pytest.mark.parametrize("name", ["with_lost_rows", "off_centre", "with_lost_memory"])
def test_what_is_more_than_another_order_is_not(name: str) -> None:
    spread, error = rhos(getattr(torch.ops.chance, name), ROWS.abs() + 0.5)
    assert max(spread, error) > 16
    assert name != "off_centre" or spread < 4 < error


@pytest.mark.parametrize("work", [summed, summed_in_place])
def test_calls_that_write_their_arguments_are_measured_too(work: object) -> None:
    noise, tape = measure_settled(step_of(work, X), 1, always=True)  # type: ignore[arg-type]
    [call] = noise.unrepeatable
    assert call.spread_rho is not None and call.spread_rho < 4 and call.error_rho is not None and call.error_rho < 4
    # and the measurement leaves the step as it was
    assert measure_settled(tape, 1)[0].equal


def test_shares_are_those_of_the_steps_spread() -> None:
    def work(x: Tensor) -> Tensor:
        total: Tensor = torch.ops.adding.anywhere(x) + 10 * torch.ops.adding.anywhere(x)
        return total

    noise, _ = measure_settled(step_of(work, ROWS), 1, always=True)
    shares = [call.share for call in noise.unrepeatable]
    assert None not in shares and sum(share or 0 for share in shares) == pytest.approx(1.0)
    # that of the second is about 100 times that of the first
    assert shares[1] is not None and shares[1] > 0.9
