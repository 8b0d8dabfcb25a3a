"""The record of a partitioned process: `partition.jsonl`, one JSON object per line.

    {"event": "backend", "schema": 1, "mode": "compile", "backend": "inductor"}
    {"event": "graph", "graph": 0, "phase": "forward", "module": "MLP", "operators": [...], "subgraphs": [...], ...}
    {"event": "note", "text": "..."}
    {"event": "check", "what": "output", "name": "0", "identical": true, "largest": 0.0, "scale": 1.0}
    {"event": "calls", "calls": [[0, 3, "aten::tanh", "train.py:12", "net.1"], ...]}
    {"event": "bisection", "whole": 4.8e-07, "asked": 7, "carriers": [{"operators": [...], "alone": ..., ...}]}
    {"event": "failed", "message": "...", "exit_code": 2}
    {"event": "end"}

A process that partitions only chosen calls writes the event `calls`. Each call has its graph's number, its number in
that graph, the operator, the line and the module. A graph's event is written when the graph is partitioned, even if it
breaks a limit. Events survive a kill; a record with neither `end` nor `failed` comes from a process that was killed.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from ...errors import JournalError
from ...records.frames import append_event, complete_events
from ...records.tools.partition_record import GraphPartition

PARTITION = "partition.jsonl"
SCHEMA = 1

Part = tuple[int, int]
"""An operator of a module together with its gradient: a part that can be put on a backend on its own.

It is identified by the captured graph's number and the call's number in that graph.
"""


class PartCall(NamedTuple):
    """The identity of a part.

    operator: the operator as the script wrote it
    line: the line that calls the operator
    module: path of the module that calls the operator; "" for the outermost module
    """

    operator: str
    line: str
    module: str


@dataclass(frozen=True, slots=True)
class TensorCheck:
    """The comparison of a tensor of the partitioned module with the same tensor of the unpartitioned module.

    what: output or gradient
    largest: largest absolute difference
    scale: largest absolute value
    """

    what: str
    name: str
    identical: bool
    largest: float
    scale: float

    @property
    def relative(self) -> float:
        return self.largest / self.scale if self.scale else self.largest


@dataclass(frozen=True, slots=True)
class CarrierRow:
    """Operators that carry a module's drift.

    alone: drift with only these operators on the backend
    without: drift with all other operators on the backend

    A drift is the largest difference in an output or gradient, relative to the largest value of that tensor.
    """

    operators: tuple[PartCall, ...]
    alone: float
    without: float


@dataclass(frozen=True, slots=True)
class BisectionRecord:
    """The result of `--bisect`.

    whole: drift with everything on the backend
    count: number of partitions that were executed
    """

    whole: float
    count: int
    carriers: tuple[CarrierRow, ...]


class PartitionWriter:
    """Appends events up to `end`. After `forget` it writes nothing."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._closed = False

    def write(self, event: str, **fields: Any) -> None:
        if not self._closed:
            append_event(self._path, event, **fields)
            self._closed = event == "end"  # modules of the script may live on and be partitioned again

    def begin(self, mode: str, backend: str) -> None:
        self.write("backend", schema=SCHEMA, mode=mode, backend=backend)

    def failed(self, message: str, exit_code: int) -> None:
        self.write("failed", message=message, exit_code=exit_code)

    def forget(self) -> None:
        self._closed = True


@dataclass(slots=True)
class PartitionRecord:
    """The record of one process. `whole` is false if the process wrote no `end`, because it failed or was killed."""

    mode: str = ""
    backend: str = ""
    graphs: list[GraphPartition] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    checks: list[TensorCheck] = field(default_factory=list)
    calls: dict[Part, PartCall] = field(default_factory=dict)
    bisection: BisectionRecord | None = None
    failure: str = ""
    exit_code: int = 0
    whole: bool = False

    @property
    def violated(self) -> str:
        """The limit that the first offending graph breaks, or "" if none does."""
        return next((graph.violated for graph in self.graphs if graph.violated), "")

    def to_json(self) -> dict[str, object]:
        return {
            "schema": SCHEMA,
            "mode": self.mode,
            "backend": self.backend,
            "whole": self.whole,
            "violated": self.violated,
            "failure": self.failure,
            "graphs": [graph.to_json() for graph in self.graphs],
            "notes": self.notes,
            "checks": [asdict(check) for check in self.checks],
            "bisection": None if self.bisection is None else asdict(self.bisection),
        }


def read_partition(path: Path) -> PartitionRecord:
    """Read the record of a process. If it wrote nothing, the record is empty. Raises JournalError if it is damaged."""
    record = PartitionRecord()
    try:
        for event in complete_events(path) if path.exists() else ():
            kind = event["event"]
            if kind == "backend":
                record.mode, record.backend = event["mode"], event["backend"]
            elif kind == "graph":
                record.graphs.append(GraphPartition.from_json(event))
            elif kind == "note":
                record.notes.append(event["text"])
            elif kind == "check":
                # by name: a later version may write more fields
                record.checks.append(TensorCheck(**{name: event[name] for name in TensorCheck.__dataclass_fields__}))
            elif kind == "calls":
                record.calls = {(graph, number): PartCall(*call) for graph, number, *call in event["calls"]}
            elif kind == "bisection":
                carriers = [
                    CarrierRow(
                        tuple(PartCall(*call) for call in carrier["operators"]), carrier["alone"], carrier["without"]
                    )
                    for carrier in event["carriers"]
                ]
                record.bisection = BisectionRecord(event["whole"], event["asked"], tuple(carriers))
            elif kind == "failed":
                record.failure, record.exit_code = event["message"], event["exit_code"]
            elif kind == "end":
                record.whole = True
    except (KeyError, TypeError, ValueError) as error:
        raise JournalError(path, f"is not a record of a partition ({error})") from error
    return record
