"""Write the executed graphs of the lazy core into the run's folder, before and after TorchScript's optimisation."""

from __future__ import annotations

from collections.abc import Container, Iterator
from contextlib import suppress
from dataclasses import replace

from ...records.tools.graph_record import Cut, Graph, GraphFolder, Node, Value, phase_of
from ...torch_private.deferred.lazy import last_torchscript_graph
from ..deferred_calls import KnownValues
from ..followed_graph import FollowedGraph, GraphFiler, by_position, is_foreign, phase_order
from .lazy_dump import DumpedGraph
from .torchscript_graph import Alignment, ScriptGraph, align, read_torchscript


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
        # A node has the site of the IR node that it computes. In the IR, numbers that the node takes as inputs are
        # attributes, so they are taken from the IR node.
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
    outputs = dict.fromkeys(names.get(name, name) for name in script.outputs)
    return replace(
        pre,
        stage="post",
        phase=phase_of(nodes),
        nodes=tuple(nodes),
        values=values,
        inputs=(*script.inputs, *script.constants),
        outputs=tuple(outputs),
        notes=tuple(_unmatched(script, alignment)),
    )


def _unmatched(script: ScriptGraph, alignment: Alignment) -> Iterator[str]:
    """Yield notes on the nodes and on the inputs that have no counterpart in the unoptimised graph."""
    lost = [node for index, node in enumerate(script.nodes) if index not in alignment.covers]
    if lost:
        nodes = "1 node" if len(lost) == 1 else f"{len(lost)} nodes"
        yield f"{nodes} could not be matched with the unoptimised graph"
    unbound = [name for name in script.inputs if name not in alignment.values]
    if unbound:
        yield f"inputs that could not be matched with the unoptimised graph: {', '.join(unbound)}"


NO_POST = "its optimised graph is unknown: another graph was executed before numdrift could read this one"


class ExecutedGraphs(GraphFiler):
    """The writer of the graphs that contain ops of the steps in `steps`."""

    def __init__(self, folder: GraphFolder, values: KnownValues, steps: Container[int]) -> None:
        super().__init__(folder, values, steps)
        self._with_post: set[str] = set()

    def take(self, dump: DumpedGraph, cut: Cut, step: int, *, is_last: bool, is_awaited: bool) -> int | None:
        """Write the graph of one execution. Return the step of its latest op, None if none of its ops was followed.

        step: the step to which an execution without ops belongs.
        is_last: this is the last execution so far.
        is_awaited: write the execution even if its latest step is not wanted.
        """
        if is_foreign(dump.nodes, self._known_values):
            return None
        # TorchScript keeps only the last graph. `script` is None if that cannot be the graph of this execution.
        script: ScriptGraph | None = None
        if is_last:
            with suppress(RuntimeError):
                optimised = read_torchscript(last_torchscript_graph())
                script = optimised if len(optimised.outputs) == len(dump.hashes) else None
        alignment = align(script, dump)
        built = FollowedGraph(dump.nodes, self._known_values, alignment.outputs, by_position)
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
        """Write the unoptimised graph and, if it is known, the optimised one. Return their common name."""
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
            # the correspondence of parameters and inputs is in doubt.
            by_node = {pair[0]: name for name, pair in alignment.values.items() if name in script.inputs}
            order = list(dict.fromkeys(by_node[node.number] for node in dump.nodes if node.number in by_node))
            expected = [name for name in script.inputs if name in order]
            doubts = [] if order == expected else ["the inputs are not in the order of the unoptimised graph"]
            notes = (*post.notes, *doubts)
            self._folder.write(replace(post, name=f"{base}-post", pre=f"{base}-pre", notes=notes))
        return base
