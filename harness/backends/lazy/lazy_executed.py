"""Write the executed graphs of the lazy core into the run's folder, before and after TorchScript's optimisation."""

from __future__ import annotations

import functools
from collections.abc import Container, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from ...records.tools.graph_record import Cut, Graph, GraphFolder, Node, Value, phase_of
from ...torch_private.deferred.lazy import last_torchscript_graph, torchscript_schema
from ..called_operators import plain
from ..deferred_calls import KnownValues
from ..followed_graph import FollowedGraph, GraphFiler, Output, by_position, is_foreign, phase_order
from .lazy_dump import DumpedGraph

# TorchScript's optimised graph as plain data. Constants become attributes of the nodes that take them; the elements of
# lists become their inputs.

NUMBERS = ("aten::ScalarImplicit", "aten::IntImplicit", "aten::FloatImplicit", "prim::profile")
"""Nodes that only pass on their input, for example a scalar tensor as a number."""

LISTS = ("prim::ListConstruct", "prim::TupleConstruct")


@dataclass(frozen=True, slots=True)
class ScriptNode:
    """One op. `inputs` are values, `names` the op schema's names for them, `attributes` the constants."""

    domain: str
    op: str
    overload: str
    inputs: tuple[str, ...]
    names: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: dict[str, Any]


@dataclass(frozen=True, slots=True)
class ScriptGraph:
    """One optimised graph. `inputs` are its parameters p0, p1 and so on; `constants` are the tensors embedded in it."""

    inputs: tuple[str, ...]
    nodes: tuple[ScriptNode, ...]
    outputs: tuple[str, ...]
    constants: tuple[str, ...]


def read_torchscript(graph: Any) -> ScriptGraph:
    """Return a `torch._C.Graph` as plain data."""
    constants: dict[str, Any] = {}
    lists: dict[str, list[str]] = {}
    same: dict[str, str] = {}

    def name_of(value: Any) -> str:
        name = str(value.debugName())
        return same.get(name, name)

    def flat(name: str) -> list[str]:
        return [inner for element in lists[name] for inner in flat(element)] if name in lists else [name]

    nodes: list[ScriptNode] = []
    for node in graph.nodes():
        kind = node.kind()
        if kind == "prim::Constant":
            constants[name_of(node.output())] = None if node.mustBeNone() else node.output().toIValue()
            continue
        if kind in NUMBERS and node.inputsSize() == node.outputsSize() == 1:
            same[node.output().debugName()] = name_of(node.input())
            continue
        if kind in LISTS:
            names, list_name = [name_of(element) for element in node.inputs()], name_of(node.output())
            if all(element in constants for element in names):
                constants[list_name] = [constants[element] for element in names]
            else:  # a list of tensors and Nones, as in an index: the Nones are left out
                lists[list_name] = [part for part in names if part not in constants or constants[part] is not None]
            continue
        domain, _, op = kind.partition("::")
        overload, arguments = _schema(node.schema())
        inputs: list[str] = []
        names = []
        attributes: dict[str, Any] = {}
        for position, value in enumerate(node.inputs()):
            argument = arguments[position] if position < len(arguments) else f"argument {position}"
            name = name_of(value)
            if name in constants and not hasattr(constants[name], "untyped_storage"):  # only tensors have that
                if constants[name] is not None:
                    attributes[argument] = plain(constants[name])
                continue
            elements = flat(name)
            inputs += elements
            names += [argument] * len(elements)
        results = tuple(str(result.debugName()) for result in node.outputs())
        nodes.append(ScriptNode(domain, op, overload, tuple(inputs), tuple(names), results, attributes))
    outputs = tuple(name_of(output) for output in graph.outputs())
    used = dict.fromkeys((*(name for node in nodes for name in node.inputs), *outputs))
    parameters = tuple(parameter.debugName() for parameter in graph.inputs())
    return ScriptGraph(parameters, tuple(nodes), outputs, tuple(name for name in used if name in constants))


@functools.cache
def _schema(text: str) -> tuple[str, Sequence[str]]:
    """Return the overload and the names of the arguments in a schema's text; both are empty for a node without one."""
    if "(" not in text or text.startswith("("):
        return "", ()
    schema = torchscript_schema(text)
    return schema.overload_name, tuple(argument.name for argument in schema.arguments)


