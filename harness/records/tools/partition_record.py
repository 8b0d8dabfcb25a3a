"""A partition as reports show it (the operators, the subgraphs and their devices), and the limits of a partition."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from ...errors import UsageError
from ..codec import of_fields, read_fields
from ..modes.mode_spec import ModeSpec

CPU = "CPU"
"""The name, in reports, of the device that executes the operators that the backend does not receive."""

Phase = Literal["forward", "backward"]


@dataclass(frozen=True, slots=True)
class PartitionedOperator:
    """The operators of a graph that agree in kind, configuration and line.

    `reason` and `failure_at` say why the backend does not receive the operators. `moved` is true if they are on the CPU
    because `ops_to_partition` names their kind.
    """

    UNKNOWN_IS_IGNORED: ClassVar[bool] = True  # values derived from the fields are written beside them

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
    """A subgraph, with the number of its operators by kind.

    `number` is the subgraph's position in the order of execution, counted from 1.
    """

    UNKNOWN_IS_IGNORED: ClassVar[bool] = True  # values derived from the fields are written beside them

    number: int
    device: str
    operators: Mapping[str, int]

    @property
    def size(self) -> int:
        return sum(self.operators.values())


@dataclass(frozen=True, slots=True)
class GraphPartition:
    """The partition of one graph.

    graph: the graph's number among the captured graphs of the process, from 0
    as_written: true if the operators are those that the module calls (`aten::linear`) or, in a backward, that autograd
        calls; false if they are those that these calls dispatch to
    violated: the limit that the partition violates, "" if it violates none
    """

    UNKNOWN_IS_IGNORED: ClassVar[bool] = True  # values derived from the fields are written beside them

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

    def to_json(self) -> dict[str, object]:
        return of_fields(self) | {
            "supported": self.supported,
            "total": self.total,
            "percentage": round(self.percentage, 2),
            "operators": [of_fields(row) | {"supported": row.supported} for row in self.operators],
            "subgraphs": [of_fields(row) | {"size": row.size} for row in self.subgraphs],
        }

    @classmethod
    def from_json(cls, data: Any) -> GraphPartition:
        """Read a partition. Raises Unreadable."""
        return read_fields(cls, data)


@dataclass(slots=True)
class Partitioning:
    """All graphs of a module that have been partitioned so far.

    Graphs are added later: a module has different graphs for different shapes, and for training and evaluation.
    """

    backend: str
    graphs: list[GraphPartition] = field(default_factory=list)

    def of_phase(self, phase: Phase) -> list[GraphPartition]:
        return [graph for graph in self.graphs if graph.phase == phase]

    @property
    def kinds(self) -> frozenset[str]:
        return frozenset(row.kind for graph in self.graphs for row in graph.operators)


# The limits of a partition.

UNLIMITED = -1

OF_PROCESS = ("dtype", "threads", "seed", "python", "timeout", "env")
"""The keys of a mode that belong to the whole process, not to the backend. All other keys belong to the backend."""


@dataclass(frozen=True, slots=True)
class PartitionConfig:
    """The limits of a partition, and operators that go to the CPU although the backend supports them.

    min_operator_percentage_threshold: the smallest fraction (0 to 1) of a graph's operators that the backend must
        support
    min_subgraph_size: the smallest number of operators in a subgraph; -1 means no limit
    max_subgraph_count: the largest number of subgraphs in a graph; -1 means no limit
    ops_to_partition: the names of operators that go to the CPU, such as `aten::log_softmax`; the ops that autograd
        derives from these operators go to the CPU too

    A forward and its backward are two graphs, and each must be within the limits. Raises UsageError for an invalid
    limit.
    """

    min_operator_percentage_threshold: float = 0.0
    min_subgraph_size: int = UNLIMITED
    max_subgraph_count: int = UNLIMITED
    ops_to_partition: Iterable[str] = frozenset()

    def __post_init__(self) -> None:
        threshold = self.min_operator_percentage_threshold
        if not 0 <= threshold <= 1:
            raise UsageError(
                f"min_operator_percentage_threshold must be from 0 to 1 (0.8 means 80 %), not {threshold:g}"
            )
        for name in ("min_subgraph_size", "max_subgraph_count"):
            value = getattr(self, name)
            if value != UNLIMITED and value < 1:
                raise UsageError(f"{name} must be at least 1, or -1 for no limit, not {value}")
        if isinstance(self.ops_to_partition, str):
            raise UsageError(
                f"ops_to_partition must be a set of names such as {{{self.ops_to_partition!r}}}, not a string"
            )
        object.__setattr__(self, "ops_to_partition", frozenset(map(operator_name, self.ops_to_partition)))

    @property
    def moved(self) -> frozenset[str]:
        """The operators of `ops_to_partition`, each as `aten::name`."""
        return frozenset(self.ops_to_partition)

    def to_json(self) -> dict[str, object]:
        return of_fields(self) | {"ops_to_partition": sorted(self.moved)}

    @classmethod
    def from_json(cls, data: Any) -> PartitionConfig:
        """Read the limits. Raises Unreadable."""
        return read_fields(cls, data)


def refuse_swaps(spec: ModeSpec) -> None:
    """Raise UsageError for a mode that swaps kernels: the backend would not be asked about the swapped ops."""
    if spec.kernel or spec.decompose:
        raise UsageError(
            f"mode {spec.name!r}: a partition cannot swap kernels; omit the keys that begin with kernel. or decompose."
        )


def operator_name(text: str) -> str:
    """Return an operator's name as reports show it: `aten::sum` for `sum`, `aten.sum` and `aten::sum.dim_IntList`."""
    space, separator, qualified = text.strip().partition("::")
    if not separator:
        space, qualified = "aten", text.strip().removeprefix("torch.ops.").removeprefix("aten.")
    name = qualified.partition(".")[0]
    if not (space and name):
        raise UsageError(f"{text!r} names no operator; write a name such as aten::log_softmax")
    return f"{space}::{name}"
