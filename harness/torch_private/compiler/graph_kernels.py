"""The kernels and extern calls that Inductor generates for a graph, in order, with the FX nodes in each of them."""

from __future__ import annotations

import importlib
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from ..patches import Patches, Undo
from ..presence import private, require
from .graph_stages import parts_of_op

PROVENANCE = "set_kernel_post_grad_provenance_tracing"

NO_BUFFERS = ("NoneAsConstantBuffer", "ShapeAsConstantBuffer")

Size = int | str


@dataclass(frozen=True, slots=True)
class GraphKernel:
    """A call of a generated kernel or of a library's op.

    code: the source of a generated kernel
    operation: the library's op, if torch knows it as an op
    buffers: the buffers that the call computes
    origins: the nodes of the final FX graph that the call contains
    """

    name: str
    operation: Any
    code: str
    inputs: tuple[str, ...]
    buffers: tuple[str, ...]
    origins: tuple[torch.fx.Node, ...]


@dataclass(frozen=True, slots=True)
class Lowered:
    """A graph for which Inductor has generated code.

    graph: the FX graph for which Inductor generated code
    kernels: its kernels and extern calls, in order
    outputs: the buffer of each output, None for an output of the FX graph that has no buffer
    buffers: the dtype and shape of each buffer
    made_by: the FX node whose result each buffer holds
    constants: the names of the tensors that the module holds
    """

    graph: torch.fx.Graph
    kernels: Sequence[GraphKernel]
    outputs: Sequence[str | None]
    buffers: Mapping[str, tuple[str, tuple[Size, ...]]]
    made_by: Mapping[str, str]
    constants: frozenset[str]


@dataclass(slots=True)
class _Watched:
    """The records made while Inductor generates one graph: calls as (kernel's name, operations), and sources."""

    calls: list[tuple[str, list[Any]]] = field(default_factory=list)
    sources: dict[str, str] = field(default_factory=dict)


def watch_kernels(show: Callable[[Lowered], None], failed: Callable[[Exception], None]) -> Undo:
    """Pass each graph for which Inductor has generated code to `show`, or the error of reading it to `failed`.

    Neither function may raise.
    """
    lowering = private("torch._inductor.graph", "GraphLowering")
    wrapper = private("torch._inductor.codegen.wrapper", "PythonWrapperCodegen")
    require(lowering, "codegen")
    require(wrapper, "define_kernel")
    generations = _Generations(show, failed)
    with Patches("Inductor's kernels") as patches:
        patches.wrap(lowering, "codegen", generations.of_graphs)
        patches.wrap(wrapper, "define_kernel", generations.with_sources)
        # The callers of PROVENANCE import this function by name, so it is replaced in its module and in theirs.
        for name in (
            "torch._inductor.debug",
            "torch._inductor.codegen.cpp",
            "torch._inductor.codegen.triton",
        ):
            module = importlib.import_module(name)
            require(module, PROVENANCE)
            patches.wrap(module, PROVENANCE, generations.with_calls)
    return patches.undo


