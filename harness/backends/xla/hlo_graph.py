"""An HLO module as a graph of the record: what XLA executes, each fusion with the ops in it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from ...records.graph_record import PHASES, Graph, Node, Value
from ..kernel_place import kernel_place
from .hlo_module import HloModule, Instruction

GIVEN = ("parameter", "constant")
PASSED = ("tuple", "get-tuple-element")
"""Opcodes that compute nothing: a value from outside, and one that is handed on."""


FILLS = ("broadcast", "iota")


class LoweredNodes:
    """The nodes of a graph that its instructions were lowered from. `calls` are the numbers of the kernel calls that
    had made its nodes, by their names, when XLA compiled the graph.

    An instruction tells call and op; where nobody followed the calls then, the op alone, or with the shape of its
    result, may tell.
    """

    def __init__(self, pre: Graph, calls: Mapping[str, int]) -> None:
        self._nodes = {node.name: node for node in pre.nodes}
        self._shapes = {node.name: pre.values[node.outputs[0]].shape for node in pre.nodes}
        self._order = {name: at for at, name in enumerate(self._nodes)}
        self._of_op: dict[str, list[str]] = defaultdict(list)
        self._of_call: dict[int, list[str]] = defaultdict(list)
        self._calls = calls
        for node in pre.nodes:
            self._of_op[f"{node.domain}.{node.op}"].append(node.name)
            if node.name in calls:
                self._of_call[calls[node.name]].append(node.name)

    def behind(self, instructions: Sequence[Instruction]) -> tuple[str, ...]:
        """The names of the nodes that these instructions compute, in their order."""
        # XLA has one constant for several ops that need it, which is no work of theirs.
        working = [one for one in instructions if one.opcode not in FILLS or one.made_of == "aten.expand"]
        found = {name for one in working or instructions for name in self._behind(one)}
        return tuple(sorted(found, key=self._order.__getitem__))

    def place(self, instructions: Sequence[Instruction], names: Sequence[str]) -> Node:
        """Where in the script they are from: phase and place of what they compute, else of their calls."""
        if not names:
            calls = {one.call for one in instructions if one.call is not None}
            names = [name for call in calls for name in self._of_call.get(call, ())]
        nodes = [self._nodes[name] for name in sorted(names, key=self._order.__getitem__)]
        phases = [node.phase for node in nodes if node.phase in PHASES]
        return replace(kernel_place(nodes), phase=max(phases, key=PHASES.index, default="")) if nodes else Node("", "")

    def _behind(self, one: Instruction) -> Sequence[str]:
        same = self._of_op.get(one.made_of, ())
        if one.call is not None and self._calls:
            same = [name for name in same if self._calls.get(name) == one.call]
        of_shape = [name for name in same if one.shapes and self._shapes[name] == one.shapes[0].shape]
        if one.call is not None and self._calls:
            return of_shape or same
        return next((found for found in (same, of_shape) if len(found) == 1), ())


def post_graph(
    module: HloModule, pre: Graph, calls: Mapping[str, int], given: Sequence[str], outputs: Sequence[str | None]
) -> Graph:
    """What XLA has made of a graph: its entry computation, each fusion a node whose `body` is what it computes.

    `calls` are those of `LoweredNodes`, of its given values as well; `given` the values that are no constants of the
    graph, `outputs` those that it was executed for, None where one cannot be told.
    """
    lowered = LoweredNodes(pre, calls)
    entry = module.computations.get(module.entry, ())
    same = {one.name: one.operands[0] for one in entry if one.opcode == "get-tuple-element" and one.operands}

    def named(name: str) -> str:
        return named(same[name]) if name in same else name

    constants = {one.name for one in entry if one.opcode == "constant"}
    nodes: list[Node] = []
    values: dict[str, Value] = {}
    for one in entry:
        values[one.name] = one.shapes[0] if one.shapes else Value()
        if one.opcode in (*GIVEN, *PASSED):
            continue
        inside = [inner for inner in module.fused(one) if inner.opcode not in (*GIVEN, *PASSED)]
        covers = lowered.behind([one, *inside])
        body = tuple(_node(inner, lowered.place([inner], lowered.behind([inner])), inner.operands) for inner in inside)
        nodes.append(
            replace(
                _node(
                    one,
                    lowered.place([one, *inside], covers),
                    tuple(named(name) for name in one.operands if name not in constants),
                ),
                covers=covers,
                body=tuple(replace(inner, stack="") for inner in body),
                code="\n".join((one.text, *(f"  {inner.text}" for inner in module.fused(one)))) if body else "",
            )
        )
    root = next((one for one in reversed(entry) if one.is_root), None)
    results: tuple[str, ...] = ()
    if root is not None:
        results = tuple(named(name) for name in root.operands) if root.opcode == "tuple" else (root.name,)
    inputs = [one for one in entry if one.opcode == "parameter"]
    inputs.sort(key=lambda one: int(one.text.partition("parameter(")[2].partition(")")[0]))
    bindings = dict(zip((one.name for one in inputs), _bindings(inputs, pre, calls, given), strict=True))
    named_outputs: set[str] = set()  # of a value that two tensors have one is named
    for name, output in zip(results, outputs, strict=False):
        if output is not None and output not in named_outputs and pre.values[output].binding:
            named_outputs.add(output)
            bindings.setdefault(name, pre.values[output].binding)
    used = {name for node in nodes for name in (*node.inputs, *node.outputs)} | {*bindings, *results}
    return Graph(
        name="",
        mode="",
        stage="post",
        phase=pre.phase,
        step=pre.step,
        nodes=_placed(nodes),
        values={name: replace(value, binding=bindings.get(name, "")) for name, value in values.items() if name in used},
        inputs=tuple(one.name for one in inputs),
        outputs=tuple(dict.fromkeys(results)),
    )


def _node(one: Instruction, place: Node, inputs: tuple[str, ...]) -> Node:
    return replace(
        place,
        name=one.name,
        op=one.opcode,
        domain="hlo",
        inputs=inputs,
        outputs=(one.name,),
        attributes={"hlo": one.attributes} if one.attributes else {},
        original=one.made_of,
    )


def _placed(nodes: Sequence[Node]) -> tuple[Node, ...]:
    """The nodes, of which XLA has put some in: those have the place of what takes them (the first part of a reduction
    in two), else of what they take (a copy into an output)."""
    placed = {node.name: node for node in nodes}

    def at(node: Node, others: Sequence[Node]) -> Node:
        near = next((one for one in others if one.phase), None)
        if node.phase or near is None:
            return node
        place = {"phase": near.phase, "module": near.module, "source": near.source, "sequence": near.sequence}
        return replace(node, **place)  # type: ignore[arg-type]

    takers: dict[str, list[str]] = defaultdict(list)
    for node in nodes:
        for name in node.inputs:
            takers[name].append(node.name)
    for node in reversed(nodes):
        placed[node.name] = at(node, [placed[name] for name in takers[node.name]])
    for node in nodes:
        placed[node.name] = at(placed[node.name], [placed[name] for name in node.inputs if name in placed])
    return tuple(placed.values())


def _bindings(
    inputs: Sequence[Instruction], pre: Graph, calls: Mapping[str, int], given: Sequence[str]
) -> Iterator[str]:
    """What each parameter of the module is: both have the given values in one order, but what stands at several places
    of the graph is a parameter once."""
    left = list(given)
    for place, one in enumerate(inputs):
        shape = (one.shapes[0].dtype, one.shapes[0].shape)
        fitting = (
            at
            for at, name in enumerate(left)
            if (pre.values[name].dtype, pre.values[name].shape) == shape and (not calls or calls.get(name) == one.call)
        )
        at = next(fitting, None)
        yield f"input {place}" if at is None else pre.values[left[at]].binding
        left = left if at is None else left[at + 1 :]
