"""Read Inductor's final graph into a record: one node for each kernel or library call, with the nodes it covers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from ...records.tools.graph_record import Graph, Node, Value
from ...torch_private.compiler.graph_kernels import GraphKernel, Lowered
from ...torch_private.compiler.graph_stages import parts_of_op
from ..kernel_place import kernel_place
from .fx_graph import GraphParts

_VIEWS = """view reshape _unsafe_view _reshape_alias permute t transpose expand squeeze unsqueeze slice select
as_strided alias detach split split_with_sizes unbind diagonal unfold lift_fresh_copy view_of"""

VIEWS = frozenset(_VIEWS.split())
"""Ops of compiled graphs that compute nothing. According to their schemas, some of them are not views."""


@dataclass(frozen=True, slots=True)
class Compilation:
    """One compilation.

    pre: the graph that Inductor received.
    outputs: the outputs of that graph, None where the graph returns no value.
    lowered: Inductor's kernels and buffers.
    final: the nodes of Inductor's final graph.
    covers: for each node of the final graph, the nodes of the received graph that it represents.
    code: the generated module.
    seconds: the time of the compilation.
    """

    pre: Graph
    outputs: Sequence[str | None]
    lowered: Lowered
    final: GraphParts
    covers: Mapping[str, Sequence[str]]
    code: str
    seconds: float


def post_graph(done: Compilation, name: str) -> Graph:
    """Return the post graph of a compilation, with this name."""
    nodes, pre, lowered = _nodes(done), done.pre, done.lowered
    # The pre graph describes the inputs, Inductor the values that kernels take and return, and the final graph the
    # values within kernels.
    values = {value_name: pre.values[value_name] for value_name in pre.inputs}
    for buffer in (value_name for node in nodes for value_name in (*node.inputs, *node.outputs)):
        if buffer not in values:
            dtype, shape = lowered.buffers.get(buffer, ("", None))
            values[buffer] = Value(dtype, shape, "constant" if buffer in lowered.constants else "")
    inside = dict.fromkeys(value_name for node in nodes for op in node.body for value_name in (*op.inputs, *op.outputs))
    values = {
        value_name: replace(done.final.values[value_name], binding="")
        for value_name in inside
        if value_name in done.final.values
    } | values
    bindings = {value_name: pre.values[value_name].binding for value_name in pre.inputs}
    outputs = []
    for before, after in zip(done.outputs, lowered.outputs, strict=False):
        if before is not None and after is not None:
            outputs.append(after)
            bindings.setdefault(after, pre.values[before].binding)
    values = {
        value_name: replace(value, binding=bindings.get(value_name, value.binding))
        for value_name, value in values.items()
    }
    for buffer in outputs:
        values.setdefault(buffer, Value(binding=bindings[buffer]))
    covered = {covered_node for node in nodes for covered_node in node.covers}
    missing = [node.name for node in pre.nodes if node.name not in covered and computes(node, pre.values)]
    notes = (f"in no kernel (optimised away, or only a view): {', '.join(missing)}",) if missing else ()
    used = dict.fromkeys(value_name for node in nodes for value_name in node.inputs)
    constants = [value_name for value_name in used if value_name in lowered.constants and value_name not in pre.inputs]
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
    """Return a node for each kernel. In its body, values that Inductor keeps in buffers have the buffers' names."""
    results = {node.name: node.outputs[0] for node in done.final.nodes if node.outputs}
    buffers: dict[str, str] = {}
    for buffer, made in done.lowered.made_by.items():
        if made in results:
            buffers.setdefault(results[made], buffer)

    def renamed(values: Iterable[str]) -> tuple[str, ...]:
        return tuple(buffers.get(value, value) for value in values)

    owner = {made: node.name for node in done.final.nodes for made in node.outputs}
    order = {node.name: number for number, node in enumerate(done.pre.nodes)}
    makes = {made: node.name for node in done.pre.nodes for made in node.outputs}
    used_names: set[str] = set()
    nodes = []
    for kernel in done.lowered.kernels:
        # The kernel's origins are nodes of the final graph. Each of them represents nodes of the original graph.
        inside = dict.fromkeys(owner.get(origin.name, origin.name) for origin in kernel.origins)
        body = tuple(
            replace(node, inputs=renamed(node.inputs), outputs=renamed(node.outputs))
            for node in done.final.nodes
            if node.name in inside
        )
        covered = {
            makes.get(value_name, value_name)
            for node in kernel.origins
            for value_name in done.covers.get(node.name, ())
        }
        covers = sorted(order[node_name] for node_name in covered if node_name in order)
        nodes.append(_node(kernel, body, [done.pre.nodes[at] for at in covers], used_names, done.pre.phase))
    return nodes


