"""aten ops: their overloads, schemas and decompositions, and the arguments that they write to."""

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
    if overload.name() not in dispatched_names():  # only TorchScript has it (for example, index_put.hacked_twin)
        return None
    if private("torch._C", "_dispatch_has_kernel_for_dispatch_key")(overload.name(), "CompositeImplicitAutograd"):
        return overload.decompose  # type: ignore[no-any-return]
    return None


def is_random(overload: Any) -> bool:
    """Return whether the op draws random numbers. Higher-order operators have no tags."""
    return torch.Tag.nondeterministic_seeded in getattr(overload, "tags", ())


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
    """Return the names of an overload's arguments, in order, each with its default if it has one."""
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


def op_parts(overload: Any) -> tuple[str, str, str]:
    """Return an overload's op, namespace and overload name; the overload name is "" for the default overload."""
    _, op, name = str(overload).split(".")
    return op, overload.namespace, "" if name == "default" else name


def schema_text(overload: Any) -> str:
    """Return the schema as torch writes it, `aten::tanh_backward(Tensor grad_output, Tensor output) -> Tensor`."""
    return str(schema_of(overload))


@functools.cache
def view_behind(overload: Any) -> Any:
    """Return the view op that this op is the copying form of, None if there is no such view op.

    For `aten.t_copy.default`, the view op is `aten.t.default`.
    """
    name = str(overload).split(".")[1]
    packet = getattr(torch.ops.aten, name.removesuffix("_copy"), None) if name.endswith("_copy") else None
    view = getattr(packet, overload._overloadname, None)
    return view if view is not None and returns_view(view) else None


def is_composite(overload: Any) -> bool:
    """Return whether the op is composed of other ops above autograd, as `linear` is."""
    has_kernel = private("torch._C", "_dispatch_has_kernel_for_dispatch_key")
    name = overload.name()
    # An op may have both a composite kernel and a device's own kernel. The device then executes its own kernel.
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
    """Yield the passed values that the op writes to; lists are yielded item by item."""
    for position, name, in_schema in _written_positions(overload):
        training = _position_of(overload, "training")
        if not in_schema and training is not None and training < len(args) and not args[training]:
            continue  # running statistics are written only in training
        value = args[position] if position < len(args) else kwargs.get(name)
        if isinstance(value, (list, tuple)):
            yield from value
        elif value is not None:
            yield value


def aten_overload(name: str) -> Any | None:
    """Return the overload that has this full name (`aten::add.Tensor`), None for an op that is not in `aten`."""
    space, _, full_name = name.partition("::")
    packet, _, overload = full_name.partition(".")
    return getattr(getattr(torch.ops.aten, packet, None), overload or "default", None) if space == "aten" else None
