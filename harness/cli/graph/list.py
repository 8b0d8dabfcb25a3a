"""`numdrift graph list`: lists the graphs that runs recorded."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import click
from rich.console import Console

from ...api.chosen_runs import graphs_of_runs, runs_meant
from ...graphs.run_graphs import RunGraphs
from ...records.tools.graph_record import STAGES
from ..command_options import json_option, out_option, run_mode_option, target_argument
from ..output import console, table, write_json

SCHEMA = 1

TOTAL = "total_"
"""The prefix in the names of counters that cover the whole run."""

MOST_NOTES, LONGEST_NOTE = 12, 160

EXAMPLES = """\b
Examples:
  numdrift graph list runs/sam_tanh
  numdrift graph list runs/sam_tanh/lazy_main
  numdrift graph list runs/sam_tanh --mode compile --json -

\b
Each row shows one graph in a step: its stages, the number of nodes at each stage, how often the graph ran in that
step, and what ended it. The stages are `dynamo` (as captured), `pre` (before the compiler), `post` (after the
compiler) and `stream` (ops outside of compiled graphs). Steps that ran the same graphs in the same way share their
rows.
"""


@dataclass(frozen=True, slots=True)
class GraphRow:
    """A graph in a step.

    graph: its name without a stage
    nodes: the number of its nodes, by stage
    executed: how often it ran in the step
    cuts: how often each reason ended the graph in the step
    seconds: how long its compilation in the step took
    """

    graph: str
    phase: str
    nodes: Mapping[str, int]
    hash: str
    executed: int
    cuts: Mapping[str, int]
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class StepRows:
    """The graphs of the steps from `first` to `last`, and the counters of the mode's compiler in each of them."""

    first: int
    last: int
    graphs: Sequence[GraphRow]
    counters: Mapping[str, int]


@click.command(
    epilog=EXAMPLES, help="List the graphs of a run, or of every run of an investigation (default: the newest)."
)
@target_argument
@run_mode_option
@out_option
@json_option
def command(target: str | None, mode: str | None, out: Path, json_path: str | None) -> int:
    runs = runs_meant(target, out, mode)
    listed = graphs_of_runs(runs)
    if json_path:
        write_json(json_path, {"schema": SCHEMA, "runs": [_record(graphs) for graphs in listed]})
    if json_path == "-":
        return 0
    shown = console()
    for number, graphs in enumerate(listed):
        shown.print("\n" * (number > 0) + f"{graphs.run.path} ({graphs.run.manifest.spec})", soft_wrap=True)
        _show(shown, graphs)
    without = [run.path.name for run in runs if all(run is not graphs.run for graphs in listed)]
    if without:
        shown.print(f"\nwithout graphs: {', '.join(without)}", soft_wrap=True)
    return 0


def steps_of(graphs: RunGraphs) -> list[StepRows]:
    """Return the rows of a run's graphs by step. Consecutive steps with equal rows and counters become one entry."""
    # a step may have made graphs, executed graphs, or have only counters
    steps_of_entries, ran = {record.step for record in graphs.entries}, {record.step for record in graphs.executions}
    rows: list[StepRows] = []
    for step in sorted(steps_of_entries | ran | set(graphs.counters)):
        counted = graphs.counters.get(step, {})
        counters = {name: value for name, value in counted.items() if not name.startswith(TOTAL)}
        row = StepRows(step, step, list(_graphs_in(graphs, step)), counters)
        previous = rows[-1] if rows else None
        alike = previous is not None and (previous.graphs, previous.counters) == (row.graphs, row.counters)
        if previous is not None and alike and previous.last + 1 == step:
            rows[-1] = StepRows(previous.first, step, row.graphs, counters)
        else:
            rows.append(row)
    return rows


def _graphs_in(graphs: RunGraphs, step: int) -> Iterator[GraphRow]:
    """Yield the graphs that a step ran, in the order of their first run, then those that it only made."""
    executions = [execution for execution in graphs.executions if execution.step == step]
    made_bases = [entry.base for entry in graphs.entries if entry.step == step]
    for base in dict.fromkeys([*(execution.graph for execution in executions), *made_bases]):
        own_executions = [execution for execution in executions if execution.graph == base]
        # the graph's stages are taken from all steps, since a step may run a graph that an earlier step compiled
        stages = [entry for entry in graphs.entries if entry.base == base]
        ordered = sorted(stages, key=lambda entry: STAGES.index(entry.stage) if entry.stage in STAGES else len(STAGES))
        # dynamo captures forward and backward as one graph. The graphs made from that graph have their own phases and
        # hashes.
        split = [entry for entry in stages if entry.stage != "dynamo"] or stages
        yield GraphRow(
            graph=base,
            phase=split[0].phase if split else "",
            nodes={entry.stage: entry.nodes for entry in ordered},
            hash=next(
                (execution.hash for execution in own_executions if execution.hash), split[0].hash if split else ""
            ),
            executed=len(own_executions),
            cuts=dict(Counter(_cut(execution.cut) for execution in own_executions if execution.cut)),
            seconds=next((entry.seconds for entry in stages if entry.seconds is not None and entry.step == step), None),
        )


