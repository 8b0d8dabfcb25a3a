"""Finds the recorded runs that a command names, and their graphs and metrics; removes runs."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from ..errors import GraphsNotFound, MetricsNotFound, NumdriftError, RunNotFound, UsageError, nearest
from ..graphs.run_graphs import GraphEntry, RunGraphs, graphs_of
from ..investigate.evidence.pair_evidence import EvidenceFolder
from ..records.results.findings import INVESTIGATION
from ..records.tools.graph_record import STAGES
from ..runs.recorded_run import RecordedRun, find_investigation, is_there, load_run, runs_in, runs_with_suffixes
from ..runs.run_layout import BATCH_PLOTS, EVIDENCE, MANIFEST, PAIR_PLOTS, InvestigationFolder
from ..tools.metrics.run_metrics import RunMetrics, metrics_of

Read = TypeVar("Read")

PREFERRED = ("pre", "stream", "dynamo", "post")
"""The stages of graphs in order of preference, used when no stage is requested."""

PLOTS = (*(f"*{kind}.*" for kind in BATCH_PLOTS), *(f"*_vs_*_{kind}.*" for kind in PAIR_PLOTS), "report.html")
"""The plots and the page of an investigation, which are removed together with its last run."""


def runs_meant(target: str | None, out: Path, mode: str | None = None) -> list[RecordedRun]:
    """Return the run in a folder, or the runs of an investigation (default: the newest) in this mode.

    Raises RunNotFound.
    """
    if target is not None and is_there(Path(target) / MANIFEST):
        runs = [load_run(target)]
    else:
        runs = runs_in(find_investigation(out, target))
    chosen = [run for run in runs if mode is None or mode in (run.manifest.mode, run.manifest.spec, run.path.name)]
    if mode is not None and not chosen:
        modes = dict.fromkeys(run.manifest.mode for run in runs)
        folder = runs[0].path if len(runs) == 1 else runs[0].path.parent
        raise RunNotFound(f"{folder} has no run of mode {mode!r}: {nearest(mode, modes)}")
    return chosen


def metrics_of_runs(runs: Sequence[RecordedRun]) -> list[RunMetrics]:
    """Return the metrics of those runs that recorded metrics. Raises MetricsNotFound if none did."""
    return _records_of(runs, metrics_of, MetricsNotFound)


def graphs_of_runs(runs: Sequence[RecordedRun]) -> list[RunGraphs]:
    """Return the graphs of those runs that recorded graphs. Raises GraphsNotFound if none did."""
    return _records_of(runs, graphs_of, GraphsNotFound)


def _records_of(
    runs: Sequence[RecordedRun], read: Callable[[RecordedRun], Read], lacking: type[NumdriftError]
) -> list[Read]:
    records = []
    for run in runs:
        with suppress(lacking):
            records.append(read(run))
    return records or [read(runs[0])]  # raises, with the remedy


def graphs_of_only_run(target: str | None, out: Path, mode: str | None) -> RunGraphs:
    """Return the graphs of the run that `target` names. Raises UsageError if it names several runs with graphs."""
    with_graphs = graphs_of_runs(runs_meant(target, out, mode))
    if len(with_graphs) > 1:
        modes = list(dict.fromkeys(graphs.run.manifest.mode for graphs in with_graphs))
        if len(modes) == len(with_graphs):
            raise UsageError(
                f"{with_graphs[0].run.path.parent} has graphs of {', '.join(modes)}: choose one with --mode"
            )
        paths = ", ".join(str(graphs.run.path) for graphs in with_graphs)
        raise UsageError(f"several runs have graphs; name one of them: {paths}")
    return with_graphs[0]


def choose_graph(
    graphs: RunGraphs, *, name: str | None, step: int | None, phase: str | None, stage: str | None
) -> list[GraphEntry]:
    """Return the graph of this name, or all graphs of this step, phase and stage. The first one is the chosen graph.

    The defaults are the first step, the forward, and the pre-compilation stage, if the run has them.
    Raises GraphsNotFound if there is no such graph.
    """
    order = (*PREFERRED, *STAGES)

    def preference(stage: str) -> int:
        return order.index(stage) if stage in order else len(order)

    if name is not None:  # the name may include the stage
        entries_by_name = {entry.name: entry for entry in graphs.entries}
        if name in entries_by_name:
            if stage not in (None, entries_by_name[name].stage):
                raise UsageError(
                    f"{name} is a {entries_by_name[name].stage} graph, not a {stage} one: leave out --{stage}"
                )
            return [entries_by_name[name]]
        stages = {entry.stage: entry for entry in graphs.entries if entry.base == name}
        if stage is not None and stages and stage not in stages:
            raise GraphsNotFound(f"{graphs.run.path} has no {stage} graph of {name}: {nearest(stage, stages)}")
        if stages:
            return [stages[stage or min(stages, key=preference)]]
        raise GraphsNotFound(f"{graphs.run.path} has no graph {name!r}: {nearest(name, entries_by_name)}")
    # A graph's entry states the step that captured the graph. A later step that executes the graph counts as well.
    ran = {execution.graph for execution in graphs.executions if execution.step == step}
    entries = [entry for entry in graphs.select(phase=phase, stage=stage) if entry.base in ran or entry.step == step]
    if step is None or not entries:
        entries = graphs.select(step=step, phase=phase, stage=stage)
    # Each criterion below is dropped if it would leave no graph. A lazy graph that ran only because a value was read is
    # not part of the training.
    reasons: dict[str, set[str]] = {}
    for execution in graphs.executions:
        reasons.setdefault(execution.graph, set()).add((execution.cut or {}).get("reason", ""))
    entries = [entry for entry in entries if reasons.get(entry.base) != {"read"}] or entries
    if phase is not None:
        entries = [entry for entry in entries if entry.phase == phase] or entries
    else:
        entries = [entry for entry in entries if "forward" in entry.phase.split("+")] or entries
    if stage is None:
        chosen_stage = min((entry.stage for entry in entries), key=preference)
        entries = [entry for entry in entries if entry.stage == chosen_stage]
    if step is None:
        entries = [entry for entry in entries if entry.step == min(graph.step for graph in entries)]
    return entries


def graphs_to_compare(paths: Sequence[str], modes: str | None, out: Path) -> list[tuple[RunGraphs, RunGraphs]]:
    """Return the pairs of graphs to compare.

    The two sides of a pair are two runs, two modes, or the first run of a batch and a later run of the same batch.
    Raises UsageError, RunNotFound and GraphsNotFound.
    """
    if len(paths) > 2:
        raise UsageError("graph diff takes two runs or one investigation")
    if len(paths) == 2:
        if modes is not None:
            raise UsageError("--modes applies to an investigation, not to two runs")
        return [(graphs_of(load_run(paths[0])), graphs_of(load_run(paths[1])))]
    named = paths[0] if paths else None
    if named is not None and is_there(Path(named) / MANIFEST):
        raise UsageError(f"{named} is one run; name a second one, or the investigation {Path(named).parent}")
    if modes is not None:
        chosen = [mode.strip() for mode in modes.split(",")]
        if len(chosen) != 2 or not all(chosen):
            raise UsageError(f"--modes takes two modes, as in lazy,compile, not {modes!r}")
        sides = [runs_meant(named, out, mode) for mode in chosen]
        a, b = ({run.manifest.suffix: run for run in runs} for runs in sides)
        # the newest batch that has both modes; without such a batch, the newest run of each mode
        common = [suffix for suffix in a if suffix in b]
        pair = (a[common[-1]], b[common[-1]]) if common else (sides[0][-1], sides[1][-1])
        return [(graphs_of(pair[0]), graphs_of(pair[1]))]
    runs = runs_meant(named, out)
    with_graphs = graphs_of_runs(runs)
    batches: dict[str, list[RunGraphs]] = {}
    for graphs in with_graphs:
        batches.setdefault(graphs.run.manifest.suffix, []).append(graphs)
    pairs = [(batch[0], later) for batch in batches.values() for later in batch[1:]]
    pairs = pairs or [(with_graphs[0], later) for later in with_graphs[1:]]
    if not pairs:
        for run in runs:
            graphs_of(run)  # raises if another run exists that recorded no graphs
        raise UsageError(f"{runs[0].path.parent} has only one run, so there is nothing to compare; run another mode")
    return pairs


def runs_to_remove(target: str, suffix: str | None, out: Path) -> tuple[Path, list[RecordedRun]]:
    """Return the investigation's folder, and the runs to remove: one, a batch or all. Raises UsageError for a run that
    is still running."""
    if (Path(target) / MANIFEST).exists():
        folder, runs = Path(target).parent, [load_run(Path(target))]
    else:
        folder = find_investigation(out, target)
        runs = runs_with_suffixes(folder, [suffix] if suffix is not None else [])
    for run in runs:
        if run.manifest.status == "running":
            raise UsageError(f"{run.path} is still running; stop it first")
    return folder, runs


def remove(folder: Path, runs: Sequence[RecordedRun]) -> None:
    """Remove runs with their files. If no run remains, also remove the investigation's findings and plots."""
    for run in runs:
        for path in EvidenceFolder.of(run).belonging_to(run):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        shutil.rmtree(run.path)
        InvestigationFolder(folder).run(run.manifest.mode, run.manifest.suffix).pickle.unlink(missing_ok=True)
    if not runs_in(folder):
        shutil.rmtree(folder / EVIDENCE, ignore_errors=True)
        (folder / INVESTIGATION).unlink(missing_ok=True)
        for plot in [path for pattern in PLOTS for path in folder.glob(pattern)]:
            plot.unlink(missing_ok=True)
        with suppress(OSError):  # a folder that contains other files stays
            folder.rmdir()
