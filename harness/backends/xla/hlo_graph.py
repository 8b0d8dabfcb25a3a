"""Make a graph record of an HLO module: the instructions that XLA executes, each fusion with the ops in it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from ...records.tools.graph_record import PHASES, Graph, Node, Value
from ..kernel_place import kernel_place
from .hlo_module import HloModule, Instruction

WITHOUT_WORK = ("parameter", "constant", "tuple", "get-tuple-element")
"""Opcodes that compute nothing: they are values from outside, or pass values on."""

FILLS = ("broadcast", "iota")


class LoweredNodes:
    """The nodes of a graph, found by the instructions that they were lowered to.

    `calls` maps the name of each node to the number of the kernel call that made it in the execution for which XLA
    compiled the graph. An instruction names its call and its op. If calls were not followed at that time, a node is
    identified by its op or, if other nodes have this op too, by its op and the shape of its result.
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
        """Return the names of the nodes that these instructions compute, in the order of the graph."""
        # XLA shares one filled constant among all ops that need it, so filling it is not attributed to them.
        working = [
            instruction
            for instruction in instructions
            if instruction.opcode not in FILLS or instruction.made_of == "aten.expand"
        ]
        names = {name for instruction in working or instructions for name in self._behind(instruction)}
        return tuple(sorted(names, key=self._order.__getitem__))

    def place(self, instructions: Sequence[Instruction], names: Sequence[str]) -> Node:
        """Return a node with the phase and site of the nodes `names` that the instructions compute.

        If `names` is empty, use the nodes of the instructions' calls.
        """
        if not names:
            calls = {instruction.call for instruction in instructions if instruction.call is not None}
            names = [name for call in calls for name in self._of_call.get(call, ())]
        nodes = [self._nodes[name] for name in sorted(names, key=self._order.__getitem__)]
        phases = [node.phase for node in nodes if node.phase in PHASES]
        return replace(kernel_place(nodes), phase=max(phases, key=PHASES.index, default="")) if nodes else Node("", "")

    def _behind(self, instruction: Instruction) -> Sequence[str]:
        names = self._of_op.get(instruction.made_of, ())
        if instruction.call is not None and self._calls:
            names = [name for name in names if self._calls.get(name) == instruction.call]
        of_shape = [name for name in names if instruction.shapes and self._shapes[name] == instruction.shapes[0].shape]
        if instruction.call is not None and self._calls:
            return of_shape or names
        return next((fitting for fitting in (names, of_shape) if len(fitting) == 1), ())


def post_graph(
    module: HloModule, pre: Graph, calls: Mapping[str, int], device_data: Sequence[str], outputs: Sequence[str | None]
) -> Graph:
    """Return the graph that XLA made of `pre`: the module's entry computation. Each fusion is a node with a `body`.

    calls: as in `LoweredNodes`, including the calls that made values from outside.
    device_data: the values from outside that are not constants of the graph.
    outputs: the values that the graph was executed for, None for an unknown value.
    """
    lowered = LoweredNodes(pre, calls)
    entry = module.computations.get(module.entry, ())
    constants = {constant.name for constant in entry if constant.opcode == "constant"}
    passed_on = {
        element.name: element.operands[0]
        for element in entry
        if element.opcode == "get-tuple-element" and element.operands
    }

    def named(name: str) -> str:
        return named(passed_on[name]) if name in passed_on else name

    nodes = []
    for instruction in entry:
        if instruction.opcode not in WITHOUT_WORK:
            operands = tuple(named(name) for name in instruction.operands if name not in constants)
            nodes.append(_kernel_node(instruction, list(module.fused(instruction)), lowered, operands))
    root = next((candidate for candidate in reversed(entry) if candidate.is_root), None)
    results: tuple[str, ...] = ()
    if root is not None:
        results = tuple(named(name) for name in root.operands) if root.opcode == "tuple" else (root.name,)
    inputs = [parameter for parameter in entry if parameter.opcode == "parameter"]
    inputs.sort(key=lambda parameter: int(parameter.text.partition("parameter(")[2].partition(")")[0]))
    input_names = tuple(parameter.name for parameter in inputs)
    bindings = dict(zip(input_names, _bindings(inputs, pre, calls, device_data), strict=True))
    named_outputs: set[str] = set()  # if two tensors have the same value, only one is named
    for name, output in zip(results, outputs, strict=False):
        if output is not None and output not in named_outputs and pre.values[output].binding:
            named_outputs.add(output)
            bindings.setdefault(name, pre.values[output].binding)
    used = {name for node in nodes for name in (*node.inputs, *node.outputs)} | {*bindings, *results}
    values = {made.name: made.shapes[0] if made.shapes else Value() for made in entry if made.name in used}
    return Graph(
        name="",
        mode="",
        stage="post",
        phase=pre.phase,
        step=pre.step,
        nodes=_placed(nodes),
        values={name: replace(value, binding=bindings.get(name, "")) for name, value in values.items()},
        inputs=input_names,
        outputs=tuple(dict.fromkeys(results)),
    )


def _kernel_node(
    instruction: Instruction, fused: Sequence[Instruction], lowered: LoweredNodes, inputs: tuple[str, ...]
) -> Node:
    """Return an instruction of the entry computation as a node, with the instructions `fused` in it as its `body`."""
    inside = [inner for inner in fused if inner.opcode not in WITHOUT_WORK]
    covers = lowered.behind([instruction, *inside])
    body = [_node(inner, lowered.place([inner], lowered.behind([inner])), inner.operands) for inner in inside]
    return replace(
        _node(instruction, lowered.place([instruction, *inside], covers), inputs),
        covers=covers,
        body=tuple(replace(inner, stack="") for inner in body),
        code="\n".join((instruction.text, *(f"  {inner.text}" for inner in fused))) if body else "",
    )


def _node(instruction: Instruction, place: Node, inputs: tuple[str, ...]) -> Node:
    return replace(
        place,
        name=instruction.name,
        op=instruction.opcode,
        domain="hlo",
        inputs=inputs,
        outputs=(instruction.name,),
        attributes={"hlo": instruction.attributes} if instruction.attributes else {},
        original=instruction.made_of,
    )


def _placed(nodes: Sequence[Node]) -> tuple[Node, ...]:
    """Return the nodes, with sites for those that XLA has inserted.

    Such a node gets the site of a node that takes its value, as for the first half of a reduction in two parts. If
    there is none, it gets the site of a node whose value it takes, as for a copy into an output.
    """
    placed = {node.name: node for node in nodes}

    def at(node: Node, neighbours: Sequence[Node]) -> Node:
        near = next((neighbour for neighbour in neighbours if neighbour.phase), None)
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
    inputs: Sequence[Instruction], pre: Graph, calls: Mapping[str, int], device_data: Sequence[str]
) -> Iterator[str]:
    """Yield the binding of each parameter of the module.

    The module and the graph have the values from outside in the same order. A value that occurs several times in the
    graph is only one parameter.
    """
    left = list(device_data)
    for position, param in enumerate(inputs):
        spec = (param.shapes[0].dtype, param.shapes[0].shape)
        fitting = (
            index
            for index, name in enumerate(left)
            if (pre.values[name].dtype, pre.values[name].shape) == spec and (not calls or calls.get(name) == param.call)
        )
        match = next(fitting, None)
        yield f"input {position}" if match is None else pre.values[left[match]].binding
        left = left if match is None else left[match + 1 :]