def _cut(cut: Mapping[str, str]) -> str:
    """Return a cut as text, such as `fallback aten.lerp at train.py:31`."""
    source = (cut.get("source") or "").replace("\\", "/").rpartition("/")[2]
    words = [cut.get("reason") or "", cut.get("op") or "", f"at {source}" if source else ""]
    return " ".join(word for word in words if word)


def _show(out: Console, graphs: RunGraphs) -> None:
    """Print the rows, a sentence for each step, the counters of the whole run, and the notes."""
    rows = table("step", "graph", "phase", "stages", "nodes", "hash", ">ran", ">compiled in", "cut by")
    steps = steps_of(graphs)
    for step in steps:
        for number, row in enumerate(step.graphs):
            rows.add_row(
                _steps(step) if number == 0 else "",
                row.graph,
                row.phase,
                " → ".join(row.nodes) or "not captured",
                " → ".join(f"{count:,}" for count in row.nodes.values()),
                row.hash[:12],
                f"{row.executed}x" if row.executed else "-",
                "-" if row.seconds is None else f"{row.seconds:.2f} s",
                ", ".join(cut if count == 1 else f"{cut} ({count}x)" for cut, count in row.cuts.items()),
            )
    out.print(rows)
    # without a compiler, a mode's graph is only a sequence of ops within one phase, and is reported as a stretch
    compiled = any(entry.stage in ("dynamo", "post", "stream") for entry in graphs.entries)
    compiles = compiled or bool(graphs.counters) or any(execution.cut for execution in graphs.executions)
    for step in steps:
        if any(row.executed for row in step.graphs) or step.counters:
            out.print(_sentence(step, compiles=compiles), soft_wrap=True)
    totals = _totals(graphs)
    if totals:
        out.print(f"whole run, including numdrift's own reads: {_counters(totals)}", soft_wrap=True)
    notes = [f"{entry.name}: {note}" for entry in graphs.entries for note in entry.notes]
    if len(notes) > MOST_NOTES:
        notes[MOST_NOTES:] = [f"and {len(notes) - MOST_NOTES} more notes (--json has all)"]
    for note in notes:
        out.print(f"  note: {textwrap.shorten(note, LONGEST_NOTE, placeholder=' …')}", soft_wrap=True)
    for stage, reason in graphs.unavailable:
        out.print(f"no {stage} graphs: {reason}", soft_wrap=True)


def _steps(step: StepRows) -> str:
    return str(step.first) if step.first == step.last else f"{step.first}-{step.last}"


def _sentence(step: StepRows, *, compiles: bool) -> str:
    """Return a sentence about the graphs of a step.

    For example: `step 0: 5 runs of 3 graphs and 2 stretches of ops outside of them; compiled 3, cached 2`.
    """
    ran = [row for row in step.graphs if row.executed]
    streams = sum(row.executed for row in ran if "stream" in row.nodes)
    of_graphs = [row.executed for row in ran if "stream" not in row.nodes]
    if compiles:
        phrases = [f"{_counted(sum(of_graphs), 'run')} of {_counted(len(of_graphs), 'graph')}"]
        phrases += [f"{_counted(streams, 'stretch', 'es')} of ops outside of them"] if streams else []
        runs = " and ".join(phrases)
    else:
        runs = f"runs op by op: {_counted(sum(of_graphs) + streams, 'stretch', 'es')}"
    several = step.first != step.last
    head = f"step{'s' if several else ''} {_steps(step)}: {runs}{' in each' if several else ''}"
    return "; ".join(part for part in (head, _counters(step.counters)) if part)


def _counted(count: int, noun: str, plural: str = "s") -> str:
    return f"{count:,} {noun}{'' if count == 1 else plural}"


def _counters(counters: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {value:,}" for name, value in counters.items())


def _totals(graphs: RunGraphs) -> dict[str, int]:
    """Return the counters of the whole run, as of the last step that has them."""
    for counted in reversed(list(graphs.counters.values())):
        totals = {name.removeprefix(TOTAL): value for name, value in counted.items() if name.startswith(TOTAL)}
        if totals:
            return totals
    return {}


def _record(graphs: RunGraphs) -> dict[str, object]:
    return {
        "path": str(graphs.run.path),
        "mode": graphs.run.manifest.mode,
        "spec": graphs.run.manifest.spec,
        "steps": [asdict(step) for step in steps_of(graphs)],
        "totals": _totals(graphs),
        "graphs": [asdict(entry) for entry in graphs.entries],
        "unavailable": [{"stage": stage, "reason": reason} for stage, reason in graphs.unavailable],
    }
