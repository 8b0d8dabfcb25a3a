"""The graphs that one step of a run executed, one entry per execution, in the same order for all modes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass
from functools import cache

from ...errors import GraphsNotFound
from ...records.tools.graph_record import Graph
from ..run_graphs import GraphEntry, GraphExecution, RunGraphs
from .difference_record import Side, phase_place

OPS = ("pre", "stream")


@dataclass(frozen=True, slots=True)
class Executed:
    """A graph that ran.

    `turn` is the number of earlier forwards in the step: SAM's second forward, and the graphs after it, have turn 1.
    """

    graph: Graph
    turn: int


@dataclass(frozen=True, slots=True)
class ExecutedStep:
    """The graphs that a side executed in one step.

    ops: graphs of the stages `pre` and `stream`
    post: the compiled graphs
    streams: the names, without stage, of graphs that ran outside compiled regions
    """

    step: int
    ops: Sequence[Executed]
    post: Sequence[Graph]
    executions: Sequence[GraphExecution]
    streams: Collection[str]

    def side(self, graphs: RunGraphs) -> Side:
        known_cuts = [execution.cut for execution in self.executions if execution.cut]
        cuts = Counter(" ".join(filter(None, (cut["reason"], cut.get("op", "")))) for cut in known_cuts)
        pre = [executed for executed in self.ops if executed.graph.stage == "pre"]
        kernels = [node for graph in self.post for node in graph.nodes]
        return Side(
            run=str(graphs.run.path),
            mode=graphs.run.manifest.mode,
            step=self.step,
            graphs=tuple(dict.fromkeys(executed.graph.name for executed in self.ops)),
            post_graphs=tuple(dict.fromkeys(graph.name for graph in self.post)),
            graphs_in_step=sum(execution.graph not in self.streams for execution in self.executions) or len(pre),
            cuts=dict(sorted(cuts.items(), key=lambda item: (-item[1], item[0]))),
            nodes=sum(len(executed.graph.nodes) for executed in self.ops),
            kernels=len(kernels),
            compiles=bool(self.post or cuts or graphs.counters),
        )


def common_step(a: RunGraphs, b: RunGraphs) -> int:
    """Return the lowest step that both sides executed. Raises GraphsNotFound."""
    steps_a, steps_b = steps_of(a), steps_of(b)
    if common := steps_a & steps_b:
        return min(common)
    raise GraphsNotFound(
        f"{a.run.path} has graphs of {_listed(steps_a)}, and {b.run.path} has graphs of {_listed(steps_b)}: "
        "record both with the same --graph-steps"
    )


def steps_of(graphs: RunGraphs) -> set[int]:
    """Return the steps in which graphs of ops were captured or executed."""
    bases = {entry.base for entry in graphs.entries if entry.stage in OPS}
    return {entry.step for entry in graphs.entries if entry.stage in OPS} | {
        execution.step for execution in graphs.executions if execution.graph in bases
    }


def executed_step(graphs: RunGraphs, step: int) -> ExecutedStep:
    """Read the graphs that a step executed. Raises GraphsNotFound, which names the steps that exist."""
    if step not in steps_of(graphs):
        raise GraphsNotFound(
            f"{graphs.run.path} has no graph of step {step}: it has graphs of {_listed(steps_of(graphs))}"
        )
    executions = [execution for execution in graphs.executions if execution.step == step]
    read = cache(graphs.graph)
    ops: list[Executed] = []
    for stage in OPS:
        # A forward after another phase begins a new turn: SAM's second forward, or a second micro-batch.
        turn, behind = 0, False
        for entry in _run(graphs, step, stage, executions):
            graph = read(entry.name)
            forward = "forward" in graph.phases
            if forward and behind:
                turn, behind = turn + 1, False
            behind = behind or not forward or len(graph.phases) > 1
            ops.append(Executed(graph, turn))
    # Streams and compiled graphs are recorded separately; within a turn they are ordered by phase.
    ops.sort(key=lambda executed: (executed.turn, phase_place(next(iter(executed.graph.phases), ""))))
    post = [read(entry.name) for entry in _run(graphs, step, "post", executions)]
    streams = {entry.base for entry in graphs.entries if entry.stage == "stream"}
    return ExecutedStep(step, ops, post, executions, streams)


def _run(graphs: RunGraphs, step: int, stage: str, executions: Sequence[GraphExecution]) -> list[GraphEntry]:
    """Return the graphs of a stage, once per execution; a graph without recorded executions appears once."""
    of_base = {entry.base: entry for entry in graphs.entries if entry.stage == stage}
    executed_bases = {execution.graph for execution in graphs.executions}
    ran = [of_base[execution.graph] for execution in executions if execution.graph in of_base]
    return ran + [entry for entry in of_base.values() if entry.step == step and entry.base not in executed_bases]


def _listed(steps: set[int]) -> str:
    if not steps:
        return "no step"
    return ("steps " if len(steps) > 1 else "step ") + ", ".join(map(str, sorted(steps)))


# The comparison of the kernels that two runs' compilers made.

COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/|^[ \t]*#(?!include|pragma|define)[^\n]*", re.DOTALL | re.MULTILINE)
NAME = re.compile(r"\b(?:cpp|triton\w*?)_fused_\w+|\b(?:buf|arg|primals|tangents)_?\d\w*")


@dataclass(frozen=True, slots=True)
class PostChange:
    """The difference between two sides' kernels; `only_a` and `only_b` name the kernels that the other side lacks."""

    only_a: Sequence[str]
    only_b: Sequence[str]

    def __bool__(self) -> bool:
        return bool(self.only_a or self.only_b)


def compare_post(a: Sequence[Graph], b: Sequence[Graph]) -> PostChange:
    """Compare kernels by their work, ignoring comments and the names of kernels, buffers and values."""
    kernels_a, kernels_b = _kernels(a), _kernels(b)
    return PostChange(_beyond(kernels_a, kernels_b), _beyond(kernels_b, kernels_a))


def _kernels(graphs: Sequence[Graph]) -> list[tuple[Hashable, str]]:
    """Return the work and the name of each kernel.

    The work of a generated kernel is its source or its ops. The work of a library call is its op.
    """
    kernels: list[tuple[Hashable, str]] = []
    for graph in {graph.name: graph for graph in graphs}.values():
        for node in graph.nodes:
            body = tuple((inner.domain, inner.op) for inner in node.body)
            does: Hashable = (node.phase, node.domain, body or node.op)
            # The code of a library call is only the call, with this run's buffer names in it.
            if node.code and node.domain == "inductor":
                does = (node.phase, _plain_code(node.code))
            kernels.append((does, node.op))
    return kernels


def _plain_code(code: str) -> str:
    """Return generated code without comments, with single spaces, and with names numbered in order of first use."""
    numbers: dict[str, str] = {}
    named = NAME.sub(
        lambda name_match: numbers.setdefault(name_match.group(), f"n{len(numbers)}"), COMMENT.sub("", code)
    )
    return " ".join(named.split())


def _beyond(own: Sequence[tuple[Hashable, str]], others: Sequence[tuple[Hashable, str]]) -> list[str]:
    # Equal kernels are matched one to one: two equal kernels against one leave one over.
    left = Counter(what for what, _ in others)
    names = []
    for what, name in own:
        left[what] -= 1
        if left[what] < 0:
            names.append(name)
    return names