def _node(
    kernel: GraphKernel, body: tuple[Node, ...], covered: Sequence[Node], used_names: set[str], phase: str
) -> Node:
    # The kernel is one of torch's ops (`extern_kernels.addmm`, `torch.ops.aten.sort.stable`) or generated code.
    names = kernel.name.removeprefix("torch.ops.").split(".")
    domain, op, overload = "inductor", kernel.name, ""
    if (parts := parts_of_op(kernel.operation)) is not None:
        domain, op, overload = parts
    elif not kernel.code and names[0] == "extern_kernels":
        domain, op = "aten", "_".join(names[1:])
    elif not kernel.code and len(names) > 1:
        domain, op, overload = names[0], names[1], "" if names[2:] in ([], ["default"]) else "_".join(names[2:])
    same = [node for node in body if node.op == op and not kernel.code]
    alone = same[0] if len(same) == 1 else None
    name = kernel.name if kernel.code else f"{op}_{kernel.buffers[0] if kernel.buffers else 'call'}"
    while name in used_names:
        name = f"{name}_{kernel.buffers[0] if kernel.buffers else 'again'}"
    used_names.add(name)
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
        covers=tuple(node.name for node in covered),
        body=body,
        code=kernel.code,
    )


def computes(node: Node, values: Mapping[str, Value]) -> bool:
    """Return whether a node of a pre graph computes the elements of a tensor, unlike a view or a size."""
    tensors = any(values[output].shape is not None and values[output].dtype for output in node.outputs)
    return tensors and node.domain not in ("python", "torch") and node.op not in (*VIEWS, "sym_size")


# Find the original nodes that a node of Inductor's final graph represents.
#
# Inductor edits the graph in place: most nodes stay, and some are replaced by others. The nodes that stayed show the
# replacements: a node that used to take a removed node now takes the replacement. The replacement represents the
# removed node, and all removed nodes that were used only to compute the removed node.

Nodes = Sequence[torch.fx.Node]


class GraphBefore:
    """The names and arguments of the nodes before Inductor edits the graph, to be compared with the edited graph."""

    def __init__(self, graph: torch.fx.Graph) -> None:
        self._arguments = {node: _arguments(node) for node in graph.nodes}
        self._names = {node: node.name for node in graph.nodes}

    def covered_by(self, graph: torch.fx.Graph) -> dict[str, tuple[str, ...]]:
        """Return, for each node of the edited graph, the names of the original nodes that it represents."""
        kept = [survivor for survivor in graph.nodes if survivor in self._arguments]
        represented_by: dict[torch.fx.Node, dict[torch.fx.Node, None]] = {
            edited: {edited: None} if edited in self._arguments else {} for edited in graph.nodes
        }
        exits: dict[torch.fx.Node, list[torch.fx.Node]] = {}
        for node in kept:
            for gone, arrived in _exchanged(self._arguments[node], _arguments(node), self._arguments):
                exits.setdefault(arrived, []).append(gone)
        alive = set(graph.nodes)
        ends = {gone for gone_nodes in exits.values() for gone in gone_nodes}
        for made, replaced in exits.items():
            if made not in self._arguments:
                # Collect the replaced nodes, and all removed nodes that they were computed from, except those that
                # another node replaces.
                other_ends = ends.difference(replaced)
                region = represented_by[made]
                pending = list(replaced)
                while pending:
                    node = pending.pop()
                    if node not in region and node not in alive and node not in other_ends:
                        region[node] = None
                        pending += self._arguments.get(node, ())
        # A new node to which no original node is assigned represents the same nodes as its new users.
        for node in reversed(graph.nodes):
            if node in self._arguments or represented_by[node]:
                continue
            for user in node.users:
                if user not in self._arguments:
                    represented_by[node].update(represented_by[user])
        # Sort the names in the order of the original graph.
        order = {earlier: at for at, earlier in enumerate(self._names)}
        return {
            edited.name: tuple(self._names[gone] for gone in sorted(represented, key=order.__getitem__))
            for edited, represented in represented_by.items()
        }


def _arguments(node: torch.fx.Node) -> list[torch.fx.Node]:
    """Return every value that a node takes, in order. A value that it takes twice appears twice."""
    arguments: list[torch.fx.Node] = []
    torch.fx.map_arg((node.args, node.kwargs), arguments.append)
    return arguments


def _exchanged(
    before: Nodes, after: Nodes, earlier_nodes: Mapping[torch.fx.Node, object]
) -> list[tuple[torch.fx.Node, torch.fx.Node]]:
    """Return pairs of a value that a node took and the value that it takes instead.

    If the node takes as many values as it took, the values are paired by position. Otherwise each removed value is
    paired with each new one.
    """
    if len(before) == len(after):
        return [(old, new) for old, new in zip(before, after, strict=True) if old is not new]
    gone = [node for node in before if node not in after]
    arrived = [node for node in after if node not in before and node not in earlier_nodes]
    return [(old, new) for old in gone for new in arrived]
