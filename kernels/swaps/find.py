"""Finding ops and kernels by name, before anything is started. Imports torch only where a name makes it
necessary."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from numdrift.harness.errors import CompileError, KernelNotFound, UsageError

from ..registry import ANY_DEVICE, Kernel, KernelRegistry, built_in, load_target
from .request import SwapRequest


def check_swaps(requests: Sequence[SwapRequest], registry: KernelRegistry, device: str) -> None:
    """Find each op and kernel, and compile a user's C. A user's Python is parsed and not executed.

    Raises KernelNotFound, naming the nearest, CompileError, and UsageError for a user's kernel that is wrong
    and for a kernel that does not run on `device`."""
    for request in requests:
        check_op(request.op, registry)
        kernel = find_kernel(request, registry, run=False)
        if kernel.devices != ANY_DEVICE and device.partition(":")[0] not in kernel.devices:
            raise UsageError(
                f"{request} runs on {' and '.join(kernel.devices)}, and this mode on {device}; choose another kernel"
            )


def check_op(op: str, registry: KernelRegistry) -> None:
    """Raises KernelNotFound, naming the nearest, when there is no such op or it computes nothing."""
    registered = {operation.name for operation in registry.operations()}
    if op not in registered:
        load_target("numdrift.kernels.swaps.target:targets_of")(op)


def find_kernel(request: SwapRequest, registry: KernelRegistry, *, run: bool = True) -> Kernel:
    """The kernel of a request; `run` executes a user's Python file, without it the record has a name and no
    more.

    Raises KernelNotFound, and for a user's kernel what `user_kernel` raises.
    """
    if request.is_own:
        return own_kernel(request.op, Path(request.kernel), registry, run=run)
    try:
        return registry.kernel(request.op, request.kernel)
    except KernelNotFound as error:
        covering = request.op.removesuffix("_")
        if covering != request.op and request.kernel in {one.name for one in registry.kernels(covering)}:
            raise KernelNotFound(
                f"{error}; kernel.{covering}={request.kernel} covers the in-place form"
            ) from None
        raise


def known_kernels(own: Sequence[tuple[str, Path]] = (), *, run: bool = True) -> KernelRegistry:
    """A registry of what numdrift ships and of the user's own kernels, given as (op, path).

    `run` executes the user's Python files. Raises what `user_kernel` raises, and UsageError for a taken name.
    """
    registry = built_in()
    for op, path in own:
        registry.add(own_kernel(op, path, registry, run=run))
    return registry


def own_kernel(op: str, path: Path, registry: KernelRegistry, *, run: bool) -> Kernel:
    """The record of a user's own kernel. Raises UsageError when the op has a kernel of that name."""
    for known in registry.kernels(op):
        if known.name == path.stem and known.path and Path(known.path).resolve() == path.resolve():
            return known
    name = registry.name_of_own(op, path)
    if run or path.suffix != ".py":
        kernel: Kernel = load_target("numdrift.kernels.user:user_kernel")(op, path)
        return kernel
    path = load_target("numdrift.kernels.native.source:checked_path")(path)
    try:
        compile(path.read_bytes(), str(path), "exec", dont_inherit=True)
    except SyntaxError as error:
        raise CompileError(path, f"{path.name}:{error.lineno}: {error.msg}") from None
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} cannot be read: {error}") from None
    return Kernel(op, name, "", "", "numdrift.kernels.user:load", path=str(path))
