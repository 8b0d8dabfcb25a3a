"""The text that the lazy core writes of each graph that it executes.

[ScheduleSyncTensorsGraph]
Python Stacktrace:
  mark_step (torch/_lazy/__init__.py:17)
  <module> (train.py:32)

Hashes: (f504cf708f1038870428937ba9c4be0b, f2b818d43e106314e17c43b875955dc7)

## BEGIN_GRAPH
IR {
  %0 = [Float[5,8]] lazy_tensors::device_data(), location=3@numdrift:2, device=CPU0, ROOT=0, NodeType=...
  %2 = [Float[], Float[]] aten::nll_loss_forward(%1, %0), num_outputs=2, reduction=1, ROOT=1, NodeType=...
}

## END_GRAPH
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ...records.graph_record import Value

DTYPES = {
    "Byte": "uint8",
    "Char": "int8",
    "Short": "int16",
    "Int": "int32",
    "Long": "int64",
    "Half": "float16",
    "Float": "float32",
    "Double": "float64",
    "ComplexHalf": "complex32",
    "ComplexFloat": "complex64",
    "ComplexDouble": "complex128",
    "Bool": "bool",
    "BFloat16": "bfloat16",
}
BEGIN, END = "[ScheduleSyncTensorsGraph]\n", "## END_GRAPH\n"

LIST = "tensor_list"
"""What the core makes of a list of tensors: a node without a value."""

_FRAME = re.compile(r"^  (.*?) \((.*):(\d+)\)$")
_NODE = re.compile(r"^  %(\d+) = \[(.*?)\] ([\w]+)::([\w.]+)\(([^()]*)\)(.*)$")
_SHAPE = re.compile(r"(\w+)\[([\d,]*)\]")
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
    """One node; an operand is a node's number and which of its outputs. `root` is the highest of the graph's outputs
    that it is, `location` the Python frame that it was made from, as `function@file:line`."""

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


@dataclass(frozen=True, slots=True)
class DumpedGraph:
    """One executed graph: `frames` innermost first, one of `hashes` for each output."""

    frames: Sequence[Frame]
    hashes: Sequence[str]
    nodes: Sequence[DumpedNode]

    @property
    def digest(self) -> str:
        return hashlib.sha256(" ".join(self.hashes).encode()).hexdigest()[:16]


class DumpFile:
    """The file that the lazy core appends to, and how far it was read.

    The core opens it by its name for each graph and cannot be told to stop: while nobody wants the graphs, the name
    leads nowhere.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read = 0

    def begin(self) -> None:
        """Start an empty file."""
        self._path.unlink(missing_ok=True)
        self._path.touch()
        self._read = 0

    def pause(self) -> None:
        """Keep nothing of what is written from here on."""
        self._path.unlink(missing_ok=True)
        self._path.symlink_to(os.devnull)
        self._read = 0

    def remove(self) -> None:
        with contextlib.suppress(OSError):
            self._path.unlink(missing_ok=True)

    @property
    def has_grown(self) -> bool:
        return self._path.stat().st_size > self._read

    def read(self) -> list[DumpedGraph]:
        """The graphs that were written since the last read."""
        with self._path.open("rb") as file:
            file.seek(self._read)
            data = file.read()
        self._read += len(data)
        return [parse(one) for one in data.decode("utf-8", "replace").split(BEGIN)[1:]]


def parse(text: str) -> DumpedGraph:
    """One entry of the dump."""
    head, _, body = text.partition("## BEGIN_GRAPH\n")
    frames: list[Frame] = []
    hashes: list[str] = []
    for line in head.splitlines():
        frame = _FRAME.match(line)
        if frame is not None:
            frames.append(Frame(frame[1], frame[2], int(frame[3])))
        elif line.startswith("Hashes: ("):
            hashes = [one.strip() for one in line[9:].rstrip(")").split(",")]
    matches = [_NODE.match(line) for line in body.partition(END)[0].splitlines()]
    return DumpedGraph(
        frames, hashes, _without_lists([_node(match) for match in matches if match is not None])
    )


def _without_lists(nodes: Sequence[DumpedNode]) -> list[DumpedNode]:
    """The nodes, those that take a list taking what is in it instead."""
    lists = {node.number: node.operands for node in nodes if node.op == LIST}
    return [
        replace(node, operands=tuple(one for taken in node.operands for one in lists.get(taken[0], (taken,))))
        for node in nodes
        if node.op != LIST
    ]


def _node(match: re.Match[str]) -> DumpedNode:
    number, shapes, domain, op, operands, rest = match.groups()
    outputs = tuple(
        Value(DTYPES.get(dtype, dtype.lower()), tuple(int(size) for size in sizes.split(",") if size))
        for dtype, sizes in _SHAPE.findall(shapes)
    )
    taken = tuple((int(one), int(which or 0)) for one, which in _OPERAND.findall(operands))
    pieces = _TAG.split(rest)
    return DumpedNode(
        int(number), domain, op, outputs, taken, dict(zip(pieces[1::2], pieces[2::2], strict=True))
    )
