"""Calling a kernel as the op would be called, and refusing what the op would never do."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from numdrift.harness import torch_private
from numdrift.harness.errors import KernelError, NotAvailable

from ..expectation import Expectations, tensors_in
from ..registry import Kernel
from .calls import Call, Output, outputs, same, unwritten


def attempt(kernel: Kernel, calls: Sequence[Call], device: str) -> list[list[Output]]:
    """The outputs of each call, on the CPU; the calls themselves stay as they are.

    Raises KernelError when the kernel raises, returns other shapes or dtypes than the op, or writes to
    arguments that the op leaves alone; NotAvailable when it does not compute such a dtype, or says so itself.
    """
    _check_support(kernel, calls, device)
    return _attempt(f"{kernel.op}={kernel.name}", kernel.load(), kernel.op, calls, device)


def _check_support(kernel: Kernel, calls: Iterable[Call], device: str) -> None:
    for call in calls:
        dtype = _name(call.dtype())
        if not kernel.supports(dtype, device.partition(":")[0]):
            offers = f"it computes {', '.join(kernel.dtypes)} on {', '.join(kernel.devices)} device"
            raise NotAvailable(f"kernel {kernel.op}={kernel.name}", offers)


def _attempt(
    kernel: str, function: Callable[..., Any], op: str, calls: Iterable[Call], device: str
) -> list[list[Output]]:
    expectations = Expectations()
    results = []
    for call in calls:
        given = call.on(device)
        overload = torch_private.find_overload(op, given.args, given.kwargs)
        own = given.copy()
        try:
            result = function(*own.args, **own.kwargs)
        except NotAvailable:
            raise
        except Exception as error:
            raise KernelError(kernel, f"raised {_said(error)}") from error
        _check_result(kernel, result, expectations.of(overload, given.args, given.kwargs))
        _check_arguments(kernel, overload, given, own)
        results.append([_on_cpu(output) for output in outputs(overload, own, result)])
    return results


def _said(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def _check_result(kernel: str, result: Any, expected: Any) -> None:
    tensors = list(tensors_in(result))
    if len(tensors) != len(expected):
        raise KernelError(kernel, f"returned {len(tensors)} tensors, the op returns {len(expected)}")
    for position, (tensor, wanted) in enumerate(zip(tensors, expected, strict=True)):
        which = f" as output {position}" if len(expected) > 1 else ""
        if tuple(tensor.shape) != wanted.shape:
            shapes = f"shape {list(tensor.shape)}{which}, the op returns {list(wanted.shape)}"
            raise KernelError(kernel, f"returned {shapes}")
        if tensor.dtype != wanted.dtype:
            raise KernelError(
                kernel, f"returned {_name(tensor.dtype)}{which}, the op returns {_name(wanted.dtype)}"
            )


def _check_arguments(kernel: str, overload: Any, given: Call, own: Call) -> None:
    before = dict(unwritten(overload, given))
    for name, value in unwritten(overload, own):
        pairs = zip(tensors_in(before[name]), tensors_in(value), strict=True)
        if not all(one.shape == other.shape and bool(same(one, other).all()) for one, other in pairs):
            raise KernelError(kernel, f"wrote to its argument {name!r}, which the op leaves as it is")


def _on_cpu(output: Output) -> Output:
    return Output(output.name, tuple(one.detach().to("cpu") for one in output.tensors))


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
