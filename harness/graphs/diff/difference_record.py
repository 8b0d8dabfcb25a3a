"""The result of `graph diff`, as data: the table, the JSON and the page all show this. Schema 1."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from ...records.graph_record import PHASES

SCHEMA = 1

MINOR_ROLES = ("fill", "view", "bookkeeping")
"""Roles of ops that change no number by themselves; they are shown only on request. An op that reads a copy may return
other bits, because the layout differs (see `layout_copies`)."""


def phase_place(phase: str) -> int:
    """Return the place of a phase in a step; a phase of another name comes last."""
    return PHASES.index(phase) if phase in PHASES else len(PHASES)


@dataclass(frozen=True, slots=True)
class GraphPlace:
    """A node: the graph that it is in, and its name there."""

    # `0-forward-pre` and `tanh_1`: their names in the run's files.
    graph: str
    node: str


@dataclass(frozen=True, slots=True)
class NodePair:
    """Nodes of A and nodes of B that do the same work. One node against one is kind `same` (the same op) or
    `replaced` (another op); one against several, or several against several, is `group`; with nothing on one
    side it is `only-a` or `only-b`. `by` names the criteria of the pairing: `module`, `source`, `sequence`, `data
    flow`, `kind`, joined by `, `. `what` is the op that the group represents (`aten.tanh_backward`)."""

    kind: str
    phase: str
    what: str
    a: Sequence[GraphPlace] = ()
    b: Sequence[GraphPlace] = ()
    by: str = ""
    module: str | None = None
    role: str = ""
    """The op's effect on numbers: `elementwise`, `reduction`, `product`, `cast`, `compute` (anything else that
    computes), `fill`, `view` or `bookkeeping`."""


@dataclass(frozen=True, slots=True)
class OpCount:
    """The counts of an op in one phase of one step on each side, under the names that the modes have for it.
    `role` is as in `NodePair`."""

    phase: str
    op: str
    a: int
    b: int
    role: str = ""


@dataclass(frozen=True, slots=True)
class Cast:
    """A dtype cast that only one side (`a` or `b`) has, `count` times."""

    side: str
    phase: str
    from_dtype: str
    to_dtype: str
    count: int
    places: Sequence[GraphPlace] = ()


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two runs: its graphs that were compared, in the order of their execution, the number of graphs
    that one step executed, and the causes of their cuts (`mark_step` -> 4, `fallback aten.lerp` -> 2)."""

    run: str
    mode: str
    step: int
    graphs: Sequence[str]
    post_graphs: Sequence[str]
    graphs_in_step: int
    cuts: Mapping[str, int]
    nodes: int
    kernels: int
    compiles: bool = True
    """False where the ops run one by one, and graphs are only stretches of one phase."""


@dataclass(frozen=True, slots=True)
class Diff:
    """`answers` are sentences, the most important one first."""

    # Every field is in the JSON by its name: a new name is a change of the schema.
    a: Side
    b: Side
    answers: Sequence[str]
    counts: Sequence[OpCount]
    pairs: Sequence[NodePair]
    casts: Sequence[Cast]
    post_changed: bool | None = None
    """True if the post graphs differ; None where they cannot be compared (other modes, or not captured)."""

    def to_json(self) -> dict[str, object]:
        """Return the record as plain JSON values, under the names of its fields."""
        return asdict(self)
