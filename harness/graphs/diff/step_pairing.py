"""What one step of a run executed: its graphs of ops, as often as they ran, in one order for all modes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cache

from ...errors import GraphsNotFound
from ...records.graph_record import PHASES, Graph
from ..run_graphs import GraphEntry, GraphExecution, RunGraphs
from .difference_record import Side

OPS = ("pre", "stream")


@dataclass(frozen=True, slots=True)
class Executed:
    """A graph that ran. `turn` counts the forwards of the step before it: SAM's second forward, and the
    backward and optimizer step that follow it, are of turn 1."""

    graph: Graph
    turn: int


@dataclass(frozen=True, slots=True)
class ExecutedStep:
    """What a side executed in one step. `ops` are graphs of stage `pre` and `stream`, `post` the compiled ones;
    `streams` are the names, without their stage, of what ran outside of compiled regions."""

    step: int
    ops: Sequence[Executed]
    post: Sequence[Graph]
    executions: Sequence[GraphExecution]
    streams: Collection[str]

    def side(self, of: RunGraphs) -> Side:
        cuts = Counter(" ".join(filter(None, (one["reason"], one.get("op", "")))) for one in self._cuts())
        pre = [one for one in self.ops if one.graph.stage == "pre"]
        kernels = [node for graph in self.post for node in graph.nodes]
        return Side(
            run=str(of.run.path),
            mode=of.run.manifest.mode,
            step=self.step,
            graphs=tuple(dict.fromkeys(one.graph.name for one in self.ops)),
            post_graphs=tuple(dict.fromkeys(graph.name for graph in self.post)),
            graphs_in_step=sum(one.graph not in self.streams for one in self.executions) or len(pre),
            cuts=dict(sorted(cuts.items(), key=lambda item: (-item[1], item[0]))),
            nodes=sum(len(one.graph.nodes) for one in self.ops),
            kernels=len(kernels),
            compiles=bool(self.post or cuts or of.counters),
        )

    def _cuts(self) -> list[dict[str, str]]:
        return [dict(one.cut) for one in self.executions if one.cut]


def common_step(a: RunGraphs, b: RunGraphs) -> int:
    """The lowest step that both sides executed. Raises GraphsNotFound."""
    steps_a, steps_b = steps_of(a), steps_of(b)
    if common := steps_a & steps_b:
        return min(common)
    raise GraphsNotFound(
        f"{a.run.path} has graphs of {_listed(steps_a)} and {b.run.path} of {_listed(steps_b)}: "
        "record both with the same --graph-steps"
    )


def steps_of(graphs: RunGraphs) -> set[int]:
    """The steps in which graphs of ops were captured or executed."""
    known = {one.base for one in graphs.entries if one.stage in OPS}
    return {one.step for one in graphs.entries if one.stage in OPS} | {
        one.step for one in graphs.executions if one.graph in known
    }


def executed_step(graphs: RunGraphs, step: int) -> ExecutedStep:
    """Read what a step executed. Raises GraphsNotFound, saying which steps there are."""
    if step not in steps_of(graphs):
        raise GraphsNotFound(
            f"{graphs.run.path} has no graph of step {step}: it has those of {_listed(steps_of(graphs))}"
        )
    executions = [one for one in graphs.executions if one.step == step]
    read = cache(graphs.graph)
    ops: list[Executed] = []
    for stage in OPS:
        ops += _with_turns([read(entry.name) for entry in _run(graphs, step, stage, executions)])
    ops.sort(key=lambda one: (one.turn, _rank(one.graph)))
    post = [read(entry.name) for entry in _run(graphs, step, "post", executions)]
    streams = {entry.base for entry in graphs.entries if entry.stage == "stream"}
    return ExecutedStep(step, ops, post, executions, streams)


def _run(graphs: RunGraphs, step: int, stage: str, executions: Sequence[GraphExecution]) -> list[GraphEntry]:
    """The graphs of a stage as often as they were executed; one whose executions nobody noted, once."""
    of_base = {entry.base: entry for entry in graphs.entries if entry.stage == stage}
    noted = {one.graph for one in graphs.executions}
    ran = [of_base[one.graph] for one in executions if one.graph in of_base]
    return ran + [entry for entry in of_base.values() if entry.step == step and entry.base not in noted]


def _with_turns(graphs: Sequence[Graph]) -> list[Executed]:
    made, turn, behind = [], 0, False
    for graph in graphs:
        forward = "forward" in graph.phases
        if forward and behind:
            turn, behind = turn + 1, False
        behind = behind or not forward or len(graph.phases) > 1
        made.append(Executed(graph, turn))
    return made


def _rank(graph: Graph) -> int:
    first = graph.phases[0] if graph.phases else ""
    return PHASES.index(first) if first in PHASES else len(PHASES)


def _listed(steps: set[int]) -> str:
    if not steps:
        return "no step"
    return ("steps " if len(steps) > 1 else "step ") + ", ".join(map(str, sorted(steps)))
