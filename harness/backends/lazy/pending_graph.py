"""A graph of the lazy core that is about to be executed, and the calls that made its nodes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from ...tape.op_places import OpPlace
from ...tape.origin import CALLED_FROM
from ...tape.replaying.replay import generator_state
from ...tape.tape import CompiledNode
from ...torch_private.deferred.lazy import last_torchscript_graph, parsed_torchscript, pending_data, pending_torchscript
from ...torch_private.device_kernels import DeviceKernel
from ...torch_private.profiling.lazy_work import lazy_text
from .lazy_dump import parse
from .torchscript_graph import align, read_torchscript
from .torchscript_tape import UNKNOWN, KnownNode

MARK = re.compile(rf"^(\d+)@{CALLED_FROM}:")
"""The form in which a node's location names the call that made it."""


@dataclass(frozen=True, slots=True, eq=False)
class LazyCall:
    """A call of one of the core's kernels.

    values: its positional arguments, None for each that is not a bool, int or float.
    frames: the user's frames.
    iteration: the index, within the step, of the forward and backward pass in which it was made.
    parent: the call within which it was made.
    reads: whether the harness itself makes the call in order to read a value.
    """

    number: int
    kernel: DeviceKernel
    values: Sequence[Any]
    place: OpPlace
    frames: tuple[str, ...]
    iteration: int
    parent: LazyCall | None
    reads: bool

    @property
    def outermost(self) -> LazyCall:
        """The script's own call that this call is a part of. A swapped kernel, for example, calls other kernels."""
        call = self
        while call.parent is not None:
            call = call.parent
        return call


@dataclass(frozen=True, slots=True, eq=False)
class PendingGraph:
    """A graph that is about to be executed.

    roots: the lazy tensors that it computes.
    text: the graph as TorchScript.
    nodes: the text of its IR, with the location of each node.
    inputs: the values that it takes.
    generator: the state of the CPU's generator before the execution.
    """

    roots: Sequence[torch.Tensor]
    text: str
    nodes: str
    inputs: Sequence[torch.Tensor]
    generator: torch.Tensor

    @classmethod
    def of(cls, roots: Sequence[torch.Tensor]) -> PendingGraph:
        """Return the graph that is pending now, without executing it."""
        inputs = [value for _, value in pending_data(roots)]
        return cls(roots, pending_torchscript(roots), lazy_text(roots), inputs, generator_state("cpu"))

    def executed(self) -> Any:
        """Return the optimised graph that TorchScript executed last.

        If its numbers of inputs and outputs do not match, return the pending graph.
        """
        graph = last_torchscript_graph()
        if (len(list(graph.inputs())), len(list(graph.outputs()))) == (len(self.inputs), len(self.roots)):
            return graph
        return parsed_torchscript(self.text[self.text.index("graph(") :])

    def known_nodes(self, graph: Any, calls: Sequence[LazyCall], number: int) -> Callable[[int], KnownNode]:
        """Return a function that returns the facts about a node of the graph, by the node's number.

        The calls that made the nodes are found by following the IR and the TorchScript graph side by side. `number` is
        the number of this execution.
        """
        dump = replace(parse(f"## BEGIN_GRAPH\n{self.nodes}\n## END_GRAPH\n"), hashes=[""] * len(self.roots))
        places = {node.number: node.location for node in dump.nodes}
        covers = align(read_torchscript(graph), dump).covers
        made: Counter[int] = Counter()  # a kernel may make several nodes

        def known_node(node: int) -> KnownNode:
            marks = [found for covered in covers.get(node, ()) if (found := MARK.match(places[covered])) is not None]
            if not marks:
                return UNKNOWN
            call = calls[int(marks[0][1])]
            outer, operation = call.outermost, call.kernel.operation
            name = f"{operation.name()}_{call.number}"
            part = CompiledNode(f"{number}", name, str(outer.kernel.operation), outer.number)
            key = (call.number, made[call.number])
            made[call.number] += 1
            return KnownNode(
                outer.place,
                outer.frames,
                None if outer is call else part,
                operation,
                call.values,
                call.reads,
                outer.iteration,
                outer.number,
                key,
            )

        return known_node
