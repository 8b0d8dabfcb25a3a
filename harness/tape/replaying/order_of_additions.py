"""The test of a call that does not repeat: does it only add in a different order each time, or is more wrong with it?

A different order of additions moves a result by about one rounding, and the executions lie around the exact result. A
race that loses updates, or memory that no op has written, moves it further, or away from the exact result:

    unit        rms_m ||f64(x (1 + 2 u s_m)) - f64(x)|| + u sqrt(n) ||f64(x)||
                f64: the call in double; s_m: random signs; n: the elements of the largest input, since n additions one
                after the other err by about sqrt(n) roundings
    spread_rho  the largest distance of an execution from the mean of the executions, in units
    error_rho   the distance of this mean from f64(x), in units

Both are at most about 1 for a sum in any order, however ill-conditioned it is (see localize/errors/local_error).
Further executions in double tell the two apart as well. They differ by the rounding of doubles if only the order of
additions varies, and by as much as before if numbers get lost. Then the unit is u ||f64(x)||.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from ..tape import leaves, mapped
from .distances import finite_square, sum_of_squares, wide
from .in_double import EXACT_DTYPES, Exact, double_by_default
from .replay import AsRecorded, Computation, Replay, executed, results, take_over
from .rounding import has_digits
from .settling import SettledStep

EXECUTIONS = 8
"""How often each such call is executed."""

IN_DOUBLE = 4
"""How often it is executed in double."""

MOST_SHARES, EXECUTIONS_OF_A_SHARE = 8, 3
"""The largest number of calls whose shares are measured, and the replays for each of them."""

SAMPLES = 3
"""How often it is executed in double on inputs that are moved by their rounding."""

REPEATS_IN_DOUBLE = 1024
"""The largest distance of two executions in double, in units of double's rounding, by which they count as the same."""


def with_causes(settled: SettledStep) -> SettledStep:
    """Return the settled step with `spread_rho`, `error_rho` and `share` of its calls that do not repeat.

    The first two stay None for a call that has no form in double. Raises the errors of ops.
    """
    measuring = _Measuring({call.position for call in settled.calls})
    if settled.calls:
        Replay(settled.tape).run(measuring)
    calls = [
        replace(call, spread_rho=measured[0], error_rho=measured[1])
        if (measured := measuring.found.get(call.position)) is not None
        else call
        for call in settled.calls
    ]
    if len(calls) <= MOST_SHARES:
        calls = [replace(call, share=share) for call, share in zip(calls, _shares(settled), strict=True)]
    return replace(settled, calls=calls)


def _shares(settled: SettledStep) -> list[float]:
    """Return each call's share of the step's spread: the spread that is left if all other calls keep their results."""
    if len(settled.calls) == 1:
        return [1.0]
    tape, sizes = settled.tape, list[float]()
    expected = tape.expected()
    squares = {name: sum_of_squares(value) for name, value in expected.items() if has_digits(value)}
    for call in settled.calls:
        calls = [replace(other, settled=None) if at == call.position else other for at, other in enumerate(tape.calls)]
        replay, moved = Replay(replace(tape, calls=tuple(calls))), _RelativeMoves(expected, squares)
        for _ in range(EXECUTIONS_OF_A_SHARE):
            replay.show(AsRecorded(), moved.add)
        sizes.append(moved.total)
    total = sum(sizes)
    return [size / total if total else 1.0 / len(sizes) for size in sizes]


class _RelativeMoves:
    """The sum of (||x_i - x|| / ||x||)^2 over values x_i of replays; `squares` has ||x||^2 of each expected value x."""

    def __init__(self, expected: Mapping[str, torch.Tensor], squares: Mapping[str, float]) -> None:
        self.total = 0.0
        self._expected = expected
        self._squares = squares

    def add(self, name: str, value: torch.Tensor) -> None:
        if self._squares.get(name):
            self.total += sum_of_squares(value, self._expected[name]) / self._squares[name]


