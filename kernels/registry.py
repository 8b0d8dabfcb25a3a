"""The kernels of each op as records; a kernel's code, and torch, are imported on first use.

An op is named as in aten, without the namespace (`tanh_backward`, or `sum.dim_IntList` for one overload).
Every op, registered or not, has the kernels `aten`, `decomposed`, `fp64` and `inductor`; see `generic`.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numdrift.harness.errors import KernelNotFound, UsageError, nearest

FLOATING = ("float32", "float64", "bfloat16", "float16")
ANY_DEVICE = ("any",)


@dataclass(frozen=True, slots=True)
class Kernel:
    """One implementation of one op.

    target: `module:function`; the function has the op's arguments and results
    source: the origin of the formula
    devices: torch device types, or "any"
    native: whether it has C code; without a compiler, a torch formula computes the same bits
    needs_compiler: whether it has C code but no such formula
    of_any_op: whether the function takes the op's name as its first argument
    path: a user's file, from which `target` then creates the function
    on_request: whether it is measured only if named, because its first call takes seconds
    """

    op: str
    name: str
    description: str
    formula: str
    target: str
    source: str = ""
    dtypes: tuple[str, ...] = FLOATING
    devices: tuple[str, ...] = ANY_DEVICE
    native: bool = False
    needs_compiler: bool = False
    of_any_op: bool = False
    path: str = ""
    on_request: bool = False

    def load(self, op: str = "") -> Callable[..., Any]:
        """Import the function. `op` narrows a kernel of any op to one overload (`sum.dim_IntList`)."""
        function: Callable[..., Any] = load_target(self.target)
        if self.path:  # the imported function creates the kernel from the user's file
            return function(self.op, self.path)  # type: ignore[no-any-return]
        return functools.partial(function, op or self.op) if self.of_any_op else function

    def supports(self, dtype: str, device: str) -> bool:
        """Check whether the kernel computes this dtype (`float32`) on this device type (`cpu`)."""
        return dtype in self.dtypes and (self.devices == ANY_DEVICE or device in self.devices)


@dataclass(frozen=True, slots=True)
class Operation:
    """One op that has its own kernels.

    reference: `module:function`, the op in float64 without cancellation; if empty, the op itself executed in float64
        is the reference
    exact: `module:function`, an elementwise op on mpmath numbers
    also: aten ops that replace the op in other modes; a swap of the op also applies to these, with their kernels of
        the same name
    """

    name: str
    family: str
    summary: str
    reference: str = ""
    exact: str = ""
    also: tuple[str, ...] = ()


_INDUCTOR = "the code that torch.compile generates for this single op; compiled at the first call"

GENERIC = (
    Kernel("", "aten", "the kernel that torch itself dispatches to", "as in ATen",
           "numdrift.kernels.generic:aten", of_any_op=True),
    Kernel("", "decomposed", "the decomposition that torch ships, executed op by op", "as in torch._decomp",
           "numdrift.kernels.generic:decomposed", of_any_op=True),
    Kernel("", "fp64", "executed in float64 and cast back", "round(op(double(inputs)))",
           "numdrift.kernels.generic:fp64", of_any_op=True),
    Kernel("", "inductor", _INDUCTOR, "as Inductor generates it",
           "numdrift.kernels.generic:inductor", devices=("cpu", "cuda"), of_any_op=True, on_request=True),
)  # fmt: skip


class KernelRegistry:
    """Ops by name, and the kernels of each by name."""

    def __init__(self) -> None:
        self._operations: dict[str, Operation] = {}
        self._kernels: dict[str, dict[str, Kernel]] = {}

    def register(self, operation: Operation, kernels: Iterable[Kernel]) -> None:
        """Add an op and its kernels. Raises ValueError if the op is registered already."""
        if operation.name in self._operations:
            raise ValueError(f"op {operation.name!r} is already registered: {self._operations[operation.name]}")
        self._operations[operation.name] = operation
        self._kernels[operation.name] = {}
        for kernel in kernels:
            self.add(kernel)

    def add(self, kernel: Kernel) -> None:
        """Add one kernel to an op, registered or not. Raises ValueError if the op has a kernel of this name already."""
        kernels = self._kernels.setdefault(kernel.op, {})
        if kernel.name in kernels:
            raise ValueError(f"kernel {kernel.op}={kernel.name} is already {kernels[kernel.name].target}")
        kernels[kernel.name] = kernel

    def operations(self) -> tuple[Operation, ...]:
        return tuple(self._operations.values())

    def operation(self, op: str) -> Operation:
        """Return the record of an op, or an empty record for an op without an entry."""
        name = op.partition(".")[0]
        return self._operations.get(op) or self._operations.get(name, Operation(op, "unregistered", f"aten.{op}"))

    def kernels(self, op: str) -> tuple[Kernel, ...]:
        """Return every kernel of an op: its own, and the generic kernels whose names it does not use."""
        # An overload with an entry has its own kernels; any other overload has those of its op.
        own = self._kernels.get(op) or self._kernels.get(op.partition(".")[0], {})
        free = [dataclasses.replace(kernel, op=op) for kernel in GENERIC if kernel.name not in own]
        # aten, the plainest kernel, comes first in lists
        first = [kernel for kernel in free if kernel.name == "aten"]
        return (*first, *own.values(), *(kernel for kernel in free if kernel.name != "aten"))

    def kernel(self, op: str, name: str) -> Kernel:
        """Find one kernel. Raises KernelNotFound, with the nearest name, if there is none."""
        kernels = {kernel.name: kernel for kernel in self.kernels(op)}
        if name not in kernels:
            raise KernelNotFound(f"op {op!r} has no kernel {name!r}; {nearest(name, kernels)}")
        return kernels[name]

    def name_of_own(self, op: str, path: Path) -> str:
        """Return the name of a user's kernel: the stem of its file.

        Raises UsageError if the op already has a kernel of this name.
        """
        if any(kernel.name == path.stem for kernel in self.kernels(op)):
            raise UsageError(f"op {op} already has a kernel {path.stem!r}; give {path} another name")
        return path.stem


def op_name(text: str) -> str:
    """Return the registry's name of an op: `gelu` for `aten.gelu` and `aten::gelu`."""
    return text.removeprefix("aten::").removeprefix("aten.")


def load_target(target: str) -> Any:
    """Import the object that `module:attribute` names."""
    module, _, attribute = target.partition(":")
    return getattr(importlib.import_module(module), attribute)


def built_in() -> KernelRegistry:
    """Return a new registry with every kernel that numdrift ships, without importing torch."""
    registry = KernelRegistry()
    for part in CATALOGUE:
        for op in load_target(f"numdrift.kernels.catalogue.{part}:OPS"):
            registry.register(op.operation, op.kernels())
    return registry


CATALOGUE = ("pointwise", "normalizations", "products", "optimizers")
"""The modules of `kernels/catalogue`, in the order in which their ops are listed."""
