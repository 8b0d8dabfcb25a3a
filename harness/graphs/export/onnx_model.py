"""Graphs as ONNX models that Netron opens: to be looked at, not to be executed.

Netron 9 shows of a node its title, doc string, attributes and metadata, of an edge dtype and shape. A kernel
whose body is known becomes a function: a button on the node opens it. Every namespace of ops is a domain of
its own, so ONNX compares no op with one of its own operators."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import onnx
from onnx import helper

from ...records.graph_record import Graph, Node, Value
from ..culprit_marks import Mark
from .attributes import attribute
from .metadata import clean, describe, in_parts
from .node_order import Ordered, in_order
from .onnx_values import known, value_info
from .title import title

IR_VERSION = 10
"""The first that gives functions types of their own and nodes an overload."""

OF_ONNX = ("", "ai.onnx", "ai.onnx.ml", "ai.onnx.training", "ai.onnx.preview.training", "ai.onnx.preview")

NO_MARKS: Mapping[str, Mark] = {}


def to_onnx(graph: Graph, marks: Mapping[str, Mark] = NO_MARKS) -> onnx.ModelProto:
    """Make the model of a graph. `marks` are by the names of nodes, also of those inside of kernels.

    The model passes the checker of ONNX wherever the shapes of its inputs and outputs are known; where not, its
    metadata say so under `note`.
    """
    given = tuple(dict.fromkeys(name for name in graph.inputs if name))
    ordered = in_order(graph.nodes, given)
    inputs = (*given, *ordered.missing)
    made = {output for node in ordered.nodes for output in node.outputs} | set(inputs)
    outputs = tuple(dict.fromkeys(ordered.last.get(name, name) for name in graph.outputs))
    lost = [name for name in outputs if name not in made]
    outputs = tuple(name for name in outputs if name in made and name)
    values = _renamed(graph.values, ordered)
    inner = [one for one in values if one in made and one not in (*inputs, *outputs)]
    source = _Sources()
    model = helper.make_model(
        helper.make_graph(
            [_node(one, marks, source) for one in ordered.nodes],
            clean(graph.name) or "graph",
            [value_info(name, values.get(name, Value())) for name in inputs],
            [value_info(name, values.get(name, Value())) for name in outputs],
            value_info=[value_info(name, values[name]) for name in inner],
            doc_string=clean(_sentence(graph)),
        ),
        functions=[_function(one, values, marks) for one in _all(ordered.nodes) if one.body],
        opset_imports=[helper.make_opsetid(one, 1) for one in _domains(graph.nodes)],
        producer_name="numdrift",
        ir_version=IR_VERSION,
    )
    notes = [*graph.notes, *ordered.notes, *_notes(ordered, lost, values, (*inputs, *outputs))]
    describe(model, _facts(graph, notes) | dict(in_parts("code", graph.code)))
    return model


class _Sources:
    """Generated sources that were written already, by the node that has them."""

    def __init__(self) -> None:
        self._at: dict[str, str] = {}

    def of(self, node: Node) -> dict[str, str]:
        """The node's source, or the name of the node that has the same."""
        first = self._at.setdefault(node.code, node.name)
        if node.code and first != node.name:
            return {"code": f"that of {first}"}
        return dict(in_parts("code", node.code))


def _node(node: Node, marks: Mapping[str, Mark], source: _Sources | None = None) -> onnx.NodeProto:
    mark = marks.get(node.name)
    made = helper.make_node(
        clean(title(node.op, marked=mark is not None)),
        [clean(name) for name in node.inputs],
        [clean(name) for name in node.outputs] or ([] if node.inputs else [""]),  # ONNX wants one of them
        name=clean(node.name),
        domain=_domain(node),
        overload=_overload(node),
        doc_string=clean(node.source),
    )
    named = {clean(name) or "unnamed": value for name, value in node.attributes.items()}
    if mark is not None:
        named |= {f"drift_{name}": value for name, value in mark.numbers.items()}
        describe(made, {"culprit": mark.label, "drift": mark.reason})
    made.attribute.extend(attribute(name, value) for name, value in named.items())
    describe(made, {"input_names": "" if node.body else _input_names(node), **_describing(node)})
    describe(made, source.of(node) if source else {})
    return made


def _describing(node: Node) -> Mapping[str, object]:
    module = "(outermost)" if node.module == "" else node.module
    facts: dict[str, object] = {
        "op": node.full_op,
        "phase": node.phase,
        "module": module,
        "source": node.source,
        "original": node.original,
        "group": node.group,
        "sequence": node.sequence,
        "covers": ", ".join(node.covers),
    }
    return facts | dict(in_parts("stack trace", node.stack))