class _Measuring(AsRecorded):
    """A replay that measures the calls at these positions. `found` has both numbers of each, by its position."""

    def __init__(self, positions: Collection[int]) -> None:
        self.found: dict[int, tuple[float, float]] = {}
        self._positions = positions

    def execute(self, computation: Computation, arguments: tuple[Any, ...], keywords: Mapping[str, Any]) -> list[Any]:
        if computation.position not in self._positions or computation.call.draw is not None:
            return super().execute(computation, arguments, keywords)
        written = computation.written(arguments, keywords)
        before = [tensor.clone() for tensor in written]
        exact = [_in_double(computation, arguments, keywords, seed) for seed in (*[None] * IN_DOUBLE, *range(SAMPLES))]
        executions = []
        for _ in range(EXECUTIONS):
            outputs = results(computation, executed(computation, arguments, keywords), arguments, keywords)
            executions.append([wide(value) if has_digits(value) else None for value in outputs])
            take_over(before, written)
        complete = [values for values in exact if values is not None]
        if len(complete) == len(exact):
            inputs = leaves((arguments, *keywords.values()))
            sizes = [value.numel() for value in inputs if isinstance(value, torch.Tensor)]
            dtypes = [value.dtype for value in outputs]
            self.found[computation.position] = _measured(executions, complete, dtypes, max(sizes, default=1))
        return super().execute(computation, arguments, keywords)


def _in_double(
    computation: Computation, arguments: tuple[Any, ...], keywords: Mapping[str, Any], seed: int | None
) -> list[torch.Tensor] | None:
    """Return the results of a call in double, with inputs moved in their last place for a seed; None if the op has no
    form in double."""
    generator = None if seed is None else torch.Generator().manual_seed(seed)

    def widened(value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or value.dtype not in EXACT_DTYPES:
            return value.clone() if isinstance(value, torch.Tensor) else value
        double = value.to(EXACT_DTYPES[value.dtype])
        if generator is None or not value.is_floating_point():
            return double
        signs = torch.randint(0, 2, value.shape, generator=generator, dtype=torch.float64) * 2 - 1
        return double * (1 + torch.finfo(value.dtype).eps * signs.to(value.device))

    arithmetic = Exact()
    wide_arguments = mapped(widened, arguments)
    wide_keywords = {name: mapped(widened, value) for name, value in keywords.items()}
    with double_by_default():
        outputs = arithmetic.execute(computation, wide_arguments, wide_keywords)
    return None if arithmetic.not_exact else results(computation, outputs, wide_arguments, wide_keywords)


def _measured(
    executions: Sequence[Sequence[torch.Tensor | None]],
    exact: Sequence[Sequence[torch.Tensor]],
    dtypes: Sequence[torch.dtype],
    terms: int,
) -> tuple[float, float]:
    """Return the largest spread and error over a call's results, with the results' dtypes, for sums of so many terms.

    `exact` begins with IN_DOUBLE of unmoved inputs.
    """
    spreads, errors = [0.0], [0.0]
    for number, dtype in enumerate(dtypes):
        values = [value for execution in executions if (value := execution[number]) is not None]
        if not values:  # whole numbers, which no order of additions moves
            continue
        centre, *others = (wide(sample[number]) for sample in exact)
        again, moved = others[: IN_DOUBLE - 1], others[IN_DOUBLE - 1 :]
        mean = torch.stack(values).mean(0)
        effect = math.sqrt(sum(_norm(sample - centre) ** 2 for sample in moved) / len(moved))
        rounding, rounding_of_double = (torch.finfo(of).eps / 2 for of in (dtype, torch.float64))
        unit = effect + rounding * math.sqrt(terms) * _norm(centre)
        if max(_norm(value - centre) for value in again) > REPEATS_IN_DOUBLE * unit * rounding_of_double / rounding:
            unit = rounding * _norm(centre)
        spread, error = max(_norm(value - mean) for value in values), _norm(mean - centre)
        spreads.append(spread / unit if unit else math.inf if spread else 0.0)
        errors.append(error / unit if unit else math.inf if error else 0.0)
    return max(spreads), max(errors)


def _norm(value: torch.Tensor) -> float:
    return math.sqrt(finite_square(value))
