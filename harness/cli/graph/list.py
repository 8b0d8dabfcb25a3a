"""`numdrift graph list`: what a run recorded of its graphs."""

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
from ...records.graph_record import STAGES
from ..command_options import json_option, out_option, run_mode_option, target_argument
from ..output import console, table, write_json

SCHEMA = 1

TOTAL = "total_"
"""Begins the names of counters that are of the whole run."""

MOST_NOTES, LONGEST_NOTE = 12, 160

EXAMPLES = """\b
Examples:
  numdrift graph list runs/sam_tanh
  numdrift graph list runs/sam_tanh/lazy_main
  numdrift graph list runs/sam_tanh --mode compile --json -

\b
A row is a graph in a step: its stages with the nodes of each (`dynamo`, before the compiler `pre`, after it
`post`, or the `stream` of ops outside of compiled graphs), how often it ran in that step, and what ended it.
Steps that ran the same graphs in the same way share their rows.
"""


@dataclass(frozen=True, slots=True)
class GraphRow:
    """A graph in a step: `graph` is its name without a stage, `nodes` are counted by stage, `executed` says how often
    it ran in the step, `cuts` what ended it there, each with its number, and `seconds` what its compilation took in
    this step."""

    graph: str
    phase: str
    nodes: Mapping[str, int]
    hash: str
    executed: int
    cuts: Mapping[str, int]
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class StepRows:
    """The graphs of the steps from `first` to `last`, and what the mode's compiler counted in each of them."""

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
        write_json(json_path, {"schema": SCHEMA, "runs": [_record(one) for one in listed]})
    if json_path == "-":
        return 0
    shown = console()
    for number, graphs in enumerate(listed):
        shown.print("\n" * (number > 0) + f"{graphs.run.path} ({graphs.run.manifest.spec})", soft_wrap=True)
        _show(shown, graphs)
    without = [run.path.name for run in runs if all(run is not one.run for one in listed)]
    if without:
        shown.print(f"\nwithout graphs: {', '.join(without)}", soft_wrap=True)
    return 0


def steps_of(graphs: RunGraphs) -> list[StepRows]:
    """The rows of a run's graphs, step by step; like steps that follow each other are one."""
    # a step may have made graphs, run some, or only been counted in
    seen, ran = {one.step for one in graphs.entries}, {one.step for one in graphs.executions}
    rows: list[StepRows] = []
    for step in sorted(seen | ran | set(graphs.counters)):
        counted = graphs.counters.get(step, {})
        counters = {name: value for name, value in counted.items() if not name.startswith(TOTAL)}
        made = StepRows(step, step, list(_graphs_in(graphs, step)), counters)
        before = rows[-1] if rows else None
        alike = before is not None and (before.graphs, before.counters) == (made.graphs, made.counters)
        if before is not None and alike and before.last + 1 == step:
            rows[-1] = StepRows(before.first, step, made.graphs, counters)
        else:
            rows.append(made)
    return rows


def _graphs_in(graphs: RunGraphs, step: int) -> Iterator[GraphRow]:
    """The graphs that a step ran, in the order of their first run, then those that it only made."""
    ran = [one for one in graphs.executions if one.step == step]
    made = [one.base for one in graphs.entries if one.step == step]
    for base in dict.fromkeys([*(one.graph for one in ran), *made]):
        here = [one for one in ran if one.graph == base]
        # all stages of the graph, whichever step made them: a later step runs what an earlier one compiled
        stages = [one for one in graphs.entries if one.base == base]
        ordered = sorted(stages, key=lambda one: STAGES.index(one.stage) if one.stage in STAGES else len(STAGES))
        # dynamo captures forward and backward in one, so its phase and hash are not those of the graphs made of it
        split = [one for one in stages if one.stage != "dynamo"] or stages
        yield GraphRow(
            graph=base,
            phase=split[0].phase if split else "",
            nodes={one.stage: one.nodes for one in ordered},
            hash=next((one.hash for one in here if one.hash), split[0].hash if split else ""),
            executed=len(here),
            cuts=dict(Counter(_cut(one.cut) for one in here if one.cut)),
            seconds=next((one.seconds for one in stages if one.seconds is not None and one.step == step), None),
        )


