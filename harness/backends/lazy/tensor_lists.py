"""Ops that return several views of a lazy tensor: split (chunk, and a split by sizes) and unbind.

torch's lazy core has no kernel for them. Its fallback executes them on the CPU and returns the parts as tensors that
report the device lazy but are CPU tensors. The next op on two such parts returns a tensor on the CPU. An op on one such
part and a lazy tensor fails ("Input tensor is not a lazy tensor", "expected device lazy:0 but got cpu"; torch 2.13).
The unsafe splits (the cells of an LSTM and a GRU call them) internally create views that a lazy tensor cannot have
("The operator aten::as_strided appears to be a view operator"). Each part is therefore computed as a slice, for which
the core has a kernel.

    q, k, v = x.split(8, dim=2)    slice_copy(x, 2, 0, 8), slice_copy(x, 2, 8, 16), slice_copy(x, 2, 16, 24)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from ...torch_private.deferred.lazy import LAZY_KEY
from ...torch_private.device_kernels import OWN, dispatched_to
from ...torch_private.patches import Undo
from ...torch_private.registered_kernels import Overrides

aten = torch.ops.aten


def split(tensor: Tensor, size: int, dim: int = 0) -> list[Tensor]:
    length = tensor.size(dim)
    if not size and not length:
        return [aten.slice_copy(tensor, dim, 0, 0)]
    return [aten.slice_copy(tensor, dim, begin, begin + size) for begin in range(0, max(length, 1), size)]


def split_with_sizes(tensor: Tensor, sizes: Sequence[int], dim: int = 0) -> list[Tensor]:
    ends = [sum(sizes[: index + 1]) for index in range(len(sizes))]
    return [aten.slice_copy(tensor, dim, end - size, end) for end, size in zip(ends, sizes, strict=True)]


def unbind(tensor: Tensor, dim: int = 0) -> list[Tensor]:
    return [aten.select_copy(tensor, dim, index) for index in range(tensor.size(dim))]


def give_lists_of_lazy_tensors() -> Undo:
    """Make these ops return lazy tensors if the core of this torch has no kernel for them.

    Return a function that undoes this.
    """
    kernels: dict[Any, Callable[..., list[Tensor]]] = {
        aten.split_copy.Tensor: split,
        aten.split_with_sizes_copy.default: split_with_sizes,
        aten.unbind_copy.int: unbind,
        aten.unsafe_split.Tensor: split,
        aten.unsafe_split_with_sizes.default: split_with_sizes,
    }
    overrides = Overrides()
    for operation, kernel in kernels.items():
        if dispatched_to(operation.name(), LAZY_KEY) != OWN:
            overrides.replace(operation, LAZY_KEY, kernel)
    return overrides.close
