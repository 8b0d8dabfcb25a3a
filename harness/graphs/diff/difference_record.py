"""The result of `graph diff` as data, shown by the table, the JSON and the page. Schema 1."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from ...records.tools.graph_record import PHASES

SCHEMA = 1

MINOR_ROLES = ("fill", "view", "bookkeeping")
"""Roles of ops that change no number by themselves. These ops are shown only on request.

An op that reads a copy may still return different bits, because the copy has a different layout (see `layout_copies`).
"""


def phase_place(phase: str) -> int:
    """Return the position of a phase in a step; an unknown phase comes last."""
    return PHASES.index(phase) if phase in PHASES else len(PHASES)


@dataclass(frozen=True, slots=True)
class GraphPlace:
    """The place of a node: the name of its graph, and the node's name in that graph."""

    # As in the run's files, for example `0-forward-pre` and `tanh_1`.
    graph: str
    node: str


@dataclass(frozen=True, slots=True)
class NodePair:
    """Nodes of A and nodes of B that do the same work.

    kind: `same` (one node against one node of the same op), `replaced` (one node against one node of a different op),
        `group` (one node against several, or several against several), or `only-a` and `only-b` (nothing on the other
        side)
    what: the op that the nodes represent (`aten.tanh_backward`)
    by: the criteria of the pairing, joined by `, `: `module`, `source`, `sequence`, `data flow`, `kind`
    """

    kind: str
    phase: str
    what: str
    a: Sequence[GraphPlace] = ()
    b: Sequence[GraphPlace] = ()
    by: str = ""
    module: str | None = None
    role: str = ""
    """The op's effect on numbers.

    It is `elementwise`, `reduction`, `product`, `cast`, `compute` (anything else that computes), `fill`, `view` or
    `bookkeeping`.
    """


@dataclass(frozen=True, slots=True)
class OpCount:
    """The counts of an op on each side in one phase of one step, over all spellings of the op.

    `role` is as in `NodePair`.
    """

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
    """One of the two runs.

    graphs: the graphs that were compared, in the order of their execution
    graphs_in_step: the number of graphs that the step executed
    cuts: the causes that ended the step's graphs, with their counts (`mark_step` -> 4, `fallback aten.lerp` -> 2)
    """

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
    """False if ops run one by one and a graph is only a stretch of one phase."""


@dataclass(frozen=True, slots=True)
class Diff:
    """The difference between the graphs of two runs. `answers` are sentences, the most important one first."""

    # Every field appears in the JSON under its name, so renaming a field changes the schema.
    a: Side
    b: Side
    answers: Sequence[str]
    counts: Sequence[OpCount]
    pairs: Sequence[NodePair]
    casts: Sequence[Cast]
    post_changed: bool | None = None
    """True if the post graphs differ; None if they cannot be compared (different compilers, or a side has none)."""

    def to_json(self) -> dict[str, object]:
        """Return the record as plain JSON values, under the names of its fields."""
        return asdict(self)
