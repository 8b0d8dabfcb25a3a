"""The dispatcher: modes that see or intercept every op, the ops that are registered, and the identity of storages."""

from __future__ import annotations

import importlib
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

from .operators import dispatched_names
from .presence import private, require


def dispatch_modes() -> list[Any]:
    """Return the active dispatch modes, outermost first."""
    return list(private("torch.utils._python_dispatch", "_get_current_dispatch_mode_stack")())


without_function_modes: Any = getattr(torch._C, "DisableTorchFunction", torch.no_grad)
"""A context in which tensor subclasses and torch function modes see nothing.

Where torch lacks it, this is `torch.no_grad`, which hides nothing."""

without_dispatch_modes: Any = getattr(torch._C, "_DisableTorchDispatch", torch.no_grad)
"""A context in which dispatch modes see nothing. Where torch lacks it, this is `torch.no_grad`, which hides nothing."""

no_dispatch: Any = getattr(torch._C, "_disabled_torch_dispatch_impl", None)
"""The `__torch_dispatch__` of a class that does not define one; None where torch lacks it."""


def current_autograd_node() -> Any:
    """Return the node of the backward that this thread is executing, None outside of a backward."""
    return torch._C._current_autograd_node()


def next_sequence_number() -> int:
    """Return the number of this thread's next autograd node. The number links a backward op to its forward op."""
    autograd: Any = torch.autograd
    require(autograd, "_get_sequence_nr")
    return int(autograd._get_sequence_nr())


NO_SEQUENCE = 2**64 - 1
"""The number of nodes that belong to no op, such as those that accumulate a parameter's gradient."""


def sequence_number(node: Any) -> int | None:
    """Return the number of an autograd node, None for a node that belongs to no op."""
    require(node, "_sequence_nr")
    number = int(node._sequence_nr())
    return None if number == NO_SEQUENCE else number


def version_of(tensor: torch.Tensor) -> int | None:
    """Return the number of in-place changes of a tensor; None for an inference tensor, which does not count them."""
    return None if tensor.is_inference() else int(tensor._version)


