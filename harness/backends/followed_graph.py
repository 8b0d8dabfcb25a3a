"""Make a graph record of an executed lazy graph, from the dump of its IR and the calls that made its nodes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ..records.tools.graph_record import PHASES, Graph, GraphFolder, Node, Value, phase_of
from ..tape.origin import CALLED_FROM
from .deferred_calls import FollowedCall, KnownValues, Operand
from .dumped_ir import DumpedNode

Output = tuple[int, int]
"""A value of a dumped graph: the number of its node, and its index among the node's outputs."""

TECHNICAL = (
    "location", "device", "ROOT", "NodeType", "num_outputs", "Python Stacktrace", "xla_shape", "scope", "dynamic_dims",
)  # fmt: skip
_MARK = re.compile(rf"^(\d+)@{CALLED_FROM}:")
_INTEGER = re.compile(r"^-?\d+$")
_FLOAT = re.compile(r"^-?\d+(\.\d*)?(e[+-]?\d+)?$")


@dataclass(frozen=True, slots=True)
class MadeNodes:
    """The nodes of a graph and the calls that made them.

    nodes: the nodes by their numbers.
    calls: the call that made each node, by the node's number.
    main: the number of each call's main node, by the call's number. The main node is the last node with the call's own
        op, else the call's last node.
    """

    nodes: Mapping[int, DumpedNode]
    calls: Mapping[int, FollowedCall]
    main: Mapping[int, int]

    @classmethod
    def of(cls, dumped: Sequence[DumpedNode], known_values: KnownValues) -> MadeNodes:
        calls = {node.number: call for node in dumped if (call := call_of(node, known_values)) is not None}
        nodes = {node.number: node for node in dumped}
        main: dict[int, int] = {}
        for at, call in calls.items():
            before, own = main.get(call.number), call.place.op
            if not nodes[at].is_input and (before is None or nodes[before].op != own or nodes[at].op == own):
                main[call.number] = at
        return cls(nodes, calls, main)


@dataclass(frozen=True, slots=True)
class Identified:
    """Facts from the calls about the values of a graph.

    names: for each node, the argument names of its operands; empty if the node's operands are not those of its call.
    input_operands: for each value that the graph takes, the operand of the call that takes it.
    numbers: the lazy core's numbers for the values that the calls returned.
    """

    names: dict[int, tuple[str, ...]] = field(default_factory=dict)
    input_operands: dict[int, Operand] = field(default_factory=dict)
    numbers: dict[Output, int] = field(default_factory=dict)


def by_position(made: MadeNodes) -> Identified:
    """Identify the values of a graph, for a core whose nodes take operands in the order of the call's arguments."""
    identified = Identified()
    for at in made.main.values():
        node, call = made.nodes[at], made.calls[at]
        tensors = tuple(argument for argument in call.operands if argument.tensor is not None)
        fitting = (operands for operands in (call.operands, tensors) if len(operands) == len(node.operands))
        operands = next(fitting, ())
        identified.names[at] = tuple(argument.name for argument in operands)
        for (source, _), operand in zip(node.operands, operands, strict=False):
            if made.nodes[source].is_input:
                identified.input_operands.setdefault(source, operand)
        identified.numbers.update({(at, which): value for which, value in enumerate(call.made)})
    return identified