# The optimised graph of an executed lazy graph, and the nodes of the IR that each of its nodes computes.


@dataclass(slots=True)
class Alignment:
    """The correspondence of the IR and the optimised graph.

    outputs: the IR's values that the graph was executed for, None where unknown.
    values: the IR's values, by the value's name in the optimised graph.
    covers: the numbers of the IR's nodes that a node of the optimised graph computes, by the node's index.
    """

    outputs: list[Output | None]
    values: dict[str, Output] = field(default_factory=dict)
    covers: dict[int, list[int]] = field(default_factory=dict)


def align(script: ScriptGraph | None, dump: DumpedGraph) -> Alignment:
    """Align both graphs by following them side by side from their outputs to their inputs."""
    outputs: list[Output | None] = [None] * len(dump.hashes)
    for node in dump.nodes:
        if node.root is not None and node.root < len(outputs):
            outputs[node.root] = (node.number, 0)
    alignment = Alignment(outputs)
    if script is None or len(script.outputs) != len(outputs):
        return alignment
    nodes = {node.number: node for node in dump.nodes}
    makers = {value: (at, which) for at, node in enumerate(script.nodes) for which, value in enumerate(node.outputs)}
    met: set[tuple[str, Output]] = set()
    for position, value in enumerate(script.outputs):
        output = outputs[position]
        if output is None:
            continue
        # The dump shows the node of an output; TorchScript shows which of the node's values it is.
        _, which = makers.get(value, (0, 0))
        if which < len(nodes[output[0]].outputs):
            output = outputs[position] = (output[0], which)
        waiting = [(value, output)]
        while waiting:
            pair = script_value, ir_value = waiting.pop()
            if pair in met:
                continue
            met.add(pair)
            alignment.values.setdefault(script_value, ir_value)
            node = nodes[ir_value[0]]
            if script_value not in makers or node.is_given:
                continue
            index, _ = makers[script_value]
            script_node = script.nodes[index]
            covered = alignment.covers.setdefault(index, [])
            if node.number not in covered:
                covered.append(node.number)
            # Skip a copy that TorchScript has inserted. Otherwise the operands correspond one to one, in order.
            if script_node.op == "clone" and node.op != "clone" and len(script_node.inputs) == 1:
                waiting.append((script_node.inputs[0], ir_value))
                continue
            operands = [operand for operand in node.operands if nodes[operand[0]].op != "Constant"]
            inputs = [name for name in script_node.inputs if name not in script.constants]
            if len(operands) == len(inputs):
                waiting += zip(inputs, operands, strict=True)
    # An output that is not a root in the dump is the value paired with it above, or another value of a paired node.
    for position, value in enumerate(script.outputs):
        if outputs[position] is None:
            index, which = makers.get(value, (-1, 0))
            covered_nodes = (number for number in alignment.covers.get(index, ()) if which < len(nodes[number].outputs))
            sibling = next(((number, which) for number in covered_nodes), None)
            outputs[position] = alignment.values.get(value) or sibling
    return alignment