class InterceptedOps(TorchDispatchMode):
    """A dispatch mode that passes each op to its method `around`, including higher-order ops.

    It may be left before modes that were entered after it, since it removes only itself. Compilers ignore it, so it
    does not change their graphs.
    """

    supports_higher_order_operators = True

    def around(self, operation: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Execute an op and return its results."""
        return operation(*args, **kwargs)

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        return True

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        outputs = self.around(func, args, kwargs or {})
        if sys.modules.keys().isdisjoint(DEFERRING_MODULES):
            return outputs
        return as_deferring_device_gives(outputs, args, kwargs or {})

    def __exit__(self, *raised: object) -> None:
        modes = dispatch_modes()
        if self not in modes:
            return
        pop = private("torch.utils._python_dispatch", "_pop_mode")
        push = private("torch.utils._python_dispatch", "_push_mode")
        later = [pop() for _ in modes[modes.index(self) + 1 :]]
        super().__exit__(*raised)  # type: ignore[no-untyped-call]
        for mode in reversed(later):
            push(mode)


@contextmanager
def functions_transformed() -> Iterator[None]:
    """Make `torch.func` transform the calls within the context.

    Otherwise `torch.func` does not transform the calls that a dispatch mode's handler makes: torch excludes the keys of
    `torch.func` within the handler (2.9).
    """
    keys = private("torch._C", "DispatchKey")
    excluded = private("torch._C", "_dispatch_tls_local_exclude_set")()
    for name in ("FuncTorchDynamicLayerFrontMode", "FuncTorchDynamicLayerBackMode", "PythonTLSSnapshot"):
        excluded = excluded.remove(getattr(keys, name))
    included = private("torch._C", "_dispatch_tls_local_include_set")()
    with private("torch._C", "_ForceDispatchKeyGuard")(included, excluded):
        yield


DEFERRING_MODULES = ("torch_xla", "torch._lazy.ts_backend")
"""The modules that start a device whose ops are executed later."""


def _takes_unwrapped(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Return whether an op takes an unwrapped tensor of a deferring device, directly or in a list."""
    for argument in (*args, *kwargs.values()):
        for tensor in argument if isinstance(argument, (list, tuple)) else (argument,):
            if isinstance(tensor, torch.Tensor) and tensor.device.type in ("xla", "lazy"):
                return not private("torch", "_is_functional_tensor")(tensor)
    return False


def as_deferring_device_gives(value: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Return an op's result as the script receives it after a dispatch mode has seen the call.

    torch_xla and torch's lazy core wrap their tensors so that torch makes their views and in-place writes functional.
    If an op takes wrapped tensors, torch wraps its results above the mode. The results of any other op, such as a batch
    moved to the device, are wrapped by the device itself, but not under a mode (torch_xla 2.9, torch 2.13). Without the
    wrapper, an in-place write to a view is lost, the graphs differ, and a lazy view in a backward raises an error
    ("aten::as_strided ... has no implementation for the backend").
    """
    if not isinstance(value, torch.Tensor) or value.device.type not in ("xla", "lazy"):
        return value
    if _takes_unwrapped(args, kwargs) or private("torch", "_is_functional_tensor")(value):
        return value
    return private("torch", "_to_functional_tensor")(value)


def foreign_dispatch_mode() -> str | None:
    """Return the class name of an active dispatch mode that is not numdrift's, None if there is none."""
    names = (type(mode).__name__ for mode in dispatch_modes() if not isinstance(mode, InterceptedOps))
    return next(names, None)


class StorageMark:
    """The identity of a storage for as long as this object lives, without keeping its bytes.

    A weak reference keeps the storage object, but not its memory. The address of the object stays reserved.
    """

    __slots__ = ("_reference",)

    def __init__(self, tensor: torch.Tensor) -> None:
        self._reference = StorageWeakRef(tensor.untyped_storage())

    def storage(self) -> torch.UntypedStorage | None:
        """Return the storage, None once nothing else holds it."""
        revive = getattr(torch.UntypedStorage, "_new_with_weak_ptr", None)
        if revive is None or self._reference.expired():
            return None
        storage: torch.UntypedStorage | None = revive(self._reference.cdata)
        return storage


def storage_address(tensor: torch.Tensor) -> int:
    """Return the address of a tensor's storage object, the same for all tensors that share memory."""
    return int(tensor.untyped_storage()._cdata)


def dispatches_itself(tensor: torch.Tensor) -> bool:
    """Return whether the tensor's class executes ops by itself (DTensor, quantized or nested subclasses)."""
    return no_dispatch is not None and type(tensor).__torch_dispatch__ is not no_dispatch


@contextmanager
def unseen() -> Iterator[None]:
    """Hide what the context executes from the modes that the script has left active, and from autograd."""
    with torch.no_grad(), without_dispatch_modes(), without_function_modes():
        yield


class _OwnKernels(threading.local):
    """True in a thread whose ops reach torch's own kernels although other kernels are swapped in."""

    wanted = False


_own_kernels = _OwnKernels()


@contextmanager
def without_swaps() -> Iterator[None]:
    """Let the context's ops reach torch's own kernels: swapped kernels neither compute nor count them."""
    before, _own_kernels.wanted = _own_kernels.wanted, True
    try:
        yield
    finally:
        _own_kernels.wanted = before


def swaps_are_left_out() -> bool:
    """Return whether this thread is in a context of `without_swaps`."""
    return _own_kernels.wanted


class _BareExecution:
    """The context `bare_execution`. It is no generator, because it is entered for each value of a step."""

    __slots__ = ("_guards",)

    def __enter__(self) -> None:
        require(torch._C, "_AutoDispatchBelowAutograd")
        self._guards = without_function_modes(), without_dispatch_modes(), torch._C._AutoDispatchBelowAutograd()
        for guard in self._guards:
            guard.__enter__()

    def __exit__(self, *raised: object) -> None:
        for guard in reversed(self._guards):
            guard.__exit__(*raised)


def bare_execution() -> _BareExecution:
    """Execute ops below autograd: no hook above sees them, no graph grows, and the grad mode does not change."""
    return _BareExecution()


def registered_operation(name: str) -> Any | None:
    """Return the overload that `name` (`aten.add.Tensor`) denotes, None if the dispatcher does not know it."""
    namespace, _, qualified = name.partition(".")
    operation, _, overload = qualified.rpartition(".")
    full = f"{namespace}::{operation}" + ("" if overload == "default" else f".{overload}")
    if namespace == "prims":
        with suppress(ImportError):
            importlib.import_module("torch._inductor.inductor_prims")  # defines the prims that Inductor adds
    if full not in dispatched_names() and full not in private("torch._C", "_dispatch_get_all_op_names")():
        return None
    return getattr(getattr(getattr(torch.ops, namespace), operation), overload)


def op_behind(operation: Any) -> Any | None:
    """Return the aten overload that a swap's opaque op (`numdrift.sum_dim_IntList`) replaces, None for any other op."""
    if operation.namespace != "numdrift":
        return None
    parts = operation.name().partition("::")[2].partition(".")[0].split("_")
    names = (f"aten.{'_'.join(parts[:at])}.{'_'.join(parts[at:])}" for at in range(len(parts) - 1, 0, -1))
    return next((overload for name in names if (overload := registered_operation(name)) is not None), None)


def is_operation_overload(operation: Any) -> bool:
    """Return whether `operation` is an op of the dispatcher, not a higher-order operator."""
    return isinstance(operation, private("torch._ops", "OpOverload"))
