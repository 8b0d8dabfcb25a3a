"""Graphs as ONNX models for viewing in Netron; they cannot be executed.

Netron 9 shows a node's title, doc string, attributes and metadata, and an edge's dtype and shape. A kernel whose body
is known becomes a function, which a button on the node opens. Every namespace of ops is a separate domain, so ONNX does
not check an op as one of its own operators."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import onnx
from onnx import helper

from ...errors import CollisionError, JournalError, UsageError
from ...records.tools.graph_record import STAGES, Graph, Node, Value
from ..culprit_marks import Mark
from ..run_graphs import RunGraphs
from .node_order import Ordered, in_order, title
from .onnx_values import attribute, clean, describe, has_shape, in_parts, value_info

IR_VERSION = 10
"""The first version in which functions have value types and nodes have an overload."""

OF_ONNX = ("", "ai.onnx", "ai.onnx.ml", "ai.onnx.training", "ai.onnx.preview.training", "ai.onnx.preview")

NO_MARKS: Mapping[str, Mark] = {}

STAGES_IN_WORDS = {
    "dynamo": "as dynamo captured it",
    "pre": "before its compiler",
    "post": "after its compiler",
    "stream": "as it was executed",
}


def to_onnx(graph: Graph, marks: Mapping[str, Mark] = NO_MARKS) -> onnx.ModelProto:
    """Create the model of a graph. `marks` are keyed by node name, including nodes inside kernels.

    The model passes ONNX's checker if the shapes of its inputs and outputs are known. Otherwise its metadata has a
    `note`.
    """
    graph_inputs = tuple(dict.fromkeys(name for name in graph.inputs if name))
    ordered = in_order(graph.nodes, graph_inputs)
    # A value that no node makes becomes an input, and an output that no node makes is left out: the checker requires
    # both.
    inputs = (*graph_inputs, *ordered.missing)
    made = {output for node in ordered.nodes for output in node.outputs} | set(inputs)
    outputs = tuple(dict.fromkeys(ordered.last.get(name, name) for name in graph.outputs))
    lost = [name for name in outputs if name not in made]
    outputs = tuple(name for name in outputs if name in made and name)
    values = _renamed(graph.values, ordered)
    inner = [name for name in values if name in made and name not in (*inputs, *outputs)]
    written: dict[str, str] = {}
    stage = STAGES_IN_WORDS.get(graph.stage, graph.stage)
    model = helper.make_model(
        helper.make_graph(
            [_node(node, marks, written) for node in ordered.nodes],
            clean(graph.name) or "graph",
            [value_info(name, values.get(name, Value())) for name in inputs],
            [value_info(name, values.get(name, Value())) for name in outputs],
            value_info=[value_info(name, values[name]) for name in inner],
            doc_string=clean(f"{graph.mode}: {graph.phase} of step {graph.step}, {stage}"),
        ),
        functions=[_function(node, values, marks) for node in _all(ordered.nodes) if node.body],
        opset_imports=[helper.make_opsetid(domain, 1) for domain in _domains(graph.nodes)],
        producer_name="numdrift",
        ir_version=IR_VERSION,
    )
    notes = [*graph.notes, *ordered.notes]
    if unknown := [name for name in (*inputs, *outputs) if not has_shape(values.get(name))]:
        notes.append(f"values with unknown shapes: {_listed(unknown)}")
    if ordered.missing:
        notes.append(f"values that are read, but that no node of the record makes: {_listed(ordered.missing)}")
    if lost:
        notes.append(f"outputs that no node of the record makes: {_listed(lost)}")
    describe(model, _facts(graph, notes) | dict(in_parts("code", graph.code)))
    return model


def _node(node: Node, marks: Mapping[str, Mark], written: dict[str, str] | None = None) -> onnx.NodeProto:
    """Create one node; `written` maps each generated source to the first node with this source."""
    mark = marks.get(node.name)
    made = helper.make_node(
        clean(title(node.op, marked=mark is not None)),
        [clean(name) for name in node.inputs],
        [clean(name) for name in node.outputs] or ([] if node.inputs else [""]),  # ONNX requires an input or output
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
    # Netron parses argument names as a bracketed list of quoted names, separated by ", ". The names of a kernel's
    # arguments are on its function.
    names = [*node.input_names, *("" for _ in node.inputs)][: 0 if node.body else len(node.inputs)]
    plain = [name.replace("'", "").replace(", ", ",") or str(number) for number, name in enumerate(names)]
    quoted = ", ".join(f"'{name}'" for name in plain)
    facts: dict[str, object] = {
        "input_names": f"[{quoted}]" if plain else "",
        "op": node.full_op,
        "phase": node.phase,
        "module": "(outermost)" if node.module == "" else node.module,
        "source": node.source,
        "original": node.original,
        "group": node.group,
        "sequence": node.sequence,
        "covers": ", ".join(node.covers),
    }
    describe(made, facts | dict(in_parts("stack trace", node.stack)))
    if written is not None:
        # The source of a kernel that is launched several times is written once: it may have thousands of lines.
        first = written.setdefault(node.code, node.name)
        again = node.code and first != node.name
        describe(made, {"code": f"same code as {first}"} if again else dict(in_parts("code", node.code)))
    return made


def _function(node: Node, values: Mapping[str, Value], marks: Mapping[str, Mark]) -> onnx.FunctionProto:
    """Create the function of a kernel from the kernel's ops, with the title, domain and overload of its node."""
    # A function's parameters must differ: a name that occurs again is numbered.
    parameters: dict[str, None] = {}
    for name in node.inputs:
        number, plain = 1, name or "none"
        while (plain if number == 1 else f"{plain} ({number})") in parameters:
            number += 1
        parameters[plain if number == 1 else f"{plain} ({number})"] = None
    ordered = in_order(node.body, tuple(parameters))
    inputs = (*parameters, *ordered.missing)
    types = _renamed(values, ordered)
    used = {name for inner in ordered.nodes for name in (*inner.inputs, *inner.outputs)} | set(inputs)
    return helper.make_function(
        _domain(node),
        clean(title(node.op, marked=node.name in marks)),
        [clean(name) for name in inputs],
        [clean(ordered.last.get(name, name)) for name in node.outputs],
        [_node(inner, marks) for inner in ordered.nodes],
        [helper.make_opsetid(domain, 1) for domain in _domains(node.body)],
        doc_string=clean(f"{node.full_op}: {', '.join(node.covers)}"),
        overload=_overload(node),
        value_info=[value_info(name, types[name]) for name in types if name in used],
    )


