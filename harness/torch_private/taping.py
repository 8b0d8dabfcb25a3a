"""What a step tape needs of torch: ops intercepted, storages told apart, ops executed below autograd."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from .dispatching import (
    ShownOps,
    UnorderedMode,
    dispatch_modes,
    no_dispatch,
    without_dispatch_modes,
    without_function_modes,
)
from .operators import dispatched_names
from .presence import private, require

Around = Callable[[Any, tuple[Any, ...], Mapping[str, Any]], Any]
"""Executes an op, or has it executed, and gives what it returned: its overload and its arguments."""


class InterceptedOps(UnorderedMode):
    """Hands each op to `around`, higher-order ones included; compilers ignore it."""

    supports_higher_order_operators = True

    def __init__(self, around: Around) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._around = around

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        return True

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        return self._around(func, args, kwargs or {})


def foreign_dispatch_mode() -> str | None:
    """The class of a dispatch mode that is on and not numdrift's own, None where there is none."""
    names = (type(mode).__name__ for mode in dispatch_modes() if not isinstance(mode, (ShownOps, InterceptedOps)))
    return next(names, None)


class StorageMark:
    """Tells a storage from all others for as long as this object lives, without keeping its bytes.

    The address stays taken: a weak reference keeps the storage's own object, which is not its memory.
    """

    __slots__ = ("_reference",)

    def __init__(self, tensor: torch.Tensor) -> None:
        self._reference = StorageWeakRef(tensor.untyped_storage())

    def storage(self) -> torch.UntypedStorage | None:
        """The storage, None once nobody else holds it any more."""
        revive = getattr(torch.UntypedStorage, "_new_with_weak_ptr", None)
        if revive is None or self._reference.expired():
            return None
        found: torch.UntypedStorage | None = revive(self._reference.cdata)
        return found


def storage_address(tensor: torch.Tensor) -> int:
    """The address of a tensor's storage object, the same for all tensors that share memory."""
    return int(tensor.untyped_storage()._cdata)


def dispatches_itself(tensor: torch.Tensor) -> bool:
    """Whether the tensor's class executes ops by itself (DTensor, quantized or nested subclasses)."""
    return no_dispatch is not None and type(tensor).__torch_dispatch__ is not no_dispatch


@contextmanager
def bare_execution() -> Iterator[None]:
    """Execute ops below autograd: nothing above sees them, no graph grows, the grad mode stays what it is."""
    require(torch._C, "_AutoDispatchBelowAutograd")
    with without_function_modes(), without_dispatch_modes(), torch._C._AutoDispatchBelowAutograd():
        yield


def registered_operation(name: str) -> Any | None:
    """The overload that `name` (`aten.add.Tensor`) stands for, None unless the dispatcher knows it."""
    namespace, _, rest = name.partition(".")
    operation, _, overload = rest.rpartition(".")
    full = f"{namespace}::{operation}" + ("" if overload == "default" else f".{overload}")
    if namespace == "prims":
        with suppress(ImportError):
            importlib.import_module("torch._inductor.inductor_prims")  # defines those that Inductor adds
    if full not in dispatched_names() and full not in private("torch._C", "_dispatch_get_all_op_names")():
        return None
    return getattr(getattr(getattr(torch.ops, namespace), operation), overload)


def op_behind(operation: Any) -> Any | None:
    """The aten overload that an opaque op of a swap stands for (`numdrift.sum_dim_IntList`), None for any
    other op."""
    if operation.namespace != "numdrift":
        return None
    parts = operation.name().partition("::")[2].partition(".")[0].split("_")
    names = (f"aten.{'_'.join(parts[:at])}.{'_'.join(parts[at:])}" for at in range(len(parts) - 1, 0, -1))
    return next((found for name in names if (found := registered_operation(name)) is not None), None)


def is_operation_overload(operation: Any) -> bool:
    """Whether it is one op of the dispatcher, not a higher-order operator."""
    return isinstance(operation, private("torch._ops", "OpOverload"))
