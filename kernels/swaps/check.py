"""Finding out before anything is started whether swaps can be had."""

from __future__ import annotations

import importlib
from collections.abc import Sequence

from ..registry import KernelRegistry
from .request import SwapRequest
from .swap import find_kernel


def check_swaps(requests: Sequence[SwapRequest], registry: KernelRegistry) -> None:
    """Find each op and kernel, and compile a user's own. Imports torch only for an op without kernels of its own.

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
