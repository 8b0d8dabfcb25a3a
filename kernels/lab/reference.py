"""The exact results of calls, and the distance by which rounding only the inputs would move them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from numdrift.harness.errors import UsageError
from numdrift.harness.torch_private.operators import find_overload, is_random

from ..registry import Operation, load_target
from . import exact
from .arguments import Case
from .calls import LabCall, Output, outputs
from .formats import Float64s, format_of

PERTURBATIONS = 3
"""The number of random roundings of the inputs from which the sensitivity is estimated."""

Evaluate = Callable[[LabCall], list[Output]]


@dataclass(frozen=True, slots=True)
class Expected:
    """One output over all calls of a case, flattened.

    positions: the elements of the output that were evaluated; all of them, unless mpmath is the reference
    values: the exact results of these elements, rounded to float64
    remainders: the part that this rounding dropped, in float64
    sensitivity: the root mean square of the changes that `PERTURBATIONS` roundings of the inputs cause; NaN where a
        result is not finite; None for float64 inputs, since a computation in float64 cannot judge these
    """

    name: str
    positions: NDArray[np.intp]
    values: Float64s
    remainders: Float64s
    sensitivity: Float64s | None


def describe(operation: Operation, dtype: torch.dtype) -> str:
    """Return the name of the reference with which kernels for this dtype are compared."""
    if operation.exact:
        return f"exact, in mpmath with {exact.DIGITS} or more digits"
    what = "accurate formula in float64" if operation.reference else "op executed in float64"
    return f"{what}{', no more precise than the kernels themselves' if dtype == torch.float64 else ''}"


def expected(operation: Operation, case: Case, seed: int) -> list[Expected]:
    """Evaluate the reference of a case. Raises UsageError if the op draws random numbers or does not accept float64."""
    evaluate = in_float64(operation)
    replayed = [evaluate(call.in_float64()) for call in case.calls]
    if draws(operation.name, case.calls[0]):
        raise UsageError(f"op {operation.name} draws random numbers, so no reference exists for it")
    results = pooled(replayed)

    # sqrt(mean over m of (f(x(1 + u s_m)) - f(x))**2), with random signs s_m and the unit roundoff u of the inputs
    squares = {name: np.zeros(len(values)) for name, values in results.items()}
    too_wide = any(call.dtype() == torch.float64 for call in case.calls)
    generator = torch.Generator().manual_seed(seed)
    for _ in range(0 if too_wide else PERTURBATIONS):
        moved = pooled([evaluate(_perturbed(call, generator)) for call in case.calls])
        with np.errstate(invalid="ignore", over="ignore"):
            for name, values in results.items():
                squares[name] += (moved[name] - values) ** 2 / PERTURBATIONS

    made = []
    for name, values in results.items():
        positions, remainders = np.arange(len(values)), np.zeros(len(values))
        sensitivity = None if too_wide else np.where(np.isfinite(values), np.sqrt(squares[name]), np.nan)
        if operation.exact and len(results) == 1:
            positions = exact.picked([tensor.numel() for result in replayed for tensor in result[0].tensors])
            function = load_target(operation.exact)
            values, remainders = exact.elementwise(function, list(case.calls), values, positions)
        made.append(
            Expected(name, positions, values, remainders, None if sensitivity is None else sensitivity[positions])
        )
    return made


def in_float64(operation: Operation) -> Evaluate:
    """Return a function that evaluates a call on float64 tensors: the operation's reference, or the op itself."""
    reference = load_target(operation.reference) if operation.reference else None

    def evaluate(call: LabCall) -> list[Output]:
        overload = find_overload(operation.name, call.args, call.kwargs)
        own = call.copy()
        if reference is not None:
            return outputs(overload, own, reference(*own.args, **own.kwargs))
        try:
            with torch.random.fork_rng(devices=[]):
                return outputs(overload, own, overload(*own.args, **own.kwargs))
        except (RuntimeError, TypeError) as error:
            why = str(error).strip().splitlines()[0]
            raise UsageError(f"op {operation.name} cannot be executed in float64: {why}") from error

    return evaluate


def draws(op: str, call: LabCall) -> bool:
    """Check whether the op draws random numbers, so that two equal calls return different results."""
    overload = find_overload(op, call.args, call.kwargs)
    if not is_random(overload):
        return False
    # The op is called because its tag is not reliable: attention is tagged as random, but without dropout it is not.
    with torch.random.fork_rng(devices=[]):
        copies = [call.copy(), call.copy()]
        first_results, next_results = (
            pooled([outputs(overload, own, overload(*own.args, **own.kwargs))]) for own in copies
        )
    return not all(np.array_equal(first_results[name], next_results[name], equal_nan=True) for name in first_results)


def flat(tensors: Iterable[torch.Tensor]) -> Float64s:
    """Return all elements of tensors as float64, complex numbers as pairs."""
    real = [torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor for tensor in tensors]
    parts = [tensor.detach().to("cpu", torch.float64).reshape(-1).numpy() for tensor in real]
    return np.concatenate(parts) if parts else np.zeros(0)


def pooled(results: Iterable[list[Output]]) -> dict[str, Float64s]:
    """Return each output of several calls as one array."""
    parts: dict[str, list[Float64s]] = {}
    for result in results:
        for output in result:
            parts.setdefault(output.name, []).append(flat(output.tensors))
    return {name: np.concatenate(arrays) for name, arrays in parts.items()}


def _perturbed(call: LabCall, generator: torch.Generator) -> LabCall:
    """Return the call in float64, its tensors moved by one unit roundoff up or down, element by element."""
    dtype = call.dtype()
    unit = format_of(dtype).unit_roundoff

    def move(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.dtype != dtype:  # not rounded to the call's dtype: for example, an index or statistics in float32
            return tensor
        signs = torch.randint(2, tensor.shape, generator=generator).double() * 2 - 1
        return tensor.double() * (1 + unit * signs)

    return call.map(move).in_float64()
