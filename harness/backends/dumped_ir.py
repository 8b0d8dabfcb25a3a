"""Read the dumps of executed graphs that torch's lazy core and torch_xla write: Python frames, and nodes.

Both dumps have the same form, except that each core writes shapes in its own way.

  <module> (train.py:32)
  %2 = [Float[], Float[]] aten::nll_loss_forward(%1, %0.1), num_outputs=2, reduction=1, ROOT=1
  %8 = f32[32,16]{1,0} aten::addmm(%7, %6, %4), location=forward@linear.py:134, ROOT=0
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..records.tools.graph_record import Value
from ..tape.origin import CALLED_FROM
from ..tape.recording import followed_calls

BEGIN = "[ScheduleSyncTensorsGraph]\n"
"""The line before each executed graph."""

NODES = "## BEGIN_GRAPH\n"
"""The line between a graph's frames and its nodes."""

_HERE = (str(Path(__file__).parent), str(followed_calls.__file__))
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
    """One node. An operand is a node's number and the index of one of that node's outputs.

    root: the index of the graph's output that this node computes, the highest one if there are several; None if it
        computes no output.
    location: the Python frame that made the node, as `function@file:line`.
    """

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
        tag = self.tags.get("ROOT")
        return None if tag is None else int(tag)

    @property
    def is_input(self) -> bool:
        """Return whether this is a value that the graph takes, rather than an op."""
        return self.op in ("device_data", "Constant")


def frames_in(text: str) -> list[Frame]:
    """Return the Python frames, innermost first."""
    matches = (_FRAME.match(line) for line in text.splitlines())
    return [Frame(match[1], match[2], int(match[3])) for match in matches if match is not None]


def without_followers(frames: Iterable[Frame]) -> list[Frame]:
    """Return the frames without those of files that follow and execute a core's calls."""
    return [frame for frame in frames if frame.file != CALLED_FROM and not frame.file.startswith(_HERE)]


def source_and_stack(frames: Sequence[Frame], script: str) -> tuple[str, str]:
    """Return the innermost line of the script, "" if there is none, and the stack as text, outermost frame first."""
    source = next((f"{frame.file}:{frame.line}" for frame in frames if frame.file == script), "")
    lines = (f'  File "{frame.file}", line {frame.line}, in {frame.function}' for frame in reversed(frames))
    return source, "\n".join(lines)


def nodes_in(text: str, values_of: Callable[[str], Iterable[Value]]) -> Iterator[DumpedNode]:
    """Yield the nodes in the order of the text. `values_of` parses a shape."""
    for line in text.splitlines():
        match = _NODE.match(line)
        if match is None:
            continue
        number, shape, domain, op, operand_text, rest = match.groups()
        operands = tuple((int(node_number), int(which or 0)) for node_number, which in _OPERAND.findall(operand_text))
        pieces = _TAG.split(rest)
        tags = dict(zip(pieces[1::2], pieces[2::2], strict=True))
        yield DumpedNode(int(number), domain, op, tuple(values_of(shape)), operands, tags)
