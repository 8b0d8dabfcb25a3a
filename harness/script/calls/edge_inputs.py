"""Special inputs: the values, shapes and layouts at which kernels go wrong most often.

    zeros, subnormal numbers, the largest numbers, infinities, NaN, ties (few different values)
    an empty tensor, size one, transposed and repeated memory

Each is made from the inputs of a call. The tensors whose first dimension has the size of the first input's one are
shortened together, so that shapes still fit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import torch

from .call_copies import copied, replaced, tensors_of
from .planned_call import PlannedCall

EVERY = 3
"""One element of so many is infinite or NaN."""

Change = Callable[[torch.Tensor], torch.Tensor]


def _scattered(x: torch.Tensor, value: float) -> torch.Tensor:
    """Return a copy in which every third element is `value`, with the element's sign."""
    changed = x.clone(memory_format=torch.contiguous_format)
    flat = changed.view(-1)
    flat[::EVERY] = torch.copysign(torch.full_like(flat[::EVERY], value), flat[::EVERY])
    return changed


def _in_other_memory(x: torch.Tensor) -> torch.Tensor:
    """Return the same values with other strides."""
    if x.dim() > 1:
        return x.transpose(-1, -2).contiguous().transpose(-1, -2)
    return x.repeat_interleave(2)[::2] if x.dim() else x


VALUES: Mapping[str, Change] = {
    "zeros": torch.zeros_like,
    "subnormal numbers": lambda x: torch.copysign(torch.full_like(x, torch.finfo(x.dtype).tiny / 4), x),
    "the largest numbers": lambda x: torch.copysign(torch.full_like(x, torch.finfo(x.dtype).max / 2), x),
    "infinities": lambda x: _scattered(x, float("inf")),
    "NaN": lambda x: _scattered(x, float("nan")),
    "ties": torch.round,
    "transposed memory": _in_other_memory,
}
"""The changes of floating-point inputs."""

SHAPES: Mapping[str, Change] = {
    "an empty tensor": lambda x: x[:0],
    "size one": lambda x: x[:1],
    "repeated memory": lambda x: x[:1].expand_as(x),
}
"""The changes of tensors whose first dimension is that of the first input."""


def edge_calls(call: PlannedCall) -> list[PlannedCall]:
    """Return calls like this one with special inputs."""
    calls = []
    for changes, applies in ((VALUES, _has_values), (SHAPES, _has_first_size(call))):
        for label, change in changes.items():
            args, kwargs = replaced(copied((call.args, dict(call.kwargs))), _changed(change, applies))
            special = replace(call, label=label, args=args, kwargs=kwargs, cotangents=None)
            calls.append(special)
    return calls


def _changed(change: Change, applies: Callable[[torch.Tensor], bool]) -> Change:
    def changed(x: torch.Tensor) -> torch.Tensor:
        if not applies(x):
            return x
        with torch.no_grad():
            return change(x).detach().requires_grad_(x.requires_grad)

    return changed


def _has_values(x: torch.Tensor) -> bool:
    return x.is_floating_point() and x.layout == torch.strided and x.numel() > 0


def _has_first_size(call: PlannedCall) -> Callable[[torch.Tensor], bool]:
    """Return a check whether a tensor's first dimension has the size of that of the first input."""
    sizes = [tensor.shape[0] for _, tensor in tensors_of((call.args, dict(call.kwargs))) if tensor.dim()]

    def applies(x: torch.Tensor) -> bool:
        return bool(x.dim() and sizes and x.shape[0] == sizes[0] and x.layout == torch.strided)

    return applies
