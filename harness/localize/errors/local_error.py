"""The distance of a block's results from exact arithmetic on its own inputs.

    ulp    max |o - o64| / ulp(o64)             in the spacing of the result's own format
    rho    ||o - o64|| / (rms_m ||f64(x (1 + 2 u s_m)) - o64|| + u ||o64||)

o64 is the block's result in double on the same inputs, and u is the unit roundoff. The x (1 + 2 u s_m) are the inputs
moved by about one unit in the last place, with random signs s_m. So rho is the error relative to the effect of rounding
the inputs. It is about 1 for any good kernel, however ill-conditioned the op is, while ulp may be thousands. The
threshold is 16 (see docs/reference/score.md).

    lean   mean(sign(o - o64))                  over the n elements that differ
    bias   lean sqrt(n)                         the lean in standard errors: for rounding it is a few

    bound  max |o - o64| / bound                for blocks that are one op whose bound is known (see bounds). Above 1,
                                                no order of summation explains the error: the kernel computes or
                                                accumulates in a lower precision
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import torch

from ...tape.replaying.in_double import EXACT_DTYPES, exact_values
from ...tape.replaying.replay import call_arguments, executions
from ...tape.storages import Storages
from ...tape.tape import Tape, View
from ..execute.hybrid import Values
from .bounds import error_bound
from .result_distances import unit_roundoff_of

SAMPLES = 3
"""The number of perturbed executions behind rho."""

MANY = 1 << 16
"""The number of elements from which on the distance of one perturbed execution is within a few percent of its mean."""


Bounds = dict[tuple[str, torch.dtype], torch.Tensor]
"""The bound on the error of each result, by the result's name and dtype."""


@dataclass(frozen=True, slots=True)
class LocalError:
    """The worst errors over a block's results.

    `bias` is the one with the largest absolute value, with its sign. `lean` is the lean of the result with this bias.
    `bound` is None if no bound is known.
    """

    ulp: float
    rho: float
    bias: float
    bound: float | None
    lean: float = 0.0


class ExactResults:
    """The results of a block in double, and their sensitivity to the rounding of its inputs."""

    def __init__(
        self, values: Values, moved: Iterable[Values], bounds: Bounds | None = None, *, is_exact: bool = True
    ) -> None:
        """Take the results. `moved` yields further results, of inputs that are moved in their last place, as many as
        `seeds_for` the results.

        `is_exact` is True if each op of the block has a form in double.
        """
        self.values = values
        self.is_exact = is_exact
        self._bounds = bounds or {}
        squares, count = dict.fromkeys(values, 0.0), 0
        for sample in moved:
            count += 1
            for name, value in values.items():
                if sample[name].shape != value.shape or not value.is_floating_point():
                    continue
                distance, _ = _norm((sample[name].double() - value.double()).reshape(-1))
                squares[name] += distance**2
        self._spread = {name: math.sqrt(square / max(1, count)) for name, square in squares.items()}

    def error(self, results: Sequence[torch.Tensor]) -> LocalError | None:
        """Return the error of these results, one for each output of the tape; None if no result is floating-point."""
        errors = []
        for number, result in enumerate(results):
            name = f"output {number}"
            exact = self.values.get(name)
            if exact is None or not result.is_floating_point() or exact.shape != result.shape:
                continue
            if not result.numel() or not exact.is_floating_point():
                continue
            errors.append(self._error(name, result.to(exact.device), exact.double()))
        if not errors:
            return None
        leaning = max(errors, key=lambda error: abs(error.bias))
        return LocalError(
            max(error.ulp for error in errors),
            max(error.rho for error in errors),
            leaning.bias,
            max((error.bound for error in errors if error.bound is not None), default=None),
            leaning.lean,
        )

    def distance(self, name: str, exact: torch.Tensor, dtype: torch.dtype) -> float:
        """Return the distance between an exact result and a second exact version of it, which has the same shape.

        The distance is relative to the effect of rounding the inputs and of rounding the result to its dtype.
        """
        distance, _ = _norm((exact.double() - self.values[name].double()).reshape(-1))
        return self._in_scale(distance, name, dtype)

    def _in_scale(self, distance: float, name: str, dtype: torch.dtype) -> float:
        """Return a distance as a multiple of the effect of rounding the inputs and of rounding the result to this
        dtype."""
        unit = unit_roundoff_of(dtype, unknown=2.0**-24)
        scale = self._spread[name] + unit * float(self.values[name].double().reshape(-1).norm())
        return 0.0 if not distance else distance / scale if scale else math.inf

    def _error(self, name: str, result: torch.Tensor, exact: torch.Tensor) -> LocalError:
        everywhere = result.double() - exact
        distance, differences = _norm(everywhere.reshape(-1))
        rho = self._in_scale(distance, name, result.dtype)
        above, below = int((differences > 0).sum()), int((differences < 0).sum())
        lean = (above - below) / (above + below) if above + below else 0.0
        # The largest error as a multiple of its bound. For a result in double, no more exact one is available.
        bound = self._bounds.get((name, result.dtype))
        if bound is None or bound.shape != result.shape or result.dtype == torch.float64:
            bounded = None
        else:
            ratios = (everywhere.abs() / bound).reshape(-1)
            ratios = ratios[torch.isfinite(ratios)]
            bounded = float(ratios.max()) if ratios.numel() else None
        bias = lean * math.sqrt(above + below)
        return LocalError(_ulps(everywhere, exact, result.dtype), rho, bias, bounded, lean)


def seeds_for(values: Values) -> range:
    """Return the seeds of the perturbed executions of a block with these results."""
    sizes = [value.numel() for value in values.values() if value.is_floating_point()]
    return range(1 if sizes and min(sizes) >= MANY else SAMPLES)


