"""Writes the executed graphs of the lazy core into the run's folder, before and after TorchScript has
optimised them."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ...records.graph_record import PHASES, Cut, Graph, GraphFolder, Node, Value, phase_of
from ...torch_private.lazy_graphs import last_torchscript_graph
from . import torchscript
from .lazy_calls import KnownValues
from .lazy_dump import DumpedGraph, DumpedNode
from .lazy_pre import LazyPreGraph, Output, is_foreign
from .torchscript import ScriptGraph, ScriptNode

# The optimised graph of an executed lazy graph, and which nodes of the IR each of its nodes computes.


@dataclass(slots=True)
class Alignment:
    """`values` are the IR's values by those of the optimised graph, `covers` the IR's nodes by node of that
    one; `outputs` are the values that the graph was executed for, None where it cannot be told."""

    outputs: list[Output | None]
    values: dict[str, Output] = field(default_factory=dict)
    covers: dict[int, list[int]] = field(default_factory=dict)


def align(script: ScriptGraph | None, dump: DumpedGraph) -> Alignment:
    """Follow both graphs from their outputs to what they are given, side by side."""
    outputs: list[Output | None] = [None] * len(dump.hashes)
    for node in dump.nodes:
        if node.root is not None and node.root < len(outputs):
            outputs[node.root] = (node.number, 0)
    alignment = Alignment(outputs)
    if script is None or len(script.outputs) != len(outputs):
        return alignment
    _Walk(script, dump, alignment).run()
    return alignment


class _Walk:
    def __init__(self, script: ScriptGraph, dump: DumpedGraph, alignment: Alignment) -> None:
        self._script = script
        self._alignment = alignment
        self._nodes = {node.number: node for node in dump.nodes}
        self._makers = {
            value: (index, which) for index, node in enumerate(script.nodes) for which, value in enumerate(node.outputs)
        }
        self._met: set[tuple[str, Output]] = set()

    def run(self) -> None:
        outputs = self._alignment.outputs
        for position, value in enumerate(self._script.outputs):
            output = outputs[position]
            if output is not None:
                _, which = self._makers.get(value, (0, 0))
                if which < len(self._nodes[output[0]].outputs):
                    output = outputs[position] = (output[0], which)
                waiting = [(value, output)]
                while waiting:
                    pair = waiting.pop()
                    if pair in self._met:
                        continue
                    self._met.add(pair)
                    self._alignment.values.setdefault(*pair)
                    waiting += self._operands(*pair)
        for position, value in enumerate(self._script.outputs):
            if outputs[position] is None:
                outputs[position] = self._alignment.values.get(value) or self._sibling(value)

    def _sibling(self, value: str) -> Output | None:
        """The IR's value for another output of a node that is known by one of its outputs."""
        index, which = self._makers.get(value, (-1, 0))
        covered = self._alignment.covers.get(index, ())
        return next(((one, which) for one in covered if which < len(self._nodes[one].outputs)), None)

    def _operands(self, value: str, output: Output) -> Iterator[tuple[str, Output]]:
        """The pairs that follow from one pair, after noting which node covers which."""
        ours = self._nodes[output[0]]
        if value not in self._makers or ours.is_given:
            return
        index, _ = self._makers[value]
        theirs = self._script.nodes[index]
        covered = self._alignment.covers.setdefault(index, [])
        if ours.number not in covered:
            covered.append(ours.number)
        if theirs.op == "clone" and ours.op != "clone" and len(theirs.inputs) == 1:
            yield theirs.inputs[0], output
            return
        taken = [one for one in ours.operands if self._nodes[one[0]].op != "Constant"]
        given = [one for one in theirs.inputs if one not in self._script.constants]
        if len(taken) == len(given):
            yield from zip(given, taken, strict=True)


def post_graph(script: ScriptGraph, pre: Graph, built: LazyPreGraph, alignment: Alignment) -> Graph:
    """The optimised graph as a graph of the record; places, shapes and bindings are those of the IR."""
    before = {node.name: node for node in pre.nodes}
    nodes: list[Node] = []
    phases: dict[str, str] = {}
    names = {
        value: _node_name(node) + (f"_{which}" if which else "")
        for node in script.nodes
        for which, value in enumerate(node.outputs)
    }
    for index, node in enumerate(script.nodes):
        covers = tuple(built.node_name(one) for one in alignment.covers.get(index, ()))
        first = before.get(covers[0]) if covers else None
        taken = [phases.get(one, "") for one in node.inputs]
        phase = first.phase if first else max(taken, key=_order, default="") or pre.phase.partition("+")[0]
        phases.update(dict.fromkeys(node.outputs, phase))
        made = Node(
            name=_node_name(node),
            op=node.op,
            domain=node.domain,
            overload=node.overload,
            phase=phase,
            inputs=tuple(names.get(one, one) for one in node.inputs),
            input_names=node.names,
            outputs=tuple(names[one] for one in node.outputs),
            attributes=node.attributes,
            covers=covers,
        )
        nodes.append(made if first is None else _like(made, first))
    return replace(
        pre,
        stage="post",
        phase=phase_of(nodes),
        nodes=tuple(nodes),
        values=_values(script, names, pre, built, alignment),
        inputs=(*script.inputs, *script.constants),
        outputs=tuple(dict.fromkeys(names.get(one, one) for one in script.outputs)),
        notes=_notes(script, alignment),
    )


