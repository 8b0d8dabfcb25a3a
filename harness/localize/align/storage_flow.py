"""The flow of values through a tape: the contents of storages that each call reads and makes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import torch

from ...tape.replaying.replay import Computation, executions
from ...tape.tape import Call, Tape, View, leaves, views_in
from ...tape.uncollected import uncollected

Layout = tuple[int, tuple[int, ...], tuple[int, ...]]
"""Offset, size and stride of a view, in elements."""

Side = Literal["a", "b"]
"""A side of a pair: `a` is the reference."""

SIDES: tuple[Side, Side] = ("a", "b")


def other(side: Side) -> Side:
    return "b" if side == "a" else "a"


class FlowValue(NamedTuple):
    """The content of the storage in `slot` between two writes; the first content has version 0."""

    slot: int
    version: int


@dataclass(frozen=True, slots=True, eq=False)
class Use:
    """A view that a call takes or makes, with the content of its storage."""

    view: View
    value: FlowValue


@dataclass(frozen=True, slots=True, eq=False)
class FlowNode:
    """A call that computes.

    reads: the views that it takes, in the order of `views_in`.
    makes: its outputs, None for those that are not fresh.
    writes: the views that it writes in place.
    iteration: the number of its pass within the step, from 0. A pass is a forward with its backward.
    arguments: the arguments, flat and in order: each recorded leaf, with its use if it is a view.
    """

    execution: Computation
    reads: tuple[Use, ...]
    makes: tuple[Use | None, ...]
    writes: tuple[Use, ...]
    iteration: int
    arguments: Sequence[tuple[Any, Use | None]] = field(init=False)

    def __post_init__(self) -> None:
        reads = iter(self.reads)
        values = [*self.call.arguments, *self.call.keywords.values()]
        arguments = [(leaf, next(reads) if isinstance(leaf, View) else None) for leaf in leaves(values)]
        object.__setattr__(self, "arguments", arguments)

    @property
    def call(self) -> Call:
        return self.execution.call

    @property
    def made(self) -> list[Use]:
        return [*(use for use in self.makes if use is not None), *self.writes]


CONSTANT_OPS = frozenset(["full", "zeros", "ones", "scalar_tensor", "eye", "arange", "iota"])
"""Ops whose results follow from their arguments alone, and are the same on every kernel."""


def makes_constant(node: FlowNode) -> bool:
    """Check whether a node reads nothing and makes a value that every execution of it makes bit for bit."""
    made = node.made
    is_exact = node.call.name != "arange" or (bool(made) and not made[0].view.dtype.is_floating_point)
    return node.call.name in CONSTANT_OPS and not node.reads and len(made) == 1 and is_exact


def common_reads(node_a: FlowNode, node_b: FlowNode) -> list[tuple[Use, Use]]:
    """Return the pairs of views that two calls take at the same places among their arguments."""
    arguments = zip(node_a.arguments, node_b.arguments, strict=False)
    return [(use_a, use_b) for (_, use_a), (_, use_b) in arguments if use_a is not None and use_b is not None]


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class StorageFlow:
    """A tape as nodes.

    makers: the node that makes each value; a value without one existed before the step.
    seen: the layouts in which each value is made, read, watched, passed to the first model and held at the start.
    batch: the arguments of the step's first model, by name.
    constants: the nodes that read nothing and always make the same value, by this value.
    """

    tape: Tape
    nodes: Sequence[FlowNode]
    watched: Mapping[str, Use]
    makers: Mapping[FlowValue, int]
    seen: Mapping[FlowValue, frozenset[Layout]]
    batch: Mapping[str, Use]
    constants: Mapping[FlowValue, FlowNode]

    def input_bytes(self, value: FlowValue) -> torch.Tensor | None:
        """Return the recorded content of an input of the step; None if the value is not an input."""
        return self.tape.inputs.get(value.slot) if value.version == 0 else None

    def is_whole(self, view: View, value: FlowValue) -> bool:
        """Check whether the view shows the whole storage, or all that any use of the value shows."""
        size = self.tape.slots[value.slot].size
        return math.prod(view.size) * view.dtype.itemsize == size or self.seen[value] == {layout_of(view)}


def layout_of(view: View) -> Layout:
    return view.offset, view.size, view.stride


def is_contiguous(size: Sequence[int], stride: Sequence[int]) -> bool:
    return 0 in size or all(
        n == 1 or step == math.prod(size[dim + 1 :]) for dim, (n, step) in enumerate(zip(size, stride, strict=True))
    )


def is_expanded(view: View) -> bool:
    """Check whether a view shows an element more than once. Such a view cannot be written to."""
    return any(not step and n > 1 for n, step in zip(view.size, view.stride, strict=True))


def readers_of(flow: StorageFlow) -> dict[FlowValue, list[int]]:
    """Return the nodes that read each value, in the order of the nodes. Values that no node reads are left out."""
    readers: dict[FlowValue, list[int]] = {}
    for number, node in enumerate(flow.nodes):
        for use in node.reads:
            readers.setdefault(use.value, []).append(number)
    return readers


@uncollected()
def flow_of(tape: Tape) -> StorageFlow:
    """Return the flow of a tape, with a separate value for each content of each storage.

    Raises NotReplayable if the installed torch lacks one of the ops.
    """
    versions: dict[int, int] = {}
    nodes: list[FlowNode] = []
    makers: dict[FlowValue, int] = {}
    uses: dict[str, Use] = {}
    pending = sorted((*tape.watched, *tape.batch), key=lambda entry: entry.position)
    iteration, backward = 0, False

    def use(view: View) -> Use:
        return Use(view, FlowValue(view.slot, versions.get(view.slot, 0)))

    for execution in executions(tape):
        while pending and pending[0].position <= execution.position:
            entry = pending.pop(0)
            uses[entry.name] = use(entry.view)
        call = execution.call
        # a forward after a backward begins a new pass, such as the second of SAM's two
        iteration += call.phase == "forward" and backward
        backward = call.phase == "backward" if call.phase in ("forward", "backward") else backward
        reads = tuple(map(use, views_in(call)))
        # reads have the content before the call; writes have the content after it, a new version of the storage
        for slot in dict.fromkeys(view.slot for view in execution.written_views()):
            versions[slot] = versions.get(slot, 0) + 1
        node = FlowNode(
            execution,
            reads,
            tuple(use(view) if is_fresh else None for view, is_fresh in zip(call.outputs, call.fresh, strict=True)),
            tuple(map(use, execution.written_views())),
            iteration if call.iteration is None else call.iteration,
        )
        makers |= {result.value: len(nodes) for result in node.made}
        nodes.append(node)
    uses |= {entry.name: use(entry.view) for entry in pending}
    watched, batch = ({entry.name: uses[entry.name] for entry in entries} for entries in (tape.watched, tape.batch))
    layouts_seen: dict[FlowValue, set[Layout]] = {}
    starts = [Use(view, FlowValue(view.slot, 0)) for view in tape.starts.values()]
    shown_uses = [shown for node in nodes for shown in (*node.reads, *node.made)]
    for shown_use in (*shown_uses, *watched.values(), *batch.values(), *starts):
        layouts_seen.setdefault(shown_use.value, set()).add(layout_of(shown_use.view))
    layouts = {value: frozenset(seen_as) for value, seen_as in layouts_seen.items()}
    constants = {node.made[0].value: node for node in nodes if makes_constant(node)}
    return StorageFlow(tape, nodes, watched, makers, layouts, batch, constants)
