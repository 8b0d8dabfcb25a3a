"""Which run, and which of its graphs, the arguments of a command mean."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import click

from ...errors import GraphsNotFound, RunNotFound, UsageError, nearest
from ...graphs.run_graphs import GraphEntry, RunGraphs, graphs_of
from ...records.graph_record import STAGES
from ...runs.recorded_run import RecordedRun, find_investigation, is_there, load_run, runs_in
from ...runs.run_layout import MANIFEST
from ..output import console

PREFERRED = ("pre", "stream", "dynamo", "post")
"""Stages in the order in which one is taken where none is asked for."""

target_argument = click.argument("target", metavar="[RUN | INVESTIGATION]", required=False)
mode_option = click.option("--mode", metavar="MODE", help="The mode's run, of an investigation.")


def recorded_runs(target: str | None, out: Path, mode: str | None = None) -> list[RecordedRun]:
    """The run in a folder, or the runs of an investigation, by default the newest one, in that mode.

    Raises RunNotFound.
    """
    if target is not None and is_there(Path(target) / MANIFEST):
        runs = [load_run(target)]
    else:
        runs = runs_in(find_investigation(out, target))
    found = [run for run in runs if mode is None or mode in (run.manifest.mode, run.manifest.spec, run.path.name)]
    if mode is not None and not found:
        known = dict.fromkeys(run.manifest.mode for run in runs)
        where = runs[0].path if len(runs) == 1 else runs[0].path.parent
        raise RunNotFound(f"{where} has no run of mode {mode!r}: {nearest(mode, known)}")
    return found


def graphs_of_one(target: str | None, out: Path, mode: str | None) -> RunGraphs:
    """The graphs of the one run that is meant. Raises UsageError where several runs recorded graphs."""
    runs = recorded_runs(target, out, mode)
    having = []
    for run in runs:
        with suppress(GraphsNotFound):
            having.append(graphs_of(run))
    if not having:
        return graphs_of(runs[0])
    if len(having) > 1:
        modes = list(dict.fromkeys(one.run.manifest.mode for one in having))
        if len(modes) == len(having):
            raise UsageError(f"{runs[0].path.parent} has graphs of {', '.join(modes)}: choose one with --mode")
        paths = ", ".join(str(one.run.path) for one in having)
        raise UsageError(f"several runs have graphs; name one of them: {paths}")
    return having[0]


def choose_graph(
    graphs: RunGraphs, *, name: str | None, step: int | None, phase: str | None, stage: str | None
) -> GraphEntry:
    """The graph of that name, or the one of this step, phase and stage.

    What is not asked for is the first step, the forward, and the stage before the compiler, where the run has them. Of
    several it is the first, and standard error names the others. Raises GraphsNotFound for what is not there.
    """
    if name is not None:
        return _named(graphs, name, stage)
    ran = {one.graph for one in graphs.executions if one.step == step}
    found = [one for one in graphs.select(phase=phase, stage=stage) if one.base in ran or one.step == step]
    if step is None or not found:
        found = graphs.select(step=step, phase=phase, stage=stage)
    read = _only_read(graphs)
    found = [one for one in found if one.base not in read] or found
    if phase is not None:
        found = [one for one in found if one.phase == phase] or found
    else:
        found = [one for one in found if "forward" in one.phase.split("+")] or found
    if stage is None:
        first = min((one.stage for one in found), key=_preference)
        found = [one for one in found if one.stage == first]
    if step is None:
        found = [one for one in found if one.step == min(one.step for one in found)]
    if len(found) > 1:
        others = ", ".join(f"{one.name} ({one.nodes:,} nodes)" for one in found[1:])
        console(stderr=True).print(
            f"This is {found[0].name}, the first of {len(found)} such graphs; the others by --graph: {others}",
            soft_wrap=True,
        )
    return found[0]


def _only_read(graphs: RunGraphs) -> set[str]:
    """Names, without a stage, of the lazy graphs that ran only because a value was read."""
    reasons: dict[str, set[str]] = {}
    for one in graphs.executions:
        reasons.setdefault(one.graph, set()).add((one.cut or {}).get("reason", ""))
    return {name for name, found in reasons.items() if found == {"read"}}


def _named(graphs: RunGraphs, name: str, stage: str | None) -> GraphEntry:
    """The graph of a full name, or of a name without its stage."""
    whole = {one.name: one for one in graphs.entries}
    if name in whole:
        if stage not in (None, whole[name].stage):
            raise UsageError(f"{name} is a {whole[name].stage} graph, not a {stage} one: leave out --{stage}")
        return whole[name]
    stages = {one.stage: one for one in graphs.entries if one.base == name}
    if stage is not None and stages and stage not in stages:
        raise GraphsNotFound(f"{graphs.run.path} has no {stage} graph of {name}: {nearest(stage, stages)}")
    if stages:
        return stages[stage or min(stages, key=_preference)]
    raise GraphsNotFound(f"{graphs.run.path} has no graph {name!r}: {nearest(name, whole)}")


def _preference(stage: str) -> int:
    order = (*PREFERRED, *STAGES)
    return order.index(stage) if stage in order else len(order)
