"""The errors of both sides' results against the results in double, element by element over the real inputs.

The errors of a selection of the elements are kept, including the largest ones of each side.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch

from ...records.results.culprit_detail import ErrorsOverInputs
from ...tape.storages import Storages
from ...tape.tape import View
from ...tape.tape_arguments import name_of
from ...torch_private.dispatching import registered_operation
from ..align.storage_flow import SIDES, Side
from ..errors.local_error import spacing_of
from .localized_values import ShownBlock
from .script_calls import SideCode

FEWEST = 4
"""The smallest number of elements of a result for which errors are kept."""

MOST_POINTS = 2000
LARGEST = 250
"""The number of elements with the largest errors of each side. They are always among the points."""

MOST_ARGUMENTS = 4

CANDIDATES = 2**15
"""The number of elements from which the other points are chosen."""

PIECE = 2**20
"""The number of elements whose errors are computed at a time."""

GROUPS = 32
"""The number of groups into which the values of an argument are sorted. The errors between and within groups are
compared."""

DIGITS = {"value": 6, "error": 4}
"""The number of significant digits that are kept."""


@dataclass(frozen=True, slots=True, eq=False)
class ComparedResult:
    """A result of both sides, flattened, with its exact value in double; `number` is its index in the block."""

    number: int
    exact: torch.Tensor
    results: Mapping[Side, torch.Tensor]

    def errors(self, side: Side, chosen: torch.Tensor | slice) -> torch.Tensor:
        """Return signed errors, in ULP of the elements' values in double."""
        result, exact = self.results[side][chosen], self.exact[chosen]
        return (result.double() - exact).div_(spacing_of(exact, result.dtype))


def errors_over_inputs(block: ShownBlock, codes: Mapping[Side, SideCode]) -> ErrorsOverInputs | None:
    """Return the errors of the result of the block that has the largest error.

    Return None if no result is floating-point and has a known exact value.
    """
    if block.reference is None:
        return None
    # A block that is not `live` may have an op without a form in double. Then the block's values in double are inexact.
    # A random draw does not make them inexact.
    drawn = any(call.draw is not None for call in block.slices[block.reference].calls)
    results = _compared(block) if block.live or drawn else []
    scanned = [(compared, {side: _scanned(compared, side) for side in SIDES}) for compared in results]
    if not scanned:
        return None
    result, scans = max(scanned, key=lambda entry: max(scan.largest for scan in entry[1].values()))
    arguments = _arguments(block, codes, result)
    chosen = torch.cat([scan.at for scan in scans.values()]).unique()
    elements = result.exact.numel()
    candidates = _spread(elements)
    worse = max(SIDES, key=lambda side: scans[side].largest)
    sizes = result.errors(worse, candidates).abs()
    values = {name: argument.at(candidates) for name, argument in arguments.items()}
    spread_shares = {name: _share_between(numbers, sizes) for name, numbers in values.items()}
    ranked = sorted(spread_shares, key=lambda name: -spread_shares[name])[:MOST_ARGUMENTS]  # a stable sort
    arguments = {name: arguments[name] for name in ranked}
    axis = values[next(iter(arguments))] if arguments else result.exact[candidates]
    few = MOST_POINTS - len(chosen) if elements > MOST_POINTS else elements
    chosen = torch.cat([chosen, candidates[_along(axis, few)]]).unique()
    return ErrorsOverInputs(
        result=f"result {result.number + 1} of {len(block.exact)}" if len(block.exact) > 1 else "result",
        dtypes={side: name_of(result.results[side].dtype) for side in SIDES},
        elements=elements,
        not_finite={side: scan.not_finite for side, scan in scans.items()},
        largest={side: scan.largest for side, scan in scans.items()},
        inputs={name: _numbers(argument.at(chosen), "value") for name, argument in arguments.items()},
        exact=_numbers(result.exact[chosen], "value"),
        errors={side: _numbers(result.errors(side, chosen), "error") for side in SIDES},
    )


def _compared(block: ShownBlock) -> list[ComparedResult]:
    """Return the results that are floating-point on both sides, with fewer digits than a double."""
    compared = []
    for number, (exact, a, b) in enumerate(zip(block.exact, block.results["a"], block.results["b"], strict=True)):
        sides: dict[Side, torch.Tensor] = {"a": a, "b": b}
        coarser = all(result.is_floating_point() and result.dtype != torch.float64 for result in sides.values())
        alike = exact.shape == a.shape == b.shape and exact.numel() >= FEWEST
        if exact.dtype == torch.float64 and coarser and alike:
            flat: dict[Side, torch.Tensor] = {side: result.cpu().reshape(-1) for side, result in sides.items()}
            compared.append(ComparedResult(number, exact.cpu().reshape(-1), flat))
    return compared


@dataclass(frozen=True, slots=True, eq=False)
class ScannedErrors:
    """A side's `largest` error, the places of its largest errors (`at`), and the number of its non-finite errors."""

    largest: float
    at: torch.Tensor
    not_finite: int


