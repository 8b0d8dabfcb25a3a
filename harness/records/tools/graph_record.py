"""A graph from any source as data: nodes, edges, inputs and outputs. Schema 1.

    {"schema": 1, "name": "0-backward-pre", "mode": "compile", "stage": "pre", "phase": "backward", "step": 0,
     "nodes": [{"name": "mul_3", "domain": "aten", "op": "mul", "overload": "Tensor", ...}],
     "values": {"mul_3": {"dtype": "float32", "shape": [8, 16], "binding": ""}},
     "inputs": ["primals_1"], "outputs": ["mul_3"]}

An edge is a value. The node that lists it among its `outputs` computes it, and the nodes that list it among their
`inputs` take it. Empty fields are left out of the JSON; readers treat missing fields as empty.
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
"""The stages: dynamo's capture; the input of the mode's compiler; its output; ops as they were executed."""

PHASES = ("forward", "backward", "optimizer")


@dataclass(frozen=True, slots=True)
class Value:
    """The value of an edge.

    dtype: torch's name without `torch.`, "" if it is unknown
    shape: the sizes, a symbolic size as text; None if it is unknown
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

    name: unique in the graph
    op: the op's name, which never contains a dot
    domain: the op's namespace: `aten`, `prims`, `inductor`, `numdrift`, `torch`, `python` or `ts`
    module: the path from the outermost module, "" for the outermost module itself, None if it is unknown
    source: the script's line, `file:line`
    stack: the whole stack, outermost first
    sequence: the autograd sequence number, which a backward op shares with its forward op
    original: the op that this one was decomposed from (`aten.tanh_backward`), "" if it was called directly
    group: the same for all nodes of one decomposed call, "" without a decomposition
    inputs, input_names: the names of the values, and their names in the op's schema; a list argument repeats its name
    attributes: the arguments that are not values: text, whole numbers, floats, booleans or lists of those
    covers: the names of the pre graph's nodes that a kernel contains
    body: the ops in a kernel, with names that are unique within it
    code: a kernel's generated source
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
        """The full name, `aten.sum.dim_IntList`; the default overload is left out."""
        return ".".join(part for part in (self.domain, self.op, self.overload) if part)


@dataclass(frozen=True, slots=True)
class Cut:
    """The reason why a lazy graph ended where it did.

    reason: `mark_step`, `item`, `fallback` or `read`
    op: the op that fell back, such as `aten.lerp.Scalar`
    source: the script's line
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

    name: its name, and the stem of its files
    phase: the phases of its nodes in their order, joined by `+` (`forward+backward`)
    step: the step in which it was first seen
    hash: the same for graphs that the mode's compiler treats as one
    pre: the name of the graph from which a post graph was made
    seconds: the duration of its compilation, if it is known
    notes: what the capture could not determine
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
        """Read the record. Raises Unreadable for another schema and for data that is not a graph."""
        # checked before the fields, which may mean other things in another schema
        if not isinstance(data, Mapping) or data.get("schema") != SCHEMA:
            schema = data.get("schema") if isinstance(data, Mapping) else None
            raise Unreadable(f"schema {schema!r} is not known (known: {SCHEMA})")
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
# The process of the script appends lines; written lines survive a kill.

FOLDER = "graphs"
INDEX = "graphs.jsonl"
LAZY_DUMP = "lazy-graphs.txt"
"""The file that the lazy core dumps its graphs to while it runs; see `lazy_dump`."""


def lazy_dump(run: Path) -> dict[str, str]:
    """Return the variables that make the lazy core write each graph that it executes.

    The lazy core reads them once, when it executes its first graph.
    """
    return {"LTC_SAVE_TENSORS_FILE": str(run / FOLDER / LAZY_DUMP), "LTC_SAVE_TENSORS_FMT": "text"}


XLA_DUMP = "xla-graphs.txt"
"""The file that torch_xla dumps its graphs to while it runs; see `xla_ir`."""

XLA_MODULES = "NUMDRIFT_XLA_MODULES"
"""The variable with the folder for the modules that XLA compiles; it must be set before XLA's runtime starts."""


def xla_dump(run: Path) -> dict[str, str]:
    """Return the variables that make XLA write the modules that it compiles in mode `xla`."""
    return {XLA_MODULES: str(run / FOLDER / "xla-modules")}


def xla_modules() -> Path | None:
    """Return the folder where XLA writes the modules that it compiles in this process, None if there is none."""
    folder = os.environ.get(XLA_MODULES)
    return None if not folder else Path(folder)


class GraphFolder:
    """A writer of a run's graphs. `mode` is the name of the run's mode; the recorder of the graphs sets `step`."""

    def __init__(self, folder: Path, mode: str) -> None:
        self.path = folder
        self.mode = mode
        self.step = 0
        self._names: Counter[str] = Counter()
        self._closed = False
        folder.mkdir(parents=True, exist_ok=True)

    def reserve(self, phase: str) -> str:
        """Return a name for a graph of this step, without its stage: `0-backward`, then `0-backward-2` and so on.

        The stages of one graph share it: `0-backward-pre`, `0-backward-post`.
        """
        base = f"{self.step}-{phase or 'other'}"
        self._names[base] += 1
        return base if self._names[base] == 1 else f"{base}-{self._names[base]}"

    def write(self, graph: Graph) -> None:
        """Write a graph, whose name ends with its stage, and its line in the index. Raises OSError (disk full)."""
        if self._closed:
            return
        graph = replace(graph, mode=self.mode)  # a capture does not know the user's name for the mode
        # before its line in the index: a reader that knows the name finds all of it
        put(self.path / f"{graph.name}.json", json.dumps(graph.to_json(), separators=(",", ":")))
        facts = {name: getattr(graph, name) for name in ("name", "stage", "phase", "step", "hash", "pre", "seconds")}
        self._event("graph", **facts, nodes=len(graph.nodes), notes=list(graph.notes))

    def executed(self, graph: str, hash_: str = "", cut: Cut | None = None) -> None:
        """Record that a graph was executed in this step. `graph` is its reserved name, without a stage."""
        facts = None if cut is None else {"reason": cut.reason, "op": cut.op, "source": cut.source}
        self._event("executed", step=self.step, graph=graph, hash=hash_, cut=facts)

    def counters(self, values: Mapping[str, int]) -> None:
        """Record the counters of the mode's compiler in this step: `compiled`, `cached`, and the compiler's own."""
        self._event("counters", step=self.step, **values)

    def unavailable(self, stage: str, reason: str) -> None:
        """Record that graphs of a stage are not available, and why."""
        self._event("unavailable", stage=stage, reason=reason)

    def close(self) -> None:
        """Stop writing. Also called in a fork of the process."""
        self._closed = True

    def _event(self, event: str, **fields: Any) -> None:
        if not self._closed:
            append_event(self.path / INDEX, event, **fields)
