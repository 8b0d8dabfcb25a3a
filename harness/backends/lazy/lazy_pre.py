"""The IR of an executed lazy graph as a graph of the record."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ...records.graph_record import PHASES, Graph, Node, phase_of
from .lazy_calls import FRAME, KnownValues, LazyCall, Operand
from .lazy_dump import DumpedGraph, DumpedNode

Output = tuple[int, int]
"""A value of a dumped graph: the number of its node, and which of the node's outputs it is."""

TECHNICAL = ("location", "device", "ROOT", "NodeType", "num_outputs", "Python Stacktrace")
_MARK = re.compile(rf"^(\d+)@{FRAME}:")
_INTEGER = re.compile(r"^-?\d+$")
_FLOAT = re.compile(r"^-?\d+(\.\d*)?(e[+-]?\d+)?$")


class LazyPreGraph:
    """One dumped graph and the calls that made its nodes. `outputs` are the values that it was executed for,
    None where it cannot be told which one it is."""

    def __init__(self, dump: DumpedGraph, known: KnownValues, outputs: Sequence[Output | None]) -> None:
        self._dump = dump
        self._known = known
        self._outputs = outputs
        self._nodes = {node.number: node for node in dump.nodes}
        self._calls = {node.number: call for node in dump.nodes if (call := call_of(node, known)) is not None}
        self._main = _main_nodes([(node, self._calls.get(node.number)) for node in dump.nodes])
        self._counts = Counter(call.number for number, call in self._calls.items() if not self._nodes[number].is_given)
        self._operands = {node.number: self._aligned(node) for node in dump.nodes}
        # The given values by their nodes: what the kernels that took them were called with
        self._given: dict[int, Operand] = {}
        for node in self._dump.nodes:
            for (taken, _), operand in zip(node.operands, self._operands[node.number], strict=False):
                if self._nodes[taken].is_given:
                    self._given.setdefault(taken, operand)
        for output in self._outputs:
            number = None if output is None else self._number_of(output)
            if output is not None and number is not None:
                self._known.executed(number, self.value_name(output))

    @property
    def calls(self) -> Sequence[LazyCall]:
        """The calls that made the nodes, first to last."""
        found = {call.number: call for call in self._calls.values()}
        return [found[number] for number in sorted(found)]

    def node_name(self, number: int) -> str:
        return f"{self._nodes[number].op}_{number}"

    def value_name(self, value: Output) -> str:
        number, which = value
        if self._nodes[number].is_given:
            return f"data_{number}"
        return self.node_name(number) + (f"_{which}" if which else "")

    def graph(self, step: int) -> Graph:
        """The graph, whose name and hash are still to be given."""
        # The ops of the graph. One whose call is not known has the latest phase of what it takes.
        is_training = any(not call.is_setup for call in self.calls)
        phases: dict[int, str] = {}
        nodes = []
        for dumped in self._dump.nodes:
            if dumped.is_given:
                continue
            call = self._calls.get(dumped.number)
            if call is None:
                taken = [phases.get(number, "") for number, _ in dumped.operands]
                phase = max(taken, key=_order, default="") or "forward"
            else:
                phase = "" if call.is_setup and not is_training else call.place.phase
            phases[dumped.number] = phase
            nodes.append(replace(self._node(dumped, call), phase=phase))
        given = [node for node in self._dump.nodes if node.is_given]
        values = {
            self.value_name((node.number, which)): value
            for node in self._dump.nodes
            for which, value in enumerate(node.outputs)
        }
        numbers = iter(range(len(given)))
        for node in given:
            name = self.value_name((node.number, 0))
            binding = self._given_binding(node) or f"input {next(numbers)}"
            values[name] = replace(values[name], binding=binding)
        for output in self._outputs:
            if output is not None and not self._nodes[output[0]].is_given:
                name = self.value_name(output)
                number = self._number_of(output)
                output_binding = "" if number is None else self._known.binding(number)
                values[name] = replace(values[name], binding=output_binding)
        outputs = [self.value_name(output) for output in self._outputs if output is not None]
        return Graph(
            name="",
            mode="",
            stage="pre",
            phase=phase_of(nodes),
            step=step,
            nodes=tuple(nodes),
            values=values,
            inputs=tuple(self.value_name((node.number, 0)) for node in given),
            outputs=tuple(dict.fromkeys(outputs)),
            notes=self._notes(outputs),
        )

    def _notes(self, outputs: Sequence[str]) -> tuple[str, ...]:
        unknown = [node for node in self._dump.nodes if not node.is_given and node.number not in self._calls]
        notes = []
        if unknown:
            notes.append(f"{len(unknown)} nodes were made before this step: their places are not known")
        if len(outputs) < len(self._dump.hashes):
            notes.append(f"{len(self._dump.hashes) - len(outputs)} outputs cannot be told from the dump")
        return tuple(notes)

    def _node(self, dumped: DumpedNode, call: LazyCall | None) -> Node:
        place = Node("", "") if call is None else call.place
        is_main = call is not None and self._main.get(call.number) == dumped.number
        names = tuple(one.name for one in self._operands[dumped.number])
        return replace(
            place,
            name=self.node_name(dumped.number),
            op=dumped.op.replace(".", "_"),
            domain={"lazy_tensors": "lazy"}.get(dumped.domain, dumped.domain),
            overload=place.overload if is_main and place.op == dumped.op else "",
            inputs=tuple(self.value_name(operand) for operand in dumped.operands),
            input_names=names,
            outputs=tuple(self.value_name((dumped.number, which)) for which in range(len(dumped.outputs))),
            attributes=place.attributes if is_main and place.op == dumped.op else _attributes(dumped.tags),
            **self._origin(call, is_main=is_main),
        )

    def _origin(self, call: LazyCall | None, *, is_main: bool) -> dict[str, Any]:
        """What the node was decomposed from: the outermost call around its own, or its own call's op."""
        if call is None:
            return {}
        outer = call
        while outer.parent is not None:
            outer = self._known.calls[outer.parent]
        if outer is call and self._counts[call.number] == 1:
            return {}
        group = {"group": f"{outer.place.op}_call_{outer.number}"}
        return group if outer is call and is_main else {**group, "original": outer.place.full_op}

    def _aligned(self, node: DumpedNode) -> tuple[Operand, ...]:
        """What its call's schema calls the operands of a node, empty where they are not those of the call."""
        call = self._calls.get(node.number)
        if call is None or node.is_given or self._main.get(call.number) != node.number:
            return ()
        tensors = tuple(one for one in call.operands if one.tensor is not None)
        return next((found for found in (call.operands, tensors) if len(found) == len(node.operands)), ())

    def _given_binding(self, node: DumpedNode) -> str:
        operand = self._given.get(node.number)
        if node.op == "Constant":
            return "constant"
        if operand is None:
            return "" if self._calls.get(node.number) is None or node.outputs[0].shape else "constant"
        if operand.tensor is None:
            return "constant"
        saved = self._known.saved(operand.tensor)
        return self._known.binding(operand.tensor) or (f"saved {saved}" if saved else self._filled(node, operand))

    def _filled(self, node: DumpedNode, operand: Operand) -> str:
        """`constant` for a value that a kernel has made of a number."""
        assert operand.tensor is not None
        maker, own = self._known.maker(operand.tensor), self._calls.get(node.number)
        made_of_number = maker is own and own is not None and any(one.tensor is None for one in own.operands)
        return "constant" if made_of_number else ""

    def _number_of(self, output: Output) -> int | None:
        """The lazy core's number of an output of a call, None where it is not known."""
        call = self._calls.get(output[0])
        if call is None or self._main.get(call.number) != output[0] or len(call.made) <= output[1]:
            return None
        return call.made[output[1]]


