"""aten ops: their overloads, schemas and decompositions, and the dispatcher's kernels for them on a device."""

from __future__ import annotations

import difflib
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ..errors import KernelNotFound, nearest
from .presence import private


def find_overload(op: str, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None) -> Any:
    """Return the overload of an aten op that takes these arguments; `op` may name the overload (`sum.dim_IntList`).

    Raises KernelNotFound, with the nearest name, if aten has no such op.
    """
    name, _, overload = op.partition(".")
    packet = find_packet(name)
    if overload:
        selected = getattr(packet, overload, None)
        if selected is None:
            raise KernelNotFound(f"aten.{name} has no overload {overload!r}; {nearest(overload, packet.overloads())}")
        return selected
    if len(packet.overloads()) == 1:
        return getattr(packet, packet.overloads()[0])
    resolve = private("torch._C", "_jit_resolve_packet")
    return getattr(packet, resolve(f"aten::{name}", *args, **(kwargs or {})))


def find_packet(name: str) -> Any:
    """Return all overloads of one aten op. Raises KernelNotFound, with the nearest name, if aten has no such op."""
    packet = getattr(torch.ops.aten, name, None)
    if packet is None:
        raise KernelNotFound(f"torch {torch.__version__} has no op aten.{name}; {near_op(name)}")
    return packet


def overloads_of(name: str) -> list[Any]:
    """Return the overloads of an aten op that are dispatched (TorchScript has others); none if aten has no such op."""
    packet = getattr(torch.ops.aten, name, None)
    overloads = [] if packet is None else [getattr(packet, overload) for overload in packet.overloads()]
    names = dispatched_names()
    return [overload for overload in overloads if overload.name() in names]


def near_op(name: str) -> str:
    """Return the aten ops whose names come closest, as the end of an error message."""
    names = {full.partition("::")[2].partition(".")[0] for full in aten_operations()}
    close = difflib.get_close_matches(name, names, n=3, cutoff=0.75)
    return f"did you mean {' or '.join(map(repr, close))}?" if close else "see the op names in torch.ops.aten"


@functools.cache
def dispatched_names() -> frozenset[str]:
    """Return the full names of all ops in the dispatcher, `aten::name.overload`."""
    return frozenset(private("torch._C", "_dispatch_get_all_op_names")())


def aten_operations() -> list[str]:
    """Return the full names of all aten ops, `aten::name.overload`."""
    return sorted(name for name in dispatched_names() if name.startswith("aten::"))


def decomposition_of(overload: Any) -> Callable[..., Any] | None:
    """Return the decomposition that torch ships for an overload, None if it ships none."""
    table = private("torch._decomp", "decomposition_table")
    if overload in table:
        decomposition: Callable[..., Any] = table[overload]
        return decomposition
    if private("torch._C", "_dispatch_has_kernel_for_dispatch_key")(overload.name(), "CompositeImplicitAutograd"):
        return overload.decompose  # type: ignore[no-any-return]
    return None


def is_random(overload: Any) -> bool:
    """Return whether the op draws random numbers."""
    return torch.Tag.nondeterministic_seeded in overload.tags


def written_arguments(
    overload: Any,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    other_args: Sequence[Any],
    other_kwargs: Mapping[str, Any],
) -> Iterator[tuple[Any, Any]]:
    """Yield the arguments that the op writes to, as pairs from two argument lists."""
    for position, argument in enumerate(schema_of(overload).arguments):
        if argument.alias_info is None or not argument.alias_info.is_write:
            continue
        if position < len(args):
            yield args[position], other_args[position]
        elif argument.name in kwargs:
            yield kwargs[argument.name], other_kwargs[argument.name]


@dataclass(frozen=True, slots=True)
class SchemaArgument:
    """An argument in an op's schema. `kind` is its type as text; `writes` is true if the op writes to it."""

    name: str
    kind: str
    writes: bool
    keyword_only: bool


def arguments_of(overload: Any) -> list[SchemaArgument]:
    """Return the arguments of an overload, in the order of its schema."""
    return [
        SchemaArgument(
            argument.name,
            str(argument.type),
            argument.alias_info is not None and argument.alias_info.is_write,
            bool(argument.kwarg_only),
        )
        for argument in schema_of(overload).arguments
    ]


def argument_names(overload: Any) -> list[tuple[str, Any]]:
    """Return the names of an overload's arguments, in their order, with the defaults of those that have one."""
    return [
        (argument.name, argument.default_value if argument.has_default_value() else None)
        for argument in schema_of(overload).arguments
    ]


def schema_of(overload: Any) -> Any:
    """Return the schema of an op: `arguments` and `returns`, each with name, type and alias information."""
    return overload._schema


def returns_something(overload: Any) -> bool:
    """Return whether the op returns anything; `_foreach_add_` does not."""
    return bool(schema_of(overload).returns)


def returns_view(overload: Any) -> bool:
    """Return whether the op only returns a view of an argument, as `t` does, and computes nothing."""
    return any(
        result.alias_info is not None and not result.alias_info.is_write for result in schema_of(overload).returns
    )


HIDDEN_WRITES = dict.fromkeys(
    ("native_batch_norm", "cudnn_batch_norm", "miopen_batch_norm", "batch_norm"),
    ("running_mean", "running_var"),
)
"""Arguments that an op writes to although its schema does not say so (torch 2.13)."""


