"""The script's lines for the kernels of torch that an Inductor graph calls."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from ...torch_private.compiler.graph_stages import parts_of_op
from ...torch_private.compiler.inductor_lowering import LoweredNode
from ..called_operators import line_in_trace

SCATTERS = "aten.scatter"
"""The prefix of a family of ops.

Inductor may call the kernel of another op of the family, such as `aten.scatter_reduce_` for `aten.scatter_add`.
"""

INDEX_PUTS = ("aten._unsafe_index_put", "aten._index_put_impl")
"""Ops for which Inductor may call the kernel of `aten.index_put_`."""


@dataclass(slots=True)
class GraphLines:
    """The lines of one graph's nodes that may call a kernel of torch, by the name of the kernel or op.

    lowered: the lines of nodes that Inductor was observed to lower to a call of that kernel.
    complex_: the lines of nodes with complex values, for which Inductor generates no code.
    present: the lines of all nodes.

    A graph from Inductor's cache is not lowered. A kernel of such a graph is attributed to a node of its op with
    complex values, or else to any node of its op. `complex_` and `present` list the line of each node twice: under the
    op's name with the overload, and under the name without the overload.
    """

    lowered: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    complex_: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    present: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))

    @classmethod
    def of(cls, graph: torch.fx.Graph, script: str) -> GraphLines:
        lines = cls()
        for node in graph.nodes:
            # A node whose effects are ordered calls its op as `with_effects(token, op, ...)`.
            effects = parts_of_op(node.target) is None and len(node.args) > 1
            inner = node.args[1] if effects else None
            op = str(node.target if parts_of_op(inner) is None else inner)
            values: list[Any] = [operand.meta.get("val") for operand in (node, *node.all_input_nodes)]
            is_complex = any(isinstance(value, torch.Tensor) and value.is_complex() for value in values)
            line = line_in_trace(script, node.meta.get("stack_trace"))
            for name in {_plain(op), _family(op)}:
                lines.present[name].append(line)
                if is_complex:
                    lines.complex_[name].append(line)
        return lines

    def seen(self, lowered: LoweredNode, script: str) -> None:
        """Record a node that Inductor has lowered."""
        line = line_in_trace(script, lowered.node.meta.get("stack_trace"))
        self.lowered[_plain(lowered.extern)].append(line)

    def called(self, kernels: Sequence[str]) -> Iterator[tuple[str, str]]:
        """Yield each of these kernels, such as `aten::sort.stable`, with its line, "" if it is unknown."""
        for kernel, count in Counter(kernels).items():
            name = _plain(kernel.replace("::", "."))
            candidates = [self.lowered.get(name, [])]
            candidates += [
                lines_by_op.get(op_name, [])
                for lines_by_op in (self.complex_, self.present)
                for op_name in (name, _family(name))
            ]
            chosen: Sequence[str] = [""] * count
            for lines in candidates:
                # The kernels belong to these nodes if there are as many nodes as kernels, or more nodes that all have
                # the same line. Otherwise the node of a kernel is unknown.
                if lines and all(lines) and (len(lines) == count or (len(lines) > count and len(set(lines)) == 1)):
                    chosen = lines[:count]
                    break
            for line in chosen:
                yield kernel, line


def _family(name: str) -> str:
    """Return `aten.sort` for `aten.sort.stable`, since Inductor may choose another overload or the in-place op."""
    packet = ".".join(name.split(".")[:2]).removesuffix("_")
    if packet.startswith(SCATTERS):
        return SCATTERS
    return "aten.index_put" if packet in INDEX_PUTS else packet


def _plain(op: str) -> str:
    return op.removeprefix("torch.ops.").removesuffix(".default")