def _like(node: Node, first: Node) -> Node:
    """The node with the place of what it computes, and with the numbers that it is given as values there."""
    given = first.attributes if first.op == node.op else {}
    return replace(
        node,
        attributes={**node.attributes, **given},
        module=first.module,
        source=first.source,
        stack=first.stack,
        sequence=first.sequence,
        original=first.original,
        group=first.group,
    )


def _values(
    script: ScriptGraph,
    names: Mapping[str, str],
    pre: Graph,
    built: LazyPreGraph,
    alignment: Alignment,
) -> dict[str, Value]:
    values: dict[str, Value] = {}
    for value in (*script.inputs, *names, *script.constants):
        output = alignment.values.get(value)
        known = None if output is None else pre.values.get(built.value_name(output))
        if value in script.constants:
            known = Value(binding="constant")
        values[names.get(value, value)] = known or Value()
    return values


def _notes(script: ScriptGraph, alignment: Alignment) -> tuple[str, ...]:
    notes = []
    lost = [node for index, node in enumerate(script.nodes) if index not in alignment.covers]
    if lost:
        notes.append(f"{len(lost)} nodes could not be matched with the graph before")
    unbound = [one for one in script.inputs if one not in alignment.values]
    if unbound:
        notes.append(f"inputs that could not be matched with the graph before: {', '.join(unbound)}")
    return tuple(notes)


def _node_name(node: ScriptNode) -> str:
    return f"{node.op}_{node.outputs[0]}" if node.outputs else node.op


def _order(phase: str) -> int:
    return PHASES.index(phase) if phase in PHASES else -1


def parameters_in_order(alignment: Alignment, script: ScriptGraph, nodes: Sequence[DumpedNode]) -> list[str]:
    """The parameters in the order in which the IR's given values need them first."""
    by_node = {output[0]: value for value, output in alignment.values.items() if value in script.inputs}
    return [by_node[node.number] for node in nodes if node.number in by_node]


NO_POST = "its optimised graph is not known: another graph was executed before this one could be asked for"


class ExecutedGraphs:
    """Writes the graphs that hold ops of the steps in `steps`, under the step of their latest op."""

    def __init__(self, folder: GraphFolder, known: KnownValues, steps: Container[int]) -> None:
        self._folder = folder
        self._known = known
        self._steps = steps
        self._names: dict[str, str] = {}
        self._with_post: set[str] = set()

    @property
    def has_any(self) -> bool:
        return bool(self._names)

    def take(self, dump: DumpedGraph, cut: Cut, step: int, *, is_last: bool, is_awaited: bool) -> int | None:
        """Take one execution, the last one so far if `is_last`; `step` is the one to file it under if it has
        no op.

        One that goes on into steps that are not wanted is taken if `is_awaited`, and filed under the last
        that is. Gives the step of its latest op, None for one whose ops are none of those followed.
        """
        if is_foreign(dump, self._known):
            return None
        script = _script_graph(dump) if is_last else None
        alignment = align(script, dump)
        built = LazyPreGraph(dump, self._known, alignment.outputs)
        met = {call.step for call in built.calls} or {step}
        wanted = [one for one in met if one in self._steps]
        if wanted and (is_awaited or max(met) in self._steps):
            self._in_step(max(wanted), lambda: self._write(dump, cut, built, alignment, script))
        return max(met)

    def _write(
        self,
        dump: DumpedGraph,
        cut: Cut,
        built: LazyPreGraph,
        alignment: Alignment,
        script: ScriptGraph | None,
    ) -> None:
        base = self._names.get(dump.digest)
        if base is None or (script is not None and base not in self._with_post):
            pre = replace(built.graph(self._folder.step), hash=dump.digest, cut=cut)
            if base is None:
                base = self._names[dump.digest] = self._folder.reserve(pre.phase)
                notes = pre.notes if script is not None else (*pre.notes, NO_POST)
                self._folder.write(replace(pre, name=f"{base}-pre", notes=notes))
            if script is not None:
                self._with_post.add(base)
                post = post_graph(script, pre, built, alignment)
                # A doubt about which parameter is which: TorchScript numbers them as the IR first needs
                # them
                order = list(dict.fromkeys(parameters_in_order(alignment, script, dump.nodes)))
                expected = [name for name in script.inputs if name in order]
                order_notes = [] if order == expected else ["the inputs are not in the order of the graph before"]
                notes = (*post.notes, *order_notes)
                self._folder.write(replace(post, name=f"{base}-post", pre=f"{base}-pre", notes=notes))
        self._folder.executed(base, dump.digest, cut)

    def _in_step(self, step: int, write: Callable[[], None]) -> None:
        self._folder.step, before = step, self._folder.step
        try:
            write()
        finally:
            self._folder.step = before


def _script_graph(dump: DumpedGraph) -> ScriptGraph | None:
    """TorchScript's last graph, None where it cannot be the one of this execution."""
    try:
        script = torchscript.read(last_torchscript_graph())
    except RuntimeError:
        return None
    return script if len(script.outputs) == len(dump.hashes) else None
