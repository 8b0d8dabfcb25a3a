"""Finding ops and kernels by name, before anything is started. Imports torch only where a name makes it necessary."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path

from ...harness.errors import UsageError
from ..registry import Kernel, KernelRegistry, built_in, load_target
from .request import SwapRequest


def check_swaps(requests: Sequence[SwapRequest], registry: KernelRegistry) -> None:
    """Find each op and kernel, and compile a user's own.

    Raises KernelNotFound, naming the nearest, CompileError, and UsageError for a user's kernel that is wrong.
    """
    for request in requests:
        check_op(request.op, registry)
        find_kernel(request, registry)


def check_op(op: str, registry: KernelRegistry) -> None:
    """Raises KernelNotFound, naming the nearest, when there is no such op."""
    registered = {operation.name for operation in registry.operations()}
    if op in registered:
        return
    torch_private = importlib.import_module("numdrift.harness.torch_private")
    if "." in op:
        torch_private.find_overload(op)
    else:
        torch_private.find_packet(op)


def find_kernel(request: SwapRequest, registry: KernelRegistry) -> Kernel:
    """The kernel of a request. Raises KernelNotFound, and for a user's kernel what `user_kernel` raises."""
    if request.is_own:
        return own_kernel(request.op, Path(request.kernel))
    return registry.kernel(request.op, request.kernel)


def known_kernels(own: Sequence[tuple[str, Path]] = ()) -> KernelRegistry:
    """A registry of what numdrift ships and of the user's own kernels, given as (op, path).

    Raises what `user_kernel` raises, and UsageError for a name that the op has already.
    """
    registry = built_in()
    for op, path in own:
        kernel = own_kernel(op, path)
        if any(known.name == kernel.name for known in registry.kernels(op)):
            raise UsageError(f"op {op} has a kernel {kernel.name!r} already; give {path} another name")
        registry.add(kernel)
    return registry


def own_kernel(op: str, path: Path) -> Kernel:
    """The record of a user's own kernel."""
    kernel: Kernel = load_target("numdrift.kernels.user:user_kernel")(op, path)
    return kernel
