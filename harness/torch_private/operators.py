"""aten ops: their overloads, schemas and decompositions, and what the dispatcher has for them on a device."""

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
    """The overload of an aten op that takes these arguments; `op` may name the overload (`sum.dim_IntList`).

    Raises KernelNotFound, naming the nearest, when aten has no such op.
    """
    name, _, overload = op.partition(".")
    packet = find_packet(name)
    if overload:
        found = getattr(packet, overload, None)
        if found is None:
            raise KernelNotFound(f"aten.{name} has no overload {overload!r}; {nearest(overload, packet.overloads())}")
        return found
    if len(packet.overloads()) == 1:
        return getattr(packet, packet.overloads()[0])
    resolve = private("torch._C", "_jit_resolve_packet")
    return getattr(packet, resolve(f"aten::{name}", *args, **(kwargs or {})))


def find_packet(name: str) -> Any:
    """All overloads of one aten op. Raises KernelNotFound, naming the nearest, when aten has no such op."""
    packet = getattr(torch.ops.aten, name, None)
    if packet is None:
        raise KernelNotFound(f"torch {torch.__version__} has no op aten.{name}; {near_op(name)}")
    return packet


def overloads_of(name: str) -> list[Any]:
    """The overloads of an aten op that are dispatched (TorchScript has others), none when aten has no such
    op."""
    packet = getattr(torch.ops.aten, name, None)
    found = [] if packet is None else [getattr(packet, overload) for overload in packet.overloads()]
    names = dispatched_names()
    return [overload for overload in found if overload.name() in names]


def near_op(name: str) -> str:
    """The aten ops whose names come closest, as the end of an error message."""
    names = {full.partition("::")[2].partition(".")[0] for full in aten_operations()}
    close = difflib.get_close_matches(name, names, n=3, cutoff=0.75)
    return f"did you mean {' or '.join(map(repr, close))}?" if close else "see the op names in torch.ops.aten"


@functools.cache
def dispatched_names() -> frozenset[str]:
    """The full names of all ops that the dispatcher knows, `aten::name.overload`."""
    return frozenset(private("torch._C", "_dispatch_get_all_op_names")())


def aten_operations() -> list[str]:
    """The full names of all aten ops, `aten::name.overload`."""
    return sorted(name for name in dispatched_names() if name.startswith("aten::"))


def decomposition_of(overload: Any) -> Callable[..., Any] | None:
    """The decomposition that torch ships for an overload, None where it ships none."""
    table = private("torch._decomp", "decomposition_table")
    if overload in table:
        found: Callable[..., Any] = table[overload]
        return found
    if private("torch._C", "_dispatch_has_kernel_for_dispatch_key")(overload.name(), "CompositeImplicitAutograd"):
        return overload.decompose  # type: ignore[no-any-return]
    return None


def is_random(overload: Any) -> bool:
    """Whether the op draws random numbers."""
    return torch.Tag.nondeterministic_seeded in overload.tags


def written_arguments(
    overload: Any,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    other_args: Sequence[Any],
    other_kwargs: Mapping[str, Any],
) -> Iterator[tuple[Any, Any]]:
    """The arguments that the op writes to, from two argument lists, in pairs."""
    for position, argument in enumerate(schema_of(overload).arguments):
        if argument.alias_info is None or not argument.alias_info.is_write:
            continue
        if position < len(args):
            yield args[position], other_args[position]
        elif argument.name in kwargs:
            yield kwargs[argument.name], other_kwargs[argument.name]


@dataclass(frozen=True, slots=True)
class SchemaArgument:
    """One argument of an op's schema. `kind` is its type's text; `writes` says that the op writes to it."""

    name: str
    kind: str
    writes: bool
    keyword_only: bool


def arguments_of(overload: Any) -> list[SchemaArgument]:
    """The arguments of an overload, in the order of its schema."""
    return [
        SchemaArgument(
            one.name,
            str(one.type),
            one.alias_info is not None and one.alias_info.is_write,
            bool(one.kwarg_only),
        )
        for one in schema_of(overload).arguments
    ]


def argument_names(overload: Any) -> list[tuple[str, Any]]:
    """The names of an overload's arguments, in their order, with the defaults of those that have one."""
    return [(one.name, one.default_value if one.has_default_value() else None) for one in schema_of(overload).arguments]