class _Generations:
    """The replacements of Inductor's functions that record the generation of its graphs, which may be nested."""

    def __init__(self, show: Callable[[Lowered], None], failed: Callable[[Exception], None]) -> None:
        self._show = show
        self._failed = failed
        self._running: list[_Watched] = []

    def of_graphs(self, original: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def codegen(graph: Any) -> Any:
            self._running.append(_Watched())
            try:
                result = original(graph)
                watched = self._running[-1]
            finally:
                self._running.pop()
            try:
                lowered = _lowered(graph, watched)
            except Exception as error:  # noqa: BLE001, the compilation goes on whatever fails here
                self._failed(error)
            else:
                self._show(lowered)
            return result

        return codegen

    def with_sources(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def define_kernel(wrapper: Any, kernel_name: str, kernel_body: str, *args: Any, **kwargs: Any) -> Any:
            if self._running:
                self._running[-1].sources[kernel_name] = _source(kernel_body)
            return original(wrapper, kernel_name, kernel_body, *args, **kwargs)

        return define_kernel

    def with_calls(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def called(nodes: Any, kernel_name: str, is_extern: bool = False) -> Any:
            if self._running and kernel_name:
                self._running[-1].calls.append((kernel_name, [nodes] if is_extern else list(nodes)))
            return original(nodes, kernel_name, is_extern)

        return called


def _source(body: str) -> str:
    """Return the C++ or Triton source between the triple quotes of a kernel's definition."""
    _, quotes, quoted = body.partition("'''")
    return quoted.rpartition("'''")[0].strip("\n") if quotes else body


def _lowered(graph: Any, watched: _Watched) -> Lowered:
    scheduled = [leaf for node in graph.scheduler.nodes for leaf in node.get_nodes()]
    origins = _Origins(scheduled, graph.module.graph)
    removed = set(graph.removed_buffers)
    kernels = [
        _kernel(name, leaves, watched.sources.get(name, ""), removed, origins)
        for name, leaves in _calls(scheduled, watched.calls)
    ]
    names = dict.fromkeys(buffer for kernel in kernels for buffer in (*kernel.inputs, *kernel.buffers))
    return Lowered(
        graph.module.graph,
        kernels,
        # An output that is not a buffer (None, a size) is of a class in NO_BUFFERS, or has no name.
        [
            None if type(output).__name__ in NO_BUFFERS or not hasattr(output, "get_name") else str(output.get_name())
            for output in graph.graph_outputs
        ],
        {name: kind for name in names if (kind := _kind(graph, name)) is not None},
        {name: node.name for name in names if (node := origins.maker_of(name)) is not None},
        frozenset(graph.constants),
    )


def _calls(scheduled: Sequence[Any], noted: Sequence[tuple[str, list[Any]]]) -> list[tuple[str, list[Any]]]:
    """Return every call, whether it was noted or not, with its scheduler nodes, in the scheduler's order.

    A node that only lays out memory, such as a concatenation whose parts are written in place, belongs to the call that
    writes its last part. A node that takes one result out of several belongs to the call that computes them.
    """
    position = {leaf.get_name(): index for index, leaf in enumerate(scheduled)}
    calls: list[tuple[str, list[Any]]] = []
    caller: dict[str, list[Any]] = {}
    for name, operations in noted:
        # A call was noted with the scheduler's nodes or, if it is extern, with the operations in them.
        leaves = []
        for item in (
            leaf for part in operations for leaf in (part.get_nodes() if hasattr(part, "get_nodes") else [part])
        ):
            name_of = item.get_name if hasattr(item, "read_writes") else getattr(item, "get_operation_name", str)
            at = position.get(name_of())
            if at is not None and scheduled[at].get_name() not in caller:
                leaves.append(scheduled[at])
        caller.update((node.get_name(), leaves) for node in leaves)
        if leaves:
            calls.append((name, leaves))
    writer = {name: leaf for leaf in scheduled for name in _writes(leaf)}
    for leaf in scheduled:
        if leaf.get_name() in caller:
            continue
        free = type(leaf).__name__ == "NopKernelSchedulerNode" or type(leaf.node).__name__ == "MultiOutput"
        candidates = [caller[writer[buffer].get_name()] for buffer in _reads(leaf) if buffer in writer] if free else []
        leaves = max(candidates, key=lambda members: position[members[0].get_name()], default=[])
        if not leaves:
            calls.append(("", leaves))
        leaves.append(leaf)
        caller[leaf.get_name()] = leaves
    return sorted(calls, key=lambda call: position[call[1][0].get_name()])


def _kernel(name: str, leaves: Sequence[Any], source: str, removed: set[str], origins: _Origins) -> GraphKernel:
    written = dict.fromkeys(buffer for leaf in leaves for buffer in _writes(leaf))
    reads = dict.fromkeys(buffer for leaf in leaves for buffer in _reads(leaf) if buffer not in written)
    several = {buffer for leaf in leaves if type(leaf.node).__name__ == "MultiOutput" for buffer in _reads(leaf)}
    operation = getattr(leaves[0].node, "op_overload", None)
    return GraphKernel(
        name or getattr(leaves[0].node, "python_kernel_name", None) or _class_of(leaves[0].node),
        operation if parts_of_op(operation) is not None else None,
        source,
        tuple(reads),
        tuple(buffer for buffer in written if buffer not in removed and buffer not in several),
        tuple(origins.contained(leaves, reads)),
    )


class _Origins:
    """The FX nodes from which each operation was made.

    Inductor records too many origins for an operation: they include nodes that the operation only reads, since another
    operation computes them. The operation that computes an argument of a library's op also has this op among its
    origins.
    """

    def __init__(self, scheduled: Sequence[Any], graph: torch.fx.Graph) -> None:
        self._order = {node: number for number, node in enumerate(graph.nodes)}
        self._origins = {
            leaf.get_name(): {node for node in _recorded_origins(leaf.node) if node in self._order}
            for leaf in scheduled
        }
        writer = {name: leaf for leaf in scheduled for name in _writes(leaf)}
        # Remove a library's op from the origins of the operation that computes its argument.
        for leaf in scheduled:
            if not _is_generated(leaf) and (called := self._maker(leaf)) is not None:
                for producer in (writer[name] for name in _reads(leaf) if name in writer):
                    if _is_generated(producer) and self._origins[producer.get_name()] != {called}:
                        self._origins[producer.get_name()].discard(called)
        self._made_by = {name: self._maker(leaf) for name, leaf in writer.items()}

    def contained(self, leaves: Sequence[Any], reads: Iterable[str]) -> list[torch.fx.Node]:
        """Return the nodes that a call computes, from its results back to its inputs."""
        # In a fused kernel of `a = x + y; b = a * 2` that writes b, the walk leads from b to a, but not to x, which the
        # kernel reads. The walk also passes through getitem nodes, which are not recorded as origins or returned.
        origins = set().union(*(self._origins[leaf.get_name()] for leaf in leaves))
        pending = [node for leaf in leaves if (node := self._maker(leaf)) is not None]
        read_nodes = {self._made_by.get(buffer) for buffer in reads} - set(pending)
        nodes: set[torch.fx.Node] = set()
        while pending:
            node = pending.pop()
            within = node in origins or node.target is operator.getitem
            if node not in nodes and within and node not in read_nodes:
                nodes.add(node)
                pending += node.all_input_nodes
        return sorted(nodes & origins or origins, key=self._order.__getitem__)

    def maker_of(self, buffer: str) -> torch.fx.Node | None:
        """Return the node whose result is in a buffer."""
        return self._made_by.get(buffer)

    def _maker(self, leaf: Any) -> torch.fx.Node | None:
        """Return the node whose result an operation returns: as Inductor records it, or else the last origin."""
        origins = self._origins[leaf.get_name()]
        exact = None if leaf.node is None else leaf.node.get_origin_node()
        return exact if exact in origins else max(origins, key=self._order.__getitem__, default=None)


def _recorded_origins(operation: Any) -> Iterable[torch.fx.Node]:
    origins: Iterable[torch.fx.Node] = () if operation is None else operation.get_origins()
    return origins


def _is_generated(leaf: Any) -> bool:
    return type(leaf).__name__ == "SchedulerNode"


def _class_of(operation: Any) -> str:
    """Return a name for an operation without code, after its class: `concat` for a `ConcatKernel`."""
    return type(operation).__name__.removesuffix("Kernel").lower()


def _reads(leaf: Any) -> list[str]:
    weak = private("torch._inductor.dependencies", "WeakDep")
    return [read.name for read in leaf.read_writes.reads if not isinstance(read, weak)]


def _writes(leaf: Any) -> list[str]:
    return [output.get_name() for output in leaf.get_outputs()]


def _kind(graph: Any, name: str) -> tuple[str, tuple[Size, ...]] | None:
    """Return the dtype and the shape of a buffer, a constant or an input; None for a buffer of several tensors."""
    value = graph.constants.get(name)
    if value is not None:
        return str(value.dtype).removeprefix("torch."), tuple(int(size) for size in value.shape)
    value = graph.graph_inputs.get(name)
    value = graph.try_get_buffer(name) if value is None else value
    try:
        dtype, sizes = value.get_dtype(), value.get_size()
    except (AttributeError, NotImplementedError, AssertionError):
        return None
    sizes = tuple(int(size) if str(size).isdigit() else str(size) for size in sizes)
    return str(dtype).removeprefix("torch."), sizes
