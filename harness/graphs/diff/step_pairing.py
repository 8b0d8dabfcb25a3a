"""What one step of a run executed: its graphs of ops, as often as they ran, in one order for all modes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass
from functools import cache

from ...errors import GraphsNotFound
from ...records.graph_record import Graph
from ..run_graphs import GraphEntry, GraphExecution, RunGraphs
from .difference_record import Side, phase_place

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
        noted = [one.cut for one in self.executions if one.cut]
        cuts = Counter(" ".join(filter(None, (one["reason"], one.get("op", "")))) for one in noted)
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
        # A forward that comes after something else begins a turn: SAM's second one, or a second micro-batch.
        turn, behind = 0, False
        for entry in _run(graphs, step, stage, executions):
            graph = read(entry.name)
            forward = "forward" in graph.phases
            if forward and behind:
                turn, behind = turn + 1, False
            behind = behind or not forward or len(graph.phases) > 1
            ops.append(Executed(graph, turn))
    # Streams and compiled graphs are noted apart; within a turn their phases say what came first.
    ops.sort(key=lambda one: (one.turn, phase_place(next(iter(one.graph.phases), ""))))
    post = [read(entry.name) for entry in _run(graphs, step, "post", executions)]
    streams = {entry.base for entry in graphs.entries if entry.stage == "stream"}
    return ExecutedStep(step, ops, post, executions, streams)


def _run(graphs: RunGraphs, step: int, stage: str, executions: Sequence[GraphExecution]) -> list[GraphEntry]:
    """The graphs of a stage as often as they were executed; one whose executions nobody noted, once."""
    of_base = {entry.base: entry for entry in graphs.entries if entry.stage == stage}
    noted = {one.graph for one in graphs.executions}
    ran = [of_base[one.graph] for one in executions if one.graph in of_base]
    return ran + [entry for entry in of_base.values() if entry.step == step and entry.base not in noted]


def _listed(steps: set[int]) -> str:
    if not steps:
        return "no step"
    return ("steps " if len(steps) > 1 else "step ") + ", ".join(map(str, sorted(steps)))


# Whether two runs' compilers made the same of what they were given: their kernels, held against each other.

COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/|^[ \t]*#(?!include|pragma|define)[^\n]*", re.DOTALL | re.MULTILINE)
NAME = re.compile(r"\b(?:cpp|triton\w*?)_fused_\w+|\b(?:buf|arg|primals|tangents)_?\d\w*")


@dataclass(frozen=True, slots=True)
class PostChange:
    """`only_a` and `only_b` are the names of the kernels that the other side does not have."""

    only_a: Sequence[str]
    only_b: Sequence[str]

    def __bool__(self) -> bool:
        return bool(self.only_a or self.only_b)


def compare_post(a: Sequence[Graph], b: Sequence[Graph]) -> PostChange:
    """Compare kernels by what they do: the names of kernels, buffers and values, and comments, are nothing."""
    found_a, found_b = _kernels(a), _kernels(b)
    return PostChange(_beyond(found_a, found_b), _beyond(found_b, found_a))


def _kernels(graphs: Sequence[Graph]) -> list[tuple[Hashable, str]]:
    """What each kernel does, and its name: a generated one its source or its ops, a call into a library its op."""
    found: list[tuple[Hashable, str]] = []
    for graph in {graph.name: graph for graph in graphs}.values():
        for node in graph.nodes:
            body = tuple((one.domain, one.op) for one in node.body)
            does: Hashable = (node.phase, node.domain, body or node.op)
            # The code of a call into a library is only the call, with the names of this run's buffers in it.
            if node.code and node.domain == "inductor":
                does = (node.phase, _plain_code(node.code))
            found.append((does, node.op))
    return found


def _plain_code(code: str) -> str:
    """Generated code without comments and spaces, its names numbered in the order of their first use."""
    numbers: dict[str, str] = {}
    named = NAME.sub(lambda found: numbers.setdefault(found.group(), f"n{len(numbers)}"), COMMENT.sub("", code))
    return " ".join(named.split())


def _beyond(own: Sequence[tuple[Hashable, str]], others: Sequence[tuple[Hashable, str]]) -> list[str]:
    # As many of a kind as the other side has are paired off; two equal kernels against one leave one over.
    left = Counter(what for what, _ in others)
    names = []
    for what, name in own:
        left[what] -= 1
        if left[what] < 0:
            names.append(name)
    return names