def exact_block(tape: Tape, versions: Sequence[Tape] = ()) -> ExactResults:
    """Execute a block in double.

    `versions` are both sides' versions of the block; the first one that is a single op with a known bound provides the
    bound. Raises whatever the block's ops raise on doubles.
    """
    values, not_exact = exact_values(tape)
    # If an op has no form in double, the values are not exact, and their own errors would be compared with a bound.
    bounds = {} if not_exact else _bounds(versions or (tape,))
    moved = (exact_values(_perturbed(tape, seed))[0] for seed in seeds_for(values))
    return ExactResults(values, moved, bounds, is_exact=not not_exact)


def _bounds(versions: Sequence[Tape]) -> Bounds:
    """Return the bounds of the first version that is a single op whose bound is known."""
    for tape in versions:
        bounds: Bounds = {}
        with suppress(Exception):  # an op may raise anything on doubles; the other errors need no bounds
            computing = executions(tape)
            if len(computing) != 1 or computing[0].call.draw is not None:
                continue
            (execution,) = computing
            arguments, keywords = call_arguments(execution.call, Storages(tape, _in_double).tensor)
            for number, view in enumerate(execution.call.outputs or execution.written_views()):
                if not isinstance(view, View):
                    continue
                # The bound of an output applies to a watched view that equals the output's view. If the output fills
                # its storage, the bound applies to any watched view of that storage with the same dtype.
                is_whole = math.prod(view.size) * view.dtype.itemsize == tape.slots[view.slot].size
                watched = [
                    watched_view
                    for watched_view in tape.watched
                    if view == watched_view.view
                    or (is_whole and view.slot == watched_view.view.slot and view.dtype == watched_view.view.dtype)
                ]
                bound = error_bound(execution.operation, arguments, keywords, view.dtype, number) if watched else None
                if bound is not None:
                    # A separate storage lays out the bound like the result, so that the watched views apply to it.
                    laid_out = Storages(tape, _in_double)
                    laid_out.bind(view, bound)
                    bounds |= {
                        (watched_view.name, view.dtype): laid_out.tensor(watched_view.view) for watched_view in watched
                    }
            if bounds:
                return bounds
    return {}


def _in_double(recorded: torch.dtype) -> torch.dtype:
    return EXACT_DTYPES.get(recorded, recorded)


def _norm(differences: torch.Tensor) -> tuple[float, torch.Tensor]:
    """Return the norm of the finite elements, and these elements."""
    distance = float(differences.norm())
    if not math.isfinite(distance):  # selecting elements takes longer than all the rest, so it is done only if needed
        differences = differences[torch.isfinite(differences)]
        distance = float(differences.norm())
    return distance, differences


EXPONENT = 0x7FF << 52
"""The exponent bits of a double. Read as a double, they are the largest power of two up to its absolute value."""


def _ulps(differences: torch.Tensor, exact: torch.Tensor, dtype: torch.dtype) -> float:
    """Return the largest distance, in units in the last place that the result's format has at the exact value."""
    units = differences.abs().div_(spacing_of(exact, dtype)).reshape(-1)
    largest = float(units.max()) if units.numel() else math.inf
    if math.isfinite(largest):
        return largest
    units = units[torch.isfinite(units)]
    return float(units.max()) if units.numel() else math.inf


def spacing_of(exact: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return the unit in the last place of a format at each of these doubles."""
    information = torch.finfo(dtype)
    power = (exact.contiguous().view(torch.int64) & EXPONENT).view(torch.float64)
    # |x| in [p, 2p) has a spacing of eps * p; an exact zero gets half the spacing at 1, that of the numbers below 1
    return power.clamp_(min=information.smallest_normal).masked_fill_(exact == 0, 0.5).mul_(information.eps)


def _perturbed(tape: Tape, seed: int) -> Tape:
    moved = moved_by_rounding(seed)
    return replace(tape, inputs={slot: moved(data, tape.slots[slot].dtype) for slot, data in tape.inputs.items()})


SIGNS, PIECE = 1 << 20, 1 << 16
"""The number of random signs for each seed, after which they repeat, and the number of elements moved at a time."""


def moved_by_rounding(seed: int) -> Callable[[torch.Tensor, torch.dtype], torch.Tensor]:
    """Return a function that moves floating values, passed as bytes, in their last place, up or down at random.

    Of each call, the function returns new bytes. Its calls take the signs of the seed one after the other.
    """
    signs, used = _signs(seed), 0

    def moved(data: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        nonlocal used
        unit = unit_roundoff_of(dtype)
        if not unit or not dtype.is_floating_point:
            return data
        values = data[: data.numel() // dtype.itemsize * dtype.itemsize].view(dtype)
        moved_values, begin = torch.empty_like(values), 0
        while begin < len(values):
            piece = values[begin : begin + min(PIECE, SIGNS - used % SIGNS)]
            chosen = signs[used % SIGNS :][: len(piece)].to(values.device)
            moved_values[begin : begin + len(piece)] = piece.double() * (1 + 2 * unit * chosen.double())
            begin, used = begin + len(piece), used + len(piece)
        return moved_values.view(torch.uint8)

    return moved


@functools.cache
def _signs(seed: int) -> torch.Tensor:
    """Return SIGNS numbers that are 1 or -1, as int8."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 2, (SIGNS,), generator=generator, dtype=torch.int8) * 2 - 1


def results_of(values: Values) -> list[torch.Tensor]:
    return [values[name] for name in sorted(values, key=lambda name: int(name.split()[1]))]