def written_names(overload: Any) -> frozenset[str]:
    """Return the names of the arguments that the op writes to, including those that its schema does not declare."""
    name = str(overload).split(".")[1]
    return frozenset(
        [*(argument.name for argument in arguments_of(overload) if argument.writes), *HIDDEN_WRITES.get(name, ())]
    )


def schema_text(overload: Any) -> str:
    """Return the schema as torch writes it, `aten::tanh_backward(Tensor grad_output, Tensor output) -> Tensor`."""
    return str(schema_of(overload))


@functools.cache
def view_behind(overload: Any) -> Any:
    """Return the view op of which this op is the copying form, None for any other op.

    It is `aten.t.default` for `aten.t_copy.default`.
    """
    name = str(overload).split(".")[1]
    packet = getattr(torch.ops.aten, name.removesuffix("_copy"), None) if name.endswith("_copy") else None
    view = getattr(packet, overload._overloadname, None)
    return view if view is not None and returns_view(view) else None


def is_composite(overload: Any) -> bool:
    """Return whether the op is composed of other ops above autograd, as `linear` is."""
    has_kernel = private("torch._C", "_dispatch_has_kernel_for_dispatch_key")
    name = overload.name()
    # An op may have both kinds of kernel: then a device executes its own.
    has_own_kernel = any(has_kernel(name, key) for key in ("CPU", "CUDA", "Lazy", "CompositeExplicitAutograd"))
    return has_kernel(name, "CompositeImplicitAutograd") and not has_own_kernel


@functools.cache
def _written_positions(overload: Any) -> tuple[tuple[int, str, bool], ...]:
    """Return the position and name of each argument that the op writes to, and whether its schema says so."""
    names = written_names(overload)
    return tuple(
        (position, argument.name, argument.writes)
        for position, argument in enumerate(arguments_of(overload))
        if argument.name in names
    )


@functools.cache
def _position_of(overload: Any, name: str) -> int | None:
    return next((at for at, argument in enumerate(arguments_of(overload)) if argument.name == name), None)


def written_values(overload: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Iterator[Any]:
    """Yield the values that are passed to the op for it to write to; lists are yielded item by item."""
    for position, name, in_schema in _written_positions(overload):
        training = _position_of(overload, "training")
        if not in_schema and training is not None and training < len(args) and not args[training]:
            continue  # running statistics are written only in training
        value = args[position] if position < len(args) else kwargs.get(name)
        if isinstance(value, (list, tuple)):
            yield from value
        elif value is not None:
            yield value


# The dispatcher's entries for a device: its own kernels, and the ops that go to its fallback.

OWN, FALLBACK = "[kernel]", "[backend fallback]"
"""The end of a key's line in the dispatcher's table: the device's own kernel, or its fallback for ops without one."""


@dataclass(frozen=True, slots=True)
class DeviceKernel:
    """The kernel of an overload on a device.

    call: executes the kernel, even if it is replaced later, without a Python frame on the stack
    is_fallback: the device has no kernel, and its fallback takes the op
    is_read: the op returns a value to Python, as `.item()` does
    tensors: for each argument, whether it is a tensor
    """

    operation: Any
    name: str
    call: Callable[..., Any]
    is_fallback: bool
    is_read: bool
    tensors: tuple[bool, ...]


def boxed_kernel(overload: Any, key: str) -> Callable[..., Any]:
    """Return a function that calls an overload's kernel for a dispatch key, also after the key is overridden.

    It adds no Python frame to the stack. Raises RuntimeError if there is no kernel for the key.
    """
    kernel = private("torch.library", "get_kernel")(overload, key)
    keys = private("torch._C", "DispatchKeySet")(getattr(private("torch._C", "DispatchKey"), key))
    return functools.partial(kernel.call_boxed, keys)


def device_kernels(key: str) -> Iterator[DeviceKernel]:
    """Yield the aten ops that reach the backend with this dispatch key; ops that are composed of others do not.

    Raises NotAvailable if this torch does not report them.
    """
    for name in aten_operations():
        kind = dispatched_to(name, key)
        if kind not in (OWN, FALLBACK):
            continue
        operation = aten_overload(name)
        if operation is not None:
            tensors = tuple(argument.kind in ("Tensor", "Optional[Tensor]") for argument in arguments_of(operation))
            returns = [str(result.type) for result in schema_of(operation).returns]
            is_read = bool(returns) and not any("Tensor" in text for text in returns)
            yield DeviceKernel(operation, name, boxed_kernel(operation, key), kind == FALLBACK, is_read, tensors)


def aten_overload(name: str) -> Any | None:
    """Return the overload of a full name (`aten::add.Tensor`), None for one of another namespace."""
    space, _, full_name = name.partition("::")
    packet, _, overload = full_name.partition(".")
    return getattr(getattr(torch.ops.aten, packet, None), overload or "default", None) if space == "aten" else None


def dispatched_to(name: str, key: str) -> str:
    """Return the dispatcher's entry for an op (`aten::add.Tensor`) and a key.

    It is `[kernel]`, `[backend fallback]`, `[math kernel]` and so on, "" for nothing.
    """
    table = private("torch._C", "_dispatch_dump_table")(name)
    line = next((line for line in table.splitlines() if line.startswith(f"{key}:")), "")
    return line[line.rindex("[") :] if "[" in line else ""


@functools.cache
def is_taken_by_fallback(operation: Any, key: str) -> bool:
    """Return whether the device with this dispatch key has no kernel for an overload, and passes it to its fallback."""
    return dispatched_to(operation.name(), key) == FALLBACK
