"""The text that torch_xla writes of each graph that it executes (`XLA_SAVE_TENSORS_FILE`).

[ScheduleSyncTensorsGraph]
TensorsGraphInfo:
  sync (torch_xla/torch_xla.py:87)
  <module> (train.py:17)

Root Hashes: (bd1b1da71703643e2ef10c84accd6b1, 9b3b6b62d7cdea458cfc77551ab73f1)

## BEGIN_GRAPH
IR {
  %0 = f32[32,8]{1,0} xla::device_data(), location=<module>@train.py:14, xla_shape=f32[32,8]{1,0}
  %8 = f32[32,16]{1,0} aten::addmm(%7, %6, %4), location=forward@linear.py:134, xla_shape=f32[32,16]{1,0}, ROOT=0
}

Graph Hash: b3d5fa99405bfecaab4ed671ff83a1d2

## END_GRAPH
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ...records.graph_record import Cut
from ...tape.origin import CALLED_FROM
from ...torch_private.xla import xla_counter
from ..dumped_ir import BEGIN, NODES, DumpedNode, Frame, frames_in, nodes_in
from ..followed_calls import FollowedCall
from .hlo_module import values_in

SYNC_FUNCTIONS = ("mark_step", "sync", "optimizer_step", "execute_pending")
"""Python functions by which all that is pending is executed; anything else that executes a graph reads a value."""

ITEM = "_local_scalar_dense"
"""What `.item()`, `float(tensor)` and `if tensor` are to torch_xla."""

_HERE = str(Path(__file__).parent)


@dataclass(frozen=True, slots=True)
class ExecutedIr:
    """One executed graph: its Python frames, innermost first, a hash of each value that it gives, and the one that
    torch_xla knows the graph by."""

    frames: Sequence[Frame]
    roots: Sequence[str]
    hash: str
    nodes: Sequence[DumpedNode]


def executed_in(text: str) -> list[ExecutedIr]:
    """The graphs in what was written, in the order in which they were executed."""
    return [_read(one) for one in text.split(BEGIN)[1:]]


def _read(text: str) -> ExecutedIr:
    head, _, body = text.partition(NODES)
    found_hash = re.search(r"^Graph Hash: (\w+)", body, re.MULTILINE)
    found_roots = re.search(r"^Root Hashes: \((.*)\)", head, re.MULTILINE)
    roots = found_roots[1].split(", ") if found_roots else []
    nodes = list(nodes_in(body, values_in))
    return ExecutedIr(frames_in(head), roots, found_hash[1] if found_hash else "", nodes)


def cut_of(executed: ExecutedIr, script: str, during: Sequence[FollowedCall] = ()) -> Cut:
    """Why a graph was executed where it was: `during` these calls, innermost first, or by somebody's own order."""
    frames = [one for one in executed.frames if one.file != CALLED_FROM and not one.file.startswith(_HERE)]
    stack = "\n".join(f'  File "{one.file}", line {one.line}, in {one.function}' for one in frames[::-1])
    source = next((f"{one.file}:{one.line}" for one in frames if one.file == script), "")
    for call in during:
        if call.place.op == ITEM:
            return Cut("item", "", source, stack)
        if xla_counter(f"{call.place.domain}::{call.place.op}"):
            return Cut("fallback", call.place.full_op, source, stack)
    marked = not during and any(one.function in SYNC_FUNCTIONS for one in frames)
    return Cut("mark_step" if marked else "read", "", source, stack)