def schema_of(overload: Any) -> Any:
    """The schema of an op: `arguments` and `returns`, each with name, type and alias information."""
    return overload._schema


def returns_something(overload: Any) -> bool:
    """Whether the op returns anything; `_foreach_add_` does not."""
    return bool(schema_of(overload).returns)


def returns_view(overload: Any) -> bool:
    """Whether the op returns another view of an argument, as `t` does, and so computes nothing."""
    return any(one.alias_info is not None and not one.alias_info.is_write for one in schema_of(overload).returns)


HIDDEN_WRITES = dict.fromkeys(
    ("native_batch_norm", "cudnn_batch_norm", "miopen_batch_norm", "batch_norm"),
    ("running_mean", "running_var"),
)
"""Arguments that an op writes to although its schema does not say so (torch 2.13)."""


def written_names(overload: Any) -> frozenset[str]:
    """The names of the arguments that the op writes to, whether its schema says so or not."""
    name = str(overload).split(".")[1]
    return frozenset([*(one.name for one in arguments_of(overload) if one.writes), *HIDDEN_WRITES.get(name, ())])


def schema_text(overload: Any) -> str:
    """The schema as torch writes it, `aten::tanh_backward(Tensor grad_output, Tensor output) -> Tensor`."""
    return str(schema_of(overload))


@functools.cache
def view_behind(overload: Any) -> Any:
    """The op that gives as a view what this one gives as a copy: `aten.t.default` for `aten.t_copy.default`. None for
    any other op."""
    name = str(overload).split(".")[1]
    packet = getattr(torch.ops.aten, name.removesuffix("_copy"), None) if name.endswith("_copy") else None
    found = getattr(packet, overload._overloadname, None)
    return found if found is not None and returns_view(found) else None


def is_composite(overload: Any) -> bool:
    """Whether the op is made of other ops above autograd, as `linear` is."""
    has_kernel = private("torch._C", "_dispatch_has_kernel_for_dispatch_key")
    name = overload.name()
    # An op may have both: then the kernel of its own is what a device executes.
    own = any(has_kernel(name, key) for key in ("CPU", "CUDA", "Lazy", "CompositeExplicitAutograd"))
    return has_kernel(name, "CompositeImplicitAutograd") and not own


@functools.cache
def _written_positions(overload: Any) -> tuple[tuple[int, str, bool], ...]:
    """Position and name of the arguments that the op writes to, and whether its schema says so."""
    names = written_names(overload)
    return tuple(
        (position, one.name, one.writes) for position, one in enumerate(arguments_of(overload)) if one.name in names
    )


@functools.cache
def _position_of(overload: Any, name: str) -> int | None:
    return next((at for at, one in enumerate(arguments_of(overload)) if one.name == name), None)


def written_values(overload: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Iterator[Any]:
    """What is passed to the op for it to write to; lists are given item by item."""
    for position, name, said in _written_positions(overload):
        training = _position_of(overload, "training")
        if not said and training is not None and training < len(args) and not args[training]:
            continue  # running statistics are written in training only
        value = args[position] if position < len(args) else kwargs.get(name)
        if isinstance(value, (list, tuple)):
            yield from value
        elif value is not None:
            yield value


# What the dispatcher has for a device: the kernels of its own, and the ops that its fallback takes.

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
        operation = aten_overload(name)
        if operation is not None:
            tensors = tuple(one.kind in ("Tensor", "Optional[Tensor]") for one in arguments_of(operation))
            returns = [str(one.type) for one in schema_of(operation).returns]
            is_read = bool(returns) and not any("Tensor" in one for one in returns)
            call = functools.partial(find(operation, key).call_boxed, keys)
            yield DeviceKernel(operation, name, call, kind == FALLBACK, is_read, tensors)


def aten_overload(name: str) -> Any | None:
    """The overload of a full name (`aten::add.Tensor`), None for one of another namespace."""
    space, _, rest = name.partition("::")
    packet, _, overload = rest.partition(".")
    return getattr(getattr(torch.ops.aten, packet, None), overload or "default", None) if space == "aten" else None


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
