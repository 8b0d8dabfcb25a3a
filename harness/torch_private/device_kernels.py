"""The dispatcher's entries for a device: its own kernels, and the ops that go to its fallback."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from .operators import arguments_of, aten_operations, aten_overload, schema_of
from .presence import private

OWN, FALLBACK = "[kernel]", "[backend fallback]"
"""The end of a key's line in the dispatcher's table: the device's own kernel, or its fallback for ops without one."""


@dataclass(frozen=True, slots=True)
class DeviceKernel:
    """The kernel of an overload on a device.

    call: executes the kernel, even after it has been replaced, and adds no Python frame to the stack
    is_fallback: whether the device has no kernel, so that its fallback takes the op
    is_read: whether the op returns a value to Python, as `.item()` does
    tensors: for each argument, whether it is a tensor
    """

    operation: Any
    name: str
    call: Callable[..., Any]
    is_fallback: bool
    is_read: bool
    tensors: tuple[bool, ...]

    def inputs(self, args: Sequence[Any]) -> tuple[Any, ...]:
        """Return the arguments that the kernel takes when the dispatcher passes `args`.

        The dispatcher passes a number unchanged to a Python kernel, but the device's kernel needs a tensor.
        """
        return tuple(
            wrapped_number(value) if is_tensor and isinstance(value, (bool, int, float, complex)) else value
            for value, is_tensor in zip(args, self.tensors, strict=False)
        )


def device_kernels(key: str) -> Iterator[DeviceKernel]:
    """Yield the aten ops that reach the backend with this dispatch key, without ops that are composed of other ops.

    Raises NotAvailable if this torch does not report them.
    """
    for name in aten_operations():
        kind = dispatched_to(name, key)
        if kind in (OWN, FALLBACK):
            yield from _kernels_of(name, key, is_fallback=kind == FALLBACK)


def kernels_under(key: str) -> Iterator[DeviceKernel]:
    """Yield the aten ops for which a kernel is registered under this dispatch key."""
    for name in private("torch._C", "_dispatch_get_registrations_for_dispatch_key")(key):
        yield from _kernels_of(name, key, is_fallback=False)


def _kernels_of(name: str, key: str, *, is_fallback: bool) -> Iterator[DeviceKernel]:
    operation = aten_overload(name)
    if operation is not None:
        tensors = tuple(argument.kind in ("Tensor", "Optional[Tensor]") for argument in arguments_of(operation))
        returns = [str(result.type) for result in schema_of(operation).returns]
        is_read = bool(returns) and not any("Tensor" in text for text in returns)
        yield DeviceKernel(operation, name, boxed_kernel(operation, key), is_fallback, is_read, tensors)


def boxed_kernel(overload: Any, key: str) -> Callable[..., Any]:
    """Return a function that calls an overload's kernel for a dispatch key, even after the key is overridden.

    It adds no Python frame to the stack. Raises RuntimeError if there is no kernel for the key.
    """
    kernel = private("torch.library", "get_kernel")(overload, key)
    keys = private("torch._C", "DispatchKeySet")(getattr(private("torch._C", "DispatchKey"), key))
    return functools.partial(kernel.call_boxed, keys)


def dispatched_to(name: str, key: str) -> str:
    """Return the dispatcher's entry for an op (`aten::add.Tensor`) and a key.

    It is `[kernel]`, `[backend fallback]`, `[math kernel]` and so on, "" if there is none.
    """
    table = private("torch._C", "_dispatch_dump_table")(name)
    line = next((line for line in table.splitlines() if line.startswith(f"{key}:")), "")
    return line[line.rindex("[") :] if "[" in line else ""


@functools.cache
def is_taken_by_fallback(operation: Any, key: str) -> bool:
    """Return whether the device with this dispatch key has no kernel for an overload, and passes it to its fallback."""
    return dispatched_to(operation.name(), key) == FALLBACK


_wrapped: dict[tuple[type, str], torch.Tensor] = {}


def wrapped_number(value: complex) -> torch.Tensor:
    """Return the tensor in which torch wraps the number of `tensor * 2`. Such a tensor is weak in type promotion.

    Autograd saves the tensor for the backward of the product, and this function reads it from there. The product is
    computed in a new thread, where autograd is on, whatever the grad mode of the caller.
    """
    key = (type(value), repr(value))
    if key not in _wrapped:

        def wrap() -> None:
            product = torch.mul(torch.ones((), requires_grad=True), value)
            _wrapped[key] = product.grad_fn._saved_other  # type: ignore[union-attr]

        worker = threading.Thread(target=wrap)
        worker.start()
        worker.join()
    return _wrapped[key]