def _overload(node: Node) -> str:
    """Return the text that distinguishes functions with the same title; for a plain op, its overload."""
    return clean(node.name if node.body else node.overload)


def _domain(node: Node) -> str:
    # In one of ONNX's own domains, the checker would check the op as ONNX's operator of that name.
    return f"{node.domain or 'op'} (not ONNX)" if node.domain in OF_ONNX else clean(node.domain)


def _domains(nodes: Iterable[Node]) -> list[str]:
    """Return the domains of the nodes and of the nodes inside them; at least one, as a model requires."""
    return sorted({_domain(node) for node in _all(nodes)}) or ["aten"]


def _all(nodes: Iterable[Node]) -> Iterator[Node]:
    for node in nodes:
        yield node
        yield from _all(node.body)


def _renamed(values: Mapping[str, Value], ordered: Ordered) -> dict[str, Value]:
    """Return the values, including those that were renamed because they are made several times."""
    renamed = {last: values[name] for name, last in ordered.last.items() if name in values}
    return {name: value for name, value in (dict(values) | renamed).items() if name}


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:10]) + (f" and {len(names) - 10} more" if len(names) > 10 else "")


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


# The graphs of a run as files that Netron opens.

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,199}")

Marks = Callable[[Graph], Mapping[str, Mark]]
"""Returns the marks of a graph's nodes, keyed by node name."""


def no_marks(graph: Graph) -> Mapping[str, Mark]:
    return {}


def export_graphs(
    graphs: RunGraphs, folder: Path | None = None, marks: Marks = no_marks, *, force: bool = True
) -> list[Path]:
    """Write every graph of a run as `<name>.onnx` into a folder, by default the run's folder of graphs.

    Each file is written atomically. Without `force`, raises CollisionError for an existing file before anything is
    written. Raises JournalError for a graph that cannot be read."""
    target = graphs.path if folder is None else folder
    names = [entry.name for entry in graphs.entries if entry.stage in STAGES]
    paths = {name: onnx_path(graphs, target, name) for name in dict.fromkeys(names)}
    for path in paths.values():
        if path.exists() and not force:
            raise CollisionError(path, "choose another folder, or replace it with --force")
    try:
        target.mkdir(parents=True, exist_ok=True)
        for name, path in paths.items():
            graph = graphs.graph(name)
            write_onnx(graph, path, marks(graph), read_from=graphs.path / f"{name}.json")
    except OSError as error:
        raise UsageError(f"{error.filename or target} cannot be written: {error.strerror}") from None
    return list(paths.values())


def write_onnx(graph: Graph, path: Path, marks: Mapping[str, Mark], *, read_from: Path) -> None:
    """Write the model of a graph atomically. `read_from` is the path that the graph was read from.

    Raises OSError, and JournalError for a record that has the fields of a graph, but values of the wrong types.
    """
    try:
        model = to_onnx(graph, marks)
    except (TypeError, ValueError, AttributeError) as error:
        raise JournalError(read_from, f"is not a graph: {error}") from error
    written = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        onnx.save_model(model, written, format="protobuf")
        written.replace(path)
    finally:
        written.unlink(missing_ok=True)


def onnx_path(graphs: RunGraphs, folder: Path, name: str) -> Path:
    """Return the path of an exported graph. The run may be untrusted, so no name may lead out of the folder."""
    if not NAME.fullmatch(name):
        raise JournalError(graphs.path, f"has a graph named {name!r}, which is not a plain file name")
    return folder / f"{name}.onnx"