def _scanned(result: ComparedResult, side: Side) -> ScannedErrors:
    sizes, places, not_finite = [], [], 0
    for start in range(0, result.exact.numel(), PIECE):
        errors = result.errors(side, slice(start, start + PIECE)).abs_()
        finite = torch.isfinite(errors)
        not_finite += int(errors.numel() - finite.sum())
        largest, at = errors.masked_fill_(~finite, -1.0).topk(min(LARGEST, errors.numel()))
        sizes.append(largest)
        places.append(at + start)
    largest, among = torch.cat(sizes).topk(min(LARGEST, result.exact.numel()))
    at = torch.cat(places)[among][largest >= 0]
    return ScannedErrors(float(largest[0]) if len(at) else math.inf, at, not_finite)


@dataclass(frozen=True, slots=True, eq=False)
class OpArgument:
    """An argument of an op, with a value for each element of the op's result.

    shape: the shape of the op's result, to which the values are expanded.
    order: for each compared element, its place in the op's result; None if both have the same order.
    """

    values: torch.Tensor
    shape: tuple[int, ...]
    order: torch.Tensor | None

    def at(self, chosen: torch.Tensor) -> torch.Tensor:
        """Return the argument's values for these elements."""
        places = chosen if self.order is None else self.order[chosen]
        whole = self.values.expand(self.shape)
        return whole[torch.unravel_index(places, self.shape)] if self.shape else whole.reshape(1)[places]


def _arguments(block: ShownBlock, codes: Mapping[Side, SideCode], result: ComparedResult) -> dict[str, OpArgument]:
    """Return the arguments of the first side that is a single elementwise op, by the names in its code.

    Only arguments with a number for each element of the result are returned.
    """
    for side in SIDES:
        slice_, reads = block.slices[side], codes[side].reads
        if len(slice_.calls) != 1:
            continue
        [call] = slice_.calls
        seen = slice_.watched[result.number].view
        made = next((output for output in call.outputs if isinstance(output, View) and output.slot == seen.slot), None)
        pointwise = torch.Tag.pointwise in getattr(registered_operation(call.op), "tags", ())
        if made is None or not reads or not pointwise or seen.extent > made.extent:
            continue
        order = _order(made, seen)
        storages = Storages(slice_, lambda recorded: recorded)
        tensors = {name: storages.tensor(view).cpu() for name, view in reads.items()}
        per_element = {
            name: tensor
            for name, tensor in tensors.items()
            if tensor.is_floating_point() and _belongs(tensor, made.size)
        }
        return {name: OpArgument(tensor, made.size, order) for name, tensor in per_element.items()}
    return {}


def _order(made: View, seen: View) -> torch.Tensor | None:
    """Return the places in `made` of the elements of `seen`, a view of the same memory; None if the views are equal."""
    if (made.offset, made.size, made.stride) == (seen.offset, seen.size, seen.stride):
        return None
    places = torch.zeros(made.extent, dtype=torch.int64)
    places.as_strided(made.size, made.stride, made.offset).copy_(torch.arange(math.prod(made.size)).view(made.size))
    return places.as_strided(seen.size, seen.stride, seen.offset).reshape(-1)


def _belongs(argument: torch.Tensor, shape: tuple[int, ...]) -> bool:
    """Check that the argument has several elements, and that each element of a result of this shape depends on one of
    them."""
    own = argument.shape
    fits = len(own) <= len(shape) and all(n in (1, size) for n, size in zip(own[::-1], shape[::-1], strict=False))
    return fits and argument.numel() > 1


def _spread(elements: int) -> torch.Tensor:
    """Return at most CANDIDATES elements, placed at multiples of the golden ratio: these are evenly spread and follow
    no rows or columns."""
    if elements <= CANDIDATES:
        return torch.arange(elements)
    parts = torch.arange(CANDIDATES, dtype=torch.float64).mul_((math.sqrt(5) - 1) / 2).frac_()
    chosen: torch.Tensor = parts.mul_(elements).long().clamp_(max=elements - 1).unique()
    return chosen


def _share_between(values: torch.Tensor, errors: torch.Tensor) -> float:
    """Return the share of the errors' spread that is between groups of neighbouring values, from 0 to 1.

    The share is the correlation ratio (Fisher 1925) of the errors' logarithms, which keep a single error from
    outweighing the others.
    """
    usable = torch.isfinite(errors) & torch.isfinite(values)
    logarithms, kept = errors[usable].log1p(), values[usable]
    if not len(kept):
        return 0.0
    groups = logarithms[kept.argsort(stable=True)].tensor_split(max(1, min(GROUPS, len(kept) // 4)))
    whole = float(logarithms.var(correction=0))
    mean = float(logarithms.mean())
    between = sum(len(group) * (float(group.mean()) - mean) ** 2 for group in groups) / len(kept)
    return between / whole if whole else 0.0


def _along(axis: torch.Tensor, most: int) -> torch.Tensor:
    """Return places in `axis`: half of them at evenly spaced ranks, and half at evenly spaced values, so that rare
    values are included."""
    order = axis.double().argsort(stable=True)
    order = order[torch.isfinite(axis[order])]
    if len(order) <= most:
        return order
    ranks = torch.linspace(0, len(order) - 1, most // 2).round().long()
    values = axis[order].double()
    ends = torch.linspace(float(values[0]), float(values[-1]), most - len(ranks), dtype=torch.float64)
    nearest = torch.searchsorted(values, ends).clamp_(max=len(order) - 1)
    return order[torch.cat([ranks, nearest]).unique()]


def _numbers(values: torch.Tensor, kind: str) -> list[float]:
    return [float(f"{value:.{DIGITS[kind]}g}") for value in values.double().tolist()]
