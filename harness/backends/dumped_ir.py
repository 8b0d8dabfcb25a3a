"""What torch's lazy core and torch_xla write of the graphs that they execute, in one form: Python frames, and nodes.
How a shape is written is each one's own.

  <module> (train.py:32)
  %2 = [Float[], Float[]] aten::nll_loss_forward(%1, %0.1), num_outputs=2, reduction=1, ROOT=1
  %8 = f32[32,16]{1,0} aten::addmm(%7, %6, %4), location=forward@linear.py:134, ROOT=0
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from ..records.graph_record import Value

BEGIN = "[ScheduleSyncTensorsGraph]\n"
"""What stands before each graph that was executed."""

NODES = "## BEGIN_GRAPH\n"
"""What stands between the frames of a graph and its nodes."""

_FRAME = re.compile(r"^  (.*?) \((.*):(\d+)\)$")
_NODE = re.compile(r"^  %(\d+) = (\[.*?\]|\(.*?\)|\S+) (\w+)::([\w.]+)\(([^()]*)\)(.*)$")
_OPERAND = re.compile(r"%(\d+)(?:\.(\d+))?")
_TAG = re.compile(r", (\w+)=")


@dataclass(frozen=True, slots=True)
class Frame:
    """One Python frame."""

    function: str
    file: str
    line: int


@dataclass(frozen=True, slots=True)
class DumpedNode:
    """One node; an operand is a node's number and which of its outputs. `root` is the highest of the graph's
    outputs that it is, `location` the Python frame that it was made from, as `function@file:line`."""

    number: int
    domain: str
    op: str
    outputs: tuple[Value, ...]
    operands: tuple[tuple[int, int], ...]
    tags: Mapping[str, str]

    @property
    def location(self) -> str:
        return self.tags.get("location", "")

    @property
    def root(self) -> int | None:
        found = self.tags.get("ROOT")
        return None if found is None else int(found)

    @property
    def is_given(self) -> bool:
        """Whether this is a value that the graph is given, not an op."""
        return self.op in ("device_data", "Constant")


def frames_in(text: str) -> list[Frame]:
    """The Python frames, innermost first."""
    found = (_FRAME.match(line) for line in text.splitlines())
    return [Frame(one[1], one[2], int(one[3])) for one in found if one is not None]


def nodes_in(text: str, values_of: Callable[[str], Iterable[Value]]) -> Iterator[DumpedNode]:
    """The nodes, in the order in which they stand; `values_of` reads a shape."""
    for line in text.splitlines():
        match = _NODE.match(line)
        if match is None:
            continue
        number, shape, domain, op, operands, rest = match.groups()
        taken = tuple((int(one), int(which or 0)) for one, which in _OPERAND.findall(operands))
        pieces = _TAG.split(rest)
        tags = dict(zip(pieces[1::2], pieces[2::2], strict=True))
        yield DumpedNode(int(number), domain, op, tuple(values_of(shape)), taken, tags)
