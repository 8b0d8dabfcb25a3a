"""Calls of an op, and their results as lists of named outputs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from numdrift.harness.torch_private.operators import schema_of, written_names

from ..expectation import tensors_in
from ..swaps.execution import mapped


@dataclass(frozen=True, slots=True)
class LabCall:
    """The arguments of one call, as the dispatcher passes them."""

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]

    def map(self, change: Callable[[torch.Tensor], torch.Tensor]) -> LabCall:
        """Return the same call with each tensor changed, including those in lists."""
        return LabCall(
            tuple(mapped(value, change) for value in self.args),
            {name: mapped(value, change) for name, value in self.kwargs.items()},
        )

    def copy(self) -> LabCall:
        """Return the same call on copies of its tensors. A copy keeps the strides of a tensor that has neither gaps nor
        overlapping elements in memory."""
        return self.map(lambda tensor: tensor.detach().clone())

    def on(self, device: str) -> LabCall:
        return self.map(lambda tensor: tensor.to(device))

    def in_float64(self) -> LabCall:
        """Return the call in float64: its floating-point tensors and floating-point dtypes are converted."""

        def wide_dtype(value: Any) -> Any:
            return torch.float64 if isinstance(value, torch.dtype) and value.is_floating_point else value

        wide = self.map(lambda tensor: tensor.to(torch.float64) if tensor.is_floating_point() else tensor.clone())
        return LabCall(
            tuple(map(wide_dtype, wide.args)), {name: wide_dtype(value) for name, value in wide.kwargs.items()}
        )

    def tensors(self) -> Iterator[torch.Tensor]:
        yield from tensors_in(self.args)
        yield from tensors_in(tuple(self.kwargs.values()))

    def dtype(self) -> torch.dtype:
        """Return the dtype of the first floating-point tensor, or float32 if there is none."""
        return next((tensor.dtype for tensor in self.tensors() if tensor.is_floating_point()), torch.float32)


@dataclass(frozen=True, slots=True)
class Output:
    """One output of a call: a tensor, or the tensors of a list. `name` is empty if the op has only one output."""

    name: str
    tensors: tuple[torch.Tensor, ...]


def outputs(overload: Any, call: LabCall, result: Any) -> list[Output]:
    """Return the outputs of a call: its returned values, then the arguments that it wrote to.

    An argument that is both written to and returned appears once, among the written arguments. Outputs that are None
    are left out.
    """
    schema = schema_of(overload)
    values = result if isinstance(result, tuple) and len(schema.returns) != 1 else (result,)
    named: list[tuple[str, Any]] = []
    for position, value in enumerate(values if schema.returns else ()):
        returned = schema.returns[position] if position < len(schema.returns) else None
        if returned is None or returned.alias_info is None or not returned.alias_info.is_write:
            named.append(((returned and returned.name) or f"output {position}", value))
    written = written_names(overload)
    named += [(name, value) for name, value in _arguments(schema, call) if name in written]
    all_outputs = [Output(name, tuple(tensors_in(value))) for name, value in named]
    with_tensors = [output for output in all_outputs if output.tensors]
    # The only output of an op needs no name, even if the op calls it `out`.
    return [Output("", with_tensors[0].tensors)] if len(named) == 1 and with_tensors else with_tensors


def unwritten(overload: Any, call: LabCall) -> Iterator[tuple[str, Any]]:
    """Yield the arguments that the op does not write to, with their names."""
    written = written_names(overload)
    return ((name, value) for name, value in _arguments(schema_of(overload), call) if name not in written)


def same(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Return a mask of equal elements of two tensors of one dtype: NaN equals NaN, and -0.0 differs from 0.0."""
    equal = left == right
    if left.is_floating_point():
        return (equal & (torch.signbit(left) == torch.signbit(right))) | (left.isnan() & right.isnan())
    return equal


def _arguments(schema: Any, call: LabCall) -> Iterator[tuple[str, Any]]:
    for position, argument in enumerate(schema.arguments):
        if position < len(call.args):
            yield argument.name, call.args[position]
        elif argument.name in call.kwargs:
            yield argument.name, call.kwargs[argument.name]
