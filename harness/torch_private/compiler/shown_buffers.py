"""The buffers of Inductor's code, shown by the probe op while the code runs; the kernels stay the same.

Verified on torch 2.13.0, and on 2.11.0 with CUDA.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import torch

from ..patches import Patches
from ..presence import private

VERSION = 3
"""The version of the shown buffers and their numbers: cached code of a different version must not be used."""


@contextmanager
def showing_buffers(number_of: Callable[[str], int | None]) -> Iterator[None]:
    """Show each buffer that Inductor's code writes within the context, with a `ProbeOp` and the number of its node.

    A line is added after the call of the kernel that writes the buffer, so fusion and kernels stay the same. A buffer
    that the same call writes and then overwrites, as code for the CPU may do, is not shown. The code with these lines
    has separate keys in Inductor's cache of graphs. Raises NotAvailable.
    """
    shown = _ShownGraphs(number_of)
    config = private("torch._inductor", "config")
    with Patches("the buffers of compiled graphs") as patches:
        patches.wrap(private("torch._inductor.graph", "GraphLowering"), "run_node", shown.recorded_lowering)
        patches.wrap(private("torch._inductor.scheduler", "BaseSchedulerNode"), "mark_run", shown.recorded_generation)
        patches.wrap(private("torch._inductor.scheduler", "Scheduler"), "free_buffers", shown.shown_before)
        patches.wrap(private("torch._inductor.codecache", "FxGraphHashDetails"), "__init__", _marked)
    try:
        with config.patch({"triton.cudagraphs": False}):
            yield
    finally:
        patches.undo()


def _marked(original: Callable[..., Any]) -> Callable[..., Any]:
    """Add an attribute to the details of a cached graph: the cache key is computed from all attributes."""

    @functools.wraps(original)
    def init(details: Any, *args: Any, **kwargs: Any) -> None:
        original(details, *args, **kwargs)
        details.numdrift_shows_buffers = VERSION

    return init


class _ShownGraphs:
    """The graphs that Inductor lowers. Replacements of Inductor's methods follow these graphs and write the probes."""

    def __init__(self, number_of: Callable[[str], int | None]) -> None:
        self._number_of = number_of
        self._virtual = private("torch._inductor.virtualized", "V")
        self._buffer = private("torch._inductor.ir", "Buffer")
        self._extern = private("torch._inductor.ir", "ExternKernel")
        self._graphs: dict[int, ShownGraph] = {}

    def recorded_lowering(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def run_node(graph: Any, node: torch.fx.Node) -> Any:
            shown, count = self._shown(graph), len(graph.operations)
            box = original(graph, node)
            shown.lowered(node.name, box, self._name_of(box), graph.operations[count:])
            return box

        return run_node

    def recorded_generation(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def mark_run(node: Any) -> Any:  # runs right before the kernel's call is written; nothing is freed in between
            self._shown(self._virtual.graph).generated.update(node.get_operation_names())
            return original(node)

        return mark_run

    def shown_before(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def free_buffers(scheduler: Any) -> Any:
            graph = self._virtual.graph
            wrapper, shown = graph.wrapper_code, self._shown(graph)
            live = self._complete(graph) - set(graph.removed_buffers) - set(wrapper.freed)
            for node, name in shown.written(live, self._name_of):
                if (number := self._number_of(node)) is not None:
                    wrapper.writeline(f"torch.ops.numdrift.probe({name}, {number})")
            return original(scheduler)

        return free_buffers

    def _complete(self, graph: Any) -> set[str]:
        """Return the buffers whose operations have been generated.

        A buffer that other operations fill part by part, such as the result of `cat`, is allocated before the first of
        them. Its own operation, which does nothing, comes after the last one.
        """
        generated, allocated = self._shown(graph).generated, graph.wrapper_code.allocated
        complete = set[str]()
        for name, buffer in graph.name_to_buffer.items():
            operation = buffer.get_defining_op()
            is_known = name in allocated or isinstance(buffer, self._extern)  # an extern kernel allocates by itself
            if is_known and operation is not None and operation.get_operation_name() in generated:
                complete.add(name)
        return complete

    def _shown(self, graph: Any) -> ShownGraph:
        return self._graphs.setdefault(id(graph), ShownGraph())

    def _name_of(self, box: Any) -> str | None:
        while type(box).__name__ in ("TensorBox", "StorageBox"):
            box = box.data
        return str(box.get_name()) if isinstance(box, self._buffer) and getattr(box, "name", None) else None


class ShownGraph:
    """The state of one graph while Inductor lowers it and generates its code.

    A node's value may be in a buffer that later operations write to: a buffer of zeros may later hold the sums of an
    `index_put_`. The value is available once the operations of the node's lowering are generated, and lost once a
    further write to the buffer is generated.
    """

    def __init__(self) -> None:
        self.generated: set[str] = set()
        """The operations whose code has been generated."""

        self._boxes: dict[str, Any] = {}
        self._needed: dict[str, frozenset[str]] = {}
        self._writers: dict[str, set[str]] = {}

    def lowered(self, node: str, box: Any, name: str | None, operations: Sequence[Any]) -> None:
        """Record the lowering of a node, and the operations that were made for it."""
        for operation in operations:
            with suppress(NotImplementedError, AttributeError):
                for written in operation.get_mutation_names():
                    self._writers.setdefault(written, set()).add(operation.get_operation_name())
        self._boxes[node] = box
        self._needed[node] = frozenset(self._writers.get(name, ())) if name is not None else frozenset()

    def written(self, live: Collection[str], name_of: Callable[[Any], str | None]) -> Iterator[tuple[str, str]]:
        """Yield, only once, each node whose value is now in one of the `live` buffers, with the buffer's name."""
        for node, box in list(self._boxes.items()):
            name = name_of(box)
            if name is None or name not in live or not self._needed[node] <= self.generated:
                continue
            del self._boxes[node]
            if self._writers.get(name, set()) & self.generated == self._needed[node]:
                yield node, name
