"""Reads Inductor's final graph into the record: one node for each kernel or library call, with the nodes that
it covers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from ...records.graph_record import Graph, Node, Value
from ...torch_private.graph_kernels import GraphKernel, Lowered
from ...torch_private.graph_stages import parts_of_op
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
    nodes = _with_buffers(done, _nodes(done))
    values = _values(done, nodes)
    bindings = {one: done.pre.values[one].binding for one in done.pre.inputs}
    outputs = []
    for before, after in zip(done.outputs, done.lowered.outputs, strict=False):
        if before is not None and after is not None:
            outputs.append(after)
            bindings.setdefault(after, done.pre.values[before].binding)
    values = {one: replace(value, binding=bindings.get(one, value.binding)) for one, value in values.items()}
    for one in outputs:
        values.setdefault(one, Value(binding=bindings[one]))
    covered = {one for node in nodes for one in node.covers}
    missing = [one.name for one in done.pre.nodes if one.name not in covered and computes(one, done.pre.values)]
    notes = (f"in no kernel (optimised away, or only a view): {', '.join(missing)}",) if missing else ()
    used = dict.fromkeys(one for node in nodes for one in node.inputs)
    constants = [one for one in used if one in done.lowered.constants and one not in done.pre.inputs]
    return replace(
        done.pre,
        name=name,
        stage="post",
        nodes=tuple(nodes),
        values=values,
        inputs=(*done.pre.inputs, *constants),
        outputs=tuple(outputs),
        pre=done.pre.name,
        seconds=round(done.seconds, 6),
        notes=notes,
        code=done.code,
    )


def _nodes(done: Compilation) -> list[Node]:
    final = {one.name: one for one in done.final.nodes}
    owner = {made: one.name for one in done.final.nodes for made in one.outputs}
    order = {one.name: number for number, one in enumerate(done.pre.nodes)}
    makes = {made: one.name for one in done.pre.nodes for made in one.outputs}
    sources = {one.name: one for one in done.pre.nodes}
    taken: set[str] = set()
    nodes = []
    for kernel in done.lowered.kernels:
        inside = dict.fromkeys(owner.get(one.name, one.name) for one in kernel.origins)
        body = tuple(node for name, node in final.items() if name in inside)
        found = {makes.get(one, one) for node in kernel.origins for one in done.covers.get(node.name, ())}
        covers = sorted((one for one in found if one in order), key=order.__getitem__)
        nodes.append(_node(kernel, body, [sources[one] for one in covers], taken, done.pre.phase))
    return nodes


def _with_buffers(done: Compilation, nodes: Sequence[Node]) -> list[Node]:
    """The nodes, the ops in them reading and writing the buffers that hold their values."""
    results = {one.name: one.outputs[0] for one in done.final.nodes if one.outputs}
    buffers: dict[str, str] = {}
    for buffer, made in done.lowered.made_by.items():
        if made in results:
            buffers.setdefault(results[made], buffer)

    def renamed(values: Iterable[str]) -> tuple[str, ...]:
        return tuple(buffers.get(one, one) for one in values)

    return [
        replace(
            node,
            body=tuple(replace(one, inputs=renamed(one.inputs), outputs=renamed(one.outputs)) for one in node.body),
        )
        for node in nodes
    ]


def _node(
    kernel: GraphKernel,
    body: tuple[Node, ...],
    covered: Sequence[Node],
    taken: set[str],
    phase: str,
) -> Node:
    domain, op, overload = _called(kernel)
    place = next((one for one in reversed(covered) if one.source), None)
    same = [one for one in body if one.op == op and not kernel.code]
    alone = same[0] if len(same) == 1 else None
    name = kernel.name if kernel.code else f"{op}_{kernel.buffers[0] if kernel.buffers else 'call'}"
    while name in taken:
        name = f"{name}_{kernel.buffers[0] if kernel.buffers else 'again'}"
    taken.add(name)
    # The innermost module that all of these are in, None where none is known
    paths = (one.module for one in covered)
    known = [one.split(".") if one else [] for one in paths if one is not None]
    if not known:
        common_path = None
    else:
        common = []
        for parts in zip(*known, strict=False):
            if len(set(parts)) > 1:
                break
            common.append(parts[0])
        common_path = ".".join(common)
    return Node(
        name=name,
        op=op,
        domain=domain,
        overload="" if kernel.code else overload if alone is None else alone.overload,
        phase=phase,
        module=common_path,
        source="" if place is None else place.source,
        stack="" if place is None else place.stack,
        sequence=covered[0].sequence if len({one.sequence for one in covered}) == 1 else None,
        inputs=kernel.inputs,
        outputs=kernel.buffers,
        attributes={} if alone is None else alone.attributes,
        covers=tuple(one.name for one in covered),
        body=body,
        code=kernel.code,
    )


def _called(kernel: GraphKernel) -> tuple[str, str, str]:
    parts = parts_of_op(kernel.operation)
    if parts is not None:
        return parts
    if kernel.code:
        return "inductor", kernel.name, ""
    names = kernel.name.removeprefix("torch.ops.").split(".")
    if names[0] == "extern_kernels":
        return "aten", "_".join(names[1:]), ""
    if len(names) > 1:
        return names[0], names[1], "" if names[2:] in ([], ["default"]) else "_".join(names[2:])
    return "inductor", kernel.name, ""


def _values(done: Compilation, nodes: Sequence[Node]) -> dict[str, Value]:
    values = {one: done.pre.values[one] for one in done.pre.inputs}
    for node in nodes:
        for one in (*node.inputs, *node.outputs):
            if one not in values:
                dtype, shape = done.lowered.buffers.get(one, ("", None))
                values[one] = Value(dtype, shape, "constant" if one in done.lowered.constants else "")
    inside = dict.fromkeys(one for node in nodes for op in node.body for one in (*op.inputs, *op.outputs))
    known = {one: replace(done.final.values[one], binding="") for one in inside if one in done.final.values}
    return known | values


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
                # These nodes and all gone ones that they were computed from, up to what another node
                # replaces
                other_ends = ends.difference(replaced)
                found: dict[torch.fx.Node, None] = {}
                pending = list(replaced)
                while pending:
                    one = pending.pop()
                    if one in found or one in alive or one in other_ends:
                        continue
                    found[one] = None
                    pending += self._arguments.get(one, ())
                region = list(found)
                stands_for[made].update(dict.fromkeys(region))
        # Let each new node that stands for nothing yet stand for what those stand for that it was made for
        for one in reversed(graph.nodes):
            if one in self._arguments or stands_for[one]:
                continue
            for user in one.users:
                if user not in self._arguments:
                    stands_for[one].update(stands_for[user])
        return {one.name: self._sorted(found) for one, found in stands_for.items()}

    def _sorted(self, found: Iterable[torch.fx.Node]) -> tuple[str, ...]:
        wanted = set(found)
        if len(wanted) < 2:
            return tuple(self._names[one] for one in wanted)
        return tuple(name for one, name in self._names.items() if one in wanted)


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
