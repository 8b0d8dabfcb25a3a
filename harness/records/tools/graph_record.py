"""A graph from any source, as data: nodes, edges, inputs and outputs. Schema 1.

    {"schema": 1, "name": "0-backward-pre", "mode": "compile", "stage": "pre", "phase": "backward", "step": 0,
     "nodes": [{"name": "mul_3", "domain": "aten", "op": "mul", "overload": "Tensor", ...}],
     "values": {"mul_3": {"dtype": "float32", "shape": [8, 16], "binding": ""}},
     "inputs": ["primals_1"], "outputs": ["mul_3"]}

An edge is a value. The node that lists the value among its `outputs` computes it, and the nodes that list it among
their `inputs` read it. Empty fields are left out of the JSON; readers treat missing fields as empty.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

from ..codec import Unreadable, of_fields, put, read_fields
from ..frames import append_event

SCHEMA = 1

STAGES = ("dynamo", "pre", "post", "stream")
"""The stages: dynamo's capture; the compiler's input; the compiler's output; ops in the order of their execution."""

PHASES = ("forward", "backward", "optimizer")


@dataclass(frozen=True, slots=True)
class Value:
    """The value of an edge.

    dtype: torch's name of the dtype without `torch.`, "" if the dtype is unknown
    shape: the sizes, with symbolic sizes as text; None if the shape is unknown
    binding: the role of an input or output in the script: `parameter net.0.weight`, `buffer bn.running_mean`, `gradient
        net.0.weight`, `state net.0.weight.exp_avg` (of an optimizer), `loss`, `input 0`, `output 0`, `tangent 0` (a
        gradient that enters a backward graph), `saved tanh` (from forward to backward), `size s0` or `constant`;
        several roles are joined by `, `
    """

    EMPTY_IS_LEFT_OUT: ClassVar[bool] = True

    dtype: str = ""
    shape: tuple[int | str, ...] | None = None
    binding: str = ""


@dataclass(frozen=True, slots=True)
class Node:
    """An op, or a kernel.

    name: the node's name, which is unique in the graph
    op: the op's name, which never contains a dot
    domain: the op's namespace: `aten`, `prims`, `inductor`, `numdrift`, `torch`, `python` or `ts`
    module: the module's path from the outermost module, "" for the outermost module itself, None if it is unknown
    source: the script's line, `file:line`
    stack: the whole Python stack, outermost first
    sequence: the autograd sequence number, which a backward op shares with its forward op
    original: the op from which this op was decomposed (`aten.tanh_backward`), "" if the script called this op itself
    group: a name that all nodes of one decomposed call share, "" if the call was not decomposed
    inputs, input_names: the names of the values that the node reads, and the names of the parameters in the op's schema
        that receive them; each value of a list has the name of the list's parameter
    attributes: the arguments that are not values: text, whole numbers, floats, booleans or lists of those
    covers: for a kernel, the names of the nodes of the pre graph that it computes
    body: for a kernel, the ops in it, with names that are unique within the kernel
    code: for a kernel, the generated source
    """

    EMPTY_IS_LEFT_OUT: ClassVar[bool] = True

    name: str
    op: str
    domain: str = "aten"
    overload: str = ""
    phase: str = ""
    module: str | None = None
    source: str = ""
    stack: str = ""
    sequence: int | None = None
    original: str = ""
    group: str = ""
    inputs: tuple[str, ...] = ()
    input_names: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    attributes: Mapping[str, Any] = field(default_factory=dict)
    covers: tuple[str, ...] = ()
    body: tuple[Node, ...] = ()
    code: str = ""

    @property
    def full_op(self) -> str:
        """The op's full name, such as `aten.sum.dim_IntList`; the default overload is left out."""
        return ".".join(part for part in (self.domain, self.op, self.overload) if part)


@dataclass(frozen=True, slots=True)
class Cut:
    """The reason why a lazy graph ended where it did.

    reason: `mark_step`, `item`, `fallback` or `read`
    op: for `fallback`, the op that fell back, such as `aten.lerp.Scalar`
    source: the script's line at which the graph ended
    stack: the Python stack, outermost first
    """

    EMPTY_IS_LEFT_OUT: ClassVar[bool] = True

    reason: str
    op: str = ""
    source: str = ""
    stack: str = ""


@dataclass(frozen=True, slots=True)
class Graph:
    """A graph at one stage.

    name: the graph's name, which is also the stem of its files
    phase: the phases of the nodes in order of appearance, joined by `+` (`forward+backward`)
    step: the step in which the graph was first seen
    hash: equal for graphs that the mode's compiler treats as one graph
    pre: for a post graph, the name of the graph that the compiler received
    cut: for a lazy graph, the reason why it ended
    seconds: the duration of the graph's compilation, None if it is unknown
    notes: descriptions of what the capture could not determine
    """

    EMPTY_IS_LEFT_OUT: ClassVar[bool] = True

    name: str
    mode: str
    stage: str
    phase: str
    step: int
    nodes: tuple[Node, ...]
    values: Mapping[str, Value] = field(default_factory=dict)
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    hash: str = ""
    pre: str = ""
    cut: Cut | None = None
    seconds: float | None = None
    notes: tuple[str, ...] = ()
    code: str = ""
    schema: int = SCHEMA

    @property
    def phases(self) -> tuple[str, ...]:
        return tuple(self.phase.split("+")) if self.phase else ()

    def to_json(self) -> dict[str, Any]:
        return {"schema": self.schema, **of_fields(self)}

    @classmethod
    def from_json(cls, data: Any) -> Graph:
        """Read the record. Raises Unreadable for a different schema and for data that is not a graph."""
        # checked before the fields are read, since they may have different meanings in a different schema
        if not isinstance(data, Mapping) or data.get("schema") != SCHEMA:
            schema = data.get("schema") if isinstance(data, Mapping) else None
            raise Unreadable(f"schema {schema!r} is unknown (known: {SCHEMA})")
        return read_fields(cls, data)


