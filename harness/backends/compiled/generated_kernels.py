"""Reads Inductor's final graph into the record: one node for each kernel or library call, with the nodes that
it covers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from ...records.graph_record import Graph, Node, Value
from ...torch_private.graph_kernels import GraphKernel, Lowered
from ...torch_private.graph_stages import parts_of_op
from ..kernel_place import kernel_place
from .fx_graph import GraphParts

_VIEWS = """view reshape _unsafe_view _reshape_alias permute t transpose expand squeeze unsqueeze slice select
as_strided alias detach split split_with_sizes unbind diagonal unfold lift_fresh_copy view_of"""

VIEWS = frozenset(_VIEWS.split())
"""Ops of compiled graphs that compute nothing; some of them are no views by their schema."""


@dataclass(frozen=True, slots=True)
class Compilation:
    """One compilation: the graph that Inductor was handed, what it made of it, the final graph's own nodes,
    and which nodes before each of those stands for."""

    pre: Graph
    outputs: Sequence[str | None]
    lowered: Lowered
    final: GraphParts
    covers: Mapping[str, Sequence[str]]
    code: str
    seconds: float


def post_graph(done: Compilation, name: str) -> Graph:
    """The post graph of a compilation, under this name."""
    nodes, pre, lowered = _nodes(done), done.pre, done.lowered
    # The inputs are the pre graph's. Of what kernels take and give Inductor says what it is; of what lies within them
    # the final graph does.
    values = {one: pre.values[one] for one in pre.inputs}
    for one in (one for node in nodes for one in (*node.inputs, *node.outputs)):
        if one not in values:
            dtype, shape = lowered.buffers.get(one, ("", None))
            values[one] = Value(dtype, shape, "constant" if one in lowered.constants else "")
    inside = dict.fromkeys(one for node in nodes for op in node.body for one in (*op.inputs, *op.outputs))
    values = {one: replace(done.final.values[one], binding="") for one in inside if one in done.final.values} | values
    bindings = {one: pre.values[one].binding for one in pre.inputs}
    outputs = []
    for before, after in zip(done.outputs, lowered.outputs, strict=False):
        if before is not None and after is not None:
            outputs.append(after)
            bindings.setdefault(after, pre.values[before].binding)
    values = {one: replace(value, binding=bindings.get(one, value.binding)) for one, value in values.items()}
    for one in outputs:
        values.setdefault(one, Value(binding=bindings[one]))
    covered = {one for node in nodes for one in node.covers}
    missing = [one.name for one in pre.nodes if one.name not in covered and computes(one, pre.values)]
    notes = (f"in no kernel (optimised away, or only a view): {', '.join(missing)}",) if missing else ()
    used = dict.fromkeys(one for node in nodes for one in node.inputs)
    constants = [one for one in used if one in lowered.constants and one not in pre.inputs]
    return replace(
        pre,
        name=name,
        stage="post",
        nodes=tuple(nodes),
        values=values,
        inputs=(*pre.inputs, *constants),
        outputs=tuple(outputs),
        pre=pre.name,
        seconds=round(done.seconds, 6),
        notes=notes,
        code=done.code,
    )


def _nodes(done: Compilation) -> list[Node]:
    """The kernels, the ops in them reading and writing the buffers that hold their values."""
    results = {one.name: one.outputs[0] for one in done.final.nodes if one.outputs}
    buffers: dict[str, str] = {}
    for buffer, made in done.lowered.made_by.items():
        if made in results:
            buffers.setdefault(results[made], buffer)

    def renamed(values: Iterable[str]) -> tuple[str, ...]:
        return tuple(buffers.get(one, one) for one in values)

    owner = {made: one.name for one in done.final.nodes for made in one.outputs}
    order = {one.name: number for number, one in enumerate(done.pre.nodes)}
    makes = {made: one.name for one in done.pre.nodes for made in one.outputs}
    taken: set[str] = set()
    nodes = []
    for kernel in done.lowered.kernels:
        # Its origins are nodes of the final graph; each of those stands for nodes of the graph before.
        inside = dict.fromkeys(owner.get(one.name, one.name) for one in kernel.origins)
        body = tuple(
            replace(node, inputs=renamed(node.inputs), outputs=renamed(node.outputs))
            for node in done.final.nodes
            if node.name in inside
        )
        found = {makes.get(one, one) for node in kernel.origins for one in done.covers.get(node.name, ())}
        covers = sorted(order[one] for one in found if one in order)
        nodes.append(_node(kernel, body, [done.pre.nodes[at] for at in covers], taken, done.pre.phase))
    return nodes


def _node(kernel: GraphKernel, body: tuple[Node, ...], covered: Sequence[Node], taken: set[str], phase: str) -> Node:
    # What the kernel is: one of torch's ops (`extern_kernels.addmm`, `torch.ops.aten.sort.stable`), or generated
    names = kernel.name.removeprefix("torch.ops.").split(".")
    domain, op, overload = "inductor", kernel.name, ""
    if (parts := parts_of_op(kernel.operation)) is not None:
        domain, op, overload = parts
    elif not kernel.code and names[0] == "extern_kernels":
        domain, op = "aten", "_".join(names[1:])
    elif not kernel.code and len(names) > 1:
        domain, op, overload = names[0], names[1], "" if names[2:] in ([], ["default"]) else "_".join(names[2:])
    same = [one for one in body if one.op == op and not kernel.code]
    alone = same[0] if len(same) == 1 else None
    name = kernel.name if kernel.code else f"{op}_{kernel.buffers[0] if kernel.buffers else 'call'}"
    while name in taken:
        name = f"{name}_{kernel.buffers[0] if kernel.buffers else 'again'}"
    taken.add(name)
    return replace(
        kernel_place(covered),
        name=name,
        op=op,
        domain=domain,
        overload="" if kernel.code else overload if alone is None else alone.overload,
        phase=phase,
        inputs=kernel.inputs,
        outputs=kernel.buffers,
        attributes={} if alone is None else alone.attributes,
        covers=tuple(one.name for one in covered),
        body=body,
        code=kernel.code,
    )


def computes(node: Node, values: Mapping[str, Value]) -> bool:
    """Whether a node of a pre graph makes numbers of tensors: no view, no size."""
    tensors = any(values[one].shape is not None and values[one].dtype for one in node.outputs)
    return tensors and node.domain not in ("python", "torch") and node.op not in (*VIEWS, "sym_size")


# Which nodes of the graph that Inductor was handed a node of its final graph stands for.
#
# Inductor edits the graph in place: most nodes stay, some are replaced by others. What replaced what is read
# off the nodes that stayed: where one of them took a node that is gone, it takes the replacement now. The
# replacement stands for that node, and for all that had gone with it and led to nothing else.

Nodes = Sequence[torch.fx.Node]


class GraphBefore:
    """The graph as it was, to be compared once it has been edited."""

    def __init__(self, graph: torch.fx.Graph) -> None:
        self._arguments = {one: _arguments(one) for one in graph.nodes}
        self._names = {one: one.name for one in graph.nodes}

    def covered_by(self, graph: torch.fx.Graph) -> dict[str, tuple[str, ...]]:
        """For each node of the edited graph, the nodes of the graph before that it stands for, by name."""
        kept = [one for one in graph.nodes if one in self._arguments]
        stands_for: dict[torch.fx.Node, dict[torch.fx.Node, None]] = {
            one: {one: None} if one in self._arguments else {} for one in graph.nodes
        }
        exits: dict[torch.fx.Node, list[torch.fx.Node]] = {}
        for one in kept:
            for gone, arrived in _exchanged(self._arguments[one], _arguments(one), self._arguments):
                exits.setdefault(arrived, []).append(gone)
        alive = set(graph.nodes)
        ends = {gone for found in exits.values() for gone in found}
        for made, replaced in exits.items():
            if made not in self._arguments:
                # These nodes and all gone ones that they were computed from, up to what another node replaces
                other_ends = ends.difference(replaced)
                region = stands_for[made]
                pending = list(replaced)
                while pending:
                    one = pending.pop()
                    if one not in region and one not in alive and one not in other_ends:
                        region[one] = None
                        pending += self._arguments.get(one, ())
        # Let each new node that stands for nothing yet stand for what those stand for that it was made for
        for one in reversed(graph.nodes):
            if one in self._arguments or stands_for[one]:
                continue
            for user in one.users:
                if user not in self._arguments:
                    stands_for[one].update(stands_for[user])
        # In the order of the graph before
        order = {one: at for at, one in enumerate(self._names)}
        return {
            one.name: tuple(self._names[gone] for gone in sorted(found, key=order.__getitem__))
            for one, found in stands_for.items()
        }


def _arguments(one: torch.fx.Node) -> list[torch.fx.Node]:
    """Every value that a node takes, one that it takes twice twice, in order."""
    found: list[torch.fx.Node] = []
    torch.fx.map_arg((one.args, one.kwargs), found.append)
    return found


def _exchanged(
    before: Nodes, after: Nodes, known: Mapping[torch.fx.Node, object]
) -> list[tuple[torch.fx.Node, torch.fx.Node]]:
    """What a node took and what it takes instead, in pairs: by position where their number is the same."""
    if len(before) == len(after):
        return [(old, new) for old, new in zip(before, after, strict=True) if old is not new]
    gone = [one for one in before if one not in after]
    arrived = [one for one in after if one not in before and one not in known]
    return [(old, new) for old in gone for new in arrived]