class FollowedGraph:
    """One dumped graph and the calls that made its nodes.

    `outputs` are the values that it was executed for, None for a value that the dump does not identify.
    """

    def __init__(
        self,
        dumped: Sequence[DumpedNode],
        known_values: KnownValues,
        outputs: Sequence[Output | None],
        identify: Callable[[MadeNodes], Identified],
    ) -> None:
        self._dumped = dumped
        self._known_values = known_values
        self._outputs = outputs
        self._nodes = {node.number: node for node in dumped}
        made = MadeNodes.of(dumped, known_values)
        self._calls, self._main = made.calls, made.main
        self._counts = Counter(call.number for at, call in made.calls.items() if not made.nodes[at].is_input)
        self._identified = identify(made)
        for output in outputs:
            number = None if output is None else self._identified.numbers.get(output)
            if output is not None and number is not None:
                self._known_values.executed.setdefault(number, self.value_name(output))

    @property
    def calls(self) -> Sequence[FollowedCall]:
        """The calls that made the nodes, first to last."""
        by_number = {call.number: call for call in self._calls.values()}
        return [by_number[number] for number in sorted(by_number)]

    def node_name(self, number: int) -> str:
        return f"{self._nodes[number].op.replace('.', '_')}_{number}"

    def value_name(self, value: Output) -> str:
        number, which = value
        if self._nodes[number].is_input:
            return f"data_{number}"
        return self.node_name(number) + (f"_{which}" if which else "")

    def graph(self, step: int) -> Graph:
        """Return the graph, without a name or a hash."""
        # An op whose call is unknown gets the latest phase of its operands.
        is_training = any(not call.is_setup for call in self.calls)
        phases: dict[int, str] = {}
        nodes = []
        for dumped in self._dumped:
            if dumped.is_input:
                continue
            call = self._calls.get(dumped.number)
            if call is None:
                operand_phases = [phases.get(number, "") for number, _ in dumped.operands]
                phase = max(operand_phases, key=phase_order, default="") or "forward"
            else:
                phase = "" if call.is_setup and not is_training else call.place.phase
            phases[dumped.number] = phase
            nodes.append(replace(self._node(dumped, call), phase=phase))
        input_nodes = [node for node in self._dumped if node.is_input]
        outputs = [self.value_name(output) for output in self._outputs if output is not None]
        notes = []
        unknown = sum(not node.is_input and node.number not in self._calls for node in self._dumped)
        if unknown:
            made = "1 node was" if unknown == 1 else f"{unknown} nodes were"
            notes.append(f"{made} made before this step, at {'an unknown site' if unknown == 1 else 'unknown sites'}")
        missing = len(self._outputs) - len(outputs)
        if missing > 0:
            notes.append(f"{missing} output{'' if missing == 1 else 's'} cannot be identified in the dump")
        return Graph(
            name="",
            mode="",
            stage="pre",
            phase=phase_of(nodes),
            step=step,
            nodes=tuple(nodes),
            values=self._values(input_nodes),
            inputs=tuple(self.value_name((node.number, 0)) for node in input_nodes),
            outputs=tuple(dict.fromkeys(outputs)),
            notes=tuple(notes),
        )

    def _values(self, input_nodes: Sequence[DumpedNode]) -> dict[str, Value]:
        """Return the values of all nodes by name; inputs and outputs have bindings."""
        values = {
            self.value_name((node.number, which)): value
            for node in self._dumped
            for which, value in enumerate(node.outputs)
        }
        numbers = iter(range(len(input_nodes)))
        for node in input_nodes:
            name = self.value_name((node.number, 0))
            binding = self._input_binding(node) or f"input {next(numbers)}"
            values[name] = replace(values[name], binding=binding)
        for output in self._outputs:
            if output is not None and not self._nodes[output[0]].is_input:
                name = self.value_name(output)
                number = self._identified.numbers.get(output)
                output_binding = "" if number is None else self._known_values.binding(number)
                values[name] = replace(values[name], binding=output_binding)
        return values

    def _node(self, dumped: DumpedNode, call: FollowedCall | None) -> Node:
        place = Node("", "") if call is None else call.place
        is_main = call is not None and self._main.get(call.number) == dumped.number
        is_op = is_main and place.op == dumped.op
        attributes = {
            name: _read(text) for name, text in dumped.tags.items() if name not in TECHNICAL and text != "null"
        }
        # `original` is the op that the node was decomposed from: the op of the outermost call around the node's call
        outer, group, original = call, "", ""
        while outer is not None and outer.parent is not None:
            outer = self._known_values.calls[outer.parent]
        if call is not None and outer is not None:
            is_whole = outer is call and self._counts[call.number] == 1
            group = "" if is_whole else f"{outer.place.op}_call_{outer.number}"
            original = "" if outer is call and is_op else outer.place.full_op
        sequence = outer.place.sequence if place.sequence is None and outer is not None else place.sequence
        return replace(
            place,
            sequence=sequence,
            name=self.node_name(dumped.number),
            op=dumped.op.replace(".", "_"),
            domain={"lazy_tensors": "lazy"}.get(dumped.domain, dumped.domain),
            overload=place.overload if is_op else "",
            inputs=tuple(self.value_name(operand) for operand in dumped.operands),
            input_names=self._identified.names.get(dumped.number, ()),
            outputs=tuple(self.value_name((dumped.number, which)) for which in range(len(dumped.outputs))),
            attributes=place.attributes if is_op else attributes,
            original=original,
            group=group,
        )

    def _input_binding(self, node: DumpedNode) -> str:
        """Return the binding of an input to the script, "" if the script has no name for it."""
        operand, own = self._identified.input_operands.get(node.number), self._calls.get(node.number)
        if node.op == "Constant":
            return "constant"
        if operand is None:  # no operand is known; a number that a known call made is a constant
            return "" if own is None or node.outputs[0].shape else "constant"
        if operand.tensor is None:
            return "constant"
        saved = self._known_values.executed.get(operand.tensor)
        bound = self._known_values.binding(operand.tensor) or (f"saved {saved}" if saved else "")
        # A kernel that is called with a number may have made a tensor from the number.
        if not bound and own is not None and self._known_values.makers.get(operand.tensor) is own:
            return "constant" if any(argument.is_number for argument in own.operands) else ""
        return bound


