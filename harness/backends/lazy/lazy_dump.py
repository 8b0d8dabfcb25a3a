"""The text that the lazy core writes about each graph that it executes.

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
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ...records.tools.graph_record import Cut, Value
from ...torch_private.deferred.lazy import lazy_counters
from ..dumped_ir import BEGIN, NODES, DumpedNode, Frame, frames_in, nodes_in, source_and_stack, without_followers

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
END = "## END_GRAPH\n"

LIST = "tensor_list"
"""The op of the node that the core creates for a list of tensors. Such a node has no value."""

_SHAPE = re.compile(r"(\w+)\[([\d,]*)\]")


@dataclass(frozen=True, slots=True)
class DumpedGraph:
    """One executed graph. `frames` are innermost first; `hashes` has one hash for each output."""

    frames: Sequence[Frame]
    hashes: Sequence[str]
    nodes: Sequence[DumpedNode]

    @property
    def digest(self) -> str:
        return hashlib.sha256(" ".join(self.hashes).encode()).hexdigest()[:16]


class DumpFile:
    """The file that the lazy core appends to, and the position up to which it has been read.

    The core opens the file by its name for each graph, and nothing can stop that. While the graphs are not wanted, the
    name is a link to the null device.
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
        """Discard everything that is written from now on."""
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
        """Return the graphs written since the last read."""
        with self._path.open("rb") as file:
            file.seek(self._read)
            data = file.read()
        self._read += len(data)
        return [parse(entry) for entry in data.decode("utf-8", "replace").split(BEGIN)[1:]]


def parse(text: str) -> DumpedGraph:
    """Parse one entry of the dump."""
    head, _, body = text.partition(NODES)
    hashes: list[str] = []
    for line in head.splitlines():
        if line.startswith("Hashes: ("):
            hashes = [part.strip() for part in line[9:].rstrip(")").split(",")]
    nodes: list[DumpedNode] = []
    lists: dict[int, tuple[tuple[int, int], ...]] = {}
    for node in nodes_in(body.partition(END)[0], _values):
        # A node that takes a list gets the list's elements as operands. A list precedes all nodes that take it.
        operands = tuple(element for operand in node.operands for element in lists.get(operand[0], (operand,)))
        if node.op == LIST:
            lists[node.number] = operands
        else:
            nodes.append(replace(node, operands=operands))
    return DumpedGraph(frames_in(head), hashes, nodes)


def _values(shapes: str) -> Iterator[Value]:
    for dtype, sizes in _SHAPE.findall(shapes):
        yield Value(DTYPES.get(dtype, dtype.lower()), tuple(int(size) for size in sizes.split(",") if size))


# The reasons for which the lazy core executes a graph, and the core's counts.

ITEM = "aten::_local_scalar_dense"
"""The op that `.item()`, `float(tensor)` and `if tensor` call. It falls back to the CPU."""

EXECUTIONS = ("UncachedCompile", "CachedCompile")
_HERE = str(Path(__file__).parent)

COUNTED = {"UncachedCompile": "compiled", "CachedCompile": "cached", "MarkStep": "mark_steps"}


class Counted:
    """The core's counts, by the step that they are attributed to."""

    def __init__(self) -> None:
        self._start = lazy_counters()
        self._before = self._start
        self.steps: dict[int, Counter[str]] = {}

    def put_down(self, step: int) -> None:
        """Attribute to a step everything that was counted since this method was last called."""
        now = lazy_counters()
        tally = self.steps.setdefault(step, Counter(dict.fromkeys(_NAMES, 0)))
        tally.update(summed(self._before, now))
        self._before = now

    def leave_out_execution(self) -> None:
        """Exclude the execution that was just counted: attribute it to no step."""
        now = lazy_counters()
        self._before = {**self._before, **{name: now[name] for name in EXECUTIONS if name in now}}

    def total(self) -> dict[str, int]:
        return summed(self._start, lazy_counters())


_NAMES = (*COUNTED.values(), "fallbacks", "items")


def summed(before: Mapping[str, int], now: Mapping[str, int]) -> dict[str, int]:
    """Return the increase between two readings of the counters, by numdrift's names."""
    counts = dict.fromkeys(_NAMES, 0)
    for name, value in now.items():
        increase = value - before.get(name, 0)
        if name in COUNTED:
            counts[COUNTED[name]] += increase
        elif name.startswith("aten::"):
            counts["items" if name == ITEM else "fallbacks"] += increase
    return counts


class Reasons:
    """The op that is falling back to the CPU. The core counts the op, then copies each of its arguments to the CPU."""

    def __init__(self) -> None:
        self._before = _fallbacks()
        self._current = ""
        self._place: tuple[int, Any, int] | None = None

    def copying(self, number: int, frame: Any) -> None:
        """Observe the start of a kernel call that may copy a tensor to the CPU. `frame` is the caller's frame."""
        now = _fallbacks()
        grown = [name for name, value in now.items() if value != self._before.get(name, 0)]
        self._before = now
        place = (number, frame.f_code, frame.f_lasti)
        if grown:
            self._current = grown[-1]
        elif self._place is None or self._place[0] + 1 != number or self._place[1:] != place[1:]:
            self._current = ""
        self._place = place

    def cut(self, dump: DumpedGraph, script: str, *, copying: bool) -> Cut:
        """Return why a graph was executed: for a kernel that was `copying` to the CPU, or by an explicit call."""
        source, text = source_and_stack(without_followers(dump.frames), script)
        if not copying:
            marked = any(frame.function == "mark_step" for frame in dump.frames)
            return Cut("mark_step" if marked else "read", "", source, text)
        if self._current in ("", ITEM):
            return Cut("item" if self._current else "read", "", source, text)
        return Cut("fallback", self._current.replace("::", "."), source, text)


def _fallbacks() -> dict[str, int]:
    return {name: value for name, value in lazy_counters().items() if name.startswith("aten::")}
