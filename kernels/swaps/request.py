"""The swaps that a mode requests: `kernel.<op>[@<module>][:<occurrence>]=<kernel>` and `decompose.<op>=off`.

    kernel.tanh_backward=fma            every tanh_backward
    kernel.tanh_backward@net.1=fma      those of the module net.1 and of its submodules
    kernel.tanh_backward@net.1:0=fma    the first of net.1 in each step
    kernel.tanh_backward@:2=fma         the third of each step
    kernel.sum.dim_IntList=kahan        one overload of an op
    kernel.tanh_backward=mine.c         a user's own kernel

Parsing does not import torch.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from numdrift.harness.errors import CompileError, KernelNotFound, UsageError

from ..registry import ANY_DEVICE, Kernel, KernelRegistry, built_in, load_target

KEY = re.compile(r"(?:aten(?:\.|::))?(?P<op>\w+(?:\.\w+)?)(?:@(?P<module>[\w.]*)(?::(?P<occurrence>\d+))?)?")
OWN = (".c", ".py")
"""The suffixes of users' own kernels."""


@dataclass(frozen=True, slots=True)
class SwapRequest:
    """One requested swap. `key` is its text before `=`; `module` and `occurrence` are its scope, if any."""

    key: str
    op: str
    kernel: str
    module: str | None = None
    occurrence: int | None = None

    def __str__(self) -> str:
        return f"{self.key}={'off' if self.key.startswith('decompose.') else self.kernel}"

    @property
    def is_own(self) -> bool:
        """Check whether `kernel` is the path of a user's kernel."""
        return self.kernel.endswith(OWN)

    @property
    def from_decomposition(self) -> bool:
        """Check whether this is `decompose.<op>=off`, which runs the op's own kernel in place of its decomposition."""
        return self.key.startswith("decompose.")


def swap_requests(kernel: Mapping[str, str], decompose: Mapping[str, str]) -> tuple[SwapRequest, ...]:
    """Read the `kernel.` and `decompose.` keys of a mode. Raises UsageError for an invalid key."""
    kernels = [_request("kernel", key, name) for key, name in kernel.items()]
    return (*kernels, *(_request("decompose", key, "aten") for key in decompose))


def _request(group: str, key: str, kernel: str) -> SwapRequest:
    match = KEY.fullmatch(key)
    if match is None or (group == "decompose" and "@" in key):
        form = "OP, OP@MODULE, OP@MODULE:N or OP@:N" if group == "kernel" else "OP"
        raise UsageError(f"{group}.{key} is not a swap: write {form} after {group}.")
    module, occurrence = match["module"], match["occurrence"]
    if module == "" and occurrence is None:
        raise UsageError(
            f"{group}.{key} names no module after @; write, for example, {group}.{match['op']}@net.1={kernel}"
        )
    return SwapRequest(
        key=f"{group}.{key}",
        op=match["op"],
        kernel=kernel,
        module=module or None,
        occurrence=None if occurrence is None else int(occurrence),
    )


# Find ops and kernels by name before anything is started. torch is imported only if a name requires it.


def check_swaps(requests: Sequence[SwapRequest], registry: KernelRegistry, device: str) -> None:
    """Find each op and kernel, and compile users' C files; users' Python files are parsed but not executed.

    Raises KernelNotFound, with the nearest name; CompileError for a file that does not compile; and UsageError for any
    other invalid file, and for a kernel that does not run on `device`."""
    for request in requests:
        check_op(request.op, registry)
        kernel = find_kernel(request, registry, run=False)
        if kernel.devices != ANY_DEVICE and device.partition(":")[0] not in kernel.devices:
            raise UsageError(
                f"{request} runs on {' and '.join(kernel.devices)}, but this mode runs on {device}; choose another "
                "kernel"
            )


def check_op(op: str, registry: KernelRegistry) -> None:
    """Raise KernelNotFound if there is no such op (naming the nearest one) or if the op cannot be swapped."""
    registered = {operation.name for operation in registry.operations()}
    if op not in registered:
        load_target("numdrift.kernels.swaps.swap:targets_of")(op)


def find_kernel(request: SwapRequest, registry: KernelRegistry, *, run: bool = True) -> Kernel:
    """Return the kernel of a request. `run` executes a user's Python file; otherwise, only the file's name is known.

    Raises KernelNotFound, and for a user's kernel the errors of `user_kernel`.
    """
    if request.is_own:
        return own_kernel(request.op, Path(request.kernel), registry, run=run)
    try:
        return registry.kernel(request.op, request.kernel)
    except KernelNotFound as error:
        covering = request.op.removesuffix("_")
        if covering != request.op and request.kernel in {kernel.name for kernel in registry.kernels(covering)}:
            raise KernelNotFound(f"{error}; kernel.{covering}={request.kernel} covers the in-place form") from None
        raise


def known_kernels(own: Sequence[tuple[str, Path]] = (), *, run: bool = True) -> KernelRegistry:
    """Return a registry of the shipped kernels and of the user's own, which are passed as pairs (op, path).

    `run` executes the user's Python files. Raises the errors of `user_kernel`, and UsageError if a name is taken.
    """
    registry = built_in()
    for op, path in own:
        registry.add(own_kernel(op, path, registry, run=run))
    return registry


def own_kernel(op: str, path: Path, registry: KernelRegistry, *, run: bool) -> Kernel:
    """Return the record of a user's own kernel. Raises UsageError if the op already has a kernel of that name."""
    for registered in registry.kernels(op):
        if registered.name == path.stem and registered.path and Path(registered.path).resolve() == path.resolve():
            return registered
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