def post_graph(script: ScriptGraph, pre: Graph, built: FollowedGraph, alignment: Alignment) -> Graph:
    """Return the optimised graph as a recorded graph, with the sites, shapes and bindings of the IR."""
    before = {node.name: node for node in pre.nodes}
    nodes: list[Node] = []
    phases: dict[str, str] = {}
    node_names = [f"{node.op}_{node.outputs[0]}" if node.outputs else node.op for node in script.nodes]
    names = {
        value: name + (f"_{which}" if which else "")
        for node, name in zip(script.nodes, node_names, strict=True)
        for which, value in enumerate(node.outputs)
    }
    for index, node in enumerate(script.nodes):
        covers = tuple(built.node_name(number) for number in alignment.covers.get(index, ()))
        first = before.get(covers[0]) if covers else None
        input_phases = [phases.get(name, "") for name in node.inputs]
        phase = first.phase if first else max(input_phases, key=phase_order, default="") or pre.phase.partition("+")[0]
        phases.update(dict.fromkeys(node.outputs, phase))
        # A node has the site of the IR's node that it computes. Numbers that it takes as values are attributes there.
        numbers = first.attributes if first is not None and first.op == node.op else {}
        nodes.append(
            replace(
                first or Node("", ""),
                name=node_names[index],
                op=node.op,
                domain=node.domain,
                overload=node.overload,
                phase=phase,
                inputs=tuple(names.get(name, name) for name in node.inputs),
                input_names=node.names,
                outputs=tuple(names[name] for name in node.outputs),
                attributes={**node.attributes, **numbers},
                covers=covers,
            )
        )
    values: dict[str, Value] = {}
    for value in (*script.inputs, *names, *script.constants):
        output = alignment.values.get(value)
        recorded = None if output is None else pre.values.get(built.value_name(output))
        if value in script.constants:
            recorded = Value(binding="constant")
        values[names.get(value, value)] = recorded or Value()
    notes = []
    lost = [node for index, node in enumerate(script.nodes) if index not in alignment.covers]
    if lost:
        notes.append(f"{len(lost)} nodes could not be matched with the graph before")
    unbound = [name for name in script.inputs if name not in alignment.values]
    if unbound:
        notes.append(f"inputs that could not be matched with the graph before: {', '.join(unbound)}")
    outputs = dict.fromkeys(names.get(name, name) for name in script.outputs)
    return replace(
        pre,
        stage="post",
        phase=phase_of(nodes),
        nodes=tuple(nodes),
        values=values,
        inputs=(*script.inputs, *script.constants),
        outputs=tuple(outputs),
        notes=tuple(notes),
    )


NO_POST = "its optimised graph is unknown: another graph was executed before numdrift could read this one"


class ExecutedGraphs(GraphFiler):
    """The writer of the graphs that contain ops of the steps in `steps`."""

    def __init__(self, folder: GraphFolder, values: KnownValues, steps: Container[int]) -> None:
        super().__init__(folder, values, steps)
        self._with_post: set[str] = set()

    def take(self, dump: DumpedGraph, cut: Cut, step: int, *, is_last: bool, is_awaited: bool) -> int | None:
        """Write the graph of one execution. Return the step of its latest op, None if none of its ops was followed.

        step: the step of an execution without an op.
        is_last: this is the last execution so far.
        is_awaited: write the execution even if its latest step is not wanted.
        """
        if is_foreign(dump.nodes, self._known):
            return None
        # TorchScript keeps only its last graph. `script` is None if that cannot be the graph of this execution.
        script: ScriptGraph | None = None
        if is_last:
            with suppress(RuntimeError):
                optimised = read_torchscript(last_torchscript_graph())
                script = optimised if len(optimised.outputs) == len(dump.hashes) else None
        alignment = align(script, dump)
        built = FollowedGraph(dump.nodes, self._known, alignment.outputs, by_position)
        met = {call.step for call in built.calls} or {step}

        def write() -> None:
            base = self._names.get(dump.digest)
            if base is None or (script is not None and base not in self._with_post):
                base = self._write(dump, built, script, alignment, cut)
            self._folder.executed(base, dump.digest, cut)

        return self._file(met, write, is_awaited=is_awaited)

    def _write(
        self, dump: DumpedGraph, built: FollowedGraph, script: ScriptGraph | None, alignment: Alignment, cut: Cut
    ) -> str:
        """Write the graph before and, if it is known, after TorchScript's optimisation. Return its name."""
        pre = replace(built.graph(self._folder.step), hash=dump.digest, cut=cut)
        base = self._names.get(dump.digest)
        if base is None:
            base = self._names[dump.digest] = self._folder.reserve(pre.phase)
            notes = pre.notes if script is not None else (*pre.notes, NO_POST)
            self._folder.write(replace(pre, name=f"{base}-pre", notes=notes))
        if script is not None:
            self._with_post.add(base)
            post = post_graph(script, pre, built, alignment)
            # TorchScript numbers the parameters in the order in which the IR first needs them. If the order differs,
            # their correspondence is in doubt.
            by_node = {pair[0]: name for name, pair in alignment.values.items() if name in script.inputs}
            order = list(dict.fromkeys(by_node[node.number] for node in dump.nodes if node.number in by_node))
            expected = [name for name in script.inputs if name in order]
            doubts = [] if order == expected else ["the inputs are not in the order of the graph before"]
            notes = (*post.notes, *doubts)
            self._folder.write(replace(post, name=f"{base}-post", pre=f"{base}-pre", notes=notes))
        return base
