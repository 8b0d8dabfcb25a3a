"""Read the text that torch_xla writes about each graph that it executes (`XLA_SAVE_TENSORS_FILE`).

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

from ...records.tools.graph_record import Cut
from ...torch_private.deferred.xla import xla_counter
from ..deferred_calls import FollowedCall
from ..dumped_ir import BEGIN, NODES, DumpedNode, Frame, frames_in, nodes_in, source_and_stack, without_followers
from .hlo_module import values_in

SYNC_FUNCTIONS = ("mark_step", "sync", "optimizer_step", "execute_pending")
"""Python functions that execute all pending work. Any other function that executes a graph reads a value."""

ITEM = "_local_scalar_dense"
"""The op of `.item()`, `float(tensor)` and `if tensor` in torch_xla."""


@dataclass(frozen=True, slots=True)
class ExecutedIr:
    """One executed graph: its Python frames (innermost first), its outputs' hashes (`roots`), and its own hash."""

    frames: Sequence[Frame]
    roots: Sequence[str]
    hash: str
    nodes: Sequence[DumpedNode]


def executed_in(text: str) -> list[ExecutedIr]:
    """Return the graphs in the text, in the order of their execution."""
    return [_read(section) for section in text.split(BEGIN)[1:]]


def _read(text: str) -> ExecutedIr:
    head, _, body = text.partition(NODES)
    hash_match = re.search(r"^Graph Hash: (\w+)", body, re.MULTILINE)
    roots_match = re.search(r"^Root Hashes: \((.*)\)", head, re.MULTILINE)
    roots = roots_match[1].split(", ") if roots_match else []
    nodes = list(nodes_in(body, values_in))
    return ExecutedIr(frames_in(head), roots, hash_match[1] if hash_match else "", nodes)


def cut_of(executed: ExecutedIr, script: str, during: Sequence[FollowedCall] = ()) -> Cut:
    """Return the reason for which a graph was executed: one of the calls `during` (innermost first), or a sync."""
    frames = without_followers(executed.frames)
    source, stack = source_and_stack(frames, script)
    for call in during:
        if call.place.op == ITEM:
            return Cut("item", "", source, stack)
        if xla_counter(f"{call.place.domain}::{call.place.op}"):
            return Cut("fallback", call.place.full_op, source, stack)
    marked = not during and any(frame.function in SYNC_FUNCTIONS for frame in frames)
    return Cut("mark_step" if marked else "read", "", source, stack)
