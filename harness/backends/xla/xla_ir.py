"""The text that torch_xla writes of each graph that it executes (`XLA_SAVE_TENSORS_FILE`), as a graph of the record.

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
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from ...records.graph_record import Cut, Graph, Node, Value, phase_of
from ..dumped_ir import BEGIN, NODES, DumpedNode, Frame, frames_in, nodes_in
from .hlo_module import values_in

TECHNICAL = ("location", "xla_shape", "ROOT", "num_outputs", "scope", "device", "dynamic_dims")

SYNC_FUNCTIONS = ("mark_step", "sync", "optimizer_step", "execute_pending")
"""Python functions by which all that is pending is executed; anything else that executes a graph reads a value."""


@dataclass(frozen=True, slots=True)
class ExecutedIr:
    """One executed graph: its Python frames, innermost first, how many values it gives, and the hash that torch_xla
    knows it by."""

    frames: Sequence[Frame]
    roots: int
    hash: str
    nodes: Sequence[DumpedNode]


def executed_in(text: str) -> list[ExecutedIr]:
    """The graphs in what was written, in the order in which they were executed."""
    return [_read(one) for one in text.split(BEGIN)[1:]]


def _read(text: str) -> ExecutedIr:
    head, _, body = text.partition(NODES)
    found_hash = re.search(r"^Graph Hash: (\w+)", body, re.MULTILINE)
    roots = next((line.count(",") + 1 for line in head.splitlines() if line.startswith("Root Hashes: (")), 0)
    nodes = list(nodes_in(body, values_in))
    return ExecutedIr(frames_in(head), roots, found_hash[1] if found_hash else "", nodes)


def pre_graph(executed: ExecutedIr, script: str, step: int, *, updates: bool = False) -> Graph:
    """The IR as a graph of the record, whose name is still to be given. One that `updates` was executed between a
    backward and the end of its step: without a backward of its own it is an optimizer's, of torch's or the script's."""
    optimizers = {path.name for path in Path(torch.optim.__file__).parent.glob("*.py")}
    names: dict[tuple[int, int], str] = {}
    values: dict[str, Value] = {}
    nodes: list[Node] = []
    inputs: list[str] = []
    roots: dict[int, str] = {}
    for one in executed.nodes:
        base = f"data_{one.number}" if one.is_given else f"{one.op.replace('.', '_')}_{one.number}"
        outputs = one.outputs or (Value(),)
        made = [base if not which else f"{base}_{which}" for which in range(len(outputs))]
        for which, (name, value) in enumerate(zip(made, outputs, strict=True)):
            names[one.number, which], values[name] = name, value
        if one.root is not None:
            roots[one.root] = made[0]
        if one.is_given:
            binding = "constant" if one.op == "Constant" else f"input {len(inputs)}"
            values[base] = Value(outputs[0].dtype, outputs[0].shape, binding)
            inputs.append(base)
            continue
        nodes.append(
            Node(
                name=base,
                op=one.op.replace(".", "_"),
                domain=one.domain,
                phase=_phase(one.location, optimizers),
                source=_source(one.location, script),
                stack=one.location,
                inputs=tuple(names[operand] for operand in one.operands if operand in names),
                outputs=tuple(made),
                attributes={name: value for name, value in one.tags.items() if name not in TECHNICAL},
            )
        )
    if updates and all(node.phase != "backward" for node in nodes):
        nodes = [replace(node, phase="optimizer") for node in nodes]
    return Graph(
        name="",
        mode="",
        stage="pre",
        phase=phase_of(nodes),
        step=step,
        nodes=tuple(nodes),
        values=values,
        inputs=tuple(inputs),
        outputs=tuple(dict.fromkeys(roots[place] for place in sorted(roots))),
        hash=executed.hash,
        notes=("modules, and which tensor of the script a value is, are not known in this mode",),
    )


def _phase(location: str, optimizers: set[str]) -> str:
    """Autograd makes its nodes in a thread without a Python frame, an optimizer in a file of torch.optim."""
    if not location or location.startswith("_make_grads@"):
        return "backward"
    return "optimizer" if location.partition("@")[2].partition(":")[0] in optimizers else "forward"


def _source(location: str, script: str) -> str:
    """The script's line, where the node was made in a frame of the script itself."""
    file, _, line = location.partition("@")[2].rpartition(":")
    return f"{script}:{line}" if file and file == Path(script).name else ""


def cut_of(executed: ExecutedIr, script: str) -> Cut:
    """Why a graph was executed where it was."""
    frames = executed.frames
    stack = "\n".join(f'  File "{one.file}", line {one.line}, in {one.function}' for one in frames[::-1])
    source = next((f"{one.file}:{one.line}" for one in frames if one.file == script), "")
    marked = any(one.function in SYNC_FUNCTIONS for one in frames)
    return Cut("mark_step" if marked else "read", "", source, stack)
