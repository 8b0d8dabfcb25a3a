"""What a kernel owes the op whose place it takes: results of the same kind, and arguments left alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from numdrift.harness import torch_private
from numdrift.harness.errors import KernelError

from ..expectation import ExpectedTensor, tensors_in
from ..registry import ANY_DEVICE, Kernel
from .target import Target


def conform(
    kernel: str, result: Any, expected: Sequence[ExpectedTensor], *, strided: bool, cast: bool = False
) -> Any:
    """The result with the strides that are expected (`strided`) and their dtypes (`cast`).

    Raises KernelError for other shapes, dtypes (without `cast`) or another number of tensors.
    """
    found = list(tensors_in(result))
    if len(found) != len(expected):
        raise KernelError(kernel, f"returned {len(found)} tensors where the op returns {len(expected)}")
    for index, (one, wanted) in enumerate(zip(found, expected, strict=True)):
        if tuple(one.shape) != wanted.shape or (one.dtype != wanted.dtype and not cast):
            place = f" as result {index}" if len(expected) > 1 else ""
            raise KernelError(
                kernel,
                f"returned {text_of(one.shape, one.dtype)}{place} where the op returns "
                f"{text_of(wanted.shape, wanted.dtype)}",
            )
    if not strided:
        return result
    wanted_in_order = iter(expected)
    return mapped(result, lambda tensor: _laid_out(tensor, next(wanted_in_order)))


def _laid_out(tensor: torch.Tensor, wanted: ExpectedTensor) -> torch.Tensor:
    if tensor.dtype == wanted.dtype and (tensor.stride() == wanted.stride or tensor.numel() == 0):
        return tensor
    laid_out = torch.empty_strided(wanted.shape, wanted.stride, dtype=wanted.dtype, device=tensor.device)
    return laid_out.copy_(tensor)


def mapped(value: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """`change` applied to a tensor, or to those in a list or tuple."""
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, (list, tuple)):
        changed = [mapped(one, change) for one in value]
        return changed if isinstance(value, list) else tuple(changed)
    return value


@contextmanager
def arguments_left_alone(
    kernel: str, target: Target, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Iterator[None]:
    """Raises KernelError when the kernel has written to an argument that the op does not write to.

    Their values are compared: torch counts no writes below autograd.
    """
    written = torch_private.written_names(target.overload)
    names = [one.name for one in torch_private.arguments_of(target.overload)]
    named = [*zip(names, args, strict=False), *kwargs.items()]
    watched = [(name, one) for name, value in named if name not in written for one in tensors_in(value)]
    before = [one.detach().clone() for _, one in watched]
    yield
    for (name, one), copy in zip(watched, before, strict=True):
        if not bool(((one == copy) | (one.isnan() & copy.isnan())).all()):
            raise KernelError(kernel, f"wrote to its argument {name!r}, which the op leaves as it is")


def refuse_unsupported(kernel: Kernel, tensors: Sequence[torch.Tensor]) -> None:
    """Raises KernelError for a floating-point dtype or a device that the kernel does not compute."""
    for tensor in tensors:
        dtype = str(tensor.dtype).removeprefix("torch.")
        if tensor.is_floating_point() and not kernel.supports(dtype, tensor.device.type):
            devices = "" if kernel.devices == ANY_DEVICE else f" on {', '.join(kernel.devices)}"
            raise KernelError(
                f"{kernel.op}={kernel.name}",
                f"computes {', '.join(kernel.dtypes)}{devices}, and the script calls it with {dtype} on "
                f"{tensor.device.type}",
            )


def text_of(shape: Sequence[int], dtype: torch.dtype) -> str:
    """`float32[3, 4]`."""
    return f"{str(dtype).removeprefix('torch.')}[{', '.join(map(str, shape))}]"