def _cut(cut: Mapping[str, str]) -> str:
    """`fallback aten.lerp at train.py:31`."""
    source = (cut.get("source") or "").replace("\\", "/").rpartition("/")[2]
    words = [cut.get("reason") or "", cut.get("op") or "", f"at {source}" if source else ""]
    return " ".join(word for word in words if word)


def _show(out: Console, graphs: RunGraphs) -> None:
    """Print the rows, a sentence for each step, what was counted in the whole run, and what there is to be known."""
    rows = table("step", "graph", "phase", "stages", "nodes", "hash", ">ran", ">compiled in", "cut by")
    steps = steps_of(graphs)
    for step in steps:
        for number, one in enumerate(step.graphs):
            rows.add_row(
                _steps(step) if number == 0 else "",
                one.graph,
                one.phase,
                " → ".join(one.nodes) or "not captured",
                " → ".join(f"{count:,}" for count in one.nodes.values()),
                one.hash[:12],
                f"{one.executed}x" if one.executed else "-",
                "-" if one.seconds is None else f"{one.seconds:.2f} s",
                ", ".join(cut if count == 1 else f"{cut} ({count}x)" for cut, count in one.cuts.items()),
            )
    out.print(rows)
    # without a compiler a mode's graphs are only stretches of ops of one phase, and are not called graphs
    compiled = any(one.stage in ("dynamo", "post", "stream") for one in graphs.entries)
    compiles = compiled or bool(graphs.counters) or any(one.cut for one in graphs.executions)
    for step in steps:
        if any(one.executed for one in step.graphs) or step.counters:
            out.print(_sentence(step, compiles=compiles), soft_wrap=True)
    totals = _totals(graphs)
    if totals:
        out.print(f"whole run, with what numdrift reads: {_counters(totals)}", soft_wrap=True)
    notes = [f"{entry.name}: {note}" for entry in graphs.entries for note in entry.notes]
    if len(notes) > MOST_NOTES:
        notes[MOST_NOTES:] = [f"and {len(notes) - MOST_NOTES} more notes, which --json has"]
    for note in notes:
        out.print(f"  note: {textwrap.shorten(note, LONGEST_NOTE, placeholder=' …')}", soft_wrap=True)
    for stage, reason in graphs.unavailable:
        out.print(f"no {stage} graphs: {reason}", soft_wrap=True)


def _steps(step: StepRows) -> str:
    return str(step.first) if step.first == step.last else f"{step.first}-{step.last}"


def _sentence(step: StepRows, *, compiles: bool) -> str:
    """`step 0: 5 runs of 3 graphs and 2 stretches of ops outside of them; compiled 3, cached 2`."""
    ran = [one for one in step.graphs if one.executed]
    streams = sum(one.executed for one in ran if "stream" in one.nodes)
    of_graphs = [one.executed for one in ran if "stream" not in one.nodes]
    if compiles:
        said = [f"{_counted(sum(of_graphs), 'run')} of {_counted(len(of_graphs), 'graph')}"]
        said += [f"{_counted(streams, 'stretch', 'es')} of ops outside of them"] if streams else []
        runs = " and ".join(said)
    else:
        runs = f"runs op by op: {_counted(sum(of_graphs) + streams, 'stretch', 'es')}"
    several = step.first != step.last
    head = f"step{'s' if several else ''} {_steps(step)}: {runs}{' in each' if several else ''}"
    return "; ".join(part for part in (head, _counters(step.counters)) if part)


def _counted(count: int, what: str, plural: str = "s") -> str:
    return f"{count:,} {what}{'' if count == 1 else plural}"


def _counters(counters: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {value:,}" for name, value in counters.items())


def _totals(graphs: RunGraphs) -> dict[str, int]:
    """What was counted up to the end of the last step that says it."""
    for counted in reversed(list(graphs.counters.values())):
        found = {name.removeprefix(TOTAL): value for name, value in counted.items() if name.startswith(TOTAL)}
        if found:
            return found
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