class GraphFiler:
    """The base class of the writers of graphs. A graph is written if it contains ops of the steps in `steps`."""

    def __init__(self, folder: GraphFolder, values: KnownValues, steps: Container[int]) -> None:
        self._folder = folder
        self._known_values = values
        self._steps = steps
        self._names: dict[str, str] = {}

    @property
    def has_any(self) -> bool:
        return bool(self._names)

    def _file(self, steps: Collection[int], write: Callable[[], None], *, is_awaited: bool) -> int:
        """Write an execution with ops of these steps, and return the latest of the steps.

        The execution is filed under the latest of its steps that is in `self._steps`. If the latest of all its steps is
        not in `self._steps`, the execution is written only if it `is_awaited`.
        """
        wanted = [step for step in steps if step in self._steps]
        if wanted and (is_awaited or max(steps) in self._steps):
            self._folder.step, before = max(wanted), self._folder.step
            try:
                write()
            finally:
                self._folder.step = before
        return max(steps)


def call_of(node: DumpedNode, known_values: KnownValues) -> FollowedCall | None:
    """Return the call that made a node, None for a node made before calls were followed."""
    mark = _MARK.match(node.location)
    return None if mark is None else known_values.calls.get(int(mark[1]))


def is_foreign(dumped: Sequence[DumpedNode], known_values: KnownValues) -> bool:
    """Return whether a graph has ops that were all made before calls were followed, or by a recorder's read."""
    calls = [call_of(node, known_values) for node in dumped if not node.is_input]
    return bool(calls) and all(call is None or call.is_reading for call in calls)


def phase_order(phase: str) -> int:
    return PHASES.index(phase) if phase in PHASES else -1


def _read(text: str) -> Any:
    """Return a tag's text as a number or a list of integers if it is one, else the text itself."""
    if _INTEGER.match(text):
        return int(text)
    if _FLOAT.match(text):
        return float(text)
    parts = text.strip("[]").split(",")
    if len(parts) > 1 and all(_INTEGER.match(part.strip()) for part in parts):
        return [int(part) for part in parts]
    return text
