"""What a partition must keep to."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ..errors import UsageError
from .codec import of_fields, read_fields
from .mode_spec import ModeSpec

UNLIMITED = -1

OF_PROCESS = ("dtype", "threads", "seed", "python", "timeout", "env")
"""Keys of a mode that its process has, whatever executes the model; the others are those of the backend."""


@dataclass(frozen=True, slots=True)
class PartitionConfig:
    """Limits of a partition, and operators that go to the CPU although the backend has them.

    `min_operator_percentage_threshold` is the least fraction (0 to 1) of a graph's operators that the backend must
    support, `min_subgraph_size` the least number of operators in any subgraph, `max_subgraph_count` the most subgraphs
    in a graph; -1 is no limit. `ops_to_partition` are operators by name, `aten::log_softmax`; what autograd makes of
    them goes with them.

    A forward and its backward are two graphs, and each must keep to the limits. Raises UsageError for what is no limit.
    """

    min_operator_percentage_threshold: float = 0.0
    min_subgraph_size: int = UNLIMITED
    max_subgraph_count: int = UNLIMITED
    ops_to_partition: Iterable[str] = frozenset()

    def __post_init__(self) -> None:
        threshold = self.min_operator_percentage_threshold
        if not 0 <= threshold <= 1:
            raise UsageError(
                f"min_operator_percentage_threshold is a fraction from 0 to 1, as 0.8 for 80 %, not {threshold:g}"
            )
        for name in ("min_subgraph_size", "max_subgraph_count"):
            value = getattr(self, name)
            if value != UNLIMITED and value < 1:
                raise UsageError(f"{name} is a number of at least 1, or -1 for no limit, not {value}")
        if isinstance(self.ops_to_partition, str):
            raise UsageError(f"ops_to_partition is a set of names, as {{{self.ops_to_partition!r}}}, not one text")
        object.__setattr__(self, "ops_to_partition", frozenset(map(operator_name, self.ops_to_partition)))

    @property
    def moved(self) -> frozenset[str]:
        """`ops_to_partition`, each as `aten::name`."""
        return frozenset(self.ops_to_partition)

    def to_json(self) -> dict[str, Any]:
        return of_fields(self) | {"ops_to_partition": sorted(self.moved)}

    @classmethod
    def from_json(cls, data: Any) -> PartitionConfig:
        """Raises Unreadable."""
        return read_fields(cls, data)


def refuse_swaps(spec: ModeSpec) -> None:
    """Raise UsageError for a mode whose kernels are swapped: its backend would not be asked of them."""
    if spec.kernel or spec.decompose:
        raise UsageError(f"mode {spec.name!r}: a partition has no swapped kernels; leave kernel. and decompose. out")


def operator_name(text: str) -> str:
    """An operator as reports have it: `aten::sum` of `sum`, `aten.sum` and `aten::sum.dim_IntList`."""
    space, separator, rest = text.strip().partition("::")
    if not separator:
        space, rest = "aten", text.strip().removeprefix("torch.ops.").removeprefix("aten.")
    name = rest.partition(".")[0]
    if not (space and name):
        raise UsageError(f"{text!r} names no operator; give its name, as aten::log_softmax")
    return f"{space}::{name}"
