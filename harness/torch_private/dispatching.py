"""The dispatcher: modes that see or intercept every op, kernels replaced, ops defined, storages told apart."""

from __future__ import annotations

import functools
import importlib
import inspect
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

from ..errors import NotAvailable
from .operators import arguments_of, dispatched_names
from .presence import private, require

Taken = Callable[[Any, Sequence[Any], Mapping[str, Any], Any], None]
"""Takes an op that has run, or that has failed: its overload, its arguments, and what it returned or raised."""


class UnorderedMode(TorchDispatchMode):
    """A dispatch mode that may be left while one that was entered after it goes on: each takes out itself only.

    Compilers ignore it, so what they build stays what it is.
    """

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        return True

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


def dispatch_modes() -> list[Any]:
    """The dispatch modes that are on, outermost first."""
    return list(private("torch.utils._python_dispatch", "_get_current_dispatch_mode_stack")())


class ShownOps(UnorderedMode):
    """Shows each op that has run to `taken`, and one that has raised to `failed`."""

    def __init__(self, taken: Taken, failed: Taken | None = None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._taken = taken
        self._failed = failed

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        named = kwargs or {}
        try:
            outputs = func(*args, **named)
        except Exception as error:
            if self._failed is not None:
                self._failed(func, args, named, error)
            raise
        # What a profiler and TorchScript put between the ops computes nothing.
        if func.namespace not in ("profiler", "prim"):
            self._taken(func, args, named, outputs)
        return as_torch_xla_gives(outputs, args, named) if "torch_xla" in sys.modules else outputs


without_function_modes: Any = getattr(torch._C, "DisableTorchFunction", torch.no_grad)
"""A context in which tensor subclasses and torch function modes see nothing; without the hook it changes
nothing."""

without_dispatch_modes: Any = getattr(torch._C, "_DisableTorchDispatch", torch.no_grad)
"""A context in which dispatch modes see nothing; without the hook it changes nothing."""

no_dispatch: Any = getattr(torch._C, "_disabled_torch_dispatch_impl", None)
"""The `__torch_dispatch__` of a class that has none of its own; None where torch does not have it."""


def dispatch_key(device: str) -> str:
    """The dispatch key of a device type: `CPU` for `cpu`."""
    return str(private("torch._C", "_dispatch_key_for_device")(device))


_libraries: list[Any] = []
"""An op lives as long as the library that defines it."""


def original_kernel(overload: Any, key: str) -> Callable[..., Any]:
    """What torch dispatches to for a key now, callable also once the key is overridden.

    Raises NotAvailable where torch has nothing for the key.
    """
    find = private("torch.library", "get_kernel")
    try:
        kernel = find(overload, key)
    except RuntimeError as error:
        raise NotAvailable(f"{overload} for {key}", str(error).splitlines()[0]) from error
    keys = private("torch._C", "DispatchKeySet")(getattr(private("torch._C", "DispatchKey"), key))
    tensors = [(place, one.name) for place, one in enumerate(arguments_of(overload)) if one.kind == "Tensor"]

    def call(*args: Any, **kwargs: Any) -> Any:
        # `x * 2` is a call of mul.Tensor, and an override is given the number itself.
        for place, name in tensors:
            given = args[place] if place < len(args) else kwargs.get(name)
            if isinstance(given, (int, float, complex)):
                return _with_numbers(functools.partial(kernel.call_boxed, keys, *args, **kwargs))
        return kernel.call_boxed(keys, *args, **kwargs)

    return call


def _with_numbers(call: Callable[[], Any]) -> Any:
    """Make a call in which torch takes numbers for tensors, and remembers that they are numbers.

    A tensor made of the number would be another one: its dtype counts, and in low precision it is rounded first. Torch
    makes the right one while an op of `prims` is under way, whatever that op does (`ToIValueAllowNumbersAsTensors` in
    torch/csrc/jit/python/pybind_utils.h, torch 2.13).
    """
    results: list[Any] = []
    before = getattr(_under_way, "call", None)  # a kernel may call others with numbers
    _under_way.call = lambda: results.append(call())
    try:
        _number_taker()()
    finally:
        _under_way.call = before
    return results[0]


_under_way = threading.local()


@functools.cache
def _number_taker() -> Any:
    """An op of `prims` that makes the call that is under way in its thread."""
    library: Any = torch.library.Library("prims", "FRAGMENT")
    library.define("numdrift_takes_numbers() -> ()")
    library.impl("numdrift_takes_numbers", lambda: _under_way.call(), "CompositeExplicitAutograd")
    _libraries.append(library)
    return torch.ops.prims.numdrift_takes_numbers.default


def decomposed(overload: Any, *args: Any, **kwargs: Any) -> Any:
    """Call an op that is made of other ops by these, whatever replaces it for a device."""
    require(overload, "_op_dk")
    key = private("torch._C", "DispatchKey").CompositeImplicitAutograd
    return overload._op_dk(key, *args, **kwargs)


class Overrides:
    """Kernels of aten ops replaced in this process, until `close`."""

    def __init__(self) -> None:
        self._library: Any = torch.library.Library("aten", "IMPL")
        # Without it torch refuses to replace a kernel that somebody else has registered from Python (2.7 on).
        known = inspect.signature(self._library.impl).parameters
        self._allowed = {"allow_override": True} if "allow_override" in known else {}

    def replace(self, overload: Any, key: str, kernel: Callable[..., Any]) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            self._library.impl(overload, kernel, key, **self._allowed)

    def close(self) -> None:
        self._library._destroy()


def current_autograd_node() -> Any:
    """The node of the backward that is being executed on this thread, None outside of one."""
    return torch._C._current_autograd_node()


class OpaqueOps:
    """Ops `numdrift::<name>` of this process, which compilers take as they are, until `close`."""

    def __init__(self) -> None:
        self._library: Any = torch.library.Library("numdrift", "FRAGMENT")

    def define(self, name: str, schema: str, run: Callable[..., Any], fake: Callable[..., Any]) -> Any:
        """Define an op with this schema (arguments and results): `run` computes it, `fake` its shapes."""
        self._library.define(name + schema, tags=(torch.Tag.pt2_compliant_tag,))
        self._library.impl(name, run, "CompositeExplicitAutograd")
        torch.library.register_fake(f"numdrift::{name}", fake, lib=self._library)
        return getattr(torch.ops.numdrift, name).default

    def close(self) -> None:
        self._library._destroy()


def next_sequence_number() -> int:
    """The number that the next autograd node of this thread gets; a node's number ties its backward to its
    forward."""
    return int(private("torch.autograd", "_get_sequence_nr")())


NO_SEQUENCE = 2**64 - 1
"""The number of nodes that belong to no op, above all those that add to a parameter's gradient."""


def sequence_number(node: Any) -> int | None:
    """The number of an autograd node, None for one that belongs to no op."""
    require(node, "_sequence_nr")
    number = int(node._sequence_nr())
    return None if number == NO_SEQUENCE else number


def version_of(tensor: torch.Tensor) -> int | None:
    """How often a tensor was changed in place; None for one that is not counted (made in inference mode)."""
    return None if tensor.is_inference() else int(tensor._version)


# An op that shows values of a compiled graph to Python, and returns nothing: no graph breaks there.


def define_show_op(seen: Callable[[Sequence[torch.Tensor], str], None]) -> Any:
    """Define `numdrift::show(Tensor[] values, str text) -> ()`, which calls `seen`. To be called once in a
    process.

    The compiler lays the values out as it likes, and keeps the op although nothing uses a result of it.
    """
    library: Any = torch.library.Library("numdrift", "FRAGMENT")
    tags = (torch.Tag.pt2_compliant_tag, torch.Tag.flexible_layout)
    library.define("show(Tensor[] values, str text) -> ()", tags=tags)
    library.impl("show", lambda values, text: seen(values, text), "CompositeExplicitAutograd")
    torch.library.register_fake("numdrift::show", lambda values, text: None, lib=library)
    operation = torch.ops.numdrift.show.default
    private("torch.fx.node", "has_side_effect")(operation)
    _libraries.append(library)
    return operation


# What a step tape needs of torch: ops intercepted, storages told apart, ops executed below autograd.

Around = Callable[[Any, tuple[Any, ...], Mapping[str, Any]], Any]
"""Executes an op, or has it executed, and gives what it returned: its overload and its arguments."""


class InterceptedOps(UnorderedMode):
    """Hands each op to `around`, higher-order ones included."""

    supports_higher_order_operators = True

    def __init__(self, around: Around) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._around = around

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        outputs = self._around(func, args, kwargs or {})
        return as_torch_xla_gives(outputs, args, kwargs or {}) if "torch_xla" in sys.modules else outputs


@contextmanager
def functions_transformed() -> Iterator[None]:
    """Have `torch.func` transform what is called in here: under a dispatch mode that has been handed an op it does not,
    for the mode's handler excludes its keys (torch 2.9)."""
    keys = private("torch._C", "DispatchKey")
    excluded = private("torch._C", "_dispatch_tls_local_exclude_set")()
    for name in ("FuncTorchDynamicLayerFrontMode", "FuncTorchDynamicLayerBackMode", "PythonTLSSnapshot"):
        excluded = excluded.remove(getattr(keys, name))
    included = private("torch._C", "_dispatch_tls_local_include_set")()
    with private("torch._C", "_ForceDispatchKeyGuard")(included, excluded):
        yield


def _takes_xla(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether an op takes a tensor of torch_xla that is not wrapped, in a list or by itself."""
    for one in (*args, *kwargs.values()):
        for tensor in one if isinstance(one, (list, tuple)) else (one,):
            if isinstance(tensor, torch.Tensor) and tensor.device.type == "xla":
                return not private("torch", "_is_functional_tensor")(tensor)
    return False


def as_torch_xla_gives(value: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """What an op gives to the script whose call a dispatch mode has seen.

    torch_xla wraps its tensors so that torch makes what is done to them functional, views and writes in place. An op
    that takes wrapped tensors has its results wrapped above the mode; any other (a batch that comes to the device) is
    wrapped by torch_xla itself, which does not where a mode is on (2.9): what is written in place to a view is lost
    then, and the graphs are others.
    """
    if not isinstance(value, torch.Tensor) or value.device.type != "xla":
        return value
    if _takes_xla(args, kwargs) or private("torch", "_is_functional_tensor")(value):
        return value
    return private("torch", "_to_functional_tensor")(value)


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
