"""What a partition is, as reports show it: operators, subgraphs, and where each runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from .codec import of_fields, read_fields

CPU = "CPU"
"""The device of operators that the backend is not given, as reports name it."""

Phase = Literal["forward", "backward"]


@dataclass(frozen=True, slots=True)
class PartitionedOperator:
    """Operators of one kind, configuration and line. `reason` and `failure_at` say why the backend does not have them;
    `moved` that they are on the CPU because they were named in `ops_to_partition`."""

    UNKNOWN_IS_IGNORED: ClassVar[bool] = True  # what follows from the fields is written beside them

    kind: str
    configuration: str
    call: str
    count: int
    device: str
    reason: str = ""
    failure_at: str = ""
    moved: bool = False

    @property
    def supported(self) -> bool:
        return not self.reason


@dataclass(frozen=True, slots=True)
class SubgraphRow:
    """One subgraph, `number` in the order of execution from 1, with its operators by kind."""

    UNKNOWN_IS_IGNORED: ClassVar[bool] = True  # what follows from the fields is written beside them

    number: int
    device: str
    operators: Mapping[str, int]

    @property
    def size(self) -> int:
        return sum(self.operators.values())


@dataclass(frozen=True, slots=True)
class GraphPartition:
    """How one graph is partitioned; `graph` numbers the captured graphs of a process from 0.

    `as_written` says that operators are counted as the module calls them (`aten::linear`); those of a
    backward are counted as autograd calls them. `violated` is what the limits have against it."""

    UNKNOWN_IS_IGNORED: ClassVar[bool] = True  # what follows from the fields is written beside them

    graph: int
    phase: Phase
    module: str
    as_written: bool
    operators: tuple[PartitionedOperator, ...]
    subgraphs: tuple[SubgraphRow, ...]
    violated: str = ""

    @property
    def total(self) -> int:
        return sum(row.count for row in self.operators)

    @property
    def supported(self) -> int:
        return sum(row.count for row in self.operators if row.supported)

    @property
    def percentage(self) -> float:
        return 100.0 * self.supported / self.total if self.total else 100.0

    def to_json(self) -> dict[str, Any]:
        return of_fields(self) | {
            "supported": self.supported,
            "total": self.total,
            "percentage": round(self.percentage, 2),
            "operators": [of_fields(row) | {"supported": row.supported} for row in self.operators],
            "subgraphs": [of_fields(row) | {"size": row.size} for row in self.subgraphs],
        }

    @classmethod
    def from_json(cls, data: Any) -> GraphPartition:
        """Raises Unreadable."""
        return read_fields(cls, data)


@dataclass(slots=True)
class Partitioning:
    """All graphs of a module that were partitioned so far. It grows: with other shapes, or in training and
    evaluation, a module has other graphs."""

    backend: str
    graphs: list[GraphPartition] = field(default_factory=list)

    def of_phase(self, phase: Phase) -> list[GraphPartition]:
        return [one for one in self.graphs if one.phase == phase]

    @property
    def kinds(self) -> frozenset[str]:
        return frozenset(row.kind for one in self.graphs for row in one.operators)
