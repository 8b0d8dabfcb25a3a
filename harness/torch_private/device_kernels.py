"""What the dispatcher has for a device: the kernels of its own, and the ops that its fallback takes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from .operators import arguments_of, aten_operations, schema_of
from .presence import private

OWN, FALLBACK = "[kernel]", "[backend fallback]"
"""How the dispatcher's table ends the line of a key: a kernel of its own, or what takes every op that has
none."""


@dataclass(frozen=True, slots=True)
class DeviceKernel:
    """What an overload comes to on a device: `call` executes it, whatever replaces it afterwards, and adds no
    Python frame to the stack. `is_fallback` says that the device has no kernel for it, and hands it on;
    `is_read` that it gives Python a value, as `.item()` does. `tensors` tells of each argument whether it is
    a tensor."""

    operation: Any
    name: str
    call: Callable[..., Any]
    is_fallback: bool
    is_read: bool
    tensors: tuple[bool, ...]


def device_kernels(key: str) -> Iterator[DeviceKernel]:
    """All aten ops that reach the backend with this dispatch key; what is made of other ops is none of them.

    Raises NotAvailable where this torch does not tell.
    """
    find = private("torch.library", "get_kernel")
    keys = private("torch._C", "DispatchKeySet")(getattr(private("torch._C", "DispatchKey"), key))
    for name in aten_operations():
        kind = dispatched_to(name, key)
        if kind not in (OWN, FALLBACK):
            continue
        _, _, rest = name.partition("::")
        packet, _, overload = rest.partition(".")
        operation = getattr(getattr(torch.ops.aten, packet, None), overload or "default", None)
        if operation is not None:
            tensors = tuple(one.kind in ("Tensor", "Optional[Tensor]") for one in arguments_of(operation))
            returns = [str(one.type) for one in schema_of(operation).returns]
            is_read = bool(returns) and not any("Tensor" in one for one in returns)
            call = functools.partial(find(operation, key).call_boxed, keys)
            yield DeviceKernel(operation, name, call, kind == FALLBACK, is_read, tensors)


def dispatched_to(name: str, key: str) -> str:
    """What the dispatcher has for an op (`aten::add.Tensor`) and a key: `[kernel]`, `[backend fallback]`,
    `[math kernel]` and so on, "" for nothing."""
    table = private("torch._C", "_dispatch_dump_table")(name)
    line = next((line for line in table.splitlines() if line.startswith(f"{key}:")), "")
    return line[line.rindex("[") :] if "[" in line else ""


@functools.cache
def is_taken_by_fallback(operation: Any, key: str) -> bool:
    """Whether the device with this dispatch key has no kernel for an overload and its fallback takes it."""
    return dispatched_to(operation.name(), key) == FALLBACK