def _input_names(node: Node) -> str:
    """The names of the arguments as Netron reads them: in quotes, in brackets, with ", " between them."""
    named = [*node.input_names, *("" for _ in node.inputs)][: len(node.inputs)]
    plain = [name.replace("'", "").replace(", ", ",") or str(number) for number, name in enumerate(named)]
    quoted = ", ".join(f"'{name}'" for name in plain)
    return f"[{quoted}]" if plain else ""


def _function(node: Node, values: Mapping[str, Value], marks: Mapping[str, Mark]) -> onnx.FunctionProto:
    """The function that a kernel is: its name, domain and overload are those of its node, its body has the
    ops."""
    taken = _unique(node.inputs)
    ordered = in_order(node.body, taken)
    inputs = (*taken, *ordered.missing)
    types = _renamed(values, ordered)
    used = {name for one in ordered.nodes for name in (*one.inputs, *one.outputs)} | set(inputs)
    return helper.make_function(
        _domain(node),
        clean(title(node.op, marked=node.name in marks)),
        [clean(name) for name in inputs],
        [clean(ordered.last.get(name, name)) for name in node.outputs],
        [_node(one, marks) for one in ordered.nodes],
        [helper.make_opsetid(one, 1) for one in _domains(node.body)],
        doc_string=clean(f"{node.full_op}: {', '.join(node.covers)}"),
        overload=_overload(node),
        value_info=[value_info(name, types[name]) for name in types if name in used],
    )


def _unique(names: Sequence[str]) -> tuple[str, ...]:
    """The names, numbered from the second occurrence on: the parameters of a function differ."""
    found: dict[str, None] = {}
    for name in names:
        number, plain = 1, name or "none"
        while (plain if number == 1 else f"{plain} ({number})") in found:
            number += 1
        found[plain if number == 1 else f"{plain} ({number})"] = None
    return tuple(found)


def _overload(node: Node) -> str:
    """What tells functions of the same title apart; for a plain op its overload."""
    return clean(node.name if node.body else node.overload)


def _domain(node: Node) -> str:
    return f"{node.domain or 'op'} (not ONNX)" if node.domain in OF_ONNX else clean(node.domain)


def _domains(nodes: Iterable[Node]) -> list[str]:
    """The domains of the nodes and of what is in them; one at least, as a model must have."""
    return sorted({_domain(one) for one in _all(nodes)}) or ["aten"]


def _all(nodes: Iterable[Node]) -> Iterator[Node]:
    for node in nodes:
        yield node
        yield from _all(node.body)


def _renamed(values: Mapping[str, Value], ordered: Ordered) -> dict[str, Value]:
    """The values also under the names that they got where they are made several times."""
    again = {last: values[name] for name, last in ordered.last.items() if name in values}
    return {name: value for name, value in (dict(values) | again).items() if name}


def _notes(ordered: Ordered, lost: Sequence[str], values: Mapping[str, Value], outer: Sequence[str]) -> Iterator[str]:
    unknown = [name for name in outer if not known(values.get(name))]
    if unknown:
        yield f"shapes that are not known: {_listed(unknown)}"
    if ordered.missing:
        yield f"taken, but made by no node of the record: {_listed(ordered.missing)}"
    if lost:
        yield f"outputs that no node of the record makes: {_listed(lost)}"


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:10]) + (f" and {len(names) - 10} more" if len(names) > 10 else "")


def _sentence(graph: Graph) -> str:
    stages = {
        "dynamo": "as dynamo captured it",
        "pre": "before its compiler",
        "post": "after its compiler",
        "stream": "as it was executed",
    }
    return f"{graph.mode}: {graph.phase} of step {graph.step}, {stages.get(graph.stage, graph.stage)}"


def _facts(graph: Graph, notes: Sequence[str]) -> dict[str, object]:
    cut = graph.cut
    return {
        "mode": graph.mode,
        "stage": graph.stage,
        "phase": graph.phase,
        "step": graph.step,
        "hash": graph.hash,
        "pre graph": graph.pre,
        "seconds": graph.seconds,
        "nodes": len(graph.nodes),
        "cut by": " ".join(part for part in (cut.reason, cut.op, cut.source) if part) if cut else "",
        "cut at": cut.stack if cut else "",
        "note": "; ".join(notes),
    }