def phase_of(nodes: Sequence[Node]) -> str:
    """Return the phases of these nodes, joined by `+`, in the order of their first appearance."""
    return "+".join(dict.fromkeys(node.phase for node in nodes if node.phase))


# The graphs of a run on disk: `graphs/graphs.jsonl`, one line per event, and one JSON file per graph.
#
#     {"event": "graph", "name": "0-backward-pre", "stage": "pre", "phase": "backward", "step": 0, "nodes": 31, ...}
#     {"event": "executed", "step": 0, "graph": "0-backward-pre", "hash": "...", "cut": {...}}
#     {"event": "counters", "step": 0, "compiled": 4, "cached": 0, ...}
#     {"event": "unavailable", "stage": "post", "reason": "..."}
#
# The process of the script appends the lines. Written lines survive a kill of the process.

FOLDER = "graphs"
INDEX = "graphs.jsonl"
LAZY_DUMP = "lazy-graphs.txt"
"""The file to which the lazy core writes its graphs while it runs; see backends/lazy/lazy_dump.py."""


def lazy_dump(run: Path) -> dict[str, str]:
    """Return the environment variables that make the lazy core write each graph that it executes.

    The lazy core reads the variables once, when it executes its first graph.
    """
    return {"LTC_SAVE_TENSORS_FILE": str(run / FOLDER / LAZY_DUMP), "LTC_SAVE_TENSORS_FMT": "text"}


XLA_DUMP = "xla-graphs.txt"
"""The file to which torch_xla writes its graphs while it runs; see backends/xla/xla_ir.py."""

XLA_MODULES = "NUMDRIFT_XLA_MODULES"
"""The environment variable with the folder for the HLO modules that XLA compiles.

It must be set before XLA's runtime starts."""


def xla_dump(run: Path) -> dict[str, str]:
    """Return the environment variables that make XLA write the HLO modules that it compiles in mode `xla`."""
    return {XLA_MODULES: str(run / FOLDER / "xla-modules")}


def xla_modules() -> Path | None:
    """Return the folder to which XLA writes the HLO modules that it compiles in this process; None if there is none."""
    folder = os.environ.get(XLA_MODULES)
    return None if not folder else Path(folder)


class GraphFolder:
    """A writer of a run's graphs.

    `mode` is the name of the run's mode. The observer that records the graphs sets `step` to the current step.
    """

    def __init__(self, folder: Path, mode: str) -> None:
        self.path = folder
        self.mode = mode
        self.step = 0
        self._names: Counter[str] = Counter()
        self._closed = False
        folder.mkdir(parents=True, exist_ok=True)

    def reserve(self, phase: str) -> str:
        """Return a name for a graph of this step, without a stage: `0-backward`, then `0-backward-2` and so on.

        The names of a graph's stages begin with this name: `0-backward-pre`, `0-backward-post`.
        """
        base = f"{self.step}-{phase or 'other'}"
        self._names[base] += 1
        return base if self._names[base] == 1 else f"{base}-{self._names[base]}"

    def write(self, graph: Graph) -> None:
        """Write a graph, whose name must end with its stage, and its line in the index.

        Raises OSError, for example if the disk is full.
        """
        if self._closed:
            return
        graph = replace(graph, mode=self.mode)  # a capture does not know the user's name for the mode
        # written before its line in the index, so that a reader who finds the line finds the whole graph
        put(self.path / f"{graph.name}.json", json.dumps(graph.to_json(), separators=(",", ":")))
        facts = {name: getattr(graph, name) for name in ("name", "stage", "phase", "step", "hash", "pre", "seconds")}
        self._event("graph", **facts, nodes=len(graph.nodes), notes=list(graph.notes))

    def executed(self, graph: str, hash_: str = "", cut: Cut | None = None) -> None:
        """Record that a graph was executed in this step. `graph` is the name from `reserve`, without a stage."""
        facts = None if cut is None else {"reason": cut.reason, "op": cut.op, "source": cut.source}
        self._event("executed", step=self.step, graph=graph, hash=hash_, cut=facts)

    def counters(self, values: Mapping[str, int]) -> None:
        """Record the counters of the mode's compiler in this step: `compiled`, `cached`, and others of the compiler."""
        self._event("counters", step=self.step, **values)

    def unavailable(self, stage: str, reason: str) -> None:
        """Record that graphs of a stage are not available, and why."""
        self._event("unavailable", stage=stage, reason=reason)

    def close(self) -> None:
        """Stop writing. A fork of the process calls this too."""
        self._closed = True

    def _event(self, event: str, **fields: Any) -> None:
        if not self._closed:
            append_event(self.path / INDEX, event, **fields)
