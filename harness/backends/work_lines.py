"""The lines of the script that pieces of work come from, and how observing work keeps its own failures out of
it."""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from ..torch_private.graph_stages import parts_of_op
from ..torch_private.inductor_lowering import LoweredNode


def line_in(script: str, frame: FrameType | None = None) -> str:
    """The innermost line of the script on the stack of `frame` (default: the caller's), as `train.py:24`; ""
    for none."""
    at = frame or sys._getframe(1)
    while at is not None:
        if at.f_code.co_filename == script:
            return f"{Path(script).name}:{at.f_lineno}"
        at = at.f_back  # type: ignore[assignment]
    return ""


def line_in_trace(script: str, trace: str | None) -> str:
    """The same of the text of a stack trace, whose frames read `File "/a/train.py", line 24, in f`."""
    before = f'File "{script}", line '
    for line in reversed((trace or "").splitlines()):
        _, found, rest = line.partition(before)
        if found:
            return f"{Path(script).name}:{rest.partition(',')[0]}"
    return ""


# A failure of an observation, kept out of the work that it observes until somebody asks for it.


class KeptFailure:
    """`with kept:` lets no exception out; `tell` raises the first one."""

    def __init__(self) -> None:
        self.error: Exception | None = None

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> bool:
        if isinstance(error, Exception):
            self.error = self.error or error
            return True
        return False

    def tell(self) -> None:
        if self.error is not None:
            raise self.error


# Where in the script the kernels come from that a graph of Inductor's takes from torch.

SCATTERS = "aten.scatter"
"""Begins the names of ops that Inductor hands to each other's kernels: `aten.scatter_add` to
`aten.scatter_reduce_`."""

INDEX_PUTS = ("aten._unsafe_index_put", "aten._index_put_impl")
"""Ops that Inductor hands to the kernel of `aten.index_put_`."""


@dataclass(slots=True)
class GraphLines:
    """The lines of one graph's nodes, as far as they may be what calls a kernel of torch's.

    `lowered` are those of nodes that Inductor was seen to lower to a call of that kernel. A graph out of
    Inductor's cache is not lowered: a kernel is that of a `complex_` node of its op then (Inductor generates
    no code for these), or of one of all its nodes, the `present`. Both know a node by its op with the
    overload and without.
    """

    lowered: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    complex_: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    present: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))

    @classmethod
    def of(cls, graph: torch.fx.Graph, script: str) -> GraphLines:
        lines = cls()
        for node in graph.nodes:
            op, line = _op_of(node), _line(node, script)
            for name in {_plain(op), _family(op)}:
                lines.present[name].append(line)
                values: list[Any] = [one.meta.get("val") for one in (node, *node.all_input_nodes)]
                is_complex = any(isinstance(one, torch.Tensor) and one.is_complex() for one in values)
                if is_complex:
                    lines.complex_[name].append(line)
        return lines

    def seen(self, lowered: LoweredNode, script: str) -> None:
        """Inductor has lowered a node."""
        self.lowered[_plain(lowered.extern)].append(_line(lowered.node, script))

    def called(self, kernels: Sequence[str]) -> Iterator[tuple[str, str]]:
        """Each of these kernels, `aten::sort.stable`, with its line, "" where that cannot be told."""
        for kernel, count in Counter(kernels).items():
            name = _plain(kernel.replace("::", "."))
            nodes = [self.lowered.get(name, [])]
            nodes += [found.get(one, []) for found in (self.complex_, self.present) for one in (name, _family(name))]
            known = (_taken(lines, count) for lines in nodes if all(lines))
            for line in next(filter(None, known), [""] * count):
                yield kernel, line


def _taken(lines: Sequence[str], count: int) -> Sequence[str]:
    """The lines of `count` kernels that come from nodes of these lines, none where it is open which of
    them."""
    if len(lines) == count:
        return lines
    return [lines[0]] * count if len(lines) > count and len(set(lines)) == 1 else ()


def _op_of(node: torch.fx.Node) -> str:
    """The op that a node calls, also where it does so in the order of effects: `with_effects(token, op,
    ...)`."""
    effects = parts_of_op(node.target) is None and len(node.args) > 1
    inner = node.args[1] if effects else None
    return str(node.target if parts_of_op(inner) is None else inner)


def _family(name: str) -> str:
    """`aten.sort` of `aten.sort.stable`: Inductor may take another overload than the graph has, or the one in
    place."""
    packet = ".".join(name.split(".")[:2]).removesuffix("_")
    if packet.startswith(SCATTERS):
        return SCATTERS
    return "aten.index_put" if packet in INDEX_PUTS else packet


def _plain(op: str) -> str:
    return op.removeprefix("torch.ops.").removesuffix(".default")


def _line(node: torch.fx.Node, script: str) -> str:
    return line_in_trace(script, node.meta.get("stack_trace"))