def call_of(node: DumpedNode, known: KnownValues) -> LazyCall | None:
    """The call that made a node, None where nobody followed then."""
    mark = _MARK.match(node.location)
    return None if mark is None else known.calls.get(int(mark[1]))


def is_foreign(dump: DumpedGraph, known: KnownValues) -> bool:
    """Whether a graph has ops and all of them are from before anybody followed, or only read values."""
    calls = [call_of(node, known) for node in dump.nodes if not node.is_given]
    return bool(calls) and all(call is None or call.is_reading for call in calls)


def _main_nodes(nodes: Sequence[tuple[DumpedNode, LazyCall | None]]) -> dict[int, int]:
    """The node that gives a call's result, by the number of the call: the last of the call's own op."""
    found: dict[int, DumpedNode] = {}
    for node, call in nodes:
        if call is None or node.is_given:
            continue
        before = found.get(call.number)
        if before is None or before.op != call.place.op or node.op == call.place.op:
            found[call.number] = node
    return {number: node.number for number, node in found.items()}


def _order(phase: str) -> int:
    return PHASES.index(phase) if phase in PHASES else -1


def _attributes(tags: Mapping[str, str]) -> dict[str, Any]:
    return {name: _read(text) for name, text in tags.items() if name not in TECHNICAL and text != "null"}


def _read(text: str) -> Any:
    """A tag's text as the number or the list of numbers that it says, or as it is."""
    if _INTEGER.match(text):
        return int(text)
    if _FLOAT.match(text):
        return float(text)
    parts = text.strip("[]").split(",")
    if len(parts) > 1 and all(_INTEGER.match(one.strip()) for one in parts):
        return [int(one) for one in parts]
    return text
